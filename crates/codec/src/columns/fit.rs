//! Columns in the types that a table has.
//!
//! A table has one type for each column, and a batch may have another: a field that held integers holds texts
//! from some message on. Each value is converted by itself, so whether a message fits does not depend on the
//! other messages of its batch. A value fits the type that it has; an integer also fits a column of floats
//! that holds it exactly, and any value fits a column of JSON. A text that spells a number is a text: `cast`
//! makes a number of it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, cast::AsArray, new_null_array,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field};

use super::FieldType;
use super::numbers::{is_exact, is_number_field, is_whole};
use crate::json;
use crate::values::Values;

/// A column in another type.
#[derive(Debug)]
pub struct Fitted {
    /// The values. Those that do not fit are NULL.
    pub column: ArrayRef,
    /// The rows whose values do not fit, in order.
    pub misfits: Vec<u32>,
}

/// True if a field holds JSON text.
pub fn is_json_field(field: &Field) -> bool {
    field.extension_type_name() == Some("arrow.json")
}

/// Returns what the values of a field are, as it is used in a sentence.
pub fn noun(field: &Field) -> Cow<'static, str> {
    let kinds = [
        FieldType::Text,
        FieldType::Int,
        FieldType::Float,
        FieldType::Bool,
        FieldType::Timestamp,
        FieldType::Json,
    ];
    let is_kind = |kind: &&FieldType| {
        kind.data_type() == *field.data_type() && is_json_field(field) == (**kind == FieldType::Json)
    };
    match kinds.iter().find(is_kind) {
        Some(kind) => kind.noun().into(),
        None => field.data_type().to_string().into(),
    }
}

/// Converts the values of a column to the type of the field `wanted`.
///
/// # Errors
/// If Arrow cannot convert between two types that hold the same kind of value.
pub fn fit(field: &Field, column: &ArrayRef, wanted: &Field) -> Result<Fitted, ArrowError> {
    let (is_json, wants_json) = (is_json_field(field), is_json_field(wanted));
    if column.data_type() == wanted.data_type() && is_json == wants_json {
        return Ok(Fitted { column: column.clone(), misfits: Vec::new() });
    }
    let text = is_json.then(|| cast(column, &DataType::Utf8View)).transpose()?;
    let fitted = match &text {
        _ if wants_json => cast(&written(field, column), wanted.data_type())?,
        Some(text) => from_json(text.as_string_view(), wanted.data_type())?,
        None => of_same_kind(field, column, wanted.data_type())?,
    };
    let nulls = column.logical_nulls();
    let is_null = |row: usize| {
        let is_json_null = |text: &ArrayRef| json::is_null(text.as_string_view().value(row));
        nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) || text.as_ref().is_some_and(is_json_null)
    };
    let misfits = (0..column.len()).filter(|&row| fitted.is_null(row) && !is_null(row));
    Ok(Fitted { misfits: misfits.map(|row| row as u32).collect(), column: fitted })
}

/// Returns the values as JSON text.
fn written(field: &Field, column: &ArrayRef) -> ArrayRef {
    let values = Values::of(field, column);
    let mut texts = StringViewBuilder::with_capacity(column.len());
    let mut out = Vec::new();
    for row in 0..column.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        out.clear();
        values.write_json(row, &mut out);
        texts.append_value(String::from_utf8_lossy(&out));
    }
    Arc::new(texts.finish())
}

/// Returns the values of JSON texts that have the wanted type.
fn from_json(texts: &StringViewArray, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let texts = || texts.iter().map(|text| text.map(str::trim_ascii));
    Ok(match wanted {
        wanted if wanted.is_integer() => {
            let number = |text: Option<&str>| text?.parse().ok().filter(|_| text != Some("-0"));
            cast(&(Arc::new(texts().map(number).collect::<Int64Array>()) as ArrayRef), wanted)?
        }
        DataType::Float64 => Arc::new(texts().map(|text| float(text?)).collect::<Float64Array>()),
        DataType::Boolean => {
            Arc::new(texts().map(|text| text?.parse::<bool>().ok()).collect::<BooleanArray>())
        }
        wanted if is_text(wanted) => {
            let mut plain = StringViewBuilder::new();
            texts().for_each(|text| {
                plain.append_option(text.filter(|text| text.starts_with('"')).map(json::plain))
            });
            cast(&(Arc::new(plain.finish()) as ArrayRef), wanted)?
        }
        _ => new_null_array(wanted, texts().len()),
    })
}

/// Returns the number that a JSON text is, if a float holds it exactly.
fn float(text: &str) -> Option<f64> {
    match text.parse::<i64>() {
        Ok(number) if text != "-0" => is_exact(number).then_some(number as f64),
        // Rust also reads `inf` and `nan`, which are no JSON.
        _ => text.parse().ok().filter(|_| text.starts_with(|c: char| c == '-' || c.is_ascii_digit())),
    }
}

/// Returns the values if both types hold numbers, or both hold text.
fn of_same_kind(field: &Field, column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Float64 if wanted.is_integer() && is_number_field(field) => {
            let whole =
                column.as_primitive::<Float64Type>().iter().map(|value| value.filter(|&v| is_whole(v)));
            cast(&(Arc::new(whole.collect::<Float64Array>()) as ArrayRef), wanted)
        }
        from if from.is_integer() && *wanted == DataType::Float64 => {
            let whole = cast(column, &DataType::Int64)?;
            let exact = whole.as_primitive::<Int64Type>().iter().map(|value| value.filter(|&v| is_exact(v)));
            cast(&(Arc::new(exact.collect::<Int64Array>()) as ArrayRef), wanted)
        }
        from if from.is_integer() && wanted.is_integer() => cast(column, wanted),
        DataType::Float16 | DataType::Float32 if *wanted == DataType::Float64 => cast(column, wanted),
        from if is_text(from) && is_text(wanted) => cast(column, wanted),
        _ => Ok(new_null_array(wanted, column.len())),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{FieldType, number_field};

    fn fitted(field: &Field, column: ArrayRef, wanted: FieldType) -> (Vec<Option<String>>, Vec<u32>) {
        let wanted = wanted.field("x");
        let fitted = fit(field, &column, &wanted).unwrap();
        assert_eq!(fitted.column.data_type(), wanted.data_type());
        let values = Values::of(&wanted, &fitted.column);
        let text = |row| {
            let mut out = Vec::new();
            values.write_json(row, &mut out);
            String::from_utf8(out).unwrap()
        };
        let texts = (0..column.len()).map(|row| (!values.is_null(row)).then(|| text(row))).collect();
        (texts, fitted.misfits)
    }

    #[test]
    fn a_json_value_fits_the_type_that_it_has() {
        let texts =
            ["1", "-0", "1.0", "1.5", "9007199254740993", "\"5\"", "\"a\\n\"", "true", "[1]", "null", " 7 "];
        let column = || Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
        let fits = |wanted| {
            let (found, misfits) = fitted(&FieldType::Json.field("x"), column(), wanted);
            let is_misfit = |row: &usize| misfits.contains(&(*row as u32));
            let misfits: Vec<&str> = (0..texts.len()).filter(is_misfit).map(|row| texts[row]).collect();
            (found.into_iter().flatten().collect::<Vec<String>>().join(" "), misfits.join(" "))
        };
        let all = |fit: &str, misfits: &str| (fit.to_owned(), misfits.to_owned());
        let (rest, long) = ("\"5\" \"a\\n\" true [1]", "9007199254740993");
        assert_eq!(fits(FieldType::Int), all(&format!("1 {long} 7"), &format!("-0 1.0 1.5 {rest}")));
        assert_eq!(fits(FieldType::Float), all("1.0 -0.0 1.0 1.5 7.0", &format!("{long} {rest}")));
        assert_eq!(fits(FieldType::Bool).0, "true");
        assert_eq!(fits(FieldType::Text).0, "\"5\" \"a\\n\"");
        assert_eq!(fits(FieldType::Timestamp).0, "");
        assert_eq!(fits(FieldType::Timestamp).1.matches(' ').count(), 11);
    }

    #[test]
    fn numbers_fit_where_nothing_is_lost() {
        let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some((1 << 53) + 1)]));
        let int = FieldType::Int.field("x");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fitted(&int, ints.clone(), FieldType::Float), (vec![some("1.0"), None, None], vec![2]));
        assert_eq!(
            fitted(&int, ints.clone(), FieldType::Json),
            (vec![some("1"), None, some("9007199254740993")], vec![])
        );
        assert_eq!(fitted(&int, ints, FieldType::Text), (vec![None; 3], vec![0, 2]));
        let floats = || Arc::new(Float64Array::from(vec![Some(1.0), Some(1.5), None])) as ArrayRef;
        assert_eq!(
            fitted(&number_field("x"), floats(), FieldType::Int),
            (vec![some("1"), None, None], vec![1])
        );
        assert_eq!(
            fitted(&FieldType::Float.field("x"), floats(), FieldType::Int),
            (vec![None; 3], vec![0, 1])
        );
    }
}
