//! Packets of an MQTT server: the first options are the version, the limit of a packet, and the pieces in
//! which the bytes arrive.

use thalweg_mqtt::fuzzing::packets;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "mqtt_packets",
    components: &["mqtt"],
    longest: 16 << 10,
    words: &[
        "\u{20}\u{3}\u{0}\u{0}\u{0}",
        "\u{30}\u{7}\u{0}\u{3}a/bxy",
        "\u{32}\u{8}\u{0}\u{1}a\u{0}\u{1}\u{0}xy",
        "\u{40}\u{2}\u{0}\u{1}",
        "\u{62}\u{2}\u{0}\u{1}",
        "\u{26}\u{0}\u{1}k\u{0}\u{1}v",
        "\u{1f}\u{0}\u{2}no",
        "\u{7f}",
    ],
    run,
};

/// The limits of a packet, in bytes.
const LIMITS: [usize; 4] = [1 << 20, 100, 10, 1];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let is_version_5 = input.choice(2) == 0;
    let limit = LIMITS[input.choice(LIMITS.len())];
    let piece = 1 + input.choice(20);
    let bytes = input.0;
    let all = bytes.len().max(1);
    let at_once = bounded((1 << 20) + 20 * all, || packets(bytes, all, limit, is_version_5));
    let in_pieces = bounded((1 << 20) + 20 * all, || packets(bytes, piece, limit, is_version_5));
    assert_eq!(at_once, in_pieces, "the pieces matter");
}
