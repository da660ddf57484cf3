//! Single values, and columns of them, which transforms compare and keep.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMicrosecondArray,
};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field};
use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::columns::{FieldType, fit, is_json_field, is_number_field, is_whole, number_field};
use thalweg_engine::Error;
use thalweg_expression::{Evaluated, Expression, Kind};

/// A value of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Scalar {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(#[serde(with = "bits")] f64),
    /// Microseconds since 1970.
    Time(i64),
    Text(Box<str>),
    /// An object or an array, as JSON text.
    Json(Box<str>),
}

/// Floats as their bits: JSON has no infinity, and rounds.
pub(crate) mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.to_bits())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

/// A value in a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum View<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Time(i64),
    Text(&'a str),
    Json(&'a str),
}

/// A number of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(crate) fn as_float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

impl Scalar {
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Scalar::Null => View::Null,
            Scalar::Bool(value) => View::Bool(*value),
            Scalar::Int(value) => View::Int(*value),
            Scalar::Float(value) => View::Float(*value),
            Scalar::Time(value) => View::Time(*value),
            Scalar::Text(value) => View::Text(value),
            Scalar::Json(value) => View::Json(value),
        }
    }

    /// Returns the value of a JSON text.
    fn of_json(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(Value::Null) => Scalar::Null,
            Ok(Value::Bool(value)) => Scalar::Bool(value),
            Ok(Value::String(value)) => Scalar::Text(value.into()),
            Ok(Value::Number(value)) => match (value.as_i64(), value.as_f64()) {
                (Some(value), _) => Scalar::Int(value),
                (None, Some(value)) => Scalar::Float(value),
                (None, None) => Scalar::Null,
            },
            Ok(Value::Array(_) | Value::Object(_)) => Scalar::Json(text.into()),
            Err(_) => Scalar::Text(text.into()),
        }
    }

    /// Returns the value as JSON text. None for NULL.
    pub(crate) fn to_json(&self) -> Option<String> {
        Some(match self {
            Scalar::Null => return None,
            Scalar::Bool(value) => value.to_string(),
            Scalar::Int(value) => value.to_string(),
            Scalar::Float(value) => Value::from(*value).to_string(),
            Scalar::Time(value) => Value::from(time_text(*value)).to_string(),
            Scalar::Text(value) => Value::from(&**value).to_string(),
            Scalar::Json(value) => value.to_string(),
        })
    }
}

/// Returns a time as RFC 3339.
fn time_text(micros: i64) -> String {
    let time = DateTime::from_timestamp_micros(micros).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Compares floats. NaN is greater than all others, as in PostgreSQL, whatever its sign: that of a division
/// depends on the processor.
fn order(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

impl View<'_> {
    pub(crate) fn to_scalar(self) -> Scalar {
        match self {
            View::Null => Scalar::Null,
            View::Bool(value) => Scalar::Bool(value),
            View::Int(value) => Scalar::Int(value),
            View::Float(value) => Scalar::Float(value),
            View::Time(value) => Scalar::Time(value),
            View::Text(value) => Scalar::Text(value.into()),
            View::Json(value) => Scalar::Json(value.into()),
        }
    }

    pub(crate) fn is_null(self) -> bool {
        matches!(self, View::Null)
    }

    /// The bytes that a copy has on the heap.
    pub(crate) fn heap(self) -> usize {
        match self {
            View::Text(value) | View::Json(value) => value.len(),
            _ => 0,
        }
    }

    /// Returns the value as text, as encoders write it. None for NULL.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            View::Null => None,
            View::Text(value) | View::Json(value) => Some(Cow::from(*value)),
            View::Time(value) => Some(Cow::Owned(time_text(*value))),
            other => other.to_scalar().to_json().map(Cow::Owned),
        }
    }

    fn rank(self) -> u8 {
        match self {
            View::Null => 0,
            View::Bool(_) => 1,
            View::Int(_) | View::Float(_) => 2,
            View::Time(_) => 3,
            View::Text(_) => 4,
            View::Json(_) => 5,
        }
    }

    /// Compares two values. Those of different types are in the order NULL, booleans, numbers, times, texts.
    pub(crate) fn compare(self, other: View<'_>) -> Ordering {
        match (self, other) {
            (View::Bool(one), View::Bool(other)) => one.cmp(&other),
            (View::Int(one), View::Int(other)) | (View::Time(one), View::Time(other)) => one.cmp(&other),
            (View::Int(one), View::Float(other)) => order(one as f64, other),
            (View::Float(one), View::Int(other)) => order(one, other as f64),
            (View::Float(one), View::Float(other)) => order(one, other),
            (View::Text(one), View::Text(other)) | (View::Json(one), View::Json(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Returns the number that it is, or that its text is. None if there is none.
    pub(crate) fn number(self) -> Option<Number> {
        match self {
            View::Int(value) => Some(Number::Int(value)),
            View::Float(value) => Some(Number::Float(value)),
            View::Text(text) => {
                let text = text.trim_ascii();
                let whole = text.parse().ok().map(Number::Int);
                // `nan` and `inf` are words: one of them would be all that is left of a sum.
                let float = || text.parse::<f64>().ok().filter(|value| value.is_finite());
                whole.or_else(|| float().map(Number::Float))
            }
            View::Null | View::Bool(_) | View::Time(_) | View::Json(_) => None,
        }
    }
}

/// Returns the expression of a field.
pub(crate) fn field(name: &str) -> Result<Expression, Error> {
    Expression::parse(&format!("\"{}\"", name.replace('"', "\"\"")))
        .map_err(|error| Error::permanent(format!("`{name}` is not the name of a field: {}", error.message)))
}

/// The values of an expression for a batch.
pub(crate) enum Column {
    Null,
    Bool(BooleanArray),
    Int(Int64Array),
    Float(Float64Array),
    /// Floats of which those without a fraction are integers.
    Number(Float64Array),
    Time(TimestampMicrosecondArray),
    Text(StringViewArray),
    /// JSON, parsed.
    Parsed(Vec<Scalar>),
}

impl Column {
    pub(crate) fn of(evaluated: &Evaluated) -> Self {
        // A column of another type has only NULLs.
        Self::typed(&evaluated.values, evaluated.kind).unwrap_or(Column::Null)
    }

    /// Returns the values of a field. Those of rare types are as in JSON.
    pub(crate) fn of_field(field: &Field, values: &ArrayRef) -> Result<Self, ArrowError> {
        let kind = match (is_json_field(field), is_number_field(field)) {
            (true, _) => Kind::Json,
            (false, true) => Kind::Number,
            (false, false) => Kind::Plain,
        };
        if let Some(column) = Self::typed(values, kind) {
            return Ok(column);
        }
        let (column, kind) = match values.data_type() {
            DataType::Timestamp(..) => (cast(values, &FieldType::Timestamp.data_type())?, Kind::Plain),
            _ => (fit(field, values, &FieldType::Json.field(field.name()))?.column, Kind::Json),
        };
        Ok(Self::typed(&column, kind).unwrap_or(Column::Null))
    }

    /// Returns values of one of the types of expressions.
    fn typed(values: &ArrayRef, kind: Kind) -> Option<Self> {
        if let Some(column) = values.as_string_view_opt() {
            if kind == Kind::Json {
                let parsed = column.iter().map(|text| text.map(Scalar::of_json).unwrap_or_default());
                return Some(Column::Parsed(parsed.collect()));
            }
            return Some(Column::Text(column.clone()));
        }
        if let Some(column) = values.as_primitive_opt::<Int64Type>() {
            return Some(Column::Int(column.clone()));
        }
        if let Some(column) = values.as_primitive_opt::<Float64Type>() {
            return Some(match kind == Kind::Number {
                true => Column::Number(column.clone()),
                false => Column::Float(column.clone()),
            });
        }
        if let Some(column) = values.as_primitive_opt::<TimestampMicrosecondType>() {
            return Some(Column::Time(column.clone()));
        }
        values.as_boolean_opt().map(|column| Column::Bool(column.clone()))
    }

    pub(crate) fn view(&self, row: usize) -> View<'_> {
        match self {
            Column::Null => View::Null,
            Column::Bool(column) if column.is_valid(row) => View::Bool(column.value(row)),
            Column::Int(column) if column.is_valid(row) => View::Int(column.value(row)),
            Column::Float(column) if column.is_valid(row) => View::Float(column.value(row)),
            Column::Number(column) if column.is_valid(row) => match column.value(row) {
                value if is_whole(value) => View::Int(value as i64),
                value => View::Float(value),
            },
            Column::Time(column) if column.is_valid(row) => View::Time(column.value(row)),
            Column::Text(column) if column.is_valid(row) => View::Text(column.value(row)),
            Column::Parsed(values) => values.get(row).map_or(View::Null, Scalar::view),
            _ => View::Null,
        }
    }
}

/// Returns a column of values. If their types differ, it has numbers or JSON. `otherwise` is the type of a
/// column without values.
pub(crate) fn column(name: &str, values: &[Scalar], otherwise: FieldType) -> (Field, ArrayRef) {
    /// The largest integers that floats have exactly.
    const EXACT: u64 = 1 << 53;
    let mut kinds = [false; 6];
    let mut is_exact = true;
    for value in values {
        let kind = match value {
            Scalar::Null => continue,
            Scalar::Bool(_) => 0,
            Scalar::Int(value) => {
                is_exact &= value.unsigned_abs() <= EXACT;
                1
            }
            Scalar::Float(_) => 2,
            Scalar::Time(_) => 3,
            Scalar::Text(_) => 4,
            Scalar::Json(_) => 5,
        };
        kinds[kind] = true;
    }
    let number = |value: &Scalar| value.view().number().map(Number::as_float);
    let kind = match kinds {
        [false, false, false, false, false, false] => otherwise,
        [true, false, false, false, false, false] => FieldType::Bool,
        [false, true, false, false, false, false] => FieldType::Int,
        [false, false, true, false, false, false] => FieldType::Float,
        [false, false, false, true, false, false] => FieldType::Timestamp,
        [false, false, false, false, true, false] => FieldType::Text,
        [false, true, true, false, false, false] if is_exact => {
            return (number_field(name), Arc::new(values.iter().map(number).collect::<Float64Array>()));
        }
        _ => FieldType::Json,
    };
    let array: ArrayRef = match kind {
        FieldType::Bool => {
            let values =
                values.iter().map(|value| if let Scalar::Bool(value) = value { Some(*value) } else { None });
            Arc::new(values.collect::<BooleanArray>())
        }
        FieldType::Int => {
            let values =
                values.iter().map(|value| if let Scalar::Int(value) = value { Some(*value) } else { None });
            Arc::new(values.collect::<Int64Array>())
        }
        FieldType::Float => Arc::new(values.iter().map(number).collect::<Float64Array>()),
        FieldType::Timestamp => {
            let values =
                values.iter().map(|value| if let Scalar::Time(value) = value { Some(*value) } else { None });
            Arc::new(values.collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
        }
        FieldType::Text => {
            let values = values.iter().map(|value| match value {
                Scalar::Text(value) => Some(&**value),
                _ => None,
            });
            Arc::new(values.collect::<StringViewArray>())
        }
        FieldType::Json => Arc::new(values.iter().map(Scalar::to_json).collect::<StringViewArray>()),
    };
    (kind.field(name), array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_type_of_its_values() {
        let text = || Scalar::Text("a".into());
        for (values, kind) in [
            (vec![], FieldType::Int.field("x")),
            (vec![Scalar::Null, Scalar::Bool(true)], FieldType::Bool.field("x")),
            (vec![Scalar::Int(1), Scalar::Null], FieldType::Int.field("x")),
            (vec![Scalar::Float(1.5)], FieldType::Float.field("x")),
            (vec![Scalar::Int(1), Scalar::Float(1.5)], number_field("x")),
            (vec![Scalar::Int(i64::MAX), Scalar::Float(1.5)], FieldType::Json.field("x")),
            (vec![Scalar::Time(0)], FieldType::Timestamp.field("x")),
            (vec![text()], FieldType::Text.field("x")),
            (vec![text(), Scalar::Int(1)], FieldType::Json.field("x")),
        ] {
            let (field, array) = column("x", &values, FieldType::Int);
            assert_eq!((&field, array.len()), (&kind, values.len()), "{values:?}");
        }
        let (_, array) =
            column("x", &[text(), Scalar::Int(1), Scalar::Null, Scalar::Time(0)], FieldType::Int);
        let texts: Vec<_> = array.as_string_view().iter().collect();
        assert_eq!(texts, [Some("\"a\""), Some("1"), None, Some("\"1970-01-01T00:00:00Z\"")]);
    }

    #[test]
    fn a_value_survives_a_state() {
        for value in [
            Scalar::Null,
            Scalar::Float(f64::INFINITY),
            Scalar::Float(0.1),
            Scalar::Int(i64::MIN),
            Scalar::Text("é\0".into()),
        ] {
            let saved = serde_json::to_value(&value).unwrap().to_string();
            assert_eq!(serde_json::from_str::<Scalar>(&saved).unwrap(), value);
        }
    }
}
