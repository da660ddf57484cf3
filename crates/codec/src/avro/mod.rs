//! Apache Avro: schemas, data as columns, and object container files.
//!
//! A [`Schema`] is read once. [`DatumColumns`] reads one datum after the other straight into Arrow builders:
//! texts and bytes are views of the message, and each field of the outermost record becomes a column. Nested
//! values become JSON text, as with `parse_json`. So a recursive schema needs no special case, and the
//! transforms and expressions that read nested JSON read nested Avro too.
//!
//! All input is hostile. Lengths and counts in a datum are lies until the bytes are there, an item of an
//! array may take no bytes at all, and a container brings its own schema. So nothing is reserved for a length
//! that was only read, the text of nested values is bounded by the bytes that were read for it, and nesting
//! has a limit.
//!
//! The rejected alternatives are the libraries `arrow-avro` and `apache-avro`.
//!
//! See docs/decisions/085-avro-is-decoded-by-our-own.md.

mod columns;
pub mod container;
mod cursor;
mod fingerprint;
mod logical;
mod nested;
#[cfg(test)]
mod samples;
mod schema;
#[cfg(test)]
mod tests;
mod wire_format;

pub use columns::DatumColumns;
pub use schema::Schema;
pub use wire_format::WireFormat;

/// The maximum depth of nested values. JSON has the same limit.
const DEEPEST: usize = 127;
