//! The lines and messages of a NATS server: the first options are the most bytes of a payload that are kept,
//! and the pieces in which the bytes arrive.

use thalweg_nats::fuzzing::operations;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "nats_operations",
    components: &["nats"],
    longest: 16 << 10,
    words: &[
        "INFO {\"nonce\":\"n\",\"connect_urls\":[\"a:1\"]}\r\n",
        "MSG a 1 2\r\nxy\r\n",
        "MSG a 1 r 0\r\n\r\n",
        "HMSG a 1 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n",
        "HMSG a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        "MSG a 1 2147483647\r\n",
        "PING\r\n",
        "+OK\r\n",
        "-ERR 'no'\r\n",
    ],
    run,
};

/// The most bytes of a payload that are kept.
const LIMITS: [usize; 4] = [usize::MAX, 100, 10, 0];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let limit = LIMITS[input.choice(LIMITS.len())];
    let piece = 1 + input.choice(20);
    let bytes = input.0;
    let all = bytes.len().max(1);
    let at_once = bounded((1 << 20) + 20 * all, || operations(bytes, all, limit));
    let in_pieces = bounded((1 << 20) + 20 * all, || operations(bytes, piece, limit));
    assert_eq!(at_once, in_pieces, "the pieces matter");
}
