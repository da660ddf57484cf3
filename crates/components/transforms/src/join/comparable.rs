//! Values as the bytes by which they are compared.
//!
//! A table has texts where messages have numbers, and the reverse: CSV has no types, and JSON has its own. So
//! values are compared as they are written. A number without a fraction is written without one, whatever the
//! type of its column: other programs make a column of floating-point numbers of one that has NULLs. Text is
//! not changed: `007` is no number. `keys` of the codec has the rest of the forms.

use std::sync::Arc;

use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BinaryViewArray, Float64Array, cast::AsArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use thalweg_codec::columns::{is_json_field, number_field};
use thalweg_codec::keys::{bytes_of, bytes_of_column};
use thalweg_record::Batch;

/// Returns the values of a field of messages. NULL is equal to nothing. None if no message has a value that
/// can be compared.
pub(super) fn of_messages(batch: &Batch, name: &str) -> Option<BinaryViewArray> {
    match batch.field(name) {
        Some((place, field)) => of_column(field, batch.fields().column(place)),
        None => bytes_of(batch, name),
    }
}

/// Returns the values of a column, as [`of_messages`] does.
pub(super) fn of_column(field: &Field, column: &ArrayRef) -> Option<BinaryViewArray> {
    match column.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let floats = cast(column, &DataType::Float64).ok()?;
            numbers(floats.as_primitive::<Float64Type>().iter())
        }
        DataType::Utf8View if is_json_field(field) => of_json(field, column),
        _ => bytes_of_column(field, column),
    }
}

/// Returns floating-point numbers as they are compared. NaN and the infinities are NULL.
fn numbers(values: impl Iterator<Item = Option<f64>>) -> Option<BinaryViewArray> {
    // Adding 0 makes 0 of -0.
    let plain: Float64Array =
        values.map(|value| value.filter(|value| value.is_finite()).map(|value| value + 0.0)).collect();
    bytes_of_column(&number_field("number"), &(Arc::new(plain) as ArrayRef))
}

/// Returns values of several types as those of columns of their own types: whether two values are equal must
/// not depend on the other messages of a batch.
fn of_json(field: &Field, column: &ArrayRef) -> Option<BinaryViewArray> {
    let written = bytes_of_column(field, column)?;
    let texts = column.as_string_view();
    let float = |text: Option<&str>| float_in(text?);
    if !texts.iter().any(|text| float(text).is_some()) {
        return Some(written);
    }
    let floats = numbers(texts.iter().map(float))?;
    let values = (0..texts.len()).map(|row| match floats.is_valid(row) {
        true => Some(floats.value(row)),
        false => written.is_valid(row).then(|| written.value(row)),
    });
    Some(values.collect())
}

/// Returns the number of a JSON value that is not a whole number by its digits.
fn float_in(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let has_fraction = || text == "-0" || text.contains(['.', 'e', 'E']);
    if is_number && has_fraction() { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use arrow_array::StringViewArray;

    use super::*;
    use arrow_array::{Float32Array, Int64Array};
    use thalweg_codec::columns::FieldType;

    fn texts(field: &Field, column: impl Array + 'static) -> Vec<Option<String>> {
        let column: ArrayRef = Arc::new(column);
        let found = of_column(field, &column).unwrap();
        found.iter().map(|value| value.map(|value| String::from_utf8(value.to_vec()).unwrap())).collect()
    }

    fn some(values: &[&str]) -> Vec<Option<String>> {
        values.iter().map(|value| Some((*value).to_owned())).collect()
    }

    #[test]
    fn a_number_is_the_same_in_columns_of_all_types() {
        let expected = some(&["7", "-3"]);
        assert_eq!(texts(&FieldType::Int.field("k"), Int64Array::from(vec![7, -3])), expected);
        assert_eq!(texts(&FieldType::Float.field("k"), Float64Array::from(vec![7.0, -3.0])), expected);
        assert_eq!(texts(&number_field("k"), Float64Array::from(vec![7.0, -3.0])), expected);
        assert_eq!(
            texts(&Field::new("k", DataType::Float32, true), Float32Array::from(vec![7.0, -3.0])),
            expected
        );
        let json = StringViewArray::from(vec!["7.0", "-3", "\"7\"", "-0", "1.50", "\"7.0\"", "[7.0]"]);
        assert_eq!(
            texts(&FieldType::Json.field("k"), json),
            some(&["7", "-3", "7", "0", "1.5", "7.0", "[7.0]"])
        );
    }

    #[test]
    fn text_is_unchanged_and_what_is_no_number_is_null() {
        let column = StringViewArray::from(vec![Some("007"), None, Some(""), Some("7.0")]);
        assert_eq!(
            texts(&FieldType::Text.field("k"), column),
            [Some("007".to_owned()), None, Some(String::new()), Some("7.0".to_owned())]
        );
        let floats = Float64Array::from(vec![Some(f64::NAN), Some(-0.0), Some(1.5), None]);
        assert_eq!(
            texts(&FieldType::Float.field("k"), floats),
            [None, Some("0".to_owned()), Some("1.5".to_owned()), None]
        );
        let json = StringViewArray::from(vec!["null", "18446744073709551615"]);
        assert_eq!(texts(&FieldType::Json.field("k"), json), [None, Some("18446744073709551615".to_owned())]);
    }
}
