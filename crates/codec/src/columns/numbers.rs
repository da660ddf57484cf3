//! Columns of whole and other numbers.
//!
//! # A value keeps its own type
//!
//! A message may not look different because of the messages that happen to be in its batch. A column has one
//! Arrow type, but JSON values have their own. Therefore:
//!
//! - A column whose values have one type has that type.
//! - A column of integers and of numbers with a fraction is a column of 64-bit floats whose field has the
//!   extension type `thalweg.number`: a value without a fraction is an integer, and is written as one. `1`
//!   beside `1.5` stays `1`.
//! - Any other mix is a column of JSON text, each value as it would be written in a column of its own. That
//!   includes integers beside floats such as `1.0`, and integers that a float cannot hold.
//! - `null` and a missing member are the same: NULL. With `nulls: keep`, `parse_json` makes a column with a
//!   `null` one of JSON text: most readers want the type of the other values instead.
//!
//! Encoders, templates, keys and casts write the value. Expressions read it: they are evaluated for each
//! message with the types of its own values. One thing still depends on the batch: the order of the members
//! of a JSON object (`sort: true` fixes it).
//!
//! The rejected alternative is JSON text for all mixed numbers: a Parquet table would get a text column for
//! prices that are sometimes whole.

use arrow_schema::{DataType, Field};

/// The key and the name of the extension type.
const KEY: &str = "ARROW:extension:name";
const NUMBER: &str = "thalweg.number";

/// Whole numbers up to this value are exact as 64-bit floats.
const EXACT: f64 = (1u64 << 53) as f64;

/// Returns a nullable field of numbers: 64-bit floats whose values without a fraction are integers.
pub fn number_field(name: &str) -> Field {
    let extension = [(KEY.to_owned(), NUMBER.to_owned())];
    Field::new(name, DataType::Float64, true).with_metadata(extension.into_iter().collect())
}

/// True if the values without a fraction of this field are integers.
pub fn is_number_field(field: &Field) -> bool {
    field.data_type() == &DataType::Float64 && field.extension_type_name() == Some(NUMBER)
}

/// True if a 64-bit float has this integer's value exactly.
pub(crate) fn is_exact(number: i64) -> bool {
    number.unsigned_abs() <= EXACT as u64
}

/// True if a value of a [number field](number_field) is an integer.
#[inline]
pub fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() <= EXACT && !(value == 0.0 && value.is_sign_negative())
}
