//! A batch of messages.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
    StringViewArray, TimestampMicrosecondArray, UInt32Array, UInt64Array, builder::StringViewBuilder,
    cast::AsArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::{concat::concat, filter::FilterBuilder, take::take};

use crate::{Ack, Budget, Outcome, PayloadWriter};

/// The name of the payload in expressions and templates.
pub const PAYLOAD: &str = "payload";
/// The names that exist for each message: the payload, unless a field has the same name, and metadata.
pub const INTRINSIC: [&str; 5] = [PAYLOAD, "meta.source", "meta.path", "meta.time", "meta.position"];
/// The field of a rejected message that contains the reason.
pub const ERROR_REASON: &str = "error_reason";
/// The field of a rejected message that names the component that rejected it.
pub const ERROR_COMPONENT: &str = "error_component";

/// The key in the metadata of a schema without fields, if the messages are records: see [`is_record`].
const RECORD: &str = "thalweg.record";

/// True if messages with this schema are records: they have fields, or had some, or a parser found that they
/// have none, as in `{}`. Other messages are nothing but their payload.
pub fn is_record(schema: &Schema) -> bool {
    !schema.fields().is_empty() || schema.metadata().contains_key(RECORD)
}

/// True if a name is one of metadata. It never means a field, whose name the content of a message may have
/// chosen: a client could then choose the source of its messages.
pub fn is_metadata(name: &str) -> bool {
    name != PAYLOAD && INTRINSIC.contains(&name)
}

/// Metadata of a batch's origin, the same for all its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The name of the source in the configuration.
    pub source: Arc<str>,
    /// The file, address or subject that the batch was read from, if there is one.
    pub path: Option<Arc<str>>,
    /// The name of the sequence that the positions of the messages belong to: a partition, or the content of
    /// a file, whose path may become that of another file. Positions grow within a sequence, and a later run
    /// finds the same message at a position. None if they begin again with each run or connection.
    pub sequence: Option<Arc<str>>,
    /// When the batch was read, in microseconds since 1970 (UTC).
    pub time_us: i64,
    /// The number of nanoseconds that sinks add to this time if each message needs one of its own. Zero for
    /// messages that were just read; others with the same time may have been delivered before.
    pub number: u64,
}

/// Messages in columns: their payloads, parsed fields, origin and ack.
///
/// The buffers themselves hold the leases on their memory, see [`claim`](Self::claim).
///
/// Field names are unique. A batch has no cost per message until a column is read. [`filter`](Self::filter)
/// and similar functions copy views (sixteen bytes each), and copy bytes only if few are left.
#[derive(Debug)]
pub struct Batch {
    payload: BinaryViewArray,
    fields: RecordBatch,
    positions: Option<UInt64Array>,
    meta: Arc<Meta>,
    ack: Ack,
}

impl Batch {
    /// Creates a batch of payloads without fields.
    pub fn new(payload: BinaryViewArray, meta: Arc<Meta>, ack: Ack) -> Self {
        let fields = no_fields(payload.len());
        Self { payload, fields, positions: None, meta, ack }
    }

    /// Sets where in its origin each message began: a byte offset or a sequence number.
    pub fn with_positions(mut self, positions: UInt64Array) -> Result<Self, ArrowError> {
        same_rows(self.rows(), positions.len())?;
        self.positions = Some(positions);
        Ok(self)
    }

    /// Returns the number of messages.
    pub fn rows(&self) -> usize {
        self.payload.len()
    }

    /// Returns the bytes of all payloads together.
    pub fn payload_bytes(&self) -> usize {
        bytes_of(&self.payload)
    }

    /// Records the component that has the batch from here on: see [`Ack::enter`].
    pub fn enter(&mut self, component: &Arc<str>) {
        let Self { payload, ack, .. } = self;
        ack.enter_with(component, || (payload.len(), bytes_of(payload)));
    }

    /// Returns the bytes of all columns, without the texts that views refer to: other batches may share them.
    pub fn columns_bytes(&self) -> usize {
        /// The array itself, and the owners of its buffers.
        const COLUMN: usize = 256;
        let positions = self.positions.as_ref().map_or(0, |_| size_of::<u64>());
        let columns = self.fields.columns().iter().map(|column| COLUMN + column_bytes(column));
        self.rows() * (size_of::<u128>() + positions) + columns.sum::<usize>()
    }

    /// Returns the payloads. The array has no NULLs.
    pub fn payload(&self) -> &BinaryViewArray {
        &self.payload
    }

    /// Returns the fields that were parsed or set.
    pub fn fields(&self) -> &RecordBatch {
        &self.fields
    }

    /// Returns where in its origin each message began, if the source provides that.
    pub fn positions(&self) -> Option<&UInt64Array> {
        self.positions.as_ref()
    }

    /// Returns the metadata of the origin.
    pub fn meta(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// Returns the ack.
    pub fn ack(&self) -> &Ack {
        &self.ack
    }

    /// Returns the ack, to change it.
    pub fn ack_mut(&mut self) -> &mut Ack {
        &mut self.ack
    }

    /// Settles the batch.
    pub fn settle(self, outcome: Outcome) {
        match outcome {
            Outcome::Rejected => self.ack.reject(self.payload.len()),
            outcome => self.ack.settle(outcome),
        }
    }

    /// Separates the ack from the data.
    pub fn take_ack(&mut self) -> Ack {
        std::mem::replace(&mut self.ack, Ack::noop())
    }

    /// Returns a second batch over the same memory, with a part of the ack: both must be settled.
    pub fn share(&self) -> Self {
        self.with_ack(self.ack.split())
    }

    /// Returns a second batch over the same memory, with an ack of its own.
    pub fn with_ack(&self, ack: Ack) -> Self {
        Self {
            payload: self.payload.clone(),
            fields: self.fields.clone(),
            positions: self.positions.clone(),
            meta: self.meta.clone(),
            ack,
        }
    }

    /// Returns a column by the name that expressions and templates use: a field, `payload`, or `meta.source`,
    /// `meta.path`, `meta.time`, `meta.position`. `payload` is returned as text, with U+FFFD in place of
    /// bytes that are not UTF-8. A field called `payload` hides the payload: see
    /// [`by_intrinsic_fields`](Self::by_intrinsic_fields). A field does not hide metadata.
    pub fn column(&self, name: &str) -> Option<ArrayRef> {
        if let Some((place, _)) = self.field(name) {
            return Some(self.fields.column(place).clone());
        }
        let rows = self.rows();
        let constant = |value: &str| -> ArrayRef {
            let mut builder = StringViewBuilder::with_capacity(rows);
            let block = builder.append_block(value.as_bytes().to_vec().into());
            for _ in 0..rows {
                // In bounds by construction: the block is the value.
                if builder.try_append_view(block, 0, value.len() as u32).is_err() {
                    builder.append_null();
                }
            }
            Arc::new(builder.finish())
        };
        match name {
            PAYLOAD => Some(Arc::new(text_of(&self.payload))),
            "meta.source" => Some(constant(&self.meta.source)),
            "meta.path" => self.meta.path.as_deref().map(constant),
            "meta.time" => Some(Arc::new(
                TimestampMicrosecondArray::from_value(self.meta.time_us, rows).with_timezone("UTC"),
            )),
            "meta.position" => {
                let positions = self.positions.as_ref()?;
                Some(Arc::new(Int64Array::from_iter_values(positions.values().iter().map(|&p| p as i64))))
            }
            _ => None,
        }
    }

    /// Returns the place and type of the field that a name means.
    pub fn field(&self, name: &str) -> Option<(usize, &Field)> {
        self.fields.schema_ref().column_with_name(name).filter(|_| !is_metadata(name))
    }

    /// Replaces the payloads.
    ///
    /// # Errors
    /// If there is not one for each message.
    pub fn with_payload(mut self, payload: BinaryViewArray) -> Result<Self, ArrowError> {
        same_rows(self.rows(), payload.len())?;
        self.payload = payload;
        Ok(self)
    }

    /// Replaces all fields. [Records](is_record) stay records.
    ///
    /// # Errors
    /// If a column's length is not the number of messages.
    pub fn with_fields(mut self, fields: RecordBatch) -> Result<Self, ArrowError> {
        same_rows(self.rows(), fields.num_rows())?;
        let was_record = is_record(self.fields.schema_ref());
        self.fields = fields;
        Ok(if was_record { self.into_records() } else { self })
    }

    /// Makes the messages [records](is_record), also if they have no fields.
    #[must_use]
    pub fn into_records(mut self) -> Self {
        thread_local! {
            static RECORDS: SchemaRef =
                Arc::new(Schema::empty().with_metadata([(RECORD.to_owned(), String::new())].into()));
        }
        if !is_record(self.fields.schema_ref()) {
            self.fields = without_columns(RECORDS.with(Clone::clone), self.rows());
        }
        self
    }

    /// Adds fields. A field replaces one of the same name, or else is added at the end.
    pub fn set_fields(self, new: impl IntoIterator<Item = (Field, ArrayRef)>) -> Result<Self, ArrowError> {
        let schema = self.fields.schema();
        let mut fields = schema.fields().to_vec();
        let mut columns = self.fields.columns().to_vec();
        for (field, column) in new {
            match fields.iter().position(|existing| existing.name() == field.name()) {
                Some(at) => {
                    fields[at] = Arc::new(field);
                    columns[at] = column;
                }
                None => {
                    fields.push(Arc::new(field));
                    columns.push(column);
                }
            }
        }
        let rows = self.rows();
        self.with_fields(record_batch(Arc::new(Schema::new(fields)), columns, rows)?)
    }

    /// Keeps only the messages where `keep` is true, not false or NULL. If none is left, settles the batch as
    /// filtered and returns `None`.
    pub fn filter(self, keep: &BooleanArray) -> Result<Option<Self>, ArrowError> {
        same_rows(self.rows(), keep.len())?;
        let kept = keep.true_count();
        if kept == self.rows() {
            return Ok(Some(self));
        }
        if kept == 0 {
            self.settle(Outcome::Filtered);
            return Ok(None);
        }
        let mut builder = FilterBuilder::new(keep);
        if self.fields.num_columns() > 1 {
            builder = builder.optimize();
        }
        let predicate = builder.build();
        let fields = self
            .fields
            .columns()
            .iter()
            .map(|column| predicate.filter(column))
            .collect::<Result<Vec<_>, _>>()?;
        let payload = predicate.filter(&self.payload)?.as_binary_view().clone();
        let positions = match &self.positions {
            Some(positions) => Some(predicate.filter(positions)?.as_primitive().clone()),
            None => None,
        };
        let fields = record_batch(self.fields.schema(), fields, kept)?;
        Ok(Some(Self { payload, fields, positions, meta: self.meta, ack: self.ack }.compact()))
    }

    /// Divides the batch into the messages where `condition` is true and those where it is false or NULL.
    pub fn partition(self, condition: &BooleanArray) -> Result<(Option<Self>, Option<Self>), ArrowError> {
        same_rows(self.rows(), condition.len())?;
        match condition.true_count() {
            0 => Ok((None, Some(self))),
            all if all == self.rows() => Ok((Some(self), None)),
            _ => {
                let others: BooleanArray = condition.iter().map(|value| Some(value != Some(true))).collect();
                let matching = self.share().filter(condition)?;
                Ok((matching, self.filter(&others)?))
            }
        }
    }

    /// Returns the messages at `rows`, in that order. If there are none, settles the batch as filtered and
    /// returns `None`.
    pub fn select(self, rows: &[u32]) -> Result<Option<Self>, ArrowError> {
        if rows.is_empty() {
            self.settle(Outcome::Filtered);
            return Ok(None);
        }
        let indices = UInt32Array::from(rows.to_vec());
        let (fields, positions) = self.taken(&indices)?;
        let payload = take(&self.payload, &indices, None)?.as_binary_view().clone();
        Ok(Some(Self { payload, fields, positions, meta: self.meta, ack: self.ack }.compact()))
    }

    /// True if some messages may lack a field called `payload`, and others have it.
    pub fn mixes_intrinsic(&self) -> bool {
        self.hiding().is_some()
    }

    /// Returns the place of a field called `payload`, if it hides the payload of some messages only.
    fn hiding(&self) -> Option<usize> {
        let (place, _) = self.field(PAYLOAD)?;
        (self.fields.column(place).null_count() > 0).then_some(place)
    }

    /// Divides a batch into runs of messages that have a field called `payload`, and of others, which then
    /// have no such column. So `payload` means the field for messages that have it, and the message itself
    /// for all others. In one batch, the column would hide the payloads of all: a client could so erase what
    /// others have sent.
    #[must_use]
    pub fn by_intrinsic_fields(self) -> Vec<Self> {
        let Some(place) = self.hiding() else { return vec![self] };
        let column = self.fields.column(place).clone();
        let is_end = |row: &usize| *row == self.rows() || column.is_null(*row) != column.is_null(*row - 1);
        let ends: Vec<usize> = (1..=self.rows()).filter(is_end).collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let part = |(start, end): (usize, usize)| {
            let mut part = self.share().slice(start, end - start);
            if column.is_null(start) {
                drop(part.fields.remove_column(place));
            }
            part
        };
        let parts = starts.zip(ends.iter().copied()).map(part).collect();
        // Each part has its share of the ack, and decides the outcome.
        self.settle(Outcome::Filtered);
        parts
    }

    /// Returns the messages of a range, over the same memory. The batch must have them.
    #[must_use]
    pub fn slice(self, start: usize, rows: usize) -> Self {
        Self {
            payload: self.payload.slice(start, rows),
            fields: self.fields.slice(start, rows),
            positions: self.positions.map(|positions| positions.slice(start, rows)),
            meta: self.meta,
            ack: self.ack,
        }
    }

    /// Returns the first `rows` messages, and the others if there are any, over the same memory.
    #[must_use]
    pub fn split_at(self, rows: usize) -> (Self, Option<Self>) {
        let left = self.rows().saturating_sub(rows);
        if left == 0 {
            return (self, None);
        }
        let first = self.share().slice(0, rows);
        (first, Some(self.slice(rows, left)))
    }

    /// Creates one message for each payload, with the fields of the message at the corresponding index in
    /// `rows`. The same row may occur any number of times. The ack covers all new messages; it is settled as
    /// filtered if there are none.
    ///
    /// # Errors
    /// If `rows` and `payload` differ in length, or a row is out of range.
    pub fn expand(self, payload: BinaryViewArray, rows: Vec<u32>) -> Result<Option<Self>, ArrowError> {
        same_rows(rows.len(), payload.len())?;
        if rows.is_empty() {
            self.settle(Outcome::Filtered);
            return Ok(None);
        }
        let (fields, positions) = self.taken(&UInt32Array::from(rows))?;
        Ok(Some(Self { payload, fields, positions, meta: self.meta, ack: self.ack }))
    }

    /// Returns the fields and positions of the messages at `rows`.
    fn taken(&self, rows: &UInt32Array) -> Result<(RecordBatch, Option<UInt64Array>), ArrowError> {
        // `take` panics for some types instead of returning an error.
        if let Some(row) = rows.values().iter().find(|&&row| row as usize >= self.rows()) {
            return Err(ArrowError::InvalidArgumentError(format!(
                "row {row} is out of range: the batch has {} messages",
                self.rows()
            )));
        }
        let columns = self.fields.columns().iter().map(|column| take(column, rows, None));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let positions = match &self.positions {
            Some(positions) => Some(take(positions, rows, None)?.as_primitive().clone()),
            None => None,
        };
        Ok((record_batch(self.fields.schema(), columns, rows.len())?, positions))
    }

    /// Concatenates batches that have the same fields. Returns `None` if there are none.
    pub fn merge(batches: Vec<Batch>) -> Result<Option<Self>, ArrowError> {
        let mut batches = batches;
        if batches.len() < 2 {
            return Ok(batches.pop());
        }
        let payloads: Vec<&dyn Array> = batches.iter().map(|b| &b.payload as &dyn Array).collect();
        let payload = concat(&payloads)?.as_binary_view().clone();
        let schema = batches[0].fields.schema();
        let fields = if schema.fields().is_empty() {
            without_columns(schema, payload.len())
        } else {
            arrow_select::concat::concat_batches(&schema, batches.iter().map(|b| &b.fields))?
        };
        let positions: Option<Vec<&dyn Array>> =
            batches.iter().map(|b| b.positions.as_ref().map(|p| p as &dyn Array)).collect();
        let positions = match positions {
            Some(positions) => Some(concat(&positions)?.as_primitive().clone()),
            None => None,
        };
        let mut rest = batches.into_iter();
        let Some(first) = rest.next() else { return Ok(None) };
        let mut merged = Self { payload, fields, positions, meta: first.meta, ack: first.ack };
        rest.for_each(|batch| merged.ack.merge(batch.ack));
        Ok(Some(merged))
    }

    /// Copies the messages if they use at most a quarter of their buffers, so that a few bytes do not keep a
    /// large buffer alive.
    fn compact(self) -> Self {
        let held: usize = self.payload.data_buffers().iter().map(|buffer| buffer.capacity()).sum();
        let used = self.payload_bytes();
        if used.saturating_mul(4) > held {
            return self;
        }
        let mut writer = PayloadWriter::with_capacity(used, self.rows());
        (0..self.rows()).for_each(|row| writer.push(self.payload.value(row)));
        let columns = self
            .fields
            .columns()
            .iter()
            .map(|column| match column.data_type() {
                DataType::Utf8View => Arc::new(column.as_string_view().gc()) as ArrayRef,
                DataType::BinaryView => Arc::new(column.as_binary_view().gc()) as ArrayRef,
                _ => column.clone(),
            })
            .collect();
        // Lengths and types are unchanged, so this is `Ok`. If it were not, keeping the large buffer is
        // correct.
        match record_batch(self.fields.schema(), columns, self.rows()) {
            Ok(fields) => Self { payload: writer.finish(), fields, ..self },
            Err(_) => self,
        }
    }

    /// Counts the memory of the batch against the budget until the last holder of each buffer drops it. Each
    /// buffer counts once, as a whole, however many batches share it, even if it is claimed again. The engine
    /// calls this for every batch that a component hands over.
    pub fn claim(&self, budget: &Budget) {
        let payload = std::iter::once(&self.payload as &dyn Array);
        let positions = self.positions.iter().map(|positions| positions as &dyn Array);
        let fields = self.fields.columns().iter().map(|column| column.as_ref() as &dyn Array);
        budget.claim_buffers(payload.chain(positions).chain(fields));
    }
}

/// Returns a filter over `count` messages that is false at `rows` and true elsewhere.
pub fn all_but(count: usize, rows: impl IntoIterator<Item = u32>) -> BooleanArray {
    let mut keep = vec![true; count];
    for row in rows {
        if let Some(keep) = keep.get_mut(row as usize) {
            *keep = false;
        }
    }
    keep.into()
}

/// Returns the bytes of all payloads together.
fn bytes_of(payload: &BinaryViewArray) -> usize {
    payload.views().iter().map(|&view| view as u32 as usize).sum()
}

/// Returns the payloads as text; bytes that are not UTF-8 are replaced by U+FFFD.
fn text_of(payload: &BinaryViewArray) -> StringViewArray {
    let mut builder = crate::TextBuilder::over(payload.data_buffers(), payload.len());
    for row in 0..payload.len() {
        let value = payload.value(row);
        match simdutf8::basic::from_utf8(value) {
            Ok(text) => builder.push(text),
            Err(_) => builder.push(&String::from_utf8_lossy(value)),
        }
    }
    builder.finish()
}

/// Returns the bytes of a column without the texts that its views refer to.
fn column_bytes(column: &ArrayRef) -> usize {
    let rows = column.len();
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().values().len() + rows * size_of::<i32>(),
        DataType::Utf8View | DataType::BinaryView => rows * size_of::<u128>(),
        kind => kind.primitive_width().map_or(rows / 8, |width| rows * width),
    }
}

fn no_fields(rows: usize) -> RecordBatch {
    thread_local! { static EMPTY: SchemaRef = Arc::new(Schema::empty()); }
    without_columns(EMPTY.with(Clone::clone), rows)
}

/// Returns a batch of a schema without fields.
fn without_columns(schema: SchemaRef, rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    match RecordBatch::try_new_with_options(schema.clone(), Vec::new(), &options) {
        Ok(fields) => fields,
        Err(_) => RecordBatch::new_empty(schema),
    }
}

fn record_batch(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new_with_options(schema, columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

fn same_rows(expected: usize, found: usize) -> Result<(), ArrowError> {
    if expected == found {
        return Ok(());
    }
    Err(ArrowError::InvalidArgumentError(format!("{found} values for {expected} messages")))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
