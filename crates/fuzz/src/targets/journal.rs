//! The export format of the journal: entries in a stream, and their fields.

use std::sync::LazyLock;

use thalweg_codec::framing::After;
use thalweg_codec::journal::Entries;
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

/// The maximum sizes of entries, in bytes.
const LIMITS: [usize; 3] = [10, 1000, 1 << 20];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    let limit = LIMITS[input.choice(LIMITS.len())];
    let whole = entries(&[input.0], limit);
    assert_eq!(entries(&pieces(input.0, bytes.len()), limit), whole, "in pieces");
    let messages: Vec<&[u8]> = whole.0.iter().map(Vec::as_slice).collect();
    if !messages.is_empty() {
        bounded((8 << 20) + 600 * bytes.len(), || check(chain, &messages, Leaves::One));
    }
}

/// Returns the entries of a stream that comes in these pieces, and why the rest of it cannot be used.
fn entries(pieces: &[&[u8]], limit: usize) -> (Vec<Vec<u8>>, Option<String>) {
    let mut cutter = Entries::new(limit);
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    for (number, piece) in pieces.iter().enumerate() {
        buffer.extend_from_slice(piece);
        let after = if number + 1 == pieces.len() { After::End } else { After::More };
        loop {
            match cutter.next(&buffer, after) {
                Ok(Some(piece)) => found.push(buffer[piece.range].to_vec()),
                Ok(None) => break,
                Err(reason) => return (found, Some(reason)),
            }
        }
        buffer.drain(..cutter.advance());
    }
    (found, None)
}
