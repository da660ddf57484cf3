//! Finds the values of the fields of one message, in the order of the fields.
//!
//! A field may occur several times, in any order: the last number or text counts, messages are merged, and
//! lists continue. So a message is read as a whole before any value is used. Each occurrence of a known field
//! is an [`Event`]. Events are sorted by field, which costs one comparison each in the usual case: encoders
//! write fields in order. The events of a message in a message lie behind those of the outer one, so one list
//! serves all levels, and nothing is allocated per message.
//!
//! The rejected alternative has a slot for each field. A message of two bytes may have a type with a thousand
//! fields, and may occur half a million times in a message of one megabyte.

use std::borrow::Cow;
use std::ops::Range;

use super::fault::Fault;
use super::kind::{Kind, Scalar};
use super::schema::{Field, Label, Schema};
use super::wire::{Raw, Reader, Wire};

/// An occurrence of a field in a message.
#[derive(Debug, Clone, Copy)]
struct Event {
    /// The index of the field in its message type.
    field: u32,
    raw: Raw,
}

/// The field of an event that another member of its `oneof` replaced.
const REPLACED: u32 = u32::MAX;

/// The member of a `oneof` that occurred last in a message.
#[derive(Debug, Clone, Copy, Default)]
struct Winner {
    /// The number of the message, in the order in which messages are read.
    message: u64,
    field: u32,
    /// True if no other member occurred behind the event that is looked at.
    is_open: bool,
}

/// The number of events for which memory is kept between batches.
const USUAL: usize = 4096;

/// The values of messages that are being read.
#[derive(Debug)]
pub(super) struct Events {
    all: Vec<Event>,
    /// The winner of each `oneof` of the schema.
    winners: Vec<Winner>,
    /// The number of messages that were read.
    messages: u64,
    /// The number of bytes that may still be copied to merge parts of messages.
    mergeable: usize,
}

impl Events {
    pub(super) fn new(schema: &Schema) -> Self {
        let winners = vec![Winner::default(); schema.oneofs];
        Self { all: Vec::new(), winners, messages: 0, mergeable: 0 }
    }

    /// Starts with a message of this many bytes that is in no other.
    pub(super) fn restart(&mut self, bytes: usize) {
        self.all.clear();
        // Parts are rare, but a hostile message could have some at each level.
        self.mergeable = bytes.saturating_mul(4);
    }

    /// Releases the memory of unusual messages.
    pub(super) fn shrink(&mut self) {
        self.all.clear();
        self.all.shrink_to(USUAL);
    }

    /// Reads the fields of a message, and returns the range of their events. Fields that the schema does not
    /// have are skipped.
    pub(super) fn read(
        &mut self,
        schema: &Schema,
        message: usize,
        bytes: &[u8],
    ) -> Result<Range<usize>, Fault> {
        let start = self.all.len();
        let about = schema.message(message);
        let mut reader = Reader::new(bytes);
        let mut expected = 0;
        while let Some((number, raw)) = reader.field()? {
            let Some(index) = about.index_of(number, expected) else { continue };
            let Some(field) = about.fields.get(index) else { continue };
            if !accepts(field, raw) {
                return Err(misfit(field.kind, raw).within(&field.name));
            }
            self.all.push(Event { field: index as u32, raw });
            expected = if field.label == Label::Single { index + 1 } else { index };
        }
        if about.has_oneofs {
            self.decide_oneofs(&about.fields, start);
        }
        let events = self.all.get_mut(start..).unwrap_or_default();
        if !events.is_sorted_by_key(|event| event.field) {
            events.sort_by_key(|event| event.field);
        }
        let end = start + events.partition_point(|event| event.field != REPLACED);
        self.all.truncate(end);
        for &index in &about.required {
            if self.of_field(index, start..end).is_empty() {
                let name = &schema.field(message, index).name;
                return Err(Fault::new("is missing, but required").within(name));
            }
        }
        Ok(start..end)
    }

    /// Forgets the events of a message that was read.
    pub(super) fn forget(&mut self, events: Range<usize>) {
        self.all.truncate(events.start);
    }

    /// Marks the events that a later member of their `oneof` replaced.
    fn decide_oneofs(&mut self, fields: &[Field], start: usize) {
        self.messages += 1;
        for event in self.all.iter_mut().skip(start).rev() {
            let oneof = fields.get(event.field as usize).and_then(|field| field.oneof);
            let Some(winner) = oneof.and_then(|oneof| self.winners.get_mut(oneof)) else { continue };
            if winner.message != self.messages {
                *winner = Winner { message: self.messages, field: event.field, is_open: true };
            } else if winner.field != event.field {
                winner.is_open = false;
                event.field = REPLACED;
            } else if !winner.is_open {
                event.field = REPLACED;
            }
        }
    }

    /// Returns the index of the field that the first of these events concerns, and its events.
    #[inline]
    pub(super) fn first(&self, events: Range<usize>) -> Option<(u32, Range<usize>)> {
        let field = self.all.get(events.clone())?.first()?.field;
        Some((field, self.prefix(field, events)))
    }

    /// Returns the events of this field that are first among these.
    #[inline]
    pub(super) fn prefix(&self, field: u32, events: Range<usize>) -> Range<usize> {
        let all = self.all.get(events.clone()).unwrap_or_default();
        let count = all.iter().take_while(|event| event.field == field).count();
        events.start..events.start + count
    }

    /// Returns the events of this field among all those of a message.
    pub(super) fn of_field(&self, field: u32, events: Range<usize>) -> Range<usize> {
        let all = self.all.get(events.clone()).unwrap_or_default();
        let start = events.start + all.partition_point(|event| event.field < field);
        self.prefix(field, start..events.end)
    }

    /// Returns the value of an event.
    pub(super) fn raw(&self, event: usize) -> Option<Raw> {
        self.all.get(event).map(|event| event.raw)
    }

    /// Returns the value that counts of a field with one value.
    #[inline]
    pub(super) fn scalar<'b>(
        &self,
        field: &Field,
        bytes: &'b [u8],
        events: Range<usize>,
    ) -> Result<Option<Scalar<'b>>, Fault> {
        let Some(last) = self.all.get(events).and_then(<[Event]>::last) else { return Ok(None) };
        let scalar = field.kind.scalar(last.raw, bytes);
        scalar.map(Some).map_err(|reason| Fault::new(reason).within(&field.name))
    }

    /// Returns the bytes of a message in a message. The parts of one message together are the message with
    /// the parts merged.
    pub(super) fn merged<'b>(
        &mut self,
        bytes: &'b [u8],
        events: Range<usize>,
    ) -> Result<Cow<'b, [u8]>, Fault> {
        let parts = self.all.get(events).unwrap_or_default();
        let parts = parts.iter().map(|event| event.raw.bytes(bytes)).filter(|part| !part.is_empty());
        let mut first = parts.clone();
        match (first.next(), first.next()) {
            (None, _) => return Ok(Cow::Borrowed(&[])),
            (Some(only), None) => return Ok(Cow::Borrowed(only)),
            _ => {}
        }
        let length: usize = parts.clone().map(<[u8]>::len).sum();
        let Some(left) = self.mergeable.checked_sub(length) else {
            return Err(Fault::new("is divided into parts at too many levels"));
        };
        let merged = parts.flatten().copied().collect();
        self.mergeable = left;
        Ok(Cow::Owned(merged))
    }

    /// Reads seconds and nanoseconds from a message of the type `Timestamp` or `Duration`.
    pub(super) fn seconds(
        &mut self,
        schema: &Schema,
        message: usize,
        bytes: &[u8],
    ) -> Result<(i64, i64), Fault> {
        let events = self.read(schema, message, bytes)?;
        let (mut seconds, mut nanoseconds) = (0, 0);
        for event in self.all.get(events.clone()).unwrap_or_default() {
            match (event.field, event.raw) {
                (0, Raw::Varint(value)) => seconds = value as i64,
                (_, Raw::Varint(value)) => nanoseconds = i64::from(value as i32),
                _ => {}
            }
        }
        self.forget(events);
        Ok((seconds, nanoseconds))
    }
}

/// True if a value is written as one of this field can be.
#[inline]
fn accepts(field: &Field, raw: Raw) -> bool {
    let wire = field.kind.wire();
    match raw {
        Raw::Varint(_) => wire == Wire::Varint,
        Raw::Fixed64(_) => wire == Wire::Fixed64,
        Raw::Fixed32(_) => wire == Wire::Fixed32,
        // A list of numbers may be written as one value.
        Raw::Bytes { .. } => wire == Wire::Bytes || field.label == Label::List,
        // Messages have two forms. An encoder of another version of the schema may use the other one.
        Raw::Group { .. } => matches!(field.kind, Kind::Message(_)) && field.label != Label::Map,
    }
}

fn misfit(kind: Kind, raw: Raw) -> Fault {
    Fault::new(format!("is {}, and its type is {}", raw.noun(), kind.noun()))
}
