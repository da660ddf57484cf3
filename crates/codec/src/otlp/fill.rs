//! Fills the columns of a batch with the values of records.

use std::ops::Range;

use arrow_array::{BinaryViewArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use thalweg_record::ViewBuilder;

use super::columns::Column;
use super::decode::{Decoded, Records};
use super::plan::{Mapped, Metrics, Plan, Target};
use super::schema::{BODY, EVENT_NAME, Field, Kind, Label, any};
use super::to_json::{
    JsonWriter, MOST_FIELDS, accept, bits, integer, last_value, message, text, too_many_fields, write_hex,
};
use super::walk::{Group, MetricGroup, Written, find};
use crate::protobuf::fault::Fault;
use crate::protobuf::wire::{Raw, Reader};

/// How much of a request may be read and written again, in bytes. Each batch has the values of its groups, so
/// those of a large group are written as often as there are batches. Usual groups have a few thousand bytes.
const REPEATED: usize = 64 << 20;

/// How many times its own size the values of the groups of a request may have, counted in each row: a sink
/// that writes each row by itself writes them that often. A resource of a few thousand bytes with many empty
/// records would fill its disk.
const COPIED: usize = 64;

/// But they may have this size in any request, in bytes.
const LEAST_COPIED: usize = 128 << 20;

/// And they have at most this size, in bytes.
const MOST_COPIED: usize = 1 << 30;

/// The cost of reading a field, in bytes.
const FIELD: usize = 16;

/// The groups of a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Level {
    Scope,
    Resource,
    Metric,
}

/// The columns that are being filled, and memory that is reused.
#[derive(Debug, Default)]
pub(super) struct Filling {
    columns: Vec<Column>,
    /// The fields of the messages that are being read, each with its index in its message.
    events: Vec<(usize, Raw)>,
    scratch: Vec<u8>,
    /// The rows that cannot be used.
    failed: Vec<(u32, String)>,
    pub(super) row: usize,
    /// The size of the JSON of the batch, and before the current record.
    pub(super) written: usize,
    pub(super) before: usize,
    /// The maximum size of the JSON of a record.
    limit: usize,
    /// The number of fields that were read.
    read: usize,
    /// The sizes of the values of the current groups, by their levels.
    sizes: [usize; 3],
    /// The size of the values of groups in the batch, counted in each row.
    pub(super) shared: usize,
    /// The cost of the values of groups that earlier batches had, and its maximum.
    repeated: usize,
    most_repeated: usize,
    /// The size of the texts that were appended, which are not JSON.
    texts: usize,
    /// The sizes of the texts and the JSON of the current groups, by their levels.
    of_row: [usize; 3],
    /// The size of the texts and the JSON of groups in the request, counted in each row, and its maximum.
    copied: usize,
    most_copied: usize,
}

impl Filling {
    /// Fills columns with records whose JSON has at most this size. The request has this length.
    pub(super) fn new(limit: usize, length: usize) -> Self {
        let most_copied = length.saturating_mul(COPIED).clamp(LEAST_COPIED, MOST_COPIED);
        Self { limit, most_repeated: REPEATED, most_copied, ..Self::default() }
    }

    /// Writes the values of groups in any number of batches.
    pub(super) fn repeats_groups_without_limit(&mut self) {
        self.most_repeated = usize::MAX;
    }

    pub(super) fn begin(&mut self, plan: &Plan, base: &Buffer) {
        self.columns.clear();
        self.columns.extend(plan.schema.fields().iter().map(|field| Column::new(field, base, 64)));
        (self.written, self.before, self.shared) = (0, 0, 0);
        self.events.clear();
    }

    /// Ends the row: appends NULL to the columns that the record had no value for.
    pub(super) fn end_row(&mut self) -> Result<(), Fault> {
        self.shared += self.sizes.iter().sum::<usize>();
        self.copied = self.copied.saturating_add(self.of_row.iter().sum());
        if self.copied > self.most_copied {
            return Err(too_large_groups());
        }
        let rows = self.row + 1;
        for column in &mut self.columns {
            if column.len() < rows {
                column.push_null();
            }
        }
        Ok(())
    }

    fn column(&mut self, at: usize) -> Option<&mut Column> {
        self.columns.get_mut(at)
    }

    /// Appends the same text to all rows.
    pub(super) fn constant(&mut self, column: usize, text: &str) {
        if let Some(column) = self.column(column) {
            column.push_text(text);
        }
    }

    /// Appends what a group has in common.
    pub(super) fn group(
        &mut self,
        level: Level,
        (mapped, url): (&Mapped, usize),
        group: &Group,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        if group.written == Written::Now {
            self.again(mapped);
            if let Some(column) = self.column(url) {
                column.push_again();
            }
            return Ok(());
        }
        let head = bytes.get(group.head.clone()).unwrap_or_default();
        let size = head.len() + group.schema_url.len();
        self.of_group(level, &[(mapped, head)], size, group.written)?;
        self.of_row[level as usize] += group.schema_url.len();
        let url_bytes = bytes.get(group.schema_url.clone()).unwrap_or_default();
        let text = std::str::from_utf8(url_bytes)
            .map_err(|_| Fault::new(crate::not_utf8(url_bytes)).within("schema_url"))?;
        if !text.is_empty()
            && let Some(column) = self.column(url)
        {
            column.push_text(text);
        } else if let Some(column) = self.column(url) {
            column.push_null();
        }
        Ok(())
    }

    /// Appends the values of the messages of a group, which has this size. Values that an earlier batch had
    /// do not count as JSON of this one: large ones would leave a row in each.
    fn of_group(
        &mut self,
        level: Level,
        messages: &[(&Mapped, &[u8])],
        size: usize,
        written: Written,
    ) -> Result<(), Fault> {
        let (before, read, texts) = (self.written, self.read, self.texts);
        for (mapped, bytes) in messages {
            self.fill(mapped, bytes)?;
        }
        let json = self.written - before;
        self.sizes[level as usize] = size + json;
        self.of_row[level as usize] = json + self.texts - texts;
        if written == Written::Before {
            self.written = before;
            self.repeated += json + FIELD * (self.read - read);
            if self.repeated > self.most_repeated {
                return Err(too_large_groups());
            }
        }
        Ok(())
    }

    /// Appends a point of a metric.
    pub(super) fn point(
        &mut self,
        metrics: &Metrics,
        metric: &MetricGroup,
        bytes: &[u8],
        point: &[u8],
    ) -> Result<(), Fault> {
        let Some(kind) = metrics.kinds.get(metric.kind) else { return Ok(()) };
        self.fill(&kind.point, point)?;
        let Group { whole, head, written, .. } = &metric.group;
        if *written == Written::Now {
            self.again(&metrics.metric);
            self.again(&kind.data);
        } else {
            let messages = [
                (&metrics.metric, bytes.get(whole.clone()).unwrap_or_default()),
                (&kind.data, metric.settings.as_slice()),
            ];
            let size = whole.len() - head.len() + metric.settings.len();
            self.of_group(Level::Metric, &messages, size, *written)?;
        }
        self.constant(metrics.kind, kind.name);
        Ok(())
    }

    /// Appends the last values of these columns again.
    fn again(&mut self, mapped: &Mapped) {
        for target in &mapped.targets {
            match target {
                Target::Column(column) => {
                    if let Some(column) = self.columns.get_mut(*column) {
                        column.push_again();
                    }
                }
                Target::Nested(inner) => self.again(inner),
                Target::Skipped => {}
            }
        }
    }

    /// Appends the values of the fields of a message.
    pub(super) fn fill(&mut self, mapped: &Mapped, bytes: &[u8]) -> Result<(), Fault> {
        let start = self.events.len();
        let fields = mapped.message.fields;
        let mut reader = Reader::new(bytes);
        let mut expected = 0;
        while let Some((number, raw)) = reader.field()? {
            self.read += 1;
            let Some(index) = mapped.message.index_of(number, expected) else { continue };
            let (Some(field), Some(target)) = (fields.get(index), mapped.targets.get(index)) else {
                continue;
            };
            accept(field, raw)?;
            if matches!(target, Target::Skipped) {
                continue;
            }
            let is_single = field.label != Label::List && field.kind != Kind::Attributes;
            expected = if is_single { index + 1 } else { index };
            if self.events.len() - start >= MOST_FIELDS {
                return Err(too_many_fields());
            }
            self.events.push((index, raw));
        }
        let found = self.events.get_mut(start..).unwrap_or_default();
        if !found.is_sorted_by_key(|(index, _)| *index) {
            found.sort_by_key(|(index, _)| *index);
        }
        let mut from = start;
        for ((index, field), target) in fields.iter().enumerate().zip(&mapped.targets) {
            let of_field = self.events.get(from..).unwrap_or_default();
            let end = from + of_field.iter().take_while(|(found, _)| *found == index).count();
            let filled = match target {
                Target::Skipped => Ok(()),
                Target::Column(column) => self.value(*column, field, bytes, from..end),
                Target::Nested(inner) => self.nested(inner, bytes, from..end),
            };
            filled.map_err(|fault| fault.within(field.name))?;
            from = end;
        }
        self.events.truncate(start);
        Ok(())
    }

    fn nested(&mut self, inner: &Mapped, bytes: &[u8], events: Range<usize>) -> Result<(), Fault> {
        let last = self.events.get(events).and_then(<[_]>::last).copied();
        match last {
            Some((_, raw)) => self.fill(inner, message(raw, bytes)?),
            None => self.fill(inner, &[]),
        }
    }

    /// Appends the value of a field that occurred with these events.
    fn value(
        &mut self,
        column: usize,
        field: &Field,
        bytes: &[u8],
        events: Range<usize>,
    ) -> Result<(), Fault> {
        let Self { columns, events: all, scratch, failed, written, before, row, limit, texts, .. } = self;
        let Some(column) = columns.get_mut(column) else { return Ok(()) };
        let found = all.get(events).unwrap_or_default();
        let Some(&(_, raw)) = found.last() else {
            match field.label {
                Label::Zero if field.kind == Kind::Double => column.push_double(0.0),
                Label::Zero => column.push_integer(0),
                Label::Implicit | Label::Explicit | Label::List => column.push_null(),
            }
            return Ok(());
        };
        if field.label == Label::List
            || matches!(field.kind, Kind::Attributes | Kind::Value | Kind::Message(_))
        {
            scratch.clear();
            let limit = limit.saturating_sub(*written - *before);
            let mut writer = JsonWriter { out: &mut *scratch, limit };
            writer.field(field, bytes, found.iter().map(|(_, raw)| raw))?;
            *written += scratch.len();
            return push_json(column, field, scratch);
        }
        let unfit = match field.kind {
            Kind::Text => {
                let value = text(raw, bytes)?;
                *texts += value.len();
                push_text(column, field, value)
            }
            Kind::Id(length) => {
                scratch.clear();
                push_id(column, length, message(raw, bytes)?, scratch)
            }
            Kind::Enum(names) => push_name(column, names, integer(field.kind, bits(raw)?)),
            Kind::Double => push_double(column, field, f64::from_bits(bits(raw)?)),
            kind => push_integer(column, field, integer(kind, bits(raw)?)),
        };
        if let Some(reason) = unfit {
            failed.push((*row as u32, format!("the field `{}` {reason}", field.name)));
        }
        Ok(())
    }

    /// Adds the body of a log record as its payload: a text as it is. Without a body, it is the name of the
    /// event.
    pub(super) fn body(&mut self, record: &[u8], payload: &mut ViewBuilder) -> Result<(), Fault> {
        let Some(body) = find(record, 0..record.len(), BODY)? else {
            return named(record, EVENT_NAME, payload);
        };
        let body = record.get(body).unwrap_or_default();
        match last_value(body)? {
            Some((any::TEXT, raw)) => payload.push(message(raw, body)?),
            None => return named(record, EVENT_NAME, payload),
            Some(_) => {
                self.scratch.clear();
                JsonWriter { out: &mut self.scratch, limit: self.limit }.value(body, 0)?;
                self.written += self.scratch.len();
                payload.push(&self.scratch);
            }
        }
        Ok(())
    }

    /// Returns the rows, and those that cannot be used apart from them.
    pub(super) fn finish(&mut self, plan: &Plan, payload: BinaryViewArray) -> Result<Decoded, ArrowError> {
        self.scratch = Vec::new();
        let columns = self.columns.drain(..).map(Column::finish).collect();
        let fields = RecordBatch::try_new(plan.schema.clone(), columns)?;
        let all = Records { payload, fields };
        let failed = std::mem::take(&mut self.failed);
        if failed.is_empty() {
            return Ok(Decoded { records: all, rejected: None });
        }
        let mut rows: Vec<u32> = Vec::new();
        let mut reasons = Vec::new();
        for (row, reason) in failed {
            // One reason is enough.
            if rows.last() != Some(&row) {
                rows.push(row);
                reasons.push(reason);
            }
        }
        let others = (0..all.fields.num_rows() as u32).filter(|row| rows.binary_search(row).is_err());
        let records = all.taken(others.collect())?;
        Ok(Decoded { records, rejected: Some((all.taken(rows)?, reasons)) })
    }
}

#[cold]
fn too_large_groups() -> Fault {
    Fault::new(
        "has a resource, scope or metric that is too large for this number of records: send fewer of them in \
         a request",
    )
}

fn push_json(column: &mut Column, field: &Field, json: &[u8]) -> Result<(), Fault> {
    let text = std::str::from_utf8(json).map_err(|_| Fault::new("cannot be written as JSON"))?;
    match text {
        "null" => column.push_null(),
        "[]" if field.label == Label::List => column.push_null(),
        text => column.push_text(text),
    }
    Ok(())
}

/// The predicate of a sentence whose subject is the field, if its value has no place in the column.
type Unfit = Option<String>;

fn push_text(column: &mut Column, field: &Field, text: &str) -> Unfit {
    match text.is_empty() && field.label == Label::Implicit {
        true => column.push_null(),
        false => column.push_text(text),
    }
    None
}

/// Appends an identifier, which has no bytes or this number of them.
fn push_id(column: &mut Column, length: usize, id: &[u8], scratch: &mut Vec<u8>) -> Unfit {
    if id.len() != length {
        column.push_null();
        return (!id.is_empty()).then(|| format!("has {} bytes, not {length}", id.len()));
    }
    write_hex(id, scratch);
    column.push_text(std::str::from_utf8(scratch).unwrap_or_default());
    None
}

/// Appends the name of a number, or the number if it has none. The number 0 says nothing.
fn push_name(column: &mut Column, names: &[&str], value: i128) -> Unfit {
    match (value, usize::try_from(value).ok().and_then(|value| names.get(value))) {
        (0, _) => column.push_null(),
        (_, Some(name)) => column.push_text(name),
        (value, None) => column.push_text(itoa::Buffer::new().format(value)),
    }
    None
}

fn push_double(column: &mut Column, field: &Field, value: f64) -> Unfit {
    match value.to_bits() == 0 && field.label == Label::Implicit {
        true => column.push_null(),
        false => column.push_double(value),
    }
    None
}

fn push_integer(column: &mut Column, field: &Field, value: i128) -> Unfit {
    if value == 0 && field.label == Label::Implicit {
        column.push_null();
        return None;
    }
    column.push_integer(value);
    let is_unfit = field.kind == Kind::Time && i64::try_from(value).is_err();
    is_unfit.then(|| "is after the year 2262".to_owned())
}

/// Adds the name of a record as its payload.
pub(super) fn named(record: &[u8], number: u32, payload: &mut ViewBuilder) -> Result<(), Fault> {
    let place = find(record, 0..record.len(), number)?;
    payload.push(record.get(place.unwrap_or_default()).unwrap_or_default());
    Ok(())
}
