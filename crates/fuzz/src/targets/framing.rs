//! Messages in a stream, cut in pieces: by delimiters, by lengths, by start patterns, and those of syslog.

use std::sync::LazyLock;

use thalweg_codec::stream_framing::{StreamCutter, StreamFraming};
use thalweg_codec::testing;
use thalweg_config::ByteSize;
use thalweg_config::testing::options;

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "framing",
    components: &["socket", "proxy", "file", "stdin", "pipe", "exec", "lines"],
    longest: 16 << 10,
    words: &["\r\n", "--", "12 ", "3:", "\0\0\0\u{3}", "2024-"],
    run,
};

static FRAMINGS: LazyLock<Vec<StreamFraming>> = LazyLock::new(|| {
    let all = [
        "{}",
        "{ delimiter: '--' }",
        "{ start_pattern: '^\\d' }",
        "{ by: ascii, delimiter: ':' }",
        "{ by: ascii, offset: 2, delimiter: ' ', whole: true }",
        "{ by: binary_be }",
        "{ by: binary_le, size: 2, offset: 1 }",
        "{ by: binary_be, size: 8, whole: true }",
        "{ by: fixed, size: 5 }",
        "{ by: gelf }",
        "{ by: journal }",
        "{ delimiter: \"\\n\", whole: true }",
    ];
    all.map(options).into()
});

/// The limit of a message.
const LIMIT: usize = 100;

/// The cutters that are no [`StreamFraming`].
const OTHERS: usize = 2;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(FRAMINGS.len() + OTHERS);
    let seed = input.choice(256);
    let whole = bounded((1 << 20) + 100 * bytes.len(), || cut(choice, &[input.0]));
    assert_eq!(cut(choice, &pieces(input.0, seed)), whole, "the messages of a stream in pieces");
}

fn begin(choice: usize) -> StreamCutter {
    let limit = ByteSize(LIMIT as u64);
    match FRAMINGS.get(choice) {
        Some(framing) => framing.begin(limit, false),
        None if choice == FRAMINGS.len() => StreamCutter::of_syslog(limit),
        None => StreamCutter::of_octets(limit),
    }
}

/// Returns the messages of a stream that arrives in pieces, each with whether it was too long, and whether
/// the stream became unusable.
fn cut(choice: usize, pieces: &[&[u8]]) -> (Vec<(Vec<u8>, bool)>, bool) {
    let (found, wrong) = testing::cut(begin(choice), LIMIT, pieces.iter().copied());
    for (message, _) in &found {
        assert!(message.len() <= LIMIT + 8 + 20, "a message of {} bytes", message.len());
    }
    (found, wrong.is_some())
}
