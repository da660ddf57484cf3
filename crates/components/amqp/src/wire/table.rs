//! Tables of fields: names with values of several types, which may be lists and tables again.
//!
//! The letters of the types are those of RabbitMQ, which differ from the specification's in a few numbers:
//! <https://www.rabbitmq.com/amqp-0-9-1-errata>.

use std::fmt::Write as _;

use thalweg_broker::input::Input;

use super::Malformed;
use super::input::Elements;

/// How deep lists and tables may be within each other.
const DEEPEST: usize = 32;

/// A table, read from its bytes when it is asked for a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a>(Input<'a>);

/// The value of a field.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    /// A number, and how many of its digits are behind the point.
    Decimal(u8, u32),
    Text(&'a [u8]),
    List(Input<'a>),
    Table(Table<'a>),
    Void,
}

impl<'a> Table<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self(Input(bytes))
    }

    /// Returns the first field with this name as a text: one that is a text as it is, a list or a table as
    /// JSON, and none without a value. Fields behind one that cannot be read are not there.
    pub(crate) fn text(mut self, name: &str) -> Option<String> {
        while !self.0.is_empty() {
            let (found, value) = self.field().ok()?;
            if found == name.as_bytes() {
                return value.text();
            }
        }
        None
    }

    fn field(&mut self) -> Result<(&'a [u8], Value<'a>), Malformed> {
        Ok((self.0.short()?, Value::read(&mut self.0)?))
    }
}

impl<'a> Value<'a> {
    fn read(input: &mut Input<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            b't' => Self::Bool(input.byte()? != 0),
            b'b' => Self::Signed(i64::from(i8::from_be_bytes(input.array()?))),
            b'B' => Self::Unsigned(u64::from(input.byte()?)),
            b's' => Self::Signed(i64::from(i16::from_be_bytes(input.array()?))),
            b'u' => Self::Unsigned(u64::from(input.two_bytes()?)),
            b'I' => Self::Signed(i64::from(i32::from_be_bytes(input.array()?))),
            b'i' => Self::Unsigned(u64::from(input.four_bytes()?)),
            b'l' | b'L' => Self::Signed(i64::from_be_bytes(input.array()?)),
            b'T' => Self::Unsigned(input.eight_bytes()?),
            b'f' => Self::Float(f64::from(f32::from_be_bytes(input.array()?))),
            b'd' => Self::Float(f64::from_be_bytes(input.array()?)),
            b'D' => Self::Decimal(input.byte()?, input.four_bytes()?),
            b'S' | b'x' => Self::Text(input.long()?),
            b'A' => Self::List(Input(input.long()?)),
            b'F' => Self::Table(Table::of(input.long()?)),
            b'V' => Self::Void,
            _ => return Err(Malformed("a field has an unknown type")),
        })
    }

    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            Self::Void => None,
            other => {
                let mut json = String::new();
                other.write_json(&mut json, DEEPEST).ok()?;
                Some(json)
            }
        }
    }

    /// Appends the value as JSON.
    fn write_json(self, out: &mut String, depth: usize) -> Result<(), Malformed> {
        let depth = depth.checked_sub(1).ok_or(Malformed("a table is too deep"))?;
        // Writing to a text does not fail.
        let _ = match self {
            Self::Bool(value) => write!(out, "{value}"),
            Self::Signed(value) => write!(out, "{value}"),
            Self::Unsigned(value) => write!(out, "{value}"),
            // With an exponent if the number is large: it could be 300 digits otherwise.
            Self::Float(value) if value.is_finite() => write!(out, "{value:?}"),
            Self::Decimal(scale, value) => {
                write_decimal(out, scale, value);
                Ok(())
            }
            Self::Text(text) => {
                write_text(out, text);
                Ok(())
            }
            Self::Float(_) | Self::Void => write!(out, "null"),
            Self::List(mut items) => {
                out.push('[');
                while !items.is_empty() {
                    let value = Value::read(&mut items)?;
                    separate(out, '[');
                    value.write_json(out, depth)?;
                }
                out.push(']');
                Ok(())
            }
            Self::Table(mut table) => {
                out.push('{');
                while !table.0.is_empty() {
                    let (name, value) = table.field()?;
                    separate(out, '{');
                    write_text(out, name);
                    out.push(':');
                    value.write_json(out, depth)?;
                }
                out.push('}');
                Ok(())
            }
        };
        Ok(())
    }
}

/// Appends a comma, unless a list or table has just begun.
fn separate(out: &mut String, begin: char) {
    if !out.ends_with(begin) {
        out.push(',');
    }
}

fn write_text(out: &mut String, text: &[u8]) {
    out.push_str(&serde_json::Value::from(String::from_utf8_lossy(text)).to_string());
}

fn write_decimal(out: &mut String, scale: u8, value: u32) {
    let (digits, scale) = (value.to_string(), usize::from(scale));
    match scale {
        0 => out.push_str(&digits),
        1..=20 => {
            let digits = format!("{digits:0>width$}", width = scale + 1);
            let (whole, part) = digits.split_at(digits.len() - scale);
            out.push_str(whole);
            out.push('.');
            out.push_str(part);
        }
        _ => out.push_str(&format!("{digits}e-{scale}")),
    }
}
