//! The replies of a Redis server, which arrive in pieces of any size.

use thalweg_redis::decoded;

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "redis",
    components: &["redis"],
    longest: 4 << 10,
    words: &[
        "\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*1\r\n",
        "$3\r\nabc\r\n",
        ":1\r\n",
        "+OK\r\n",
        "-ERR x\r\n",
        "*2147483647\r\n",
        "$9223372036854775807\r\n",
    ],
    run,
};

/// The bytes that are kept of a text, and of a reply.
const LIMITS: [(usize, usize); 3] = [(1 << 20, 1 << 20), (8, 400), (0, 0)];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (text, all) = LIMITS[input.choice(LIMITS.len())];
    let seed = input.choice(256);
    // A value takes up to 80 times the bytes that it has: an empty list in a list.
    let room = (64 << 10) + 400 * bytes.len();
    let whole = bounded(room, || decoded(&[input.0], text, all));
    let cut = bounded(room, || decoded(&pieces(input.0, seed), text, all));
    assert_eq!(whole, cut);
}
