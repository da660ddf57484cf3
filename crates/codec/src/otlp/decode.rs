//! Turns requests into columns, without an object for each record.
//!
//! A request is a tree: resources, scopes, records, and for metrics their points below a metric. The reader
//! walks it once and remembers one place on each level, so what it holds does not grow with the request. A
//! batch ends after a number of rows or a size of JSON: a record of two bytes takes as much memory in columns
//! as any other.
//!
//! A request that is not valid is an error as a whole. A record that is valid but has a value without a place
//! in its column is rejected by itself.

use std::ops::Range;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, UInt32Array, cast::AsArray};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use arrow_select::take::take;
use thalweg_record::{Budget, ViewBuilder};

use super::Signal;
use super::columns::Column;
use super::plan::{Mapped, Metrics, Plan, Target};
use super::schema::{
    BODY, EVENT_NAME, Field, GROUPS, HEAD, INNER, Kind, Label, METRIC_NAME, POINTS, SCHEMA_URL, SETTINGS,
    SPAN_NAME, any,
};
use super::to_json::{JsonWriter, accept, bits, integer, last_value, message, misfit, text, write_hex};
use super::write::varint_field;
use crate::protobuf::fault::Fault;
use crate::protobuf::wire::{Raw, Reader};

/// The most values that are made at once with enough memory, NULLs included: rows times columns.
const CELLS: usize = 1 << 19;

/// One value is made at once for this many bytes of the memory.
const MEMORY: usize = 256;

/// The fewest rows that are made at once, if there are as many.
const FEWEST: usize = 16;

/// The size of the JSON after which a batch is complete with enough memory, in bytes.
const PIECE: usize = 4 << 20;

/// The records of a part of a request.
#[derive(Debug)]
pub struct Records {
    /// The payload of each: of a log record its body, of a span or a metric its name.
    pub payload: BinaryViewArray,
    /// The columns.
    pub fields: RecordBatch,
}

/// A part of a request.
#[derive(Debug)]
pub struct Decoded {
    /// The records that can be used.
    pub records: Records,
    /// Others, each with the reason to reject it. The value concerned is NULL.
    pub rejected: Option<(Records, Vec<String>)>,
}

/// Reads one request in its binary form.
#[derive(Debug)]
pub struct Decoder {
    plan: &'static Plan,
    signal: Signal,
    buffer: Buffer,
    walk: Walk,
    filling: Filling,
    most_rows: usize,
    /// The size of the JSON after which a batch is complete.
    most_json: usize,
}

impl Decoder {
    /// Reads a request, in parts that fit into this budget.
    ///
    /// # Errors
    /// If the request is too long.
    pub fn new(signal: Signal, buffer: Buffer, budget: &Budget) -> Result<Self, String> {
        if u32::try_from(buffer.len()).is_err() {
            return Err("is longer than 4 GiB".to_owned());
        }
        let plan = Plan::of(signal);
        let cells = (budget.limit() / MEMORY).clamp(CELLS / 32, CELLS);
        let limit = budget.longest_text().max(2 * buffer.len());
        Ok(Self {
            plan,
            signal,
            walk: Walk::new(buffer.len()),
            buffer,
            filling: Filling { limit, ..Filling::default() },
            most_rows: (cells / plan.schema.fields().len().max(1)).max(FEWEST),
            most_json: PIECE.min(budget.longest_text()),
        })
    }

    /// Returns at most this number of records at once, if there is a number.
    #[must_use]
    pub fn of_rows(mut self, most: Option<usize>) -> Self {
        self.most_rows = most.map_or(self.most_rows, |most| self.most_rows.min(most.max(1)));
        self
    }

    /// Reads the request to its end without keeping anything. Returns the number of records.
    ///
    /// # Errors
    /// The reason why the request is not valid.
    pub fn check(mut self) -> Result<usize, String> {
        let mut count = 0;
        while let Some(decoded) = self.part()? {
            let rejected = decoded.rejected.map_or(0, |(_, reasons)| reasons.len());
            count += decoded.records.fields.num_rows() + rejected;
        }
        Ok(count)
    }

    /// True if all records were returned.
    pub fn is_done(&self) -> bool {
        self.walk.is_done
    }

    /// Returns the next records. None at the end of the request.
    ///
    /// # Errors
    /// The reason why the request is not valid.
    pub fn part(&mut self) -> Result<Option<Decoded>, String> {
        let buffer = self.buffer.clone();
        let bytes = buffer.as_slice();
        self.filling.begin(self.plan, &buffer);
        self.walk.mark(Written::Before);
        let mut payload = ViewBuilder::over(std::slice::from_ref(&buffer), 64);
        while payload.len() < self.most_rows && self.filling.written < self.most_json {
            let place = self.walk.next(self.plan, bytes);
            let row = match place.map_err(|fault| format!("is not valid: {fault}"))? {
                Some(row) => row,
                None => {
                    self.walk.is_done = true;
                    break;
                }
            };
            let filled = self.row(bytes, row, &mut payload);
            filled.map_err(|fault| {
                format!("is not valid: in its record {} (from 0), {fault}", self.walk.rows)
            })?;
            self.walk.rows += 1;
        }
        if payload.is_empty() {
            return Ok(None);
        }
        let decoded = self.filling.finish(self.plan, payload.finish());
        decoded.map(Some).map_err(|error| format!("does not fit into columns: {error}"))
    }

    /// Fills the row of a record.
    fn row(&mut self, bytes: &[u8], row: Range<usize>, payload: &mut ViewBuilder) -> Result<(), Fault> {
        let Self { plan, signal, walk, filling, .. } = self;
        let record = bytes.get(row).unwrap_or_default();
        filling.row = payload.len();
        filling.before = filling.written;
        if let Some(mapped) = &plan.record {
            filling.fill(mapped, record)?;
        }
        if let (Some(metrics), Some(metric)) = (&plan.metrics, &walk.metric) {
            filling.point(metrics, metric, bytes, record)?;
        }
        for (mapped, url, group) in [
            (&plan.scope, plan.scope_schema_url, &walk.scope),
            (&plan.resource, plan.resource_schema_url, &walk.resource),
        ] {
            if let Some(group) = group {
                filling.group(mapped, url, group, bytes)?;
            }
        }
        filling.constant(plan.signal, signal.name());
        walk.mark(Written::Now);
        filling.fill_rest();
        match signal {
            Signal::Logs => filling.body(record, payload),
            Signal::Traces => named(record, SPAN_NAME, payload),
            Signal::Metrics => {
                let metric = walk.metric.as_ref().map(|metric| metric.group.whole.clone());
                named(bytes.get(metric.unwrap_or_default()).unwrap_or_default(), METRIC_NAME, payload)
            }
        }
    }
}

/// Adds the name of a record as its payload.
fn named(record: &[u8], number: u32, payload: &mut ViewBuilder) -> Result<(), Fault> {
    let place = find(record, 0..record.len(), number)?;
    payload.push(record.get(place.unwrap_or_default()).unwrap_or_default());
    Ok(())
}

/// Returns the place of the last field of this number within a message, which has these bytes of the request.
fn find(bytes: &[u8], within: Range<usize>, number: u32) -> Result<Option<Range<usize>>, Fault> {
    let (start, mut last) = (within.start, None);
    let mut reader = Reader::new(bytes.get(within).unwrap_or_default());
    while let Some((found, raw)) = reader.field()? {
        if found == number {
            last = Some(shifted(raw, start)?);
        }
    }
    Ok(last)
}

/// Returns the place of a value in the request, if it is within a message that begins at `start`.
fn shifted(raw: Raw, start: usize) -> Result<Range<usize>, Fault> {
    match raw {
        Raw::Bytes { start: from, end } => Ok(start + from as usize..start + end as usize),
        raw => Err(misfit(raw)),
    }
}

/// A part of a message that is not read yet.
#[derive(Debug, Default)]
struct Rest {
    at: usize,
    end: usize,
}

impl Rest {
    /// Returns the place of the next field of this number.
    fn next(&mut self, bytes: &[u8], number: u32) -> Result<Option<Range<usize>>, Fault> {
        let mut reader = Reader::new(bytes.get(self.at..self.end).unwrap_or_default());
        while let Some((found, raw)) = reader.field()? {
            if found == number {
                let place = shifted(raw, self.at)?;
                self.at = place.end;
                return Ok(Some(place));
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

/// Whether columns have the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Those of no batch have them.
    Never,
    /// Those of batches before this one have them.
    Before,
    /// Those of this batch have them.
    Now,
}

/// A resource, a scope or a metric with what is below it.
#[derive(Debug)]
struct Group {
    whole: Range<usize>,
    /// The place of what describes it: of a metric, that of its data.
    head: Range<usize>,
    schema_url: Range<usize>,
    rest: Rest,
    written: Written,
}

impl Group {
    /// Enters the group at this place.
    fn of(bytes: &[u8], whole: Range<usize>) -> Result<Self, Fault> {
        Ok(Self {
            head: find(bytes, whole.clone(), HEAD)?.unwrap_or_default(),
            schema_url: find(bytes, whole.clone(), SCHEMA_URL)?.unwrap_or_default(),
            rest: Rest { at: whole.start, end: whole.end },
            whole,
            written: Written::Never,
        })
    }
}

/// A metric, with the number of its kind in the plan.
#[derive(Debug)]
struct MetricGroup {
    group: Group,
    kind: usize,
    /// The fields of the data without its points. There may be millions of points, and the fields are read
    /// again for each batch.
    settings: Vec<u8>,
}

/// Where the reader is in the request.
#[derive(Debug)]
struct Walk {
    request: Rest,
    resource: Option<Group>,
    scope: Option<Group>,
    metric: Option<MetricGroup>,
    /// The number of records so far.
    rows: usize,
    is_done: bool,
}

impl Walk {
    fn new(length: usize) -> Self {
        let request = Rest { at: 0, end: length };
        Self { request, resource: None, scope: None, metric: None, rows: 0, is_done: false }
    }

    /// Marks all groups.
    fn mark(&mut self, written: Written) {
        let metric = self.metric.as_mut().map(|metric| &mut metric.group);
        for group in [self.resource.as_mut(), self.scope.as_mut(), metric].into_iter().flatten() {
            group.written = written;
        }
    }

    /// Returns the place of the next record.
    fn next(&mut self, plan: &Plan, bytes: &[u8]) -> Result<Option<Range<usize>>, Fault> {
        loop {
            if let Some(MetricGroup { group, .. }) = &mut self.metric {
                match group.rest.next(bytes, POINTS)? {
                    Some(point) => return Ok(Some(point)),
                    None => self.metric = None,
                }
            } else if let Some(scope) = &mut self.scope {
                match (scope.rest.next(bytes, INNER)?, &plan.metrics) {
                    (Some(metric), Some(metrics)) => self.metric = entered(metrics, bytes, metric)?,
                    (Some(record), None) => return Ok(Some(record)),
                    (None, _) => self.scope = None,
                }
            } else if let Some(resource) = &mut self.resource {
                match resource.rest.next(bytes, INNER)? {
                    Some(scope) => self.scope = Some(Group::of(bytes, scope)?),
                    None => self.resource = None,
                }
            } else {
                match self.request.next(bytes, GROUPS)? {
                    Some(resource) => self.resource = Some(Group::of(bytes, resource)?),
                    None => return Ok(None),
                }
            }
        }
    }
}

/// Enters a metric. None if it has no data.
fn entered(metrics: &Metrics, bytes: &[u8], whole: Range<usize>) -> Result<Option<MetricGroup>, Fault> {
    let mut last = None;
    let mut reader = Reader::new(bytes.get(whole.clone()).unwrap_or_default());
    while let Some((number, raw)) = reader.field()? {
        if let Some(kind) = metrics.kinds.iter().position(|kind| kind.number == number) {
            last = Some((kind, shifted(raw, whole.start)?));
        }
    }
    let Some((kind, data)) = last else { return Ok(None) };
    let settings = settings(bytes, data.clone())?;
    let rest = Rest { at: data.start, end: data.end };
    let group = Group { whole, head: data, schema_url: 0..0, rest, written: Written::Never };
    Ok(Some(MetricGroup { group, kind, settings }))
}

/// Returns the last fields of the data of a metric that are not points.
fn settings(bytes: &[u8], data: Range<usize>) -> Result<Vec<u8>, Fault> {
    let mut last = [None; SETTINGS.len()];
    let mut reader = Reader::new(bytes.get(data).unwrap_or_default());
    while let Some((number, raw)) = reader.field()? {
        if let Some(at) = SETTINGS.iter().position(|known| *known == number) {
            last[at] = Some(bits(raw)?);
        }
    }
    let mut settings = Vec::new();
    for (number, value) in SETTINGS.into_iter().zip(last) {
        if let Some(value) = value {
            varint_field(number, value, &mut settings);
        }
    }
    Ok(settings)
}

/// The columns that are being filled, and memory that is reused.
#[derive(Debug, Default)]
struct Filling {
    columns: Vec<Column>,
    /// The fields of the messages that are being read, each with its index in its message.
    events: Vec<(usize, Raw)>,
    scratch: Vec<u8>,
    /// The rows that cannot be used.
    failed: Vec<(u32, String)>,
    row: usize,
    /// The size of the JSON of the batch, and before the current record.
    written: usize,
    before: usize,
    /// The maximum size of the JSON of a record.
    limit: usize,
}

impl Filling {
    fn begin(&mut self, plan: &Plan, base: &Buffer) {
        self.columns.clear();
        self.columns.extend(plan.schema.fields().iter().map(|field| Column::new(field, base, 64)));
        (self.written, self.before) = (0, 0);
        self.events.clear();
    }

    /// Appends NULL to the columns that the record had no value for.
    fn fill_rest(&mut self) {
        let rows = self.row + 1;
        for column in &mut self.columns {
            if column.len() < rows {
                column.push_null();
            }
        }
    }

    fn column(&mut self, at: usize) -> Option<&mut Column> {
        self.columns.get_mut(at)
    }

    /// Appends the same text to all rows.
    fn constant(&mut self, column: usize, text: &str) {
        if let Some(column) = self.column(column) {
            column.push_text(text);
        }
    }

    /// Appends what a group has in common.
    fn group(&mut self, mapped: &Mapped, url: usize, group: &Group, bytes: &[u8]) -> Result<(), Fault> {
        if group.written == Written::Now {
            self.again(mapped);
            if let Some(column) = self.column(url) {
                column.push_again();
            }
            return Ok(());
        }
        self.of_group(mapped, bytes.get(group.head.clone()).unwrap_or_default(), group.written)?;
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

    /// Appends the values of a message of a group. Values that an earlier batch had do not make this one
    /// shorter: large ones would leave a row in each.
    fn of_group(&mut self, mapped: &Mapped, bytes: &[u8], written: Written) -> Result<(), Fault> {
        let before = self.written;
        self.fill(mapped, bytes)?;
        if written == Written::Before {
            self.written = before;
        }
        Ok(())
    }

    /// Appends a point of a metric.
    fn point(
        &mut self,
        metrics: &Metrics,
        metric: &MetricGroup,
        bytes: &[u8],
        point: &[u8],
    ) -> Result<(), Fault> {
        let Some(kind) = metrics.kinds.get(metric.kind) else { return Ok(()) };
        self.fill(&kind.point, point)?;
        let Group { whole, written, .. } = &metric.group;
        if *written == Written::Now {
            self.again(&metrics.metric);
            self.again(&kind.data);
        } else {
            self.of_group(&metrics.metric, bytes.get(whole.clone()).unwrap_or_default(), *written)?;
            self.of_group(&kind.data, &metric.settings, *written)?;
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
    fn fill(&mut self, mapped: &Mapped, bytes: &[u8]) -> Result<(), Fault> {
        let start = self.events.len();
        let fields = mapped.message.fields;
        let mut reader = Reader::new(bytes);
        let mut expected = 0;
        while let Some((number, raw)) = reader.field()? {
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
        let Self { columns, events: all, scratch, failed, written, before, row, limit } = self;
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
            Kind::Text => push_text(column, field, text(raw, bytes)?),
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
    fn body(&mut self, record: &[u8], payload: &mut ViewBuilder) -> Result<(), Fault> {
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
    fn finish(&mut self, plan: &Plan, payload: BinaryViewArray) -> Result<Decoded, ArrowError> {
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

impl Records {
    fn taken(&self, rows: Vec<u32>) -> Result<Self, ArrowError> {
        let rows = UInt32Array::from(rows);
        let columns = self.fields.columns().iter().map(|column| take(column, &rows, None));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let payload = take(&self.payload, &rows, None)?.as_binary_view().clone();
        Ok(Self { payload, fields: RecordBatch::try_new(self.fields.schema(), columns)? })
    }
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
