//! Columns that are about to be written as text or JSON.
//!
//! Expressions may return columns of any Arrow type. Each column is first converted to one of a few forms.
//! Only these are written value by value. A type without a form is written as Arrow formats it.

use std::sync::Arc;

use arrow_array::types::{
    Float32Type, Float64Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Float32Array, Float64Array, StringViewArray,
    cast::AsArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, TimeUnit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::columns::{is_json_field, is_number_field, is_whole};
use crate::json;

/// A column in the form in which it is written.
pub struct Values {
    nulls: Option<NullBuffer>,
    form: Form,
}

enum Form {
    Null,
    Text(StringViewArray),
    /// Text that is JSON already.
    Json(StringViewArray),
    /// Numbers of rare types, as text.
    Number(StringViewArray),
    Int(ScalarBuffer<i64>),
    Float(Float64Array),
    /// Whole and other numbers.
    Mixed(Float64Array),
    Float32(Float32Array),
    Bool(BooleanArray),
    Time {
        values: ScalarBuffer<i64>,
        per_second: i64,
    },
    /// Payloads: bytes that usually are text.
    Payload(BinaryViewArray),
    Binary(BinaryViewArray),
    List(OffsetBuffer<i64>, Box<Values>),
    Struct(Vec<(Vec<u8>, Values)>),
}

impl Values {
    /// Returns a column in which every value is NULL.
    pub(crate) fn null() -> Self {
        Self { nulls: None, form: Form::Null }
    }

    /// Returns the payloads of a batch as a column.
    pub(crate) fn payload(payload: &BinaryViewArray) -> Self {
        Self { nulls: None, form: Form::Payload(payload.clone()) }
    }

    /// Returns a column with a single text.
    pub(crate) fn one(text: &str) -> Self {
        Self { nulls: None, form: Form::Text(std::iter::once(Some(text)).collect()) }
    }

    /// Returns the column as the bytes that are written, if the form holds such bytes.
    pub(crate) fn bytes(&self) -> Option<BinaryViewArray> {
        match &self.form {
            Form::Text(text) | Form::Number(text) => Some(text.clone().to_binary_view()),
            Form::Json(json) => Some(json::plain_texts(json).to_binary_view()),
            Form::Payload(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Converts a column of any type.
    pub fn of(field: &Field, column: &ArrayRef) -> Self {
        let nulls = column.logical_nulls();
        let time = |values: &ScalarBuffer<i64>, per_second| Form::Time { values: values.clone(), per_second };
        let is_json = is_json_field(field);
        let form = match column.data_type() {
            DataType::Null => Form::Null,
            DataType::Utf8View if is_json => Form::Json(column.as_string_view().clone()),
            DataType::Utf8View => Form::Text(column.as_string_view().clone()),
            DataType::Int64 => Form::Int(column.as_primitive::<Int64Type>().values().clone()),
            DataType::Float64 if is_number_field(field) => {
                Form::Mixed(column.as_primitive::<Float64Type>().clone())
            }
            DataType::Float64 => Form::Float(column.as_primitive::<Float64Type>().clone()),
            DataType::Float32 => Form::Float32(column.as_primitive::<Float32Type>().clone()),
            DataType::Boolean => Form::Bool(column.as_boolean().clone()),
            DataType::BinaryView => Form::Binary(column.as_binary_view().clone()),
            DataType::Timestamp(TimeUnit::Second, _) => {
                time(column.as_primitive::<TimestampSecondType>().values(), 1)
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                time(column.as_primitive::<TimestampMillisecondType>().values(), 1_000)
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                time(column.as_primitive::<TimestampMicrosecondType>().values(), 1_000_000)
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                time(column.as_primitive::<TimestampNanosecondType>().values(), 1_000_000_000)
            }
            DataType::LargeList(inner) => {
                let list = column.as_list::<i64>();
                Form::List(list.offsets().clone(), Box::new(Self::of(inner, list.values())))
            }
            DataType::Struct(fields) => {
                let members = fields.iter().zip(column.as_struct().columns());
                Form::Struct(members.map(|(f, c)| (json::key(f.name()), Self::of(f, c))).collect())
            }
            other => return Self::converted(field, column, other),
        };
        Self { nulls, form }
    }

    /// Converts a column of a type that must first be cast to another.
    fn converted(field: &Field, column: &ArrayRef, from: &DataType) -> Self {
        let to = match from {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
            DataType::Float16 => DataType::Float32,
            DataType::Date64 => DataType::Date32,
            DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
            DataType::FixedSizeBinary(_) => DataType::Binary,
            DataType::List(inner) | DataType::FixedSizeList(inner, _) => DataType::LargeList(inner.clone()),
            DataType::Dictionary(_, values) => (**values).clone(),
            DataType::RunEndEncoded(_, values) => values.data_type().clone(),
            _ => DataType::Utf8View,
        };
        let column = match cast(column, &to) {
            Ok(column) => column,
            Err(_) => formatted(column),
        };
        let is_number = from.is_numeric();
        let Self { nulls, form } = Self::of(field, &column);
        match form {
            Form::Text(text) if is_number => Self { nulls, form: Form::Number(text) },
            form => Self { nulls, form },
        }
    }

    /// True if the value in this row is NULL.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match &self.nulls {
            Some(nulls) => row >= nulls.len() || nulls.is_null(row),
            None => matches!(self.form, Form::Null),
        }
    }

    /// True if the value in this row has a text: it is neither NULL nor the JSON value `null`.
    #[inline]
    pub fn has_text(&self, row: usize) -> bool {
        let is_json_null = || matches!(&self.form, Form::Json(json) if json::is_null(json.value(row)));
        !self.is_null(row) && !is_json_null()
    }

    /// Writes the value in this row as JSON. The value must not be NULL.
    #[inline]
    pub fn write_json(&self, row: usize, out: &mut Vec<u8>) {
        match &self.form {
            Form::Text(text) => match text.views().get(row) {
                Some(&view) if view as u32 <= 12 => json::write_inline(view, out),
                _ => json::write_text(text.value(row), out),
            },
            Form::Json(text) | Form::Number(text) => out.extend_from_slice(text.value(row).as_bytes()),
            Form::Int(values) => write_int(values[row], out),
            Form::Float(values) => write_float(values.value(row), out),
            Form::Mixed(values) => match values.value(row) {
                value if is_whole(value) => write_int(value as i64, out),
                value => write_float(value, out),
            },
            Form::Bool(values) => write_bool(values.value(row), out),
            Form::Time { values, per_second } => {
                out.push(b'"');
                write_time(values[row], *per_second, out);
                out.push(b'"');
            }
            _ => self.write_rare_json(row, out),
        }
    }

    fn write_rare_json(&self, row: usize, out: &mut Vec<u8>) {
        match &self.form {
            Form::Payload(bytes) => json::write_text(&String::from_utf8_lossy(bytes.value(row)), out),
            Form::Binary(_) => {
                out.push(b'"');
                self.write_text(row, out);
                out.push(b'"');
            }
            Form::Float32(values) => write_float32(values.value(row), out),
            Form::List(offsets, inner) => {
                out.push(b'[');
                for at in offsets[row]..offsets[row + 1] {
                    if at > offsets[row] {
                        out.push(b',');
                    }
                    inner.write_json_or_null(at as usize, out);
                }
                out.push(b']');
            }
            Form::Struct(members) => {
                out.push(b'{');
                for (number, (key, values)) in members.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(key);
                    values.write_json_or_null(row, out);
                }
                out.push(b'}');
            }
            _ => out.extend_from_slice(b"null"),
        }
    }

    fn write_json_or_null(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) { out.extend_from_slice(b"null") } else { self.write_json(row, out) }
    }

    /// Writes the value in this row as plain text. Writes nothing for NULL.
    #[inline]
    pub fn write_text(&self, row: usize, out: &mut Vec<u8>) {
        if !self.has_text(row) {
            return;
        }
        match &self.form {
            Form::Text(text) => out.extend_from_slice(text.value(row).as_bytes()),
            Form::Json(json) => out.extend_from_slice(json::plain(json.value(row)).as_bytes()),
            Form::Payload(bytes) => out.extend_from_slice(bytes.value(row)),
            Form::Binary(bytes) => out.extend_from_slice(STANDARD.encode(bytes.value(row)).as_bytes()),
            Form::Time { values, per_second } => write_time(values[row], *per_second, out),
            // JSON does not have these numbers, but text does.
            Form::Float(values) if !values.value(row).is_finite() => {
                out.extend_from_slice(values.value(row).to_string().as_bytes());
            }
            Form::Float32(values) if !values.value(row).is_finite() => {
                out.extend_from_slice(values.value(row).to_string().as_bytes());
            }
            _ => self.write_json(row, out),
        }
    }

    /// Returns an upper bound of the memory that [`template_value`](Self::template_value) takes, in bytes.
    pub fn template_size(&self, row: usize) -> usize {
        let of_json = |json: &[u8]| {
            // Each element of an array or member of an object is a value of its own.
            let nodes = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
            json.len() + nodes * 64
        };
        match &self.form {
            Form::Text(text) => text.value(row).len(),
            Form::Payload(bytes) | Form::Binary(bytes) => bytes.value(row).len() * 2,
            Form::Json(text) => of_json(text.value(row).as_bytes()),
            Form::List(..) | Form::Struct(_) => {
                let mut json = Vec::new();
                self.write_json(row, &mut json);
                of_json(&json)
            }
            _ => 32,
        }
    }

    /// Returns the value in this row for templates. The value must not be NULL.
    pub fn template_value(&self, row: usize) -> minijinja::Value {
        match &self.form {
            Form::Int(values) => values[row].into(),
            Form::Float(values) => values.value(row).into(),
            Form::Mixed(values) => match values.value(row) {
                value if is_whole(value) => (value as i64).into(),
                value => value.into(),
            },
            Form::Bool(values) => values.value(row).into(),
            Form::Json(_) | Form::List(..) | Form::Struct(_) => {
                let mut json = Vec::new();
                self.write_json(row, &mut json);
                match serde_json::from_slice::<serde_json::Value>(&json) {
                    Ok(value) => template_value(value),
                    Err(_) => String::from_utf8_lossy(&json).into_owned().into(),
                }
            }
            Form::Text(text) => text.value(row).into(),
            _ => {
                let mut text = Vec::new();
                self.write_text(row, &mut text);
                String::from_utf8_lossy(&text).into_owned().into()
            }
        }
    }

    /// Returns the point in time in this row, if the value is one or a text that denotes one.
    pub fn time(&self, row: usize) -> Option<chrono::DateTime<chrono::Utc>> {
        if self.is_null(row) {
            return None;
        }
        match &self.form {
            Form::Time { values, per_second } => {
                let (value, per_second) = (values[row], *per_second);
                let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
                chrono::DateTime::from_timestamp(value.div_euclid(per_second), nanos as u32)
            }
            Form::Text(text) => time_of(text.value(row)),
            // A text beside values of other types.
            Form::Json(json) => {
                json.value(row).starts_with('"').then(|| time_of(&json::plain(json.value(row))))?
            }
            _ => None,
        }
    }
}

fn time_of(text: &str) -> Option<chrono::DateTime<chrono::Utc>> {
    arrow_cast::parse::string_to_datetime(&chrono::Utc, text).ok()
}

/// Converts JSON to a template value.
fn template_value(value: serde_json::Value) -> minijinja::Value {
    use serde_json::Value as Json;
    match value {
        Json::Null => ().into(),
        Json::Bool(value) => value.into(),
        Json::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.into(),
        Json::Array(items) => items.into_iter().map(template_value).collect(),
        Json::Object(members) => {
            minijinja::Value::from_pairs(members.into_iter().map(|(key, value)| (key, template_value(value))))
        }
    }
}

/// Returns the text that Arrow displays for values of a type that cannot be cast to text.
fn formatted(column: &ArrayRef) -> ArrayRef {
    let options = FormatOptions::new().with_display_error(true);
    let Ok(formatter) = ArrayFormatter::try_new(column.as_ref(), &options) else {
        return arrow_array::new_null_array(&DataType::Utf8View, column.len());
    };
    let text = |row| (!column.is_null(row)).then(|| formatter.value(row).to_string());
    Arc::new((0..column.len()).map(text).collect::<StringViewArray>())
}

#[inline]
pub(crate) fn write_int(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[inline]
pub(crate) fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Writes a number with as many digits as its 32 bits have.
pub(crate) fn write_float32(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

#[inline]
fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Writes a point in time as RFC 3339 in UTC, with 0, 3, 6 or 9 digits of a second as needed.
pub(crate) fn write_time(value: i64, per_second: i64, out: &mut Vec<u8>) {
    let seconds = value.div_euclid(per_second);
    let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let Some((year, month, day)) = civil(days) else {
        // RFC 3339 cannot write this year. The number at least preserves the value.
        return write_int(value, out);
    };
    let two = |number: i64| [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
    let ([a, b], [c, d]) = (two(year / 100), two(year % 100));
    let ([e, f], [g, h]) = (two(month), two(day));
    let ([i, j], [k, l], [m, n]) = (two(second / 3600), two(second / 60 % 60), two(second % 60));
    out.extend_from_slice(&[a, b, c, d, b'-', e, f, b'-', g, h, b'T', i, j, b':', k, l, b':', m, n]);
    if nanos > 0 {
        let (digits, mut number) = match nanos {
            _ if nanos % 1_000_000 == 0 => (3, nanos / 1_000_000),
            _ if nanos % 1_000 == 0 => (6, nanos / 1_000),
            _ => (9, nanos),
        };
        let mut fraction = [b'0'; 9];
        for digit in fraction[..digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        out.push(b'.');
        out.extend_from_slice(&fraction[..digits]);
    }
    out.push(b'Z');
}

/// Converts a number of days since 1970 to year, month and day. Returns `None` for years that do not have
/// four digits. It counts from 1 March of the year 0, so a leap day ends its year and each cycle of 400
/// years.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    const CYCLE: i64 = 146_097;
    let days = days.checked_add(719_468)?;
    let (cycle, day) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + cycle * 400 + next;
    (0..10_000).contains(&year).then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_are_written_as_chrono_writes_them(seconds in -62_167_219_200..253_402_300_800i64, nanos in 0..1_000_000_000i64, unit in 0..4u32) {
            let per_second = 1000i64.pow(unit);
            let rounded = nanos / (1_000_000_000 / per_second);
            let Some(value) = seconds.checked_mul(per_second) else { return Ok(()) };
            let value = value + rounded;
            let mut written = Vec::new();
            write_time(value, per_second, &mut written);
            let nanos = rounded * (1_000_000_000 / per_second);
            let time = chrono::DateTime::from_timestamp(seconds, nanos as u32).unwrap();
            let expected = time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true);
            prop_assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_that_json_lacks_are_written_as_text_at_any_width() {
        let narrow: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN, f32::INFINITY, 1.5]));
        let wide: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::INFINITY, 1.5]));
        for column in [narrow, wide] {
            let values = Values::of(&Field::new("x", column.data_type().clone(), true), &column);
            let mut written = Vec::new();
            for row in 0..3 {
                values.write_text(row, &mut written);
                written.push(b' ');
            }
            assert_eq!(String::from_utf8(written).unwrap(), "NaN inf 1.5 ");
        }
    }

    #[test]
    fn times_beyond_four_digits_of_a_year_are_numbers() {
        for time in [i64::MIN, i64::MAX, 253_402_300_800] {
            let mut written = Vec::new();
            write_time(time, 1, &mut written);
            assert_eq!(String::from_utf8(written).unwrap(), time.to_string());
        }
    }
}
