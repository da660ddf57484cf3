//! Comma-separated values: the records of a file in pieces, and records as messages.

use std::sync::LazyLock;

use thalweg_codec::csv::{Dialect, Record, RecordPosition, Records};
use thalweg_config::ByteSize;
use thalweg_transforms::parse_csv::ParseCsv;

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "csv",
    components: &["parse_csv"],
    longest: 32 << 10,
    words: &["\"\"", ",\"", "\",", "\r\n", "\u{feff}", "a,b,c\n"],
    run,
};

static CHAINS: LazyLock<Vec<(Chain, Leaves)>> = LazyLock::new(|| {
    vec![
        (transform::<ParseCsv>("{ columns: [a, b, c] }"), Leaves::One),
        (transform::<ParseCsv>("{ columns: [a, b], flexible: true, delimiter: ';' }"), Leaves::One),
        (transform::<ParseCsv>("{ header: true }"), Leaves::Any),
        (transform::<ParseCsv>("{ header: true, flexible: true, max_columns: 50 }"), Leaves::Any),
    ]
});

const DIALECT: Dialect = Dialect { delimiter: b',', quote: Some(b'"'), flexible: false, trim: false };

/// The limit of a record in the pieces of a file.
const LIMIT: usize = 64;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (chain, leaves) = &CHAINS[input.choice(CHAINS.len())];
    let seed = input.choice(256);
    bounded((8 << 20) + 300 * bytes.len(), || check(chain, &input.lines(), *leaves));
    let whole = records(&[input.0]);
    assert_eq!(records(&pieces(input.0, seed)), whole, "the records of a file in pieces");
}

/// Returns the records of a file that arrives in pieces: offset, content, line, and fault.
fn records(pieces: &[&[u8]]) -> Vec<(u64, Vec<u8>, u64, bool)> {
    let limit = ByteSize(LIMIT as u64);
    let mut records = Records::new(DIALECT, limit, RecordPosition::default());
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    for number in 0..pieces.len().max(1) {
        buffer.extend_from_slice(pieces.get(number).copied().unwrap_or_default());
        let is_end = number + 1 >= pieces.len();
        while let Some(Record { range, line, fault }) = records.next(&buffer, is_end) {
            found.push((records.offset_of(range.start), buffer[range].to_vec(), line, fault.is_some()));
        }
        let done = records.advance();
        buffer.drain(..done);
    }
    found
}
