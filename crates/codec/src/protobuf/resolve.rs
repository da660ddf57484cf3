//! Makes a [`Schema`] of the declarations in a descriptor set.

use std::collections::{HashMap, HashSet};

use super::defaults::{Missing, default_of, presence_of};
use super::descriptor::{EnumProto, FieldProto, FileProto, MessageProto, Presence};
use super::kind::Kind;
use super::schema::{Enum, Field, Form, Label, Message, Schema};
use crate::json::key;

/// The name of a declared type: its kind, and its number among those of its kind.
#[derive(Debug, Clone, Copy)]
enum Type {
    Message(usize),
    Enum(usize),
}

/// The declarations of all files by name.
pub(super) struct Resolver<'p> {
    types: HashMap<String, Type>,
    /// Each message type with its full name, and the presence of its fields that do not say otherwise.
    messages: Vec<(String, &'p MessageProto, Presence)>,
    enums: Vec<Enum>,
    /// The number of `oneof`s in the messages so far.
    oneofs: usize,
}

impl<'p> Resolver<'p> {
    /// Collects the types of files. Of two types or files of one name, the first is used.
    pub(super) fn new(files: &'p [FileProto]) -> Self {
        let mut found = Self { types: HashMap::new(), messages: Vec::new(), enums: Vec::new(), oneofs: 0 };
        let mut known = HashSet::new();
        for file in files.iter().filter(|file| known.insert(&file.name)) {
            found.declare(&file.package, &file.messages, &file.enums, file.presence());
        }
        found
    }

    fn declare(
        &mut self,
        scope: &str,
        messages: &'p [MessageProto],
        enums: &'p [EnumProto],
        presence: Presence,
    ) {
        let full = |name: &str| match scope {
            "" => name.to_owned(),
            scope => format!("{scope}.{name}"),
        };
        for declared in enums {
            self.types.entry(full(&declared.name)).or_insert(Type::Enum(self.enums.len()));
            self.enums.push(Enum::new(&declared.values));
        }
        for declared in messages {
            let name = full(&declared.name);
            let presence = declared.features.unwrap_or(presence);
            self.types.entry(name.clone()).or_insert(Type::Message(self.messages.len()));
            self.messages.push((name.clone(), declared, presence));
            self.declare(&name, &declared.nested, &declared.enums, presence);
        }
    }

    /// Returns the schema.
    ///
    /// # Errors
    /// The reason: a type is missing, or a default is invalid.
    pub(super) fn schema(mut self) -> Result<Schema, String> {
        let mut messages = Vec::with_capacity(self.messages.len());
        for index in 0..self.messages.len() {
            let (name, declared, presence) = self.messages[index].clone();
            messages.push(self.message(name, declared, presence)?);
        }
        let message_name = |(name, kind)| match kind {
            Type::Message(index) => Some((name, index)),
            Type::Enum(_) => None,
        };
        let by_name = self.types.into_iter().filter_map(message_name).collect();
        let mut schema = Schema { messages, enums: self.enums, by_name, oneofs: self.oneofs };
        schema.messages.iter_mut().for_each(recognise);
        Ok(schema)
    }

    fn message(
        &mut self,
        name: String,
        declared: &MessageProto,
        presence: Presence,
    ) -> Result<Message, String> {
        let mut oneofs: HashMap<u32, usize> = HashMap::new();
        let mut fields = Vec::with_capacity(declared.fields.len());
        let mut required = Vec::new();
        for field in &declared.fields {
            let presence = presence_of(field, presence);
            let mut made = self.field(&name, field, presence)?;
            if let Some(number) = field.oneof.filter(|_| !field.is_optional) {
                let next = self.oneofs + oneofs.len();
                made.oneof = Some(*oneofs.entry(number).or_insert(next));
            }
            if presence == Presence::Required && made.label == Label::Single {
                required.push(made.number);
            }
            fields.push(made);
        }
        self.oneofs += oneofs.len();
        fields.sort_by_key(|field: &Field| field.number);
        fields.dedup_by_key(|field| field.number);
        let index = |number: u32| fields.binary_search_by_key(&number, |field| field.number).ok();
        let mut required: Vec<u32> = required.into_iter().filter_map(index).map(|at| at as u32).collect();
        required.sort_unstable();
        Ok(Message { name, fields, required, has_oneofs: !oneofs.is_empty(), form: Form::Object })
    }

    /// Returns a field of the message of this name, in no `oneof`.
    fn field(&self, message: &str, declared: &FieldProto, presence: Presence) -> Result<Field, String> {
        let place = format!("{message}.{}", declared.name);
        let (kind, label) = self.type_of(&place, declared)?;
        let missing = match label {
            Label::List => Missing::Json("[]"),
            Label::Map => Missing::Json("{}"),
            Label::Single => default_of(&place, declared, kind, presence, &self.enums)?,
        };
        let (number, name) = (declared.number, declared.name.clone());
        Ok(Field { number, key: key(&name), name, kind, label, oneof: None, missing })
    }

    fn type_of(&self, place: &str, field: &FieldProto) -> Result<(Kind, Label), String> {
        let label = if field.label == 3 { Label::List } else { Label::Single };
        if let Some(kind) = Kind::of_number(field.kind) {
            return Ok((kind, label));
        }
        let name = field.type_name.strip_prefix('.').unwrap_or(&field.type_name);
        match self.types.get(name) {
            Some(Type::Message(index)) => {
                let is_entry = self.messages.get(*index).is_some_and(|(_, message, _)| message.is_map_entry);
                let label = if is_entry && label == Label::List { Label::Map } else { label };
                Ok((Kind::Message(*index), label))
            }
            Some(Type::Enum(index)) => Ok((Kind::Enum(*index), label)),
            None => Err(format!(
                "it lacks the type `{name}` of `{place}`: write it with `protoc --include_imports`"
            )),
        }
    }
}

/// Recognises a well-known type by its name and its fields.
fn recognise(message: &mut Message) {
    let Some(name) = message.name.strip_prefix("google.protobuf.") else { return };
    let fields: Vec<_> = message.fields.iter().map(|field| (field.number, field.label, field.kind)).collect();
    let form = match (name, fields.as_slice()) {
        ("Timestamp", [(1, Label::Single, Kind::Int64), (2, Label::Single, Kind::Int32)]) => Form::Time,
        ("Duration", [(1, Label::Single, Kind::Int64), (2, Label::Single, Kind::Int32)]) => Form::Duration,
        (_, [(1, Label::Single, kind)]) if is_wrapper(name, *kind) => Form::Wrapper,
        ("Struct", [(1, Label::Map, _)]) => Form::Json("{}"),
        ("ListValue", [(1, Label::List, _)]) => Form::Json("[]"),
        ("Value", [(1, _, Kind::Enum(_)), (2, _, Kind::Double), ..]) => {
            let kinds = [Kind::JsonNull, Kind::JsonNumber];
            message.fields.iter_mut().zip(kinds).for_each(|(field, kind)| field.kind = kind);
            Form::Json("null")
        }
        _ => Form::Object,
    };
    message.form = form;
}

/// True if this is the name of the wrapper of a type.
fn is_wrapper(name: &str, kind: Kind) -> bool {
    let of = match kind {
        Kind::Double => "DoubleValue",
        Kind::Float => "FloatValue",
        Kind::Int64 => "Int64Value",
        Kind::UInt64 => "UInt64Value",
        Kind::Int32 => "Int32Value",
        Kind::UInt32 => "UInt32Value",
        Kind::Bool => "BoolValue",
        Kind::Text => "StringValue",
        Kind::Bytes => "BytesValue",
        _ => return false,
    };
    name == of
}
