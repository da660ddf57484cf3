//! Rows in the binary format of `COPY` become columns.
//!
//! A row is the number of its values in 16 bits, and for each value its length in 32 bits and its bytes; a
//! length of -1 is NULL (PostgreSQL's documentation of `COPY`, section "Binary Format"). The server sends
//! each row in one message. Texts and bytes are not copied: columns are views of the rows.
//!
//! There are two kinds of damage. A row that is not of the format ends the connection, because nothing that
//! follows can be trusted. A value that has no counterpart, such as the date `infinity`, rejects its row.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int64Builder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use thalweg_codec::columns::FieldType;
use thalweg_record::{TextBuilder, ViewBuilder};

use crate::kind::{EPOCH_DAYS, EPOCH_MICROS, Kind};
use crate::numeric;

/// The beginning of the data: a signature, flags, and the length of an extension, which is zero.
pub(crate) const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The end of the data.
pub(crate) const TRAILER: [u8; 2] = [0xff, 0xff];

/// A column of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Of `numeric`: the number of digits, and of those after the point.
    pub(crate) digits: Option<(u8, u8)>,
}

impl Column {
    /// Returns the field of the column.
    pub(crate) fn field(&self) -> Field {
        let data_type = match (self.kind, self.digits) {
            (Kind::Json | Kind::Jsonb, _) => return FieldType::Json.field(&self.name),
            (Kind::Bool, _) => DataType::Boolean,
            (Kind::Int2 | Kind::Int4 | Kind::Int8, _) => DataType::Int64,
            (Kind::Float4, _) => DataType::Float32,
            (Kind::Float8, _) => DataType::Float64,
            (Kind::Numeric, Some((precision, scale))) => DataType::Decimal128(precision, scale.cast_signed()),
            (Kind::Bytea, _) => DataType::BinaryView,
            (Kind::Date, _) => DataType::Date32,
            (Kind::Time, _) => DataType::Time64(TimeUnit::Microsecond),
            (Kind::Timestamp, _) => DataType::Timestamp(TimeUnit::Microsecond, None),
            (Kind::TimestampTz, _) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            (Kind::Text | Kind::Uuid | Kind::Numeric, _) => DataType::Utf8View,
        };
        Field::new(&self.name, data_type, true)
    }
}

/// The bytes are not of the format.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// A row that was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Why the row cannot be passed on, if it cannot.
    pub(crate) fault: Option<String>,
    /// Where the values behind the columns are: the place of the row in its table, as texts.
    pub(crate) place: [Option<Range<usize>>; 2],
    /// Where the value of the column that becomes the payload is.
    pub(crate) payload: Option<Range<usize>>,
}

/// Builds the columns of rows. One value serves all batches.
pub(crate) struct Decoder {
    columns: Vec<Column>,
    builders: Vec<Builder>,
    schema: SchemaRef,
    /// The number of values behind the columns, at most two.
    hidden: usize,
    /// The number of the column that becomes the payload.
    payload: Option<usize>,
    base: Buffer,
}

impl Decoder {
    /// Reads rows of these columns, with `hidden` values behind them.
    pub(crate) fn new(columns: Vec<Column>, hidden: usize, payload: Option<usize>) -> Self {
        let fields: Vec<Field> = columns.iter().map(Column::field).collect();
        Self {
            builders: Vec::new(),
            schema: Arc::new(Schema::new(fields)),
            hidden: hidden.min(2),
            payload,
            base: Buffer::from_vec(Vec::<u8>::new()),
            columns,
        }
    }

    /// Begins a batch of about `rows` rows, which lie in `base`.
    pub(crate) fn begin(&mut self, base: &Buffer, rows: usize) {
        self.base = base.clone();
        self.builders = self.columns.iter().map(|column| Builder::new(column, base, rows)).collect();
    }

    /// Reads the row at `range` of the buffer. A row with a fault has any values.
    ///
    /// # Errors
    /// If the bytes are no row of these columns.
    pub(crate) fn row(&mut self, range: Range<usize>) -> Result<Row, Malformed> {
        let base = self.base.clone();
        let mut cursor = Cursor { bytes: base.get(..range.end).unwrap_or_default(), at: range.start };
        if usize::from(cursor.number()?) != self.columns.len() + self.hidden {
            return Err(Malformed("another number of values"));
        }
        let mut row = Row::default();
        for (number, (column, builder)) in self.columns.iter().zip(&mut self.builders).enumerate() {
            let place = cursor.value()?;
            let value = place.clone().and_then(|place| base.get(place));
            let pushed = match value {
                Some(value) if row.fault.is_none() => builder.push(column, value),
                _ => {
                    builder.push_null();
                    Ok(())
                }
            };
            if let Err(fault) = pushed {
                builder.push_null();
                row.fault = Some(format!("`{}` {fault}", column.name));
            }
            if self.payload == Some(number) {
                // The first byte of `jsonb` is its version.
                row.payload = place.map(|place| match column.kind {
                    Kind::Jsonb => (place.start + 1).min(place.end)..place.end,
                    _ => place,
                });
            }
        }
        for place in row.place.iter_mut().take(self.hidden) {
            *place = cursor.value()?;
        }
        match cursor.at == range.end {
            true => Ok(row),
            false => Err(Malformed("bytes behind a row")),
        }
    }

    /// Returns the columns of the rows.
    ///
    /// # Errors
    /// If Arrow cannot build a column.
    pub(crate) fn finish(&mut self, rows: usize) -> Result<RecordBatch, ArrowError> {
        let columns = std::mem::take(&mut self.builders).into_iter().map(Builder::finish);
        let columns = columns.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn number(&mut self) -> Result<u16, Malformed> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        self.at += 2;
        bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or(Malformed("a row that is cut off"))
    }

    /// Returns where the next value is. None for NULL.
    fn value(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let length = i32::from_be_bytes(*bytes.ok_or(Malformed("a row that is cut off"))?);
        self.at += 4;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a value of a negative length"))?;
        let start = self.at;
        self.at += length;
        match self.at <= self.bytes.len() {
            true => Ok(Some(start..self.at)),
            false => Err(Malformed("a value that is cut off")),
        }
    }
}

/// The values of a column.
enum Builder {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder, u8, u8),
    Text(TextBuilder),
    Bytes(ViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimestampMicrosecondBuilder),
}

/// Returns a value that has a fixed size.
fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], &'static str> {
    value.try_into().map_err(|_| "has a wrong length")
}

impl Builder {
    fn new(column: &Column, base: &Buffer, rows: usize) -> Self {
        let base = std::slice::from_ref(base);
        match column.kind {
            Kind::Bool => Self::Bool(BooleanBuilder::with_capacity(rows)),
            Kind::Int2 | Kind::Int4 | Kind::Int8 => Self::Int(Int64Builder::with_capacity(rows)),
            Kind::Float4 => Self::Float(Float32Builder::with_capacity(rows)),
            Kind::Float8 => Self::Double(Float64Builder::with_capacity(rows)),
            Kind::Numeric => match column.digits {
                Some((precision, scale)) => {
                    let data_type = DataType::Decimal128(precision, scale.cast_signed());
                    let builder = Decimal128Builder::with_capacity(rows).with_data_type(data_type);
                    Self::Decimal(builder, precision, scale)
                }
                None => Self::Text(TextBuilder::over(base, rows)),
            },
            Kind::Text | Kind::Json | Kind::Jsonb | Kind::Uuid => Self::Text(TextBuilder::over(base, rows)),
            Kind::Bytea => Self::Bytes(ViewBuilder::over(base, rows)),
            Kind::Date => Self::Date(Date32Builder::with_capacity(rows)),
            Kind::Time => Self::Time(Time64MicrosecondBuilder::with_capacity(rows)),
            Kind::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows)),
            Kind::TimestampTz => Self::TimestampTz(TimestampMicrosecondBuilder::with_capacity(rows)),
        }
    }

    /// Adds a value. Adds nothing if it has no counterpart.
    fn push(&mut self, column: &Column, value: &[u8]) -> Result<(), &'static str> {
        match self {
            Self::Bool(builder) => builder.append_value(fixed::<1>(value)? != [0]),
            Self::Int(builder) => builder.append_value(match column.kind {
                Kind::Int2 => i16::from_be_bytes(fixed(value)?).into(),
                Kind::Int4 => i32::from_be_bytes(fixed(value)?).into(),
                _ => i64::from_be_bytes(fixed(value)?),
            }),
            Self::Float(builder) => builder.append_value(f32::from_be_bytes(fixed(value)?)),
            Self::Double(builder) => builder.append_value(f64::from_be_bytes(fixed(value)?)),
            Self::Decimal(builder, precision, scale) => {
                builder.append_value(numeric::read(value, *precision, *scale)?);
            }
            Self::Text(builder) => match column.kind {
                Kind::Uuid => builder.push(&uuid(fixed(value)?)),
                Kind::Jsonb => match value.split_first() {
                    Some((1, json)) => builder.push(text(json)?),
                    _ => return Err("has an unknown version"),
                },
                _ => builder.push(text(value)?),
            },
            Self::Bytes(builder) => builder.push(value),
            Self::Date(builder) => {
                let days = i32::from_be_bytes(fixed(value)?);
                let finite = Some(days).filter(|days| !matches!(*days, i32::MIN | i32::MAX));
                builder.append_value(finite.and_then(|days| days.checked_add(EPOCH_DAYS)).ok_or(INFINITE)?);
            }
            Self::Time(builder) => {
                let micros = i64::from_be_bytes(fixed(value)?);
                let is_time = (0..=86_400_000_000).contains(&micros);
                builder.append_value(is_time.then_some(micros).ok_or("is no time of a day")?);
            }
            Self::Timestamp(builder) | Self::TimestampTz(builder) => {
                let micros = i64::from_be_bytes(fixed(value)?);
                let finite = Some(micros).filter(|micros| !matches!(*micros, i64::MIN | i64::MAX));
                builder.append_value(
                    finite.and_then(|micros| micros.checked_add(EPOCH_MICROS)).ok_or(INFINITE)?,
                );
            }
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Bool(builder) => builder.append_null(),
            Self::Int(builder) => builder.append_null(),
            Self::Float(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Decimal(builder, ..) => builder.append_null(),
            Self::Text(builder) => builder.push_null(),
            Self::Bytes(builder) => builder.push_null(),
            Self::Date(builder) => builder.append_null(),
            Self::Time(builder) => builder.append_null(),
            Self::Timestamp(builder) | Self::TimestampTz(builder) => builder.append_null(),
        }
    }

    fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Float(mut builder) => Arc::new(builder.finish()),
            Self::Double(mut builder) => Arc::new(builder.finish()),
            Self::Decimal(mut builder, precision, scale) => {
                let decimals = builder.finish();
                Arc::new(decimals.with_precision_and_scale(precision, scale.cast_signed())?)
            }
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Bytes(builder) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
            Self::Time(mut builder) => Arc::new(builder.finish()),
            Self::Timestamp(mut builder) => Arc::new(builder.finish()),
            Self::TimestampTz(mut builder) => Arc::new(builder.finish().with_timezone("UTC")),
        })
    }
}

const INFINITE: &str = "is infinite, or out of range";

fn text(value: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(value).map_err(|_| "is not UTF-8")
}

fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (number, byte) in bytes.into_iter().enumerate() {
        if matches!(number, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::rows;

    fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
        let mut row = (values.len() as u16).to_be_bytes().to_vec();
        for value in values {
            row.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
            row.extend_from_slice(value.unwrap_or_default());
        }
        row
    }

    fn column(name: &str, kind: Kind) -> Column {
        Column { name: name.to_owned(), kind, digits: (kind == Kind::Numeric).then_some((5, 2)) }
    }

    fn decoder(kinds: &[(&str, Kind)], hidden: usize) -> Decoder {
        Decoder::new(kinds.iter().map(|(name, kind)| column(name, *kind)).collect(), hidden, Some(0))
    }

    #[test]
    fn values_are_columns_and_texts_are_views_of_the_rows() {
        let mut decoder = decoder(
            &[
                ("t", Kind::Text),
                ("n", Kind::Int2),
                ("b", Kind::Bool),
                ("f", Kind::Float8),
                ("j", Kind::Jsonb),
                ("u", Kind::Uuid),
                ("at", Kind::TimestampTz),
            ],
            2,
        );
        let long = "a text that does not fit into a view";
        let one = row(&[
            Some(long.as_bytes()),
            Some(&(-7_i16).to_be_bytes()),
            Some(&[1]),
            Some(&1.5_f64.to_be_bytes()),
            Some(b"\x01{\"a\": 1}"),
            Some(&[0x12; 16]),
            Some(&0_i64.to_be_bytes()),
            Some(b"17"),
            None,
        ]);
        let two = row(&[None; 9]);
        let base = Buffer::from_vec([one.clone(), two.clone()].concat());
        decoder.begin(&base, 2);
        let first = decoder.row(0..one.len()).unwrap();
        assert_eq!(first.fault, None);
        assert_eq!(&base[first.place[0].clone().unwrap()], b"17");
        assert_eq!(first.place[1], None);
        assert_eq!(&base[first.payload.unwrap()], long.as_bytes());
        assert_eq!(decoder.row(one.len()..base.len()), Ok(Row::default()));
        let read: Vec<String> = rows(&decoder.finish(2).unwrap()).iter().map(ToString::to_string).collect();
        assert_eq!(
            read,
            [
                r#"{"t":"a text that does not fit into a view","n":-7,"b":true,"f":1.5,"j":"{\"a\": 1}","u":"12121212-1212-1212-1212-121212121212","at":946684800000000}"#,
                "{}"
            ]
        );
    }

    #[test]
    fn a_value_without_a_counterpart_rejects_its_row_only() {
        for (kind, value, fault) in [
            (Kind::Date, &i32::MAX.to_be_bytes()[..], "`x` is infinite, or out of range"),
            (Kind::Timestamp, &i64::MIN.to_be_bytes(), "`x` is infinite, or out of range"),
            (Kind::TimestampTz, &(i64::MAX - 1).to_be_bytes(), "`x` is infinite, or out of range"),
            (Kind::Numeric, &[0, 0, 0, 0, 0xC0, 0, 0, 0], "`x` is no finite number"),
            (Kind::Text, b"\xff", "`x` is not UTF-8"),
            (Kind::Jsonb, b"\x02{}", "`x` has an unknown version"),
            (Kind::Int4, b"\0", "`x` has a wrong length"),
            (Kind::Time, &(-1_i64).to_be_bytes(), "`x` is no time of a day"),
        ] {
            let mut decoder = decoder(&[("x", kind), ("y", Kind::Int2)], 0);
            let bytes = row(&[Some(value), Some(&[0, 1])]);
            decoder.begin(&Buffer::from_vec(bytes.clone()), 1);
            assert_eq!(decoder.row(0..bytes.len()).unwrap().fault.as_deref(), Some(fault));
            assert_eq!(decoder.finish(1).unwrap().num_rows(), 1);
        }
    }

    #[test]
    fn bytes_that_are_no_row_are_an_error() {
        let whole = row(&[Some(b"text")]);
        for (bytes, reason) in [
            (&whole[..1], "a row that is cut off"),
            (&whole[..4], "a row that is cut off"),
            (&whole[..8], "a value that is cut off"),
            (&[&whole[..], b"x"].concat()[..], "bytes behind a row"),
            (&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0], "another number of values"),
            (&[0, 1, 0x80, 0, 0, 0], "a value of a negative length"),
        ] {
            let mut decoder = decoder(&[("x", Kind::Text)], 0);
            decoder.begin(&Buffer::from_vec(bytes.to_vec()), 1);
            assert_eq!(decoder.row(0..bytes.len()), Err(Malformed(reason)));
        }
    }
}
