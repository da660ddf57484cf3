//! Reads a `FileDescriptorSet`: the compiled form of `.proto` files, which is itself a message.
//!
//! Only what a decoder needs is read: names, numbers, types, and what decides about missing fields. Services,
//! extensions, source positions and other options are skipped.

use super::fault::Fault;
use super::wire::{Raw, Reader};

/// The maximum depth of types declared in types.
const DEEPEST: usize = 60;

/// Whether a missing field differs from one with the default value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// A missing field has no value.
    Explicit,
    /// A missing field has the default value of its type.
    Implicit,
    /// The field must not be missing.
    Required,
}

/// A file of declarations.
#[derive(Debug, Default)]
pub(super) struct FileProto {
    pub(super) name: String,
    pub(super) package: String,
    pub(super) messages: Vec<MessageProto>,
    pub(super) enums: Vec<EnumProto>,
    syntax: String,
    features: Option<Presence>,
}

/// A message type.
#[derive(Debug, Default)]
pub(super) struct MessageProto {
    pub(super) name: String,
    pub(super) fields: Vec<FieldProto>,
    pub(super) nested: Vec<MessageProto>,
    pub(super) enums: Vec<EnumProto>,
    pub(super) is_map_entry: bool,
    pub(super) features: Option<Presence>,
}

/// A field of a message type.
#[derive(Debug, Default)]
pub(super) struct FieldProto {
    pub(super) name: String,
    pub(super) number: u32,
    /// 1 for optional, 2 for required, 3 for repeated.
    pub(super) label: u64,
    /// The number of the type in `FieldDescriptorProto.Type`.
    pub(super) kind: u64,
    /// The full name of a message type or enumeration, with a dot before it.
    pub(super) type_name: String,
    pub(super) default: Option<Vec<u8>>,
    /// The number of the `oneof` in its message.
    pub(super) oneof: Option<u32>,
    /// True for `optional` in proto3, which is also the only member of a `oneof`.
    pub(super) is_optional: bool,
    pub(super) features: Option<Presence>,
}

/// An enumeration.
#[derive(Debug, Default)]
pub(super) struct EnumProto {
    pub(super) name: String,
    pub(super) values: Vec<(i32, String)>,
}

impl FileProto {
    /// Returns the presence of fields that do not say otherwise.
    pub(super) fn presence(&self) -> Presence {
        let of_syntax = if self.syntax == "proto3" { Presence::Implicit } else { Presence::Explicit };
        self.features.unwrap_or(of_syntax)
    }

    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut file = Self::default();
        each(bytes, |number, raw| {
            let value = raw.bytes(bytes);
            match number {
                1 => file.name = text(value),
                2 => file.package = text(value),
                4 => file.messages.push(MessageProto::read(value, 1)?),
                5 => file.enums.push(EnumProto::read(value)?),
                8 => file.features = features(value, 50)?,
                12 => file.syntax = text(value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(file)
    }
}

impl MessageProto {
    fn read(bytes: &[u8], depth: usize) -> Result<Self, Fault> {
        if depth > DEEPEST {
            return Err(Fault::new(format!("declares types in types deeper than {DEEPEST} levels")));
        }
        let mut message = Self::default();
        each(bytes, |number, raw| {
            let value = raw.bytes(bytes);
            match number {
                1 => message.name = text(value),
                2 => message.fields.push(FieldProto::read(value)?),
                3 => message.nested.push(Self::read(value, depth + 1)?),
                4 => message.enums.push(EnumProto::read(value)?),
                7 => {
                    message.features = features(value, 12)?;
                    each(value, |number, raw| {
                        message.is_map_entry |= number == 7 && matches!(raw, Raw::Varint(1..));
                        Ok(())
                    })?;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(message)
    }
}

impl FieldProto {
    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut field = Self::default();
        each(bytes, |number, raw| {
            let value = raw.bytes(bytes);
            match (number, raw) {
                (1, _) => field.name = text(value),
                (3, Raw::Varint(number)) => field.number = u32::try_from(number).unwrap_or_default(),
                (4, Raw::Varint(label)) => field.label = label,
                (5, Raw::Varint(kind)) => field.kind = kind,
                (6, _) => field.type_name = text(value),
                (7, Raw::Bytes { .. }) => field.default = Some(value.to_vec()),
                (8, _) => field.features = features(value, 21)?,
                (9, Raw::Varint(oneof)) => field.oneof = u32::try_from(oneof).ok(),
                (17, Raw::Varint(is_optional)) => field.is_optional = is_optional != 0,
                _ => {}
            }
            Ok(())
        })?;
        Ok(field)
    }
}

impl EnumProto {
    fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut found = Self::default();
        each(bytes, |number, raw| {
            match number {
                1 => found.name = text(raw.bytes(bytes)),
                2 => found.values.push(enum_value(raw.bytes(bytes))?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(found)
    }
}

fn enum_value(bytes: &[u8]) -> Result<(i32, String), Fault> {
    let mut value = (0, String::new());
    each(bytes, |number, raw| {
        match (number, raw) {
            (1, _) => value.1 = text(raw.bytes(bytes)),
            (2, Raw::Varint(number)) => value.0 = number as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(value)
}

/// Reads the files of a `FileDescriptorSet`.
pub(super) fn files(bytes: &[u8]) -> Result<Vec<FileProto>, Fault> {
    let mut files = Vec::new();
    each(bytes, |number, raw| {
        if number == 1 {
            files.push(FileProto::read(raw.bytes(bytes))?);
        }
        Ok(())
    })?;
    Ok(files)
}

/// Reads the presence that the features among some options set. `number` is that of the field `features`.
fn features(options: &[u8], number: u32) -> Result<Option<Presence>, Fault> {
    let mut presence = None;
    each(options, |found, raw| {
        if found != number {
            return Ok(());
        }
        each(raw.bytes(options), |number, raw| {
            presence = match (number, raw) {
                (1, Raw::Varint(1)) => Some(Presence::Explicit),
                (1, Raw::Varint(2)) => Some(Presence::Implicit),
                (1, Raw::Varint(3)) => Some(Presence::Required),
                _ => presence,
            };
            Ok(())
        })
    })?;
    Ok(presence)
}

/// Passes the number and the value of each field of a message to `take`.
fn each(bytes: &[u8], mut take: impl FnMut(u32, Raw) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        take(number, raw)?;
    }
    Ok(())
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
