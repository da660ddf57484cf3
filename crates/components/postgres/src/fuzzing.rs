//! The parsers of this crate that fuzz targets reach only from here.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;

use crate::decode::{Column, Decoder};
use crate::guard::{Allowance, Watch};
use crate::kind::Kind;

const KINDS: [Kind; 16] = [
    Kind::Bool,
    Kind::Int2,
    Kind::Int4,
    Kind::Int8,
    Kind::Float4,
    Kind::Float8,
    Kind::Numeric,
    Kind::Text,
    Kind::Bytea,
    Kind::Date,
    Kind::Time,
    Kind::Timestamp,
    Kind::TimestampTz,
    Kind::Uuid,
    Kind::Json,
    Kind::Jsonb,
];

/// Reads rows of the binary format of `COPY`, each of these bytes, as columns of types that `kinds` chooses.
/// Returns the columns, and the number of rows that have a fault. None if a row is malformed.
///
/// # Panics
/// If columns cannot be built of what was read.
pub fn rows(kinds: &[u8], rows: &[&[u8]]) -> Option<(RecordBatch, usize)> {
    let column = |(number, kind): (usize, &u8)| Column {
        name: number.to_string(),
        kind: KINDS[usize::from(*kind) % KINDS.len()],
        digits: kind.is_multiple_of(2).then_some((kind / 7 + 1, 1)),
    };
    let columns = kinds.iter().enumerate().map(column).collect();
    let mut decoder = Decoder::new(columns, 1, Some(0));
    decoder.begin(&Buffer::from_vec(rows.concat()), rows.len());
    let (mut start, mut faults) = (0, 0);
    for row in rows {
        let read = decoder.row(start..start + row.len()).ok()?;
        faults += usize::from(read.fault.is_some());
        start += row.len();
    }
    Some((decoder.finish(rows.len()).expect("columns"), faults))
}

/// Follows the messages of a server, cut into pieces of this size. Returns true if the connection goes on.
pub fn messages(bytes: &[u8], piece: usize) -> bool {
    let allowance = Allowance::default();
    allowance.renew();
    let mut watch = Watch::new(allowance, 1 << 16);
    bytes.chunks(piece.max(1)).all(|piece| watch.pass(piece).is_ok())
}
