//! Writes JSON as messages, in two forms.
//!
//! In OTLP's own JSON, each value is an object that names its type, and attributes are a list. In columns,
//! attributes are an object and values have no names of types: see [`to_json`](super::to_json). In both,
//! numbers may be texts, members that are not known are skipped, and `null` is as good as none.
//!
//! Requests in JSON become requests in the binary form, which then have one reader. A second reader for them
//! was rejected: each rule would be written twice.

use std::fmt;

use base64::Engine as _;
use base64::alphabet::{self, Alphabet};
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::schema::{ANY_VALUE, ELEMENT, Field, KEY, KEY_VALUE, Kind, Label, Message, VALUE, any};
use super::to_json::{BYTES_VALUE, DOUBLE_VALUE};
use super::write::{begin, bits, bytes_field, bytes_if_any, end, is_packed, number, number_field};
use super::write::{double_field, varint_field};
use crate::columns::shortened;

/// Base64 in both alphabets that the JSON of Protocol Buffers has, with or without padding.
static BASE64: [GeneralPurpose; 2] = [base64_of(&alphabet::STANDARD), base64_of(&alphabet::URL_SAFE)];

const fn base64_of(alphabet: &Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config)
}

/// The form of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// That of OTLP.
    Otlp,
    /// That of columns.
    Columns,
}

/// Returns a message in OTLP's JSON in its binary form.
///
/// # Errors
/// The reason why the text is not such a message.
pub(super) fn message(about: &'static Message, json: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(json.len() / 2);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = reader.deserialize_map(Fields { about, form: Form::Otlp, out: &mut out });
    read.and_then(|()| reader.end()).map_err(|error| error.to_string())?;
    Ok(out)
}

/// Writes a field whose value is JSON in the form of columns.
///
/// # Errors
/// The reason why the text is no value of the field.
pub(super) fn field(field: &'static Field, json: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let start = out.len();
    let read =
        Member { field, form: Form::Columns, is_element: false, out: &mut *out }.deserialize(&mut reader);
    read.and_then(|()| reader.end()).map_err(|error| {
        out.truncate(start);
        error.to_string()
    })
}

/// Writes a name with a value, which is JSON, as an attribute in the field of this number.
///
/// # Errors
/// The reason why the text is no JSON.
pub(super) fn attribute(number: u32, name: &str, json: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let start = begin(number, out);
    bytes_if_any(KEY, name.as_bytes(), out);
    let read = AnyValue { number: VALUE, out: &mut *out }.deserialize(&mut reader);
    read.and_then(|()| reader.end()).map_err(|error| error.to_string())?;
    end(start, out);
    Ok(())
}

/// The members of an object, which are the fields of a message.
struct Fields<'o> {
    about: &'static Message,
    form: Form,
    out: &'o mut Vec<u8>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { about, form, out } = self;
        while let Some(field) = map.next_key_seed(Name(about))? {
            match field {
                Some(field) => {
                    map.next_value_seed(Member { field, form, is_element: false, out: &mut *out })?
                }
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// The name of a member: returns the field, if there is one.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.named(name))
    }
}

/// The value of a member, or an element of the list that it is.
struct Member<'o> {
    field: &'static Field,
    form: Form,
    is_element: bool,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.field.kind == Kind::Value && self.form == Form::Columns {
            return AnyValue { number: self.field.number, out: self.out }.deserialize(reader);
        }
        reader.deserialize_any(self)
    }
}

impl Member<'_> {
    /// Writes an integer.
    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        let Self { field, out, is_element, .. } = self;
        let bits = match field.kind {
            Kind::Double => (value as f64).to_bits(),
            kind => bits(kind, value)
                .ok_or_else(|| E::custom(format!("`{}` cannot be the number {value}", field.name)))?,
        };
        self::value(field, is_element, bits, out);
        Ok(())
    }

    fn is_list(&self) -> bool {
        let is_list = match self.field.kind {
            Kind::Attributes => self.form == Form::Otlp,
            _ => self.field.label == Label::List,
        };
        is_list && !self.is_element
    }
}

#[cold]
fn misfit<E: Error>(field: &Field, what: &str) -> E {
    E::custom(format!("`{}` cannot be {what}", field.name))
}

/// Writes a number, which may be an element of a list without tags.
fn value(field: &Field, is_element: bool, bits: u64, out: &mut Vec<u8>) {
    match is_element {
        true => number(field.kind, bits, out),
        false => number_field(field, bits, out),
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of `{}`", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        // The elements behind it keep their places.
        if self.is_element && self.field.kind == Kind::Value {
            bytes_field(self.field.number, b"", self.out);
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        if self.field.kind != Kind::Bool {
            return Err(misfit(self.field, "true or false"));
        }
        value(self.field, self.is_element, truth.into(), self.out);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if self.field.kind == Kind::Double {
            value(self.field, self.is_element, number.to_bits(), self.out);
            return Ok(());
        }
        match number.fract() == 0.0 && number.abs() < 1e19 {
            true => self.integer(number as i128),
            false => Err(misfit(self.field, &format!("the number {number}"))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let field = self.field;
        match field.kind {
            Kind::Text if field.label == Label::Implicit => {
                bytes_if_any(field.number, text.as_bytes(), self.out);
            }
            Kind::Text => bytes_field(field.number, text.as_bytes(), self.out),
            Kind::Bytes => match BASE64.iter().find_map(|base64| base64.decode(text).ok()) {
                Some(bytes) => bytes_field(field.number, &bytes, self.out),
                None => return Err(misfit(field, "what is not Base64")),
            },
            // Of a record, the reader of the binary form checks the length.
            Kind::Id(_) => {
                let bytes = identifier(field, None, text).map_err(E::custom)?;
                bytes_if_any(field.number, &bytes, self.out);
            }
            kind => match scalar(kind, text) {
                Some(bits) => value(field, self.is_element, bits, self.out),
                None => return Err(misfit(field, &format!("the text `{}`", shortened(text)))),
            },
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if !self.is_list() {
            return Err(misfit(self.field, "a list"));
        }
        let Self { field, form, out, .. } = self;
        let start = is_packed(field.kind).then(|| begin(field.number, out));
        let first = out.len();
        while list.next_element_seed(Member { field, form, is_element: true, out: &mut *out })?.is_some() {}
        match start {
            // A list without elements is as good as none.
            Some(start) if out.len() == first => out.truncate(start - tag_length(field.number)),
            Some(start) => end(start, out),
            None => {}
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.is_list() {
            return Err(misfit(self.field, "an object"));
        }
        let Self { field, form, out, .. } = self;
        let about = match field.kind {
            Kind::Message(about) => about,
            Kind::Value => &ANY_VALUE,
            Kind::Attributes if form == Form::Otlp => &KEY_VALUE,
            Kind::Attributes => return members(field.number, &mut map, out),
            _ => return Err(misfit(field, "an object")),
        };
        let start = begin(field.number, out);
        Fields { about, form, out: &mut *out }.visit_map(map)?;
        end(start, out);
        Ok(())
    }
}

/// Returns the number of bytes of the tag of a field.
fn tag_length(number: u32) -> usize {
    let mut tag = Vec::with_capacity(2);
    begin(number, &mut tag)
}

/// Returns the bits of a number that is written as text.
pub(super) fn scalar(kind: Kind, text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    match kind {
        Kind::Double => Some(text.parse::<f64>().ok()?.to_bits()),
        Kind::Bool => crate::columns::truth(text).map(u64::from),
        Kind::Enum(names) => match text.parse::<i32>() {
            Ok(value) => bits(kind, value.into()),
            // Some senders write the names of Protocol Buffers: `SPAN_KIND_SERVER`.
            Err(_) => {
                let last = text.rsplit('_').next().unwrap_or(text);
                let found = names.iter().position(|name| name.eq_ignore_ascii_case(last))?;
                bits(kind, found as i128)
            }
        },
        kind => bits(kind, text.parse().ok()?),
    }
}

/// Returns the bytes of an identifier, which has this length if there is one. An empty text is none.
///
/// # Errors
/// The reason why it is none.
pub(super) fn identifier(field: &Field, length: Option<usize>, text: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    let is_right = |bytes: &Vec<u8>| bytes.is_empty() || length.is_none_or(|length| bytes.len() == length);
    bytes.filter(is_right).ok_or_else(|| {
        let count = length.map_or_else(String::new, |length| format!("{} ", 2 * length));
        format!("`{}` is not {count}hexadecimal digits: `{}`", field.name, shortened(text))
    })
}

/// Writes the members of an object as attributes in the field of this number.
fn members<'de, A: MapAccess<'de>>(number: u32, map: &mut A, out: &mut Vec<u8>) -> Result<(), A::Error> {
    while let Some(start) = map.next_key_seed(Key { number, out: &mut *out })? {
        map.next_value_seed(AnyValue { number: VALUE, out: &mut *out })?;
        end(start, out);
    }
    Ok(())
}

/// The name of an attribute, which begins it. Returns the start of the attribute.
struct Key<'o> {
    number: u32,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<usize, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let start = begin(self.number, self.out);
        bytes_if_any(KEY, name.as_bytes(), self.out);
        Ok(start)
    }
}

/// A value of any type in the form of columns, in the field of this number.
struct AnyValue<'o> {
    number: u32,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for AnyValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        let start = begin(self.number, self.out);
        reader.deserialize_any(AnyContent(&mut *self.out))?;
        end(start, self.out);
        Ok(())
    }
}

/// The content of a value of any type.
struct AnyContent<'o>(&'o mut Vec<u8>);

impl<'de> Visitor<'de> for AnyContent<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        varint_field(any::BOOL, truth.into(), self.0);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        varint_field(any::INT, value as u64, self.0);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        double_field(any::DOUBLE, value, self.0);
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        bytes_field(any::TEXT, text.as_bytes(), self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let start = begin(any::ARRAY, self.0);
        while list.next_element_seed(AnyValue { number: ELEMENT, out: &mut *self.0 })?.is_some() {}
        end(start, self.0);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let out = self.0;
        let whole = out.len();
        let start = begin(any::OBJECT, out);
        members(ELEMENT, &mut map, out)?;
        let special = out.get(start..).and_then(special);
        match special {
            Some(Special::Bytes(bytes)) => {
                out.truncate(whole);
                bytes_field(any::BYTES, &bytes, out);
            }
            Some(Special::Double(value)) => {
                out.truncate(whole);
                double_field(any::DOUBLE, value, out);
            }
            None => end(start, out),
        }
        Ok(())
    }
}

/// A value that JSON does not have.
enum Special {
    Bytes(Vec<u8>),
    Double(f64),
}

/// Returns the value that the members of an object stand for, if it is one that JSON does not have.
fn special(members: &[u8]) -> Option<Special> {
    let mut reader = crate::protobuf::wire::Reader::new(members);
    let (_, only) = reader.field().ok()??;
    let member = only.bytes(members);
    // Most objects have other members.
    if !reader.rest().is_empty() || member.len() < 2 + DOUBLE_VALUE.len().min(BYTES_VALUE.len()) {
        return None;
    }
    let mut reader = crate::protobuf::wire::Reader::new(member);
    let (_, name) = reader.field().ok()??;
    let name = name.bytes(member);
    if name != BYTES_VALUE.as_bytes() && name != DOUBLE_VALUE.as_bytes() {
        return None;
    }
    let (_, value) = reader.field().ok()??;
    let value = value.bytes(member);
    let (any::TEXT, text) = super::to_json::last_value(value).ok()?? else { return None };
    let text = std::str::from_utf8(text.bytes(value)).ok()?;
    if name == BYTES_VALUE.as_bytes() {
        let bytes = STANDARD.decode(text).ok()?;
        return Some(Special::Bytes(bytes));
    }
    matches!(text, "NaN" | "Infinity" | "-Infinity").then(|| text.parse().ok().map(Special::Double))?
}
