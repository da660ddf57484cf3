//! Frames of an AMQP server, and the properties of its messages: the first options are the sizes of the
//! largest frame and of the payload that is kept, and the pieces in which the bytes arrive.

use thalweg_amqp::fuzzing::{events, header};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "amqp_frames",
    components: &["amqp"],
    longest: 16 << 10,
    words: &[
        "\u{1}\u{0}\u{1}\u{0}\u{0}\u{0}",
        "\u{2}\u{0}\u{1}\u{0}\u{0}\u{0}\u{e}\u{0}\u{3c}\u{0}\u{0}",
        "\u{3}\u{0}\u{1}\u{0}\u{0}\u{0}\u{1}x",
        "\u{8}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}",
        "\u{0}\u{3c}\u{0}\u{3c}",
        "\u{0}\u{3c}\u{0}\u{50}",
        "\u{1}kS\u{0}\u{0}\u{0}\u{1}v",
        "\u{1}kA\u{0}\u{0}\u{0}\u{1}V",
        "\u{1}kF\u{0}\u{0}\u{0}\u{4}\u{1}at\u{1}",
    ],
    run,
};

/// The sizes of the largest frame, in bytes.
const FRAMES: [usize; 3] = [128 << 10, 4096, 20];
/// The sizes of payloads that are kept, in bytes.
const PAYLOADS: [usize; 3] = [1 << 20, 10, 0];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let frame = FRAMES[input.choice(FRAMES.len())];
    let payload = PAYLOADS[input.choice(PAYLOADS.len())];
    let piece = 1 + input.choice(20);
    let bytes = input.0;
    let all = bytes.len().max(1);
    let at_once = bounded((1 << 20) + 20 * all, || events(bytes, all, frame, payload));
    let in_pieces = bounded((1 << 20) + 20 * all, || events(bytes, piece, frame, payload));
    assert_eq!(at_once, in_pieces, "the pieces matter");
    // Flags that promise headers, so that these bytes are a table.
    let properties = [&[0x20, 0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat();
    let text = bounded((1 << 20) + 40 * all, || header(&properties, "k"));
    assert!(text.is_none_or(|text| text.len() <= 8 * all), "a header is much longer than its bytes");
}
