//! Protocol Buffers: messages in their binary form become columns. [`write`](mod@write) writes single fields.
//!
//! A descriptor set ([`Schema`]) tells the types of messages. [`Protobuf`] walks the wire format of each
//! message once, and appends the values to one builder for each field. Texts and bytes stay where they are,
//! as views of the messages. Nested messages, lists and maps become JSON text, as in all parsers here, or
//! columns of their own with [`Wanted::flatten`].
//!
//! A message comes from outside. Its nesting is bounded, time is in proportion to its size, and its JSON has
//! a limit.
//!
//! The format is described at <https://protobuf.dev/programming-guides/encoding/>. See
//! docs/decisions/086-protocol-buffers-are-decoded-in-place.md.

mod builder;
mod defaults;
mod descriptor;
mod events;
pub(crate) mod fault;
pub(crate) mod json;
mod kind;
mod plan;
mod resolve;
mod schema;
mod times;
pub(crate) mod wire;
mod wire_format;
pub mod write;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray};
use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use thalweg_record::{Batch, Budget, Outputs};

pub use plan::Wanted;
pub use schema::Schema;
pub use wire_format::WireFormat;

use crate::columns::{Layout, missing};
use builder::Builder;
use fault::Fault;
use json::JsonWriter;
use plan::{Column, Content, Node, Plan};
use schema::Field;

/// The maximum depth of objects and lists in a message. Readers of JSON have a limit of 127.
const DEEPEST: usize = 100;

/// The most values that are made at once with enough memory, NULLs included: rows times columns.
const CELLS: usize = 1 << 19;

/// One value is made at once for this many bytes of the memory.
const MEMORY: usize = 256;

/// The fewest messages that are parsed at once, if there are as many.
const FEWEST: usize = 16;

/// The size of the JSON after which a piece of a batch is complete with enough memory, in bytes.
const PIECE: usize = 4 << 20;

/// The memory for one JSON text that is kept between batches, in bytes.
const USUAL: usize = 64 << 10;

/// Parses messages of one type into columns.
#[derive(Debug)]
pub struct Protobuf {
    schema: Arc<Schema>,
    plan: Plan,
    wire_format: WireFormat,
    filling: Filling,
    layout: Layout,
    cells: usize,
    /// The size of the JSON after which a piece of a batch is complete, in bytes.
    bytes: usize,
}

impl Protobuf {
    /// Creates a parser.
    ///
    /// # Errors
    /// The reason why the schema does not fit the options.
    pub fn new(schema: Arc<Schema>, wanted: &Wanted, wire_format: WireFormat) -> Result<Self, String> {
        let plan = Plan::new(&schema, wanted)?;
        let layout = Layout::new(plan.columns.iter().map(|column| column.field.clone()).collect());
        let writer = JsonWriter::new(&schema);
        let filling = Filling { writer, json: Vec::new(), builders: Vec::new() };
        Ok(Self { schema, plan, wire_format, filling, layout, cells: CELLS, bytes: PIECE })
    }

    /// Limits what is made of a batch at once to a part of this budget.
    #[must_use]
    pub fn within(mut self, budget: &Budget) -> Self {
        self.cells = (budget.limit() / MEMORY).clamp(CELLS / 32, CELLS);
        self.filling.writer.most = budget.longest_text();
        self.bytes = PIECE.min(budget.longest_text());
        self
    }

    /// Returns the number of messages that may be parsed at once.
    fn most_rows(&self) -> usize {
        (self.cells / self.plan.columns.len().max(1)).max(FEWEST)
    }

    /// Parses the first messages in `input`, which has one for each row of the batch, and adds their fields.
    /// Messages that are not valid are rejected. `field` is the name of the input. Returns the messages that
    /// must be parsed next, if all together would take too much memory.
    ///
    /// # Errors
    /// If Arrow cannot build the new batch.
    pub fn parse(
        &mut self,
        batch: Batch,
        input: &BinaryViewArray,
        field: &str,
        out: &mut Outputs,
    ) -> Result<Option<Batch>, ArrowError> {
        let most = input.len().min(self.most_rows());
        self.filling.begin(&self.plan.columns, input.data_buffers(), most);
        let mut failed = Vec::new();
        let mut row = 0;
        while row < most && (row == 0 || self.filling.writer.written < self.bytes) {
            let parsed = match input.is_null(row) {
                true => Err(missing(field)),
                false => self.message(input.value(row)),
            };
            if let Err(reason) = parsed {
                failed.push((row as u32, reason));
            }
            row += 1;
            self.filling.builders.iter_mut().for_each(|builder| builder.fill(row));
        }
        let columns = self.filling.finish();
        let (parsed, rest) = batch.split_at(row);
        self.layout.give(parsed, columns, failed, out)?;
        Ok(rest)
    }

    /// Appends the values of a message.
    fn message(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Self { schema, plan, wire_format, filling, .. } = self;
        let bytes = wire_format.skip(bytes)?;
        if u32::try_from(bytes.len()).is_err() {
            return Err("is longer than 4 GiB".to_owned());
        }
        filling.writer.restart(bytes.len());
        let filled = filling.fill(schema, plan, plan.message, &plan.nodes, bytes);
        filled.map_err(|fault| format!("is not a message `{}`: {fault}", schema.message(plan.message).name))
    }
}

/// The columns that are being filled, and memory that is reused.
#[derive(Debug)]
struct Filling {
    writer: JsonWriter,
    json: Vec<u8>,
    builders: Vec<Builder>,
}

impl Filling {
    fn begin(&mut self, columns: &[Column], base: &[Buffer], rows: usize) {
        self.writer.written = 0;
        self.builders.clear();
        let builder = |column: &Column| {
            // JSON is never a part of a message.
            let base: &[Buffer] = if column.content == Content::Json { &[] } else { base };
            Builder::new(&column.field, base, rows)
        };
        self.builders.extend(columns.iter().map(builder));
    }

    fn finish(&mut self) -> Vec<ArrayRef> {
        self.writer.shrink();
        self.json.clear();
        self.json.shrink_to(USUAL);
        self.builders.drain(..).map(Builder::finish).collect()
    }

    /// Appends the values of the fields of a message.
    fn fill(
        &mut self,
        schema: &Schema,
        plan: &Plan,
        message: usize,
        nodes: &[Node],
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let events = self.writer.events.read(schema, message, bytes)?;
        let mut rest = events.clone();
        for (index, node) in (0..).zip(nodes) {
            let found = self.writer.events.prefix(index, rest.clone());
            rest.start = found.end;
            let field = schema.field(message, index);
            match node {
                Node::Column(column) => self.value(schema, plan, *column, field, (bytes, found))?,
                Node::Nested { nodes, .. } if found.is_empty() => self.absent(nodes),
                Node::Nested { message, nodes } => {
                    let within = |fault: Fault| fault.within(&field.name);
                    let merged = self.writer.events.merged(bytes, found).map_err(within)?;
                    self.fill(schema, plan, *message, nodes, &merged).map_err(within)?;
                }
            }
        }
        self.writer.events.forget(events);
        Ok(())
    }

    /// Appends NULL to the columns of a message that is missing.
    fn absent(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Column(column) => {
                    if let Some(builder) = self.builders.get_mut(*column) {
                        builder.push_null();
                    }
                }
                Node::Nested { nodes, .. } => self.absent(nodes),
            }
        }
    }

    /// Appends the value of a field, which has these events in its message.
    #[inline]
    fn value(
        &mut self,
        schema: &Schema,
        plan: &Plan,
        column: usize,
        field: &Field,
        (bytes, events): (&[u8], Range<usize>),
    ) -> Result<(), Fault> {
        let Self { writer, json, builders } = self;
        let (Some(column), Some(builder)) = (plan.columns.get(column), builders.get_mut(column)) else {
            return Ok(());
        };
        if events.is_empty() {
            builder.push_missing(&column.missing);
        } else if column.content == Content::Scalar {
            if let Some(value) = writer.events.scalar(field, bytes, events)? {
                builder.push(schema, value);
            }
        } else if column.content == Content::Json {
            json.clear();
            writer.field(schema, field, (bytes, events), 0, json)?;
            writer.check_size(json).map_err(|fault| fault.within(&field.name))?;
            writer.written += json.len();
            builder.push_json(std::str::from_utf8(json).unwrap_or("null"));
        } else {
            let well_known = well_known(schema, writer, column.content, (bytes, events), builder);
            well_known.map_err(|fault| fault.within(&field.name))?;
        }
        Ok(())
    }
}

/// Appends the value of a message of a well-known type.
fn well_known(
    schema: &Schema,
    writer: &mut JsonWriter,
    content: Content,
    (bytes, events): (&[u8], Range<usize>),
    builder: &mut Builder,
) -> Result<(), Fault> {
    let merged = writer.events.merged(bytes, events)?;
    match content {
        Content::Time(message) => {
            builder.push_time(times::microseconds(writer.events.seconds(schema, message, &merged)?)?);
        }
        Content::Seconds(message) => {
            let seconds = times::seconds(writer.events.seconds(schema, message, &merged)?)?;
            builder.push(schema, kind::Scalar::Double(seconds));
        }
        Content::Wrapped(message) => {
            let inner = writer.events.read(schema, message, &merged)?;
            match writer.events.scalar(schema.field(message, 0), &merged, inner.clone())? {
                Some(value) => builder.push(schema, value),
                None => builder.push_zero(),
            }
            writer.events.forget(inner);
        }
        Content::Scalar | Content::Json => builder.push_null(),
    }
    Ok(())
}
