//! Writes the fields of each message as its payload: JSON, CSV, logfmt or a text of one's own.
//!
//! All payloads of a batch are written one after the other into one buffer. What is the same for every message,
//! the keys with their quotes, colons and commas, is prepared once for each schema; short keys are copied as
//! a block of fixed size, which compilers turn into two moves where a copy of unknown length is a call.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Context, Error, Mistake, Outlets, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD, PayloadWriter};

use crate::shared::json;
use crate::shared::template::{Template, column};
use crate::shared::values::Values;

/// Writes the fields of each message as its payload.
///
/// `json` writes an object, `csv` a line of comma-separated values, `logfmt` pairs as in `level=info`, `text` a
/// template. The fields stay. A message without fields is written as if its payload were its only field. Sinks
/// have the same as their option `encode`, where `raw` leaves the payload as it is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(from = "Written")]
#[schemars(with = "Written")]
pub struct EncodeConfig {
    options: EncodeOptions,
}

/// How messages are written: the name of a format, or the format with its options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Format(Format),
    Options(EncodeOptions),
}

impl From<Written> for EncodeConfig {
    fn from(written: Written) -> Self {
        let options = match written {
            Written::Options(options) => options,
            Written::Format(format) => EncodeOptions {
                format,
                fields: None,
                nulls: None,
                delimiter: None,
                header: None,
                template: None,
            },
        };
        Self { options }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EncodeOptions {
    /// The format: `json`, `csv`, `logfmt`, `text` or `raw`.
    format: Format,
    /// The columns to write, in this order; also `payload`, `meta.source`, `meta.path`, `meta.time` and
    /// `meta.position`. The default is all fields in the order in which they are. With `csv` it should be given, so
    /// that all lines have the same columns.
    #[serde(default)]
    #[schemars(length(min = 1))]
    fields: Option<Vec<String>>,
    /// For `json`: whether fields that are NULL are left out (`omit`, the default) or written as `null` (`keep`).
    #[serde(default)]
    nulls: Option<Nulls>,
    /// For `csv`: the character between values. The default is a comma.
    #[serde(default)]
    delimiter: Option<char>,
    /// For `csv` in a sink: whether each file begins with a line of the names. The default is `true`.
    #[serde(default)]
    header: Option<bool>,
    /// For `text`: what a message looks like, for example `{meta.time:%H:%M:%S} {level} {message}`.
    #[serde(default)]
    template: Option<Template>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// A JSON object.
    Json,
    /// Comma-separated values.
    Csv,
    /// `key=value` pairs.
    Logfmt,
    /// A text made from a template.
    Text,
    /// The payload as it is.
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Nulls {
    /// They are left out.
    Omit,
    /// They are written as `null`.
    Keep,
}

impl Default for EncodeConfig {
    /// Payloads as they are.
    fn default() -> Self {
        Written::Format(Format::Raw).into()
    }
}

impl EncodeConfig {
    /// Whether payloads stay as they are, so that there is nothing to do.
    pub fn is_raw(&self) -> bool {
        self.options.format == Format::Raw
    }

    /// The transform that does it, for [`SinkConfig::encoder`](thalweg_engine::SinkConfig::encoder); none for `raw`.
    pub fn encoder(&self) -> Option<Box<dyn thalweg_engine::BuildTransform>> {
        if self.is_raw() { None } else { Some(Box::new(self.clone())) }
    }

    /// The line (without its line feed) with which a file of messages that have these fields begins, if the format
    /// has one.
    pub fn header(&self, fields: &Schema) -> Option<Vec<u8>> {
        let options = &self.options;
        if options.format != Format::Csv || options.header == Some(false) {
            return None;
        }
        let mut header = Vec::new();
        let delimiter = self.delimiter();
        for (number, name) in column_names(options.fields.as_deref(), fields).into_iter().enumerate() {
            if number > 0 {
                header.push(delimiter);
            }
            let start = header.len();
            header.extend_from_slice(name.as_bytes());
            quote_csv(&mut header, start, delimiter);
        }
        Some(header)
    }

    fn delimiter(&self) -> u8 {
        self.options.delimiter.and_then(|delimiter| u8::try_from(delimiter).ok()).unwrap_or(b',')
    }
}

impl TransformConfig for EncodeConfig {
    const NAME: &'static str = "encode";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { lines: ['{"level": "info", "text": "all is well"}'] } }
pipelines:
  main:
    from: messages
    transforms:
      - parse_json: {}
      - encode: logfmt
    to: nowhere
sinks:
  nowhere: { discard: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let options = &self.options;
        let format = options.format;
        let mut mistakes = Vec::new();
        let mut mistake = |option, message: &str, help: &str| {
            let help = Some(help.to_owned());
            mistakes.push(Mistake { option, message: message.to_owned(), help });
        };
        if format == Format::Text && options.template.is_none() {
            mistake(
                "template",
                "`text` needs a template.",
                "For example `{ format: text, template: \"{message}\" }`.",
            );
        }
        let only_for = [
            ("template", options.template.is_some(), Format::Text, "`template` is for the format `text`."),
            ("nulls", options.nulls.is_some(), Format::Json, "`nulls` is for the format `json`."),
            ("delimiter", options.delimiter.is_some(), Format::Csv, "`delimiter` is for the format `csv`."),
            ("header", options.header.is_some(), Format::Csv, "`header` is for the format `csv`."),
        ];
        for (option, is_given, wanted, message) in only_for {
            if is_given && format != wanted {
                mistake(option, message, "Leave it out, or change `format`.");
            }
        }
        if options.fields.is_some() && matches!(format, Format::Text | Format::Raw) {
            mistake(
                "fields",
                "`fields` has no meaning for this format.",
                "Leave it out, or change `format`.",
            );
        }
        if options.delimiter.is_some_and(|d| !d.is_ascii() || matches!(d, '"' | '\r' | '\n')) {
            mistake(
                "delimiter",
                "`delimiter` must be a character of ASCII, and neither a quote nor a line end.",
                "For example `\"\\t\"` or `;`.",
            );
        }
        let mut seen = HashSet::new();
        if let Some(twice) = options.fields.iter().flatten().find(|name| !seen.insert(name.as_str())) {
            mistake("fields", &format!("`{twice}` is named twice."), "Name each column once.");
        }
        mistakes
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let options = self.options.clone();
        let writer = match options.format {
            Format::Json => Writer::Json { keep_nulls: options.nulls == Some(Nulls::Keep) },
            Format::Csv => Writer::Csv { delimiter: self.delimiter() },
            Format::Logfmt => Writer::Logfmt,
            Format::Text => match options.template {
                Some(template) => Writer::Text(template),
                None => return Err(Error::permanent("`encode` with the format `text` needs a `template`")),
            },
            Format::Raw => Writer::Raw,
        };
        Ok(Box::new(Encode { writer, fields: options.fields, known: None, row_bytes: 0 }))
    }
}

enum Writer {
    Json { keep_nulls: bool },
    Csv { delimiter: u8 },
    Logfmt,
    Text(Template),
    Raw,
}

struct Encode {
    writer: Writer,
    fields: Option<Vec<String>>,
    /// The schema of the batch before, and its keys.
    known: Option<(SchemaRef, Arc<[Key]>)>,
    /// The bytes for a message in the batch before.
    row_bytes: usize,
}

/// A column's name, and that as it stands before each value, with what divides it from the value before.
struct Key {
    name: String,
    start: [u8; Key::BLOCK],
    length: usize,
    /// All of it, where it is longer than the block.
    long: Vec<u8>,
}

impl Key {
    const BLOCK: usize = 32;

    fn new(name: String, writer: &Writer) -> Self {
        let mut key = Vec::new();
        match writer {
            Writer::Json { .. } => {
                key.push(b',');
                json::write_text(&name, &mut key);
                key.push(b':');
            }
            Writer::Csv { delimiter } => key.push(*delimiter),
            Writer::Logfmt => {
                key.push(b' ');
                let plain = |c: char| if c <= ' ' || matches!(c, '=' | '"' | '\u{7f}') { '_' } else { c };
                key.extend_from_slice(name.chars().map(plain).collect::<String>().as_bytes());
                key.push(b'=');
            }
            Writer::Text(_) | Writer::Raw => {}
        }
        let mut start = [0; Self::BLOCK];
        start.iter_mut().zip(&key).for_each(|(to, from)| *to = *from);
        Self { name, start, length: key.len(), long: key }
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        if self.length <= Self::BLOCK {
            let end = out.len() + self.length;
            out.extend_from_slice(&self.start);
            out.truncate(end);
        } else {
            out.extend_from_slice(&self.long);
        }
    }
}

/// The names of the columns to write.
fn column_names(wanted: Option<&[String]>, fields: &Schema) -> Vec<String> {
    match wanted {
        Some(wanted) => wanted.to_vec(),
        None if fields.fields().is_empty() => vec![PAYLOAD.to_owned()],
        None => fields.fields().iter().map(|field| field.name().clone()).collect(),
    }
}

impl Transform for Encode {
    fn apply(&mut self, batch: Batch, out: &mut Outlets) -> Result<(), Error> {
        let rows = batch.rows();
        let estimate = self.row_bytes.max(16).saturating_mul(rows);
        let mut written = PayloadWriter::with_capacity(estimate.saturating_add(estimate / 16), rows);
        match &mut self.writer {
            Writer::Raw => {
                out.send(batch);
                return Ok(());
            }
            Writer::Text(template) => {
                let mut template = template.bind(&batch);
                for row in 0..rows {
                    template.render(row, written.buffer());
                    written.end();
                }
            }
            Writer::Json { keep_nulls } => {
                let keep_nulls = *keep_nulls;
                let keys = self.keys(&batch);
                write_json(&columns(&keys, &batch), rows, keep_nulls, &mut written);
            }
            Writer::Csv { delimiter } => {
                let delimiter = *delimiter;
                let keys = self.keys(&batch);
                write_csv(&columns(&keys, &batch), rows, delimiter, &mut written);
            }
            Writer::Logfmt => {
                let keys = self.keys(&batch);
                write_logfmt(&columns(&keys, &batch), rows, &mut written);
            }
        }
        let payload = written.finish();
        let bytes: usize = payload.data_buffers().iter().map(|buffer| buffer.len()).sum();
        self.row_bytes = bytes / rows.max(1) + 1;
        out.send(batch.with_payload(payload)?);
        Ok(())
    }
}

impl Encode {
    fn keys(&mut self, batch: &Batch) -> Arc<[Key]> {
        let schema = batch.fields().schema_ref();
        match &self.known {
            Some((known, keys)) if Arc::ptr_eq(known, schema) || known == schema => keys.clone(),
            _ => {
                let names = column_names(self.fields.as_deref(), schema);
                let keys: Arc<[Key]> = names.into_iter().map(|name| Key::new(name, &self.writer)).collect();
                self.known = Some((schema.clone(), keys.clone()));
                keys
            }
        }
    }
}

fn columns<'a>(keys: &'a [Key], batch: &Batch) -> Vec<(&'a Key, Values)> {
    keys.iter().map(|key| (key, column(batch, &key.name))).collect()
}

fn write_json(columns: &[(&Key, Values)], rows: usize, keep_nulls: bool, written: &mut PayloadWriter) {
    for row in 0..rows {
        let out = written.buffer();
        let start = out.len();
        for (key, values) in columns {
            if !values.is_null(row) {
                key.write(out);
                values.write_json(row, out);
            } else if keep_nulls {
                key.write(out);
                out.extend_from_slice(b"null");
            }
        }
        // Each key has a comma before it; that of the first stands where the brace belongs.
        match out.get_mut(start) {
            Some(first) => *first = b'{',
            None => out.push(b'{'),
        }
        out.push(b'}');
        written.end();
    }
}

fn write_csv(columns: &[(&Key, Values)], rows: usize, delimiter: u8, written: &mut PayloadWriter) {
    for row in 0..rows {
        let out = written.buffer();
        for (number, (_, values)) in columns.iter().enumerate() {
            if number > 0 {
                out.push(delimiter);
            }
            // NULL is nothing, and an empty text is two quotes, so that they can be told apart.
            if !values.is_null(row) {
                let start = out.len();
                values.write_text(row, out);
                quote_csv(out, start, delimiter);
            }
        }
        written.end();
    }
}

/// Puts quotes around what was written from `start` on, if it needs them (RFC 4180).
fn quote_csv(out: &mut Vec<u8>, start: usize, delimiter: u8) {
    let value = out.get(start..).unwrap_or_default();
    // Every byte is looked at, whatever is found: without an early end it is done many bytes at once.
    let special = |byte: u8| (byte == delimiter) | (byte == b'"') | (byte == b'\r') | (byte == b'\n');
    if !value.is_empty() && !value.iter().fold(false, |found, &byte| found | special(byte)) {
        return;
    }
    let value = out.split_off(start);
    out.push(b'"');
    for byte in value {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

fn write_logfmt(columns: &[(&Key, Values)], rows: usize, written: &mut PayloadWriter) {
    for row in 0..rows {
        let out = written.buffer();
        let mut first = true;
        for (key, values) in columns {
            if values.is_null(row) {
                continue;
            }
            // Each key has a blank before it, which the first does not need.
            if std::mem::take(&mut first) {
                out.extend_from_slice(key.long.get(1..).unwrap_or_default());
            } else {
                key.write(out);
            }
            let start = out.len();
            values.write_text(row, out);
            quote_logfmt(out, start);
        }
        written.end();
    }
}

/// Puts quotes around what was written from `start` on, if it needs them.
fn quote_logfmt(out: &mut Vec<u8>, start: usize) {
    let value = out.get(start..).unwrap_or_default();
    let special =
        |byte: u8| (byte <= b' ') | (byte == b'=') | (byte == b'"') | (byte == b'\\') | (byte == 0x7f);
    if !value.is_empty() && !value.iter().fold(false, |found, &byte| found | special(byte)) {
        return;
    }
    let value = out.split_off(start);
    json::write_text(&String::from_utf8_lossy(&value), out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::*;
    use arrow_schema::{DataType, Field};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use thalweg_engine::Output;
    use thalweg_engine::testing::{apply, batch, options, transform_conforms, try_options};

    fn with(columns: impl IntoIterator<Item = (&'static str, ArrayRef)>) -> Batch {
        let columns: Vec<_> = columns
            .into_iter()
            .map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column))
            .collect();
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        batch(vec!["payload"; rows]).set_fields(columns).unwrap()
    }

    fn encoded(yaml: &str, batch: Batch) -> Vec<String> {
        apply::<EncodeConfig>(yaml, [batch]).payloads(Output::Main)
    }

    fn example() -> Batch {
        let json = Field::new("json", DataType::Utf8View, true)
            .with_metadata([("ARROW:extension:name".to_owned(), "arrow.json".to_owned())].into());
        with([
            ("int", Arc::new(Int64Array::from(vec![Some(-1), None])) as ArrayRef),
            ("float", Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
            ("bool", Arc::new(BooleanArray::from(vec![true, false]))),
            ("te\"xt", Arc::new(StringViewArray::from(vec!["a,\"b\"", ""]))),
            (
                "time",
                Arc::new(
                    TimestampMicrosecondArray::from(vec![0, 1_767_323_045_678_000]).with_timezone("UTC"),
                ),
            ),
        ])
        .set_fields([(json, Arc::new(StringViewArray::from(vec![Some("[1, 2]"), None])) as ArrayRef)])
        .unwrap()
    }

    #[test]
    fn it_conforms() {
        for yaml in ["json", "csv", "logfmt", "raw", "{ format: text, template: '{payload}' }"] {
            transform_conforms::<EncodeConfig>(yaml, &["", "a", "\0 a longer text \" with a quote"]);
        }
    }

    #[test]
    fn json_leaves_nulls_out_unless_told_otherwise() {
        assert_eq!(
            encoded("json", example()),
            [
                r#"{"int":-1,"float":1.5,"bool":true,"te\"xt":"a,\"b\"","time":"1970-01-01T00:00:00Z","json":[1, 2]}"#,
                r#"{"float":null,"bool":false,"te\"xt":"","time":"2026-01-02T03:04:05.678Z"}"#,
            ]
        );
        let kept = encoded("{ format: json, nulls: keep, fields: [json, int, missing, payload] }", example());
        assert_eq!(kept[1], r#"{"json":null,"int":null,"missing":null,"payload":"payload"}"#);
        let nothing = encoded("{ format: json, fields: [missing] }", example());
        assert_eq!(nothing[0], "{}");
    }

    #[test]
    fn csv_quotes_what_needs_it_and_tells_null_from_empty() {
        assert_eq!(
            encoded("csv", example()),
            [
                r#"-1,1.5,true,"a,""b""",1970-01-01T00:00:00Z,"[1, 2]""#,
                r#",NaN,false,"",2026-01-02T03:04:05.678Z,"#,
            ]
        );
        let tabs = encoded("{ format: csv, delimiter: \"\\t\", fields: [int, 'te\"xt'] }", example());
        assert_eq!(tabs[0], "-1\t\"a,\"\"b\"\"\"");
    }

    #[test]
    fn a_csv_header_names_the_columns() {
        let header = |yaml: &str| {
            options::<EncodeConfig>(yaml)
                .header(&example().fields().schema())
                .map(|h| String::from_utf8(h).unwrap())
        };
        assert_eq!(header("csv").unwrap(), "int,float,bool,\"te\"\"xt\",time,json");
        assert_eq!(header("{ format: csv, delimiter: ;, fields: [b, a] }").unwrap(), "b;a");
        assert_eq!(header("{ format: csv, header: false }"), None);
        assert_eq!(header("json"), None);
    }

    #[test]
    fn logfmt_quotes_what_needs_it() {
        assert_eq!(
            encoded("logfmt", example()),
            [
                r#"int=-1 float=1.5 bool=true te_xt="a,\"b\"" time=1970-01-01T00:00:00Z json="[1, 2]""#,
                r#"float=NaN bool=false te_xt="" time=2026-01-02T03:04:05.678Z"#,
            ]
        );
    }

    #[test]
    fn a_template_makes_a_text() {
        let yaml = "{ format: text, template: '{time:%H:%M} {int}|{payload}' }";
        assert_eq!(encoded(yaml, example()), ["00:00 -1|payload", "03:04 |payload"]);
    }

    #[test]
    fn a_message_without_fields_is_its_payload() {
        let plain = || batch([&b"a \"b\""[..], b"\xff"]);
        assert_eq!(encoded("json", plain()), [r#"{"payload":"a \"b\""}"#, "{\"payload\":\"\u{fffd}\"}"]);
        assert_eq!(encoded("raw", plain())[0], "a \"b\"");
        assert_eq!(encoded("csv", plain())[0], r#""a ""b""""#);
    }

    #[test]
    fn all_types_that_expressions_give_can_be_written() {
        let list =
            ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), Some(vec![])]);
        let struct_of = StructArray::from(vec![(
            Arc::new(Field::new("a\"", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef,
        )]);
        let dictionary: DictionaryArray<Int32Type> = vec!["x", "y"].into_iter().collect();
        let columns: Vec<(&'static str, ArrayRef, Value)> = vec![
            ("i8", Arc::new(Int8Array::from(vec![-1, 1])), json!(-1)),
            ("u64", Arc::new(UInt64Array::from(vec![u64::MAX, 1])), json!(u64::MAX)),
            ("f32", Arc::new(Float32Array::from(vec![0.1, f32::NAN])), json!(0.1)),
            ("utf8", Arc::new(StringArray::from(vec!["a\"", ""])), json!("a\"")),
            ("large", Arc::new(LargeStringArray::from(vec!["a", ""])), json!("a")),
            ("binary", Arc::new(BinaryArray::from(vec![&b"\xff\x00"[..], b""])), json!("/wA=")),
            ("date", Arc::new(Date32Array::from(vec![20_000, 0])), json!("2024-10-04")),
            ("date64", Arc::new(Date64Array::from(vec![86_400_000, 0])), json!("1970-01-02")),
            (
                "nano",
                Arc::new(TimestampNanosecondArray::from(vec![1, 0])),
                json!("1970-01-01T00:00:00.000000001Z"),
            ),
            (
                "decimal",
                Arc::new(Decimal128Array::from(vec![125, 0]).with_precision_and_scale(5, 2).unwrap()),
                json!(1.25),
            ),
            ("time", Arc::new(Time64MicrosecondArray::from(vec![1_000_000, 0])), json!("00:00:01")),
            ("null", Arc::new(NullArray::new(2)), Value::Null),
            ("list", Arc::new(list), json!([1, null])),
            ("struct", Arc::new(struct_of), json!({"a\"": 1})),
            ("dictionary", Arc::new(dictionary), json!("x")),
        ];
        for (name, column, expected) in columns {
            let encoded = encoded("{ format: json, nulls: keep }", with([(name, column)]));
            let found: Vec<Value> =
                encoded.iter().map(|text| serde_json::from_str(text).expect(text)).collect();
            assert_eq!(found[0][name], expected, "{name}");
        }
        for column in [
            Arc::new(DurationSecondArray::from(vec![5])) as ArrayRef,
            Arc::new(IntervalDayTimeArray::from(vec![arrow_buffer::IntervalDayTime::new(1, 2)])),
        ] {
            let text: Value = serde_json::from_str(&encoded("json", with([("x", column)]))[0]).unwrap();
            assert!(text["x"].as_str().is_some_and(|text| !text.is_empty()));
        }
    }

    #[test]
    fn its_description_is_what_users_read() {
        let schema = schemars::schema_for!(EncodeConfig);
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        assert!(description.starts_with("Writes the fields"), "{description}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mistakes = |yaml: &str| options::<EncodeConfig>(yaml).check().len();
        assert_eq!(mistakes("text"), 1);
        assert_eq!(mistakes("{ format: json, delimiter: ';' }"), 1);
        assert_eq!(mistakes("{ format: csv, delimiter: é }"), 1);
        assert_eq!(mistakes("{ format: csv, fields: [a, a] }"), 1);
        assert_eq!(mistakes("{ format: csv, fields: [a, b] }"), 0);
        assert!(try_options::<EncodeConfig>("jsn").unwrap_err().contains("json"));
        assert!(try_options::<EncodeConfig>("{ format: json, nuls: keep }").is_err());
        let template = try_options::<EncodeConfig>("{ format: text, template: 'a {b' }").unwrap_err();
        assert!(template.contains("without its `}`"), "{template}");
    }

    proptest! {
        #[test]
        fn json_is_what_serde_json_would_read(
            rows in prop::collection::vec((prop::option::of(any::<i64>()), any::<f64>(), prop::option::of("\\PC{0,20}"), any::<bool>()), 1..20),
        ) {
            let batch = with([
                ("a", Arc::new(rows.iter().map(|row| row.0).collect::<PrimitiveArray<Int64Type>>()) as ArrayRef),
                ("a rather long name that takes more than a block", Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>())),
                ("c", Arc::new(rows.iter().map(|row| row.2.clone()).collect::<StringViewArray>())),
                ("d", Arc::new(rows.iter().map(|row| Some(row.3)).collect::<BooleanArray>())),
            ]);
            let encoded = encoded("{ format: json, nulls: keep }", batch);
            for (text, row) in encoded.iter().zip(&rows) {
                let value: Value = serde_json::from_str(text).unwrap();
                let members: Vec<&Value> = value.as_object().unwrap().values().collect();
                prop_assert_eq!(members[0], &json!(row.0));
                // Read by the standard library: serde_json's own reading is a little off, most of all near nought.
                let number = text.split_once("block\":").and_then(|(_, rest)| rest.split_once(',')).unwrap().0;
                prop_assert_eq!(number.parse::<f64>().ok(), Some(row.1).filter(|number| number.is_finite()));
                prop_assert_eq!(members[2], &json!(row.2));
                prop_assert_eq!(members[3], &json!(row.3));
            }
        }
    }
}
