//! Parses Avro data, one per message.
//!
//! `thalweg_codec::avro` reads schemas and data. Nested values become JSON text, which can be far larger than
//! a datum. So a batch leaves in pieces: a piece ends when its columns hold enough.
//!
//! See docs/decisions/085-avro-is-decoded-by-our-own.md.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::builder::Int64Builder;
use arrow_array::{Array, ArrayRef, BinaryViewArray};
use arrow_schema::FieldRef;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::avro::{DatumColumns, Schema, WireFormat};
use thalweg_codec::columns::{FieldType, Layout, missing, reject_all};
use thalweg_codec::keys::bytes_of;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::Batch;

#[cfg(test)]
mod tests;

/// The bytes that a value takes in a column, however short it is.
const VALUE: usize = 16;

/// The maximum number of rows in a piece.
const MOST_ROWS: usize = 1 << 14;

/// Parses messages that are Apache Avro data, such as those of Kafka.
///
/// Each message holds one datum of the schema, without the header of a file. The fields of the record become
/// fields of the message. A schema that is no record gives one field, `value`. The transform `avro` reads
/// files (`.avro`), which have their schema with them.
///
/// Numbers, texts, booleans, dates, times and decimals have their own types. `bytes` and `fixed` are bytes,
/// which JSON writes in base64. A UUID is text, and a `duration` is text as in ISO 8601: `P1M2DT3.004S`. A
/// union of a type and `null` has that type, or NULL. Arrays, maps, nested records and other unions are JSON
/// text: a union holds its value, without the name of the branch. A recursive schema is read 127 levels deep.
/// Local timestamps have no time zone; encoders write them as if they were UTC.
///
/// A message leaves by the `errors` output if it is not a datum of the schema, or if bytes follow the datum.
/// Schemas are not fetched from a registry.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseAvro {
    /// The schema, as JSON text. Give either `schema` or `schema_file`.
    schema: Option<String>,
    /// The path of a file with the schema (`.avsc`), which is read once, when the configuration is checked.
    schema_file: Option<PathBuf>,
    /// The bytes before each datum: `none` (the default); `single_object` for Avro's single-object encoding,
    /// whose fingerprint must be that of the schema; or `confluent` for a zero byte and the number of a
    /// schema in Confluent's registry. All messages are read with the given schema, whatever their number.
    wire_format: WireFormat,
    /// With `wire_format: confluent`: the field that gets the number of the schema. By default the number is
    /// dropped.
    schema_id_field: Option<String>,
    /// The field to parse. The default is the payload.
    field: String,
    #[serde(skip)]
    parsed: Arc<OnceLock<Result<Arc<Schema>, Mistake>>>,
}

impl Default for ParseAvro {
    fn default() -> Self {
        Self {
            schema: None,
            schema_file: None,
            wire_format: WireFormat::None,
            schema_id_field: None,
            field: crate::payload(),
            parsed: Arc::default(),
        }
    }
}

impl Component for ParseAvro {
    const NAME: &'static str = "parse_avro";
    const EXAMPLE: &'static str = r#"
sources:
  readings: { generate: { lines: ["\u0002\u0008wind", "\u0004\u0008rain"] } }
pipelines:
  main:
    from: readings
    transforms:
      - parse_avro:
          schema: |
            {"type": "record", "name": "reading", "fields": [
              {"name": "station", "type": "int"}, {"name": "kind", "type": "string"}]}
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let schema = match self.parsed() {
            Ok(schema) => schema,
            Err(mistake) => return vec![mistake],
        };
        let Some(field) = &self.schema_id_field else { return Vec::new() };
        let mistake = |message: &str| vec![Mistake::new("schema_id_field", message)];
        if self.wire_format != WireFormat::Confluent {
            return mistake("Only messages with `wire_format: confluent` have the number of a schema.");
        }
        match DatumColumns::new(schema).fields().iter().any(|column| column.name() == field) {
            true => mistake("The schema has a field of this name."),
            false => Vec::new(),
        }
    }
}

impl TransformConfig for ParseAvro {
    fn fields(&self) -> Vec<String> {
        vec![self.field.clone()]
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        match self.parsed() {
            Ok(schema) => {
                let fields = self.new_fields(&DatumColumns::new(schema));
                before.parsed(fields.iter().map(|field| field.as_ref().clone()))
            }
            Err(_) => before.with_others(),
        }
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let schema = self.parsed().map_err(|mistake| Error::permanent(mistake.message))?;
        let most = context.memory.budget().longest_text();
        let columns = DatumColumns::new(schema).within(most);
        let fields = self.new_fields(&columns);
        let bytes = 4 * context.batch_bytes;
        Ok(Box::new(AvroParser {
            rows: (bytes / (VALUE * fields.len().max(1))).clamp(1, MOST_ROWS),
            bytes,
            layout: Layout::new(fields),
            columns,
            wire_format: self.wire_format,
            keeps_id: self.schema_id_field.is_some(),
            field: self.field.clone(),
            waiting: VecDeque::new(),
        }))
    }
}

impl ParseAvro {
    /// Returns the fields that a message gets.
    fn new_fields(&self, columns: &DatumColumns) -> Vec<FieldRef> {
        let id = self.schema_id_field.iter().map(|name| Arc::new(FieldType::Int.field(name)));
        columns.fields().iter().cloned().chain(id).collect()
    }

    /// Returns the schema, which is read once.
    fn parsed(&self) -> Result<Arc<Schema>, Mistake> {
        self.parsed.get_or_init(|| self.read().map(Arc::new)).clone()
    }

    fn read(&self) -> Result<Schema, Mistake> {
        let help = "Give the schema as JSON in `schema`, or the path of a file in `schema_file`.";
        match (&self.schema, &self.schema_file) {
            (Some(text), None) => Schema::parse(text).map_err(|reason| {
                Mistake::new("schema", format!("The schema cannot be used: {reason}.")).help(
                    "The text is an Avro schema in JSON, such as `{\"type\": \"record\", \"name\": \"row\", \
                     \"fields\": [{\"name\": \"id\", \"type\": \"long\"}]}`.",
                )
            }),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
                text.and_then(|text| Schema::parse(&text)).map_err(|reason| {
                    let path = path.display();
                    Mistake::new("schema_file", format!("The schema in `{path}` cannot be used: {reason}."))
                })
            }
            (None, None) => Err(Mistake::new("", "There is no schema.").help(help)),
            (Some(_), Some(_)) => Err(Mistake::new("schema_file", "There are two schemas.").help(help)),
        }
    }
}

struct AvroParser {
    columns: DatumColumns,
    layout: Layout,
    wire_format: WireFormat,
    /// True if the number of the schema becomes a field.
    keeps_id: bool,
    field: String,
    /// The maximum number of rows of a piece, and the bytes of nested values after which a piece ends.
    rows: usize,
    bytes: usize,
    /// Messages that are not parsed yet.
    waiting: VecDeque<Batch>,
}

impl Transform for AvroParser {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.waiting.push_back(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.waiting.pop_front() {
            match bytes_of(&batch, &self.field) {
                Some(input) => self.parse(batch, &input, out)?,
                None => reject_all(batch, &missing(&self.field), out)?,
            }
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

impl AvroParser {
    /// Parses the first messages of a batch. The others wait.
    fn parse(&mut self, batch: Batch, input: &BinaryViewArray, out: &mut Outputs) -> Result<(), Error> {
        let mut ids = Int64Builder::new();
        let mut failed = Vec::new();
        let most = self.rows.min(input.len());
        self.columns.begin(input.data_buffers(), most);
        let mut rows = 0;
        while rows < most && (rows == 0 || self.columns.written() < self.bytes) {
            let read = match input.is_null(rows) {
                true => Err(missing(&self.field)),
                false => self.wire_format.split(input.value(rows), self.columns.schema()),
            };
            match read {
                Ok((id, datum)) => {
                    ids.append_option(id.map(i64::from));
                    if let Err(reason) = read_whole(&mut self.columns, datum) {
                        failed.push((rows as u32, reason));
                    }
                }
                Err(reason) => {
                    ids.append_null();
                    self.columns.skip();
                    failed.push((rows as u32, reason));
                }
            }
            rows += 1;
        }
        let mut columns = self.columns.finish()?;
        if self.keeps_id {
            columns.push(Arc::new(ids.finish()) as ArrayRef);
        }
        let (parsed, rest) = batch.split_at(rows);
        rest.into_iter().for_each(|rest| self.waiting.push_front(rest));
        Ok(self.layout.give(parsed, columns, failed, out)?)
    }
}

/// Reads a datum that must be all of the bytes.
fn read_whole(columns: &mut DatumColumns, datum: &[u8]) -> Result<(), String> {
    match datum.len() - columns.read(datum)? {
        0 => Ok(()),
        left => Err(format!("is not a datum of the schema: the last {left} bytes do not belong to it")),
    }
}
