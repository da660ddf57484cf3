//! Parses Protocol Buffers: [`thalweg_codec::protobuf`] decodes the messages.
//!
//! The types come from a descriptor set, which compilers of `.proto` files write. A parser of `.proto` files
//! here was rejected: a file imports others, and each project has its own rules where these are.
//!
//! See docs/decisions/086-protocol-buffers-are-decoded-in-place.md.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::{missing, reject_all};
use thalweg_codec::keys::bytes_of;
use thalweg_codec::protobuf::{Protobuf, Schema, Wanted, WireFormat};
use thalweg_engine::{Component, Context, Error, KnownFields, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, Share};

use crate::kept::Kept;

/// Parses messages in Protocol Buffers' binary form into fields.
///
/// Each field of the message type becomes a field of its name. Integers are integers of 64 bits (`uint64` and
/// `fixed64` without a sign), `float` and `double` are floating-point numbers, `bool` is true or false,
/// `string` and `bytes` stay what they are, and an enumeration is the name of its value, or its number as
/// text if it has no name. `google.protobuf.Timestamp` is a time with microseconds,
/// `google.protobuf.Duration` is a number of seconds, and a wrapper such as `google.protobuf.Int64Value` is
/// its value. Nested messages, lists and maps are JSON text, as in `parse_json`, and so are
/// `google.protobuf.Struct`, `Value` and `ListValue`. `flatten` makes fields of nested messages.
///
/// A field that a message lacks has the default value of its type, as in all programs that read the message:
/// `0`, `false`, an empty text, an empty list, the first value of an enumeration. A field with presence is
/// NULL if it is missing: `optional` ones, members of a `oneof`, messages, all fields of proto2, and those of
/// editions unless they say otherwise. If proto2 declares a default for it, it has that value. In JSON,
/// missing fields are left out.
///
/// Fields that the message type does not have, and extensions, are ignored. A message leaves by the `errors`
/// output if it is cut off, has a value of another wire type than its field, a `string` that is not UTF-8, no
/// value for a required field, objects and lists in more than 100 levels, or JSON that is too large for
/// `memory`. The sources `socket` and `http` read a stream of messages with `framing: { by: varint }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParseProtobuf {
    /// The path of a descriptor set, which has the types of all messages. `protoc --include_imports
    /// --descriptor_set_out=FILE` and `buf build -o FILE` write it. It is read when the run starts, and
    /// counts on `memory`.
    descriptor_file: PathBuf,
    /// The message type with its package, such as `acme.shop.Order`.
    message: String,
    /// The bytes before each message, which are skipped: `none` (the default), or `confluent` for that of
    /// Confluent's schema registry.
    #[serde(default)]
    wire_format: WireFormat,
    /// True to make fields of the fields of nested messages, called `outer.inner`. They are NULL if the
    /// nested message is missing. Lists and maps stay JSON, and so do messages of a type within itself. The
    /// default is `false`.
    #[serde(default)]
    flatten: bool,
    /// False to make missing fields NULL that would have a default value. The default is `true`.
    #[serde(default = "yes")]
    defaults: bool,
    /// A prefix for the name of each field. The default is empty.
    #[serde(default)]
    prefix: String,
    /// The field to parse. The default is the payload.
    #[serde(default = "crate::payload")]
    field: String,
    #[serde(skip)]
    opened: Arc<Mutex<Weak<Types>>>,
}

fn yes() -> bool {
    true
}

impl Component for ParseProtobuf {
    const NAME: &'static str = "parse_protobuf";
    const EXAMPLE: &'static str = r#"
sources:
  orders: { generate: { lines: ["\x08\x07\x12\x03Ada"] } }
pipelines:
  main:
    from: orders
    transforms:
      - parse_protobuf: { descriptor_file: "shop.desc", message: acme.shop.Order }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl TransformConfig for ParseProtobuf {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with_others()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let types = self.types(&context.memory)?;
        let wanted = Wanted {
            message: self.message.clone(),
            flatten: self.flatten,
            without_defaults: !self.defaults,
            prefix: self.prefix.clone(),
        };
        let parser = Protobuf::new(types.schema.clone(), &wanted, self.wire_format)
            .map_err(|reason| self.unusable(&reason))?
            .within(context.memory.budget());
        Ok(Box::new(Parser { parser, field: self.field.clone(), waiting: VecDeque::new(), _types: types }))
    }
}

impl ParseProtobuf {
    /// Reads the descriptor set, or shares that of another worker of the run.
    fn types(&self, memory: &Share) -> Result<Arc<Types>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(types) = opened.upgrade() {
            return Ok(types);
        }
        let bytes = std::fs::read(&self.descriptor_file).map_err(|error| {
            let path = self.descriptor_file.display();
            Error::permanent(format!("the descriptor set `{path}` cannot be read: {error}"))
        })?;
        let mut kept = Kept::new(memory);
        kept.set(bytes.len());
        let schema = Schema::read(&bytes).map_err(|reason| self.unusable(&reason))?;
        let types = Arc::new(Types { schema: Arc::new(schema), _kept: kept });
        *opened = Arc::downgrade(&types);
        Ok(types)
    }

    fn unusable(&self, reason: &str) -> Error {
        let path = self.descriptor_file.display();
        Error::permanent(format!("the descriptor set `{path}` cannot be used: {reason}"))
    }
}

/// The types of messages, which all workers of a run share.
struct Types {
    schema: Arc<Schema>,
    _kept: Kept,
}

struct Parser {
    parser: Protobuf,
    field: String,
    /// Messages that are not parsed yet. Columns may take far more memory than the messages, so they leave in
    /// pieces.
    waiting: VecDeque<Batch>,
    _types: Arc<Types>,
}

impl Transform for Parser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.waiting.push_back(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.waiting.pop_front() {
            match bytes_of(&batch, &self.field) {
                Some(input) => {
                    let rest = self.parser.parse(batch, &input, &self.field, out)?;
                    rest.into_iter().for_each(|rest| self.waiting.push_front(rest));
                }
                None => reject_all(batch, &missing(&self.field), out)?,
            }
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
