//! Columns become values in the binary format of `COPY`.
//!
//! A column of a batch rarely has the very type of the table's column: JSON has 64-bit numbers, and texts
//! where the table has points in time. Values that can be converted without loss of meaning are converted
//! here; a value that does not fit rejects its row, with the names of both types. Columns of types that are
//! not known here are sent as text, and the server converts them.

use std::borrow::Cow;

use arrow_array::types::{
    Date32Type, Float64Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Float64Array, Int64Array,
    Time64MicrosecondArray, TimestampMicrosecondArray, cast::AsArray,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, TimeUnit};
use thalweg_codec::columns::{FieldType, fit, noun};
use thalweg_codec::values::Values;

use crate::kind::{EPOCH_DAYS, EPOCH_MICROS, Kind};
use crate::numeric;

/// The type of a column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    /// The type as the server shows it, such as `character varying(10)`.
    pub(crate) shown: String,
    /// None for a type whose values are sent as text.
    pub(crate) kind: Option<Kind>,
}

/// A column of a batch on its way into a column of the table.
pub(crate) struct Encoder<'a> {
    wanted: &'a Wanted,
    /// The kind of the values, for messages.
    from: Cow<'static, str>,
    nulls: Values,
    values: Form,
}

/// The values, in the form from which they are written.
enum Form {
    Int(Int64Array),
    Float(Float64Array),
    Bool(BooleanArray),
    /// Microseconds since 1970.
    Micros(TimestampMicrosecondArray),
    Days(Date32Array),
    TimeOfDay(Time64MicrosecondArray),
    Bytes(BinaryViewArray),
    /// To be read from their text.
    Text,
    /// To be written as JSON.
    Json,
    /// Texts that are JSON already.
    RawJson,
    /// No value fits.
    None,
}

impl<'a> Encoder<'a> {
    /// Prepares the values of a field of the batch.
    pub(crate) fn new(wanted: &'a Wanted, field: &Field, column: &ArrayRef) -> Self {
        Self {
            values: form(wanted.kind, field, column),
            from: noun(field),
            nulls: Values::of(field, column),
            wanted,
        }
    }

    /// As [`new`](Self::new), for the payloads of the messages.
    pub(crate) fn of_payload(wanted: &'a Wanted, payload: &BinaryViewArray, text: &ArrayRef) -> Self {
        let field = Field::new("payload", DataType::Utf8View, true);
        let values = match wanted.kind {
            Some(Kind::Bytea) => Form::Bytes(payload.clone()),
            Some(Kind::Json | Kind::Jsonb) => Form::RawJson,
            kind => form(kind, &field, text),
        };
        Self { wanted, from: noun(&field), nulls: Values::of(&field, text), values }
    }

    /// True if the value in this row is NULL.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self.wanted.kind {
            // The JSON value `null` is a value of a JSON column.
            Some(Kind::Json | Kind::Jsonb) => self.nulls.is_null(row),
            _ => !self.nulls.has_text(row),
        }
    }

    /// Appends the value of a row with its length before it.
    ///
    /// # Errors
    /// The reason to reject the row.
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        if self.is_null(row) {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        self.value(row, out).map_err(|misfit| {
            let Wanted { name, shown, .. } = self.wanted;
            match misfit {
                Misfit::Type => {
                    format!("`{name}` is {}, which does not fit the column's type {shown}", self.from)
                }
                Misfit::Value(what) => {
                    format!("`{name}` is {}, and this one {what} of the column's type {shown}", self.from)
                }
            }
        })
    }

    fn value(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Misfit> {
        match &self.values {
            Form::None => Err(Misfit::Type),
            Form::Int(values) => {
                let value = (!values.is_null(row)).then(|| values.value(row));
                integer(self.wanted.kind, value.ok_or(NOT_ONE)?, out)
            }
            Form::Float(values) if values.is_null(row) => Err(NOT_ONE),
            Form::Float(values) => float(self.wanted.kind, values.value(row), out),
            Form::Bool(values) => push(&[values.value(row).into()], out),
            Form::Micros(values) => {
                let micros = (!values.is_null(row)).then(|| values.value(row));
                let since = micros.ok_or(NOT_ONE)?.checked_sub(EPOCH_MICROS).ok_or(OUT_OF_RANGE)?;
                push(&since.to_be_bytes(), out)
            }
            Form::Days(values) => {
                let days = (!values.is_null(row)).then(|| values.value(row));
                let since = days.ok_or(NOT_ONE)?.checked_sub(EPOCH_DAYS).ok_or(OUT_OF_RANGE)?;
                push(&since.to_be_bytes(), out)
            }
            Form::TimeOfDay(values) => {
                let micros = (!values.is_null(row)).then(|| values.value(row));
                push(&micros.ok_or(NOT_ONE)?.to_be_bytes(), out)
            }
            Form::Bytes(values) => push(values.value(row), out),
            Form::Text => self.of_text(row, out),
            Form::Json | Form::RawJson => self.json(row, out),
        }
    }

    /// Reads the value from its text.
    fn of_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let mut text = Vec::new();
        self.nulls.write_text(row, &mut text);
        let text = String::from_utf8(text).map_err(|_| NOT_ONE)?;
        match self.wanted.kind {
            None | Some(Kind::Text) if text.contains('\0') => {
                Err(Misfit::Value("has a zero byte, unlike those"))
            }
            None | Some(Kind::Text) => push(text.as_bytes(), out),
            Some(Kind::Bytea) => push(text.as_bytes(), out),
            Some(Kind::Bool) => match text.as_str() {
                "true" | "t" => push(&[1], out),
                "false" | "f" => push(&[0], out),
                _ => Err(NOT_ONE),
            },
            Some(Kind::Numeric) => numeric::write(&text, out).then_some(()).ok_or(NOT_ONE),
            Some(Kind::Uuid) => push(&uuid(&text).ok_or(NOT_ONE)?, out),
            Some(kind) if kind.is_integer() => {
                integer(Some(kind), text.trim_ascii().parse().map_err(|_| NOT_ONE)?, out)
            }
            Some(kind @ (Kind::Float4 | Kind::Float8)) => {
                float(Some(kind), text.trim_ascii().parse().map_err(|_| NOT_ONE)?, out)
            }
            Some(_) => Err(Misfit::Type),
        }
    }

    fn json(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Misfit> {
        let mut json = Vec::new();
        if self.wanted.kind == Some(Kind::Jsonb) {
            // The version of the format.
            json.push(1);
        }
        match self.values {
            Form::RawJson => self.nulls.write_text(row, &mut json),
            _ => self.nulls.write_json(row, &mut json),
        }
        push(&json, out)
    }
}

/// Why a value does not fit.
#[derive(Debug, Clone, Copy)]
enum Misfit {
    /// No value of its type does.
    Type,
    /// The fault of this one.
    Value(&'static str),
}

const NOT_ONE: Misfit = Misfit::Value("is none");
const OUT_OF_RANGE: Misfit = Misfit::Value("is out of the range");

/// Returns the form from which values of a field are written as values of a type.
fn form(kind: Option<Kind>, field: &Field, column: &ArrayRef) -> Form {
    let from = column.data_type();
    let is_text = matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_number = from.is_numeric();
    let Some(kind) = kind else { return Form::Text };
    match kind {
        Kind::Int2 | Kind::Int4 | Kind::Int8 if from.is_integer() => converted(column, Form::Int),
        Kind::Int2 | Kind::Int4 | Kind::Int8 if is_number => whole(column),
        Kind::Float4 | Kind::Float8 if is_number => converted(column, Form::Float),
        Kind::Bool if *from == DataType::Boolean => Form::Bool(column.as_boolean().clone()),
        Kind::Timestamp | Kind::TimestampTz | Kind::Date | Kind::Time if is_text => {
            of_texts(kind, field, column)
        }
        Kind::Timestamp | Kind::TimestampTz if is_point(from) => converted(column, Form::Micros),
        Kind::Date if is_point(from) => converted(column, Form::Days),
        Kind::Time if is_of_day(from) => converted(column, Form::TimeOfDay),
        Kind::Bytea if is_binary(from) => converted(column, Form::Bytes),
        Kind::Json | Kind::Jsonb => Form::Json,
        Kind::Text => Form::Text,
        Kind::Numeric if is_text || is_number => Form::Text,
        Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8 if is_text => Form::Text,
        Kind::Bytea | Kind::Uuid | Kind::Bool if is_text => Form::Text,
        _ => Form::None,
    }
}

/// Returns the dates or times that texts spell. Of a field with JSON, its texts; other values do not fit.
fn of_texts(kind: Kind, field: &Field, column: &ArrayRef) -> Form {
    let texts = match fit(field, column, &FieldType::Text.field(field.name())) {
        Ok(fitted) => fitted.column,
        Err(_) => return Form::None,
    };
    match kind {
        Kind::Date => converted(&texts, Form::Days),
        Kind::Time => converted(&texts, Form::TimeOfDay),
        _ => converted(&texts, Form::Micros),
    }
}

fn is_point(from: &DataType) -> bool {
    matches!(from, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..))
}

fn is_of_day(from: &DataType) -> bool {
    matches!(from, DataType::Time32(_) | DataType::Time64(_))
}

fn is_binary(from: &DataType) -> bool {
    use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
    matches!(from, Binary | LargeBinary | BinaryView | FixedSizeBinary(_))
}

/// An Arrow array that is a form.
trait OfForm: Array + Clone + Sized {
    fn wanted_type() -> DataType;
    fn of(column: &ArrayRef) -> Option<Self>;
}

macro_rules! of_form {
    ($($array:ty, $type:ty, $data_type:expr;)*) => {
        $(impl OfForm for $array {
            fn wanted_type() -> DataType {
                $data_type
            }

            fn of(column: &ArrayRef) -> Option<Self> {
                column.as_primitive_opt::<$type>().cloned()
            }
        })*
    };
}

of_form! {
    Int64Array, Int64Type, DataType::Int64;
    Float64Array, Float64Type, DataType::Float64;
    Date32Array, Date32Type, DataType::Date32;
    Time64MicrosecondArray, Time64MicrosecondType, DataType::Time64(TimeUnit::Microsecond);
    TimestampMicrosecondArray, TimestampMicrosecondType,
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
}

impl OfForm for BinaryViewArray {
    fn wanted_type() -> DataType {
        DataType::BinaryView
    }

    fn of(column: &ArrayRef) -> Option<Self> {
        column.as_binary_view_opt().cloned()
    }
}

/// Converts a column. Values that cannot be converted are NULL then, and rejected when they are written.
fn converted<A: OfForm>(column: &ArrayRef, form: impl FnOnce(A) -> Form) -> Form {
    let cast = match *column.data_type() == A::wanted_type() {
        true => Ok(column.clone()),
        false => cast(column, &A::wanted_type()),
    };
    cast.ok().and_then(|column| A::of(&column)).map_or(Form::None, form)
}

/// Returns the numbers of a column of floats or decimals that are whole.
fn whole(column: &ArrayRef) -> Form {
    let Form::Float(floats) = converted(column, Form::Float) else { return Form::None };
    let whole = |value: f64| (value.trunc() == value && value.abs() < 9e15).then_some(value as i64);
    Form::Int(floats.iter().map(|value| whole(value?)).collect())
}

/// Appends a value with its length before it.
fn push(value: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
    let length = i32::try_from(value.len()).map_err(|_| Misfit::Value("is too long to be one"))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

fn integer(kind: Option<Kind>, value: i64, out: &mut Vec<u8>) -> Result<(), Misfit> {
    match kind {
        Some(Kind::Int2) => push(&i16::try_from(value).map_err(|_| OUT_OF_RANGE)?.to_be_bytes(), out),
        Some(Kind::Int4) => push(&i32::try_from(value).map_err(|_| OUT_OF_RANGE)?.to_be_bytes(), out),
        _ => push(&value.to_be_bytes(), out),
    }
}

fn float(kind: Option<Kind>, value: f64, out: &mut Vec<u8>) -> Result<(), Misfit> {
    let short = value as f32;
    match kind {
        Some(Kind::Float4) if short.is_infinite() && value.is_finite() => Err(OUT_OF_RANGE),
        Some(Kind::Float4) => push(&short.to_be_bytes(), out),
        _ => push(&value.to_be_bytes(), out),
    }
}

/// Reads a UUID, with hyphens or without.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, two) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(*two.get(at)?).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn texts(text: Option<&str>) -> ArrayRef {
        Arc::new(std::iter::once(text).collect::<arrow_array::StringViewArray>())
    }

    fn wanted(kind: Option<Kind>) -> Wanted {
        Wanted { name: "x".to_owned(), shown: "the type".to_owned(), kind }
    }

    /// Writes the only value of a column.
    fn written(kind: Kind, field: FieldType, column: ArrayRef) -> Result<Vec<u8>, String> {
        let wanted = wanted(Some(kind));
        let mut out = Vec::new();
        Encoder::new(&wanted, &field.field("x"), &column).write(0, &mut out)?;
        Ok(out)
    }

    fn of_text(kind: Kind, text: &str) -> Result<Vec<u8>, String> {
        written(kind, FieldType::Text, texts(Some(text)))
    }

    fn int(value: i64) -> ArrayRef {
        Arc::new(Int64Array::from(vec![value]))
    }

    #[test]
    fn values_are_written_in_the_type_of_the_column() {
        assert_eq!(written(Kind::Int2, FieldType::Int, int(-2)), Ok(vec![0, 0, 0, 2, 0xff, 0xfe]));
        assert_eq!(written(Kind::Int4, FieldType::Int, int(1)), Ok(vec![0, 0, 0, 4, 0, 0, 0, 1]));
        assert_eq!(of_text(Kind::Int2, "7"), Ok(vec![0, 0, 0, 2, 0, 7]));
        assert_eq!(of_text(Kind::Bool, "true"), Ok(vec![0, 0, 0, 1, 1]));
        assert_eq!(of_text(Kind::Jsonb, "a"), Ok(b"\0\0\0\x04\x01\"a\"".to_vec()));
        assert_eq!(written(Kind::Text, FieldType::Int, int(12)), Ok(b"\0\0\0\x0212".to_vec()));
        assert_eq!(of_text(Kind::Date, "2000-01-02"), Ok(vec![0, 0, 0, 4, 0, 0, 0, 1]));
        assert_eq!(
            of_text(Kind::TimestampTz, "2000-01-01T01:00:00.000001+01:00").unwrap()[4..],
            [0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(of_text(Kind::Uuid, "00000000-0000-0000-0000-0000000000ff").unwrap()[19], 255);
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![3.0]));
        assert_eq!(written(Kind::Int2, FieldType::Float, floats), Ok(vec![0, 0, 0, 2, 0, 3]));
        assert_eq!(
            written(Kind::Numeric, FieldType::Int, int(5)).unwrap()[4..],
            [0, 1, 0, 0, 0, 0, 0, 0, 0, 5]
        );
    }

    #[test]
    fn a_value_that_does_not_fit_is_named_with_both_types() {
        let bools: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        assert_eq!(
            written(Kind::TimestampTz, FieldType::Bool, bools),
            Err("`x` is true or false, which does not fit the column's type the type".to_owned())
        );
        assert_eq!(
            written(Kind::Int2, FieldType::Int, int(70_000)),
            Err("`x` is a whole number of 64 bits, and this one is out of the range of the column's type the type".to_owned())
        );
        for (kind, text) in
            [(Kind::Int4, "a"), (Kind::Date, "soon"), (Kind::Uuid, "12"), (Kind::Numeric, "1x")]
        {
            assert_eq!(
                of_text(kind, text),
                Err("`x` is text, and this one is none of the column's type the type".to_owned())
            );
        }
        assert!(of_text(Kind::Text, "a\0b").unwrap_err().contains("has a zero byte"));
    }

    #[test]
    fn a_null_is_one_and_the_json_null_is_a_value_of_json_columns_only() {
        let none = || texts(None);
        assert_eq!(written(Kind::Int4, FieldType::Text, none()), Ok(vec![0xff; 4]));
        let null = || texts(Some("null"));
        assert_eq!(written(Kind::Int4, FieldType::Json, null()), Ok(vec![0xff; 4]));
        assert_eq!(written(Kind::Json, FieldType::Json, null()), Ok(b"\0\0\0\x04null".to_vec()));
    }
}
