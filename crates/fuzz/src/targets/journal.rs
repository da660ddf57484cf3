//! The export format of the journal: entries in a stream, and their fields.

use std::sync::LazyLock;

use thalweg_codec::stream_framing::StreamFraming;
use thalweg_codec::testing::cut;
use thalweg_config::ByteSize;
use thalweg_config::testing::options;
use thalweg_transforms::parse_journal::ParseJournal;

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "journal",
    components: &["journald", "parse_journal"],
    longest: 16 << 10,
    words: &[
        "\n\n",
        "A=",
        "PRIORITY=6\n",
        "M\n\u{3}\0\0\0\0\0\0\0",
        "__REALTIME_TIMESTAMP=1342540861416409\n",
        "\n",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> =
    LazyLock::new(|| vec![transform::<ParseJournal>("{}"), transform::<ParseJournal>("{ max_fields: 5 }")]);

static FRAMING: LazyLock<StreamFraming> = LazyLock::new(|| options("by: journal"));

/// The maximum sizes of entries, in bytes.
const LIMITS: [usize; 3] = [10, 1000, 1 << 20];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    let limit = LIMITS[input.choice(LIMITS.len())];
    let begin = || FRAMING.begin(ByteSize(limit as u64), false);
    let whole = cut(begin(), limit, [input.0]);
    assert_eq!(cut(begin(), limit, pieces(input.0, bytes.len())), whole, "in pieces");
    let messages: Vec<&[u8]> = whole.0.iter().map(|(entry, _)| entry.as_slice()).collect();
    if !messages.is_empty() {
        bounded((8 << 20) + 600 * bytes.len(), || check(chain, &messages, Leaves::One));
    }
}
