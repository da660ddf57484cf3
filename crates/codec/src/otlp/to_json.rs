//! Writes values of messages as JSON, for the columns that hold nested values.
//!
//! Attributes are an object, and values of any type are the JSON value that a reader expects. JSON has
//! neither bytes nor numbers that are not finite: these are written as OTLP's own JSON writes them, as
//! `{"bytesValue":"YQ=="}` and `{"doubleValue":"NaN"}`, and read back by [`from_json`](super::from_json). So
//! an object with only such a member is taken for one of them. A whole number has no point, and any other
//! number has one or an exponent, so their types are kept too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::schema::{ELEMENT, Field, KEY, Kind, Label, Message, VALUE, any};
use crate::json::write_text;
use crate::protobuf::fault::Fault;
use crate::protobuf::json::{deeper, not_finite};
use crate::protobuf::wire::{Raw, Reader, Wire};
use crate::values::{write_float, write_int};

/// The member of an object that stands for bytes.
pub(super) const BYTES_VALUE: &str = "bytesValue";
/// The member of an object that stands for a number that is not finite.
pub(super) const DOUBLE_VALUE: &str = "doubleValue";

/// The most fields of a message. Their places are in memory outside the budget, and take a dozen times the
/// bytes of the shortest ones.
pub(super) const MOST_FIELDS: usize = 1 << 16;

/// The most bytes of a byte of a text in JSON: `\u0001`.
pub(super) const MOST_ESCAPED: usize = 6;

/// Writes JSON up to a size.
pub(super) struct JsonWriter<'o> {
    pub(super) out: &'o mut Vec<u8>,
    /// The maximum size in bytes.
    pub(super) limit: usize,
}

impl JsonWriter<'_> {
    fn check_size(&self) -> Result<(), Fault> {
        match self.out.len() <= self.limit {
            true => Ok(()),
            false => Err(self.too_large()),
        }
    }

    #[cold]
    fn too_large(&self) -> Fault {
        Fault::new(format!("is larger than {} bytes as JSON", self.limit))
    }

    /// Writes a text, unless the JSON is too large with it: one of control characters grows sixfold.
    fn text(&mut self, text: &str) -> Result<(), Fault> {
        let room = self.limit.saturating_sub(self.out.len());
        // A text that fits with any characters is not counted.
        if text.len() >= room / MOST_ESCAPED {
            let length = quoted_length(text);
            if length > room {
                return Err(self.too_large());
            }
            self.out.reserve(length);
        }
        write_text(text, self.out);
        Ok(())
    }

    /// Writes the values of a field, which has occurred with these.
    pub(super) fn field<'r>(
        &mut self,
        field: &Field,
        bytes: &[u8],
        found: impl Iterator<Item = &'r Raw>,
    ) -> Result<(), Fault> {
        match (field.kind, field.label) {
            (Kind::Attributes, _) => self.object(found.map(|raw| message(*raw, bytes)), 0),
            (_, Label::List) => self.list(field, bytes, found),
            _ => match found.last() {
                Some(raw) => self.one(field.kind, *raw, bytes, 0),
                None => {
                    self.null();
                    Ok(())
                }
            },
        }
    }

    fn null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    fn list<'r>(
        &mut self,
        field: &Field,
        bytes: &[u8],
        found: impl Iterator<Item = &'r Raw>,
    ) -> Result<(), Fault> {
        let wire = wire(field.kind);
        let mut before = b'[';
        for raw in found {
            match raw {
                Raw::Bytes { .. } if wire != Wire::Bytes => {
                    let packed = raw.bytes(bytes);
                    let mut reader = Reader::new(packed);
                    while let Some(raw) = reader.packed(wire)? {
                        self.out.push(before);
                        before = b',';
                        self.one(field.kind, raw, packed, 0)?;
                    }
                }
                raw => {
                    self.out.push(before);
                    before = b',';
                    self.one(field.kind, *raw, bytes, 0)?;
                }
            }
        }
        self.close(before, b'[', b']');
        Ok(())
    }

    /// Ends a list or an object. `before` is what the next element would have had before it.
    fn close(&mut self, before: u8, open: u8, close: u8) {
        if before == open {
            self.out.push(open);
        }
        self.out.push(close);
    }

    /// Writes one value.
    fn one(&mut self, kind: Kind, raw: Raw, bytes: &[u8], depth: usize) -> Result<(), Fault> {
        self.check_size()?;
        match kind {
            Kind::Value => return self.value(message(raw, bytes)?, depth),
            Kind::Message(inner) => return self.message(inner, message(raw, bytes)?),
            Kind::Attributes => return self.object(std::iter::once(message(raw, bytes)), depth),
            Kind::Text => self.text(text(raw, bytes)?)?,
            Kind::Bytes => self.text(&STANDARD.encode(message(raw, bytes)?))?,
            Kind::Id(_) => {
                self.out.push(b'"');
                write_hex(message(raw, bytes)?, self.out);
                self.out.push(b'"');
            }
            Kind::Bool => self.out.extend_from_slice(if bits(raw)? != 0 { b"true" } else { b"false" }),
            Kind::Double => match f64::from_bits(bits(raw)?) {
                value if value.is_finite() => write_float(value, self.out),
                value => write_text(not_finite(value), self.out),
            },
            kind => write_integer(integer(kind, bits(raw)?), self.out),
        }
        Ok(())
    }

    /// Writes the fields of a message that it has.
    fn message(&mut self, about: &Message, bytes: &[u8]) -> Result<(), Fault> {
        let mut before = b'{';
        let mut found = Vec::new();
        for field in about.fields {
            found.clear();
            let mut reader = Reader::new(bytes);
            while let Some((number, raw)) = reader.field()? {
                if number == field.number {
                    accept(field, raw)?;
                    if found.len() >= MOST_FIELDS {
                        return Err(too_many_fields());
                    }
                    found.push(raw);
                }
            }
            if found.is_empty() {
                continue;
            }
            self.out.push(before);
            before = b',';
            write_text(field.name, self.out);
            self.out.push(b':');
            self.field(field, bytes, found.iter()).map_err(|fault| fault.within(field.name))?;
        }
        self.close(before, b'{', b'}');
        Ok(())
    }

    /// Writes names with values. The last of two members with one name counts for most readers, but both are
    /// written.
    fn object<'b>(
        &mut self,
        members: impl Iterator<Item = Result<&'b [u8], Fault>>,
        depth: usize,
    ) -> Result<(), Fault> {
        let depth = deeper(depth)?;
        let mut before = b'{';
        for member in members {
            let member = member?;
            let (mut key, mut value) = ("", None);
            let mut reader = Reader::new(member);
            while let Some((number, raw)) = reader.field()? {
                match number {
                    KEY => key = text(raw, member)?,
                    VALUE => value = Some(message(raw, member)?),
                    _ => {}
                }
            }
            self.check_size()?;
            self.out.push(before);
            before = b',';
            self.text(key)?;
            self.out.push(b':');
            match value {
                Some(value) => self.value(value, depth).map_err(|fault| fault.within(key))?,
                None => self.null(),
            }
        }
        self.close(before, b'{', b'}');
        Ok(())
    }

    /// Writes a value of any type: the last one that it has.
    pub(super) fn value(&mut self, bytes: &[u8], depth: usize) -> Result<(), Fault> {
        self.check_size()?;
        match last_value(bytes)? {
            None => self.null(),
            Some((any::TEXT, raw)) => self.text(text(raw, bytes)?)?,
            Some((any::BOOL, raw)) => self.one(Kind::Bool, raw, bytes, depth)?,
            Some((any::INT, raw)) => write_int(bits(raw)? as i64, self.out),
            Some((any::DOUBLE, raw)) => {
                let value = f64::from_bits(bits(raw)?);
                match value.is_finite() {
                    true => write_float(value, self.out),
                    false => self.special(DOUBLE_VALUE, not_finite(value))?,
                }
            }
            Some((any::BYTES, raw)) => self.special(BYTES_VALUE, &STANDARD.encode(message(raw, bytes)?))?,
            Some((any::ARRAY, raw)) => self.array(message(raw, bytes)?, depth)?,
            Some((_, raw)) => {
                let inner = message(raw, bytes)?;
                self.object(elements(inner), depth)?;
            }
        }
        Ok(())
    }

    fn special(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        self.out.push(b'{');
        write_text(name, self.out);
        self.out.push(b':');
        self.text(value)?;
        self.out.push(b'}');
        Ok(())
    }

    fn array(&mut self, bytes: &[u8], depth: usize) -> Result<(), Fault> {
        let depth = deeper(depth)?;
        let mut before = b'[';
        for element in elements(bytes) {
            let element = element?;
            self.out.push(before);
            before = b',';
            self.value(element, depth)?;
        }
        self.close(before, b'[', b']');
        Ok(())
    }
}

/// Returns the elements of an array or object.
fn elements(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], Fault>> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || {
        loop {
            match reader.field() {
                Ok(None) => return None,
                Ok(Some((ELEMENT, raw))) => return Some(message(raw, bytes)),
                Ok(Some(_)) => {}
                // The reader stays before the fault: the caller must stop at it.
                Err(fault) => return Some(Err(fault)),
            }
        }
    })
}

/// Returns the number and value of the last field of a value of any type. Fields that are not known here are
/// no value.
pub(super) fn last_value(bytes: &[u8]) -> Result<Option<(u32, Raw)>, Fault> {
    let mut reader = Reader::new(bytes);
    let mut last = None;
    while let Some((number, raw)) = reader.field()? {
        if (any::TEXT..=any::BYTES).contains(&number) {
            last = Some((number, raw));
        }
    }
    Ok(last)
}

/// Returns how values of this type are written.
pub(super) fn wire(kind: Kind) -> Wire {
    match kind {
        Kind::Text | Kind::Bytes | Kind::Id(_) | Kind::Value | Kind::Attributes | Kind::Message(_) => {
            Wire::Bytes
        }
        Kind::Fixed64 | Kind::SFixed64 | Kind::Double | Kind::Time => Wire::Fixed64,
        Kind::Fixed32 => Wire::Fixed32,
        Kind::Bool | Kind::Int | Kind::UInt32 | Kind::UInt64 | Kind::SInt32 | Kind::Enum(_) => Wire::Varint,
    }
}

/// Checks that a value is written as one of this field can be.
#[inline]
pub(super) fn accept(field: &Field, raw: Raw) -> Result<(), Fault> {
    let wire = wire(field.kind);
    let is_right = match raw {
        Raw::Varint(_) => wire == Wire::Varint,
        Raw::Fixed64(_) => wire == Wire::Fixed64,
        Raw::Fixed32(_) => wire == Wire::Fixed32,
        // A list of numbers may be written as one value.
        Raw::Bytes { .. } => wire == Wire::Bytes || field.label == Label::List,
        Raw::Group { .. } => false,
    };
    if is_right { Ok(()) } else { Err(misfit(raw).within(field.name)) }
}

#[cold]
pub(super) fn too_many_fields() -> Fault {
    Fault::new(format!("has more than {MOST_FIELDS} fields"))
}

#[cold]
pub(super) fn misfit(raw: Raw) -> Fault {
    Fault::new(format!("is {}, which its type is not", raw.noun()))
}

/// Returns the bytes of a value that has a length.
pub(super) fn message(raw: Raw, bytes: &[u8]) -> Result<&[u8], Fault> {
    match raw {
        Raw::Bytes { .. } => Ok(raw.bytes(bytes)),
        raw => Err(misfit(raw)),
    }
}

/// Returns a text.
pub(super) fn text(raw: Raw, bytes: &[u8]) -> Result<&str, Fault> {
    let bytes = message(raw, bytes)?;
    std::str::from_utf8(bytes).map_err(|_| Fault::new(crate::not_utf8(bytes)))
}

/// Returns the bits of a number.
pub(super) fn bits(raw: Raw) -> Result<u64, Fault> {
    match raw {
        Raw::Varint(value) | Raw::Fixed64(value) => Ok(value),
        Raw::Fixed32(value) => Ok(value.into()),
        raw => Err(misfit(raw)),
    }
}

/// Returns the integer of this type that has these bits.
pub(super) fn integer(kind: Kind, bits: u64) -> i128 {
    match kind {
        Kind::UInt32 | Kind::Fixed32 => i128::from(bits as u32),
        Kind::UInt64 | Kind::Fixed64 | Kind::Time => bits.into(),
        Kind::SInt32 => {
            let bits = bits as u32;
            i128::from((bits >> 1) as i32 ^ -((bits & 1) as i32))
        }
        Kind::Enum(_) => i128::from(bits as i32),
        _ => i128::from(bits as i64),
    }
}

/// Returns the size of a text in JSON, in bytes, with its quotes.
fn quoted_length(text: &str) -> usize {
    let length = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => MOST_ESCAPED,
        _ => 1,
    };
    text.bytes().map(length).sum::<usize>() + 2
}

fn write_integer(value: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends bytes as hexadecimal digits.
pub(super) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_text_in_json_is_known_before_it_is_written() {
        for text in (0..=0x80u8).map(|byte| format!("a{}é", char::from(byte))) {
            let mut out = Vec::new();
            write_text(&text, &mut out);
            assert_eq!(quoted_length(&text), out.len(), "{text:?}");
            let mut fits = Vec::new();
            JsonWriter { out: &mut fits, limit: out.len() }.text(&text).unwrap();
            assert_eq!(fits, out);
            let mut none = Vec::new();
            assert!(JsonWriter { out: &mut none, limit: out.len() - 1 }.text(&text).is_err());
            assert!(none.is_empty());
        }
    }
}
