//! From the messages of a batch to rows of the table.

use std::collections::BTreeMap;

use arrow_array::{Array, new_null_array};
use arrow_schema::{DataType, Field};
use bytes::Bytes;
use thalweg_codec::columns::shortened;
use thalweg_codec::values::Values;
use thalweg_record::{Batch, PAYLOAD};

use super::PostgresSink;
use super::table::Table;
use crate::encode::{Encoder, Wanted};

/// Rows in the binary format, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    /// Where each row ends.
    ends: Vec<usize>,
    /// The rows of the batch that they are.
    rows: Vec<u32>,
    /// The columns of the table that they have.
    pub(super) columns: Vec<usize>,
    /// The rows of the batch that cannot be stored, with the reasons.
    pub(super) refused: Vec<(u32, String)>,
}

impl Encoded {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the row of the batch.
    pub(super) fn row(&self, number: usize) -> u32 {
        self.rows.get(number).copied().unwrap_or(u32::MAX)
    }

    /// Returns the bytes of a range of rows.
    pub(super) fn slice(&self, rows: std::ops::Range<usize>) -> Bytes {
        let end = |number: usize| number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.slice(end(rows.start)..end(rows.end))
    }
}

/// Writes the messages in `wanted` as rows.
pub(super) fn encode(batch: &Batch, wanted: &[usize], table: &Table, config: &PostgresSink) -> Encoded {
    let Bound { encoders, unknown, missing } = Bound::new(batch, table, config);
    let columns: Vec<usize> = encoders.keys().copied().collect();
    let is_staged = table.is_staged(&columns);
    let values = encoders.len() + usize::from(is_staged);
    let keys: Vec<&Encoder<'_>> = encoders
        .iter()
        .filter(|(number, _)| {
            table.columns.get(**number).is_some_and(|column| table.key.contains(&column.name))
        })
        .map(|(_, encoder)| encoder)
        .collect();
    let mut out = Vec::with_capacity(batch.payload_bytes() + wanted.len() * 8 * (values + 1));
    let mut encoded = Encoded { columns, ..Encoded::default() };
    for &row in wanted {
        let start = out.len();
        out.extend_from_slice(&(values as u16).to_be_bytes());
        if is_staged {
            out.extend_from_slice(&8_i32.to_be_bytes());
            out.extend_from_slice(&(row as i64).to_be_bytes());
        }
        let written = match unknown.iter().find(|(_, values)| !values.is_null(row)) {
            Some((name, _)) => Err(no_column(table, name)),
            None if encoders.is_empty() => Err(format!("no field is a column of `{}`", table.shown)),
            None if !missing.is_empty() || keys.iter().any(|key| key.is_null(row)) => {
                Err(format!("a column of the key of `{}` has no value", table.shown))
            }
            None => encoders.values().try_for_each(|encoder| encoder.write(row, &mut out)),
        };
        match written {
            Ok(()) => {
                encoded.ends.push(out.len());
                encoded.rows.push(row as u32);
            }
            Err(reason) => {
                out.truncate(start);
                encoded.refused.push((row as u32, reason));
            }
        }
    }
    encoded.bytes = out.into();
    encoded
}

fn no_column(table: &Table, name: &str) -> String {
    let shown = shortened(name);
    match table.generated.iter().any(|generated| generated == name) {
        true => format!("the server computes the column `{shown}` of `{}`", table.shown),
        false => format!("`{}` has no column `{shown}`", table.shown),
    }
}

/// The columns of a batch on their ways into the table.
struct Bound<'a> {
    /// By the number of the table's column.
    encoders: BTreeMap<usize, Encoder<'a>>,
    /// Fields without a column.
    unknown: Vec<(String, Values)>,
    /// Columns of the key that no field has.
    missing: Vec<&'a str>,
}

impl<'a> Bound<'a> {
    fn new(batch: &Batch, table: &'a Table, config: &PostgresSink) -> Self {
        let mut bound = Self { encoders: BTreeMap::new(), unknown: Vec::new(), missing: Vec::new() };
        let place = |name: &str| table.columns.iter().position(|column| column.name == name);
        if config.columns.is_empty() {
            let schema = batch.fields().schema();
            for (field, column) in schema.fields().iter().zip(batch.fields().columns()) {
                match place(field.name()) {
                    Some(number) => {
                        let encoder = Encoder::new(&table.columns[number], field, column);
                        bound.encoders.insert(number, encoder);
                    }
                    None if config.skip_unknown_fields || column.null_count() == column.len() => {}
                    None => bound.unknown.push((field.name().clone(), Values::of(field, column))),
                }
            }
        }
        for (column, name) in &config.columns {
            if let Some(number) = place(column)
                && let Some(encoder) = chosen(batch, name, &table.columns[number])
            {
                bound.encoders.insert(number, encoder);
            }
        }
        let has = |name: &str| place(name).is_some_and(|number| bound.encoders.contains_key(&number));
        bound.missing = table.key.iter().map(String::as_str).filter(|name| !has(name)).collect();
        bound
    }
}

/// Returns the way of a field, the payload or metadata into a column. A field that the batch does not have is
/// NULL.
fn chosen<'a>(batch: &Batch, name: &str, wanted: &'a Wanted) -> Option<Encoder<'a>> {
    if let Some((place, field)) = batch.field(name) {
        return Some(Encoder::new(wanted, field, batch.fields().column(place)));
    }
    let column = batch.column(name);
    match column {
        Some(text) if name == PAYLOAD => Some(Encoder::of_payload(wanted, batch.payload(), &text)),
        Some(column) => {
            let field = Field::new(name, column.data_type().clone(), true);
            Some(Encoder::new(wanted, &field, &column))
        }
        None => {
            let field = Field::new(name, DataType::Utf8View, true);
            let column = new_null_array(&DataType::Utf8View, batch.rows());
            Some(Encoder::new(wanted, &field, &column))
        }
    }
}
