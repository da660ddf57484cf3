//! `elasticsearch`: indexes messages as documents, by the bulk interface.
//!
//! The answer names each document of a request in its order. Those that the server refuses leave by `errors`,
//! those that found it busy (429) are sent again alone. Of the answer, only the parts that are read are asked
//! for (`filter_path`): otherwise it is as large as the request.
//!
//! A document that was created already is delivered: a request whose answer was lost is sent again, also by a
//! later run, and the document's id says that it is the same.

mod answer;
#[cfg(test)]
mod tests;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use thalweg_codec::json::write_text;
use thalweg_codec::template::{BoundTemplate, Template};
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_record::Batch;
use thalweg_redact::beginning;
use thalweg_stream::encode::EncodeConfig;

use crate::requests::{
    Answer, Check, Compression, Encode, Encoded, Parts, Reading, Request, Service, Shared, Store,
    StoreOptions, Target, one_line,
};

/// The parts of the answer that are read.
const READ: &str = "items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason";

/// The longest id of a document, in bytes.
const LONGEST_ID: usize = 512;

/// Indexes messages as documents of Elasticsearch or OpenSearch, with their bulk interface.
///
/// A message is acknowledged when the server has confirmed its document. A document that the server refuses,
/// for example because of the type of a field, leaves by `errors` with the server's reason. One that finds
/// the server busy is sent again alone. While there is no server, messages wait.
///
/// After a lost answer or a restart, messages are sent again. Give documents an `id`, so that they are not
/// there twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticsearchConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The index, alias or data stream, for example `logs-{service}-{time:%Y.%m.%d}`. Columns in braces are
    /// replaced for each message. A message without a name of an index leaves by `errors`. Messages for an
    /// index that is absent or locked wait if all messages have that index, and leave by `errors` otherwise.
    index: Template,
    /// The id of the document, for example `{id}`. By default the server makes one. With an id, a message
    /// that is sent twice is one document. It must differ between messages: a field that does, or `{id}`
    /// after the transform `add_id: { kind: hash }`.
    #[serde(default)]
    id: Option<Template>,
    /// Whether a document replaces another one with its id. The default is `index`.
    #[serde(default)]
    op: Op,
    /// The name of the ingest pipeline of the server. By default that of the index, if it has one.
    #[serde(default)]
    pipeline: Option<String>,
    /// The shard of the document, by a text: documents with the same text are in the same shard. By default
    /// the id decides.
    #[serde(default)]
    routing: Option<Template>,
    /// The format of documents. They must be JSON objects. The default is `json`: a document has the fields
    /// of its message. With `raw`, the payload is the document.
    #[serde(default = "EncodeConfig::json")]
    encode: EncodeConfig,
    #[serde(skip)]
    shared: Shared,
}

/// Whether a document replaces another one with its id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Op {
    /// It replaces the other one.
    #[default]
    Index,
    /// The first one stays, and the message counts as delivered. Data streams need this.
    Create,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Index => "index",
            Op::Create => "create",
        }
    }
}

impl Component for ElasticsearchConfig {
    const NAME: &'static str = "elasticsearch";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: search }
sinks:
  search:
    elasticsearch: { url: "http://127.0.0.1:9200", index: "logs-{service}-{now:%Y.%m.%d}", id: "{id}" }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip]);
        mistakes.extend(self.options.mistake_of_path(&["/_bulk"]));
        mistakes.extend(self.encode.mistakes());
        if self.index.is_constant() && !is_index(self.index.prefix().as_bytes()) {
            let mistake = Mistake::new("index", format!("`{}` is no name of an index.", self.index.prefix()));
            mistakes.push(mistake.help("For example `logs-{service}-{now:%Y.%m.%d}`."));
        }
        mistakes
    }
}

impl SinkConfig for ElasticsearchConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn fields(&self) -> Vec<String> {
        let templates = std::iter::once(&self.index).chain(&self.id).chain(&self.routing);
        templates.flat_map(Template::fields).collect()
    }

    fn in_flight(&self) -> InFlight {
        self.options.in_flight()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.options.remarks().into_iter().chain(self.index.remark("index")).collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.options.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        let target = Target {
            path: "/_bulk",
            query: vec![("filter_path".to_owned(), READ.to_owned())],
            headers,
            most_bytes: ByteSize::mib(5),
            is_joining: true,
            check: Check { path: "/", query: Vec::new(), denied: &[401] },
        };
        let documents = Documents {
            index: self.index.clone(),
            id: self.id.clone(),
            routing: self.routing.clone(),
            op: self.op,
            pipeline: self.pipeline.clone(),
        };
        let bulk = Bulk { has_one_index: self.index.is_constant() };
        Store::build(context, &self.options, &self.shared, target, bulk, documents)
    }
}

/// True if an index can have this name. The server has further rules, for example for the case of letters.
fn is_index(name: &[u8]) -> bool {
    (1..=255).contains(&name.len())
        && !name.starts_with(b"_")
        && !name.iter().any(|byte| b" ,/\\#\"*<>|?\n".contains(byte))
}

/// Writes messages as documents, each after a line with its action.
struct Documents {
    index: Template,
    id: Option<Template>,
    routing: Option<Template>,
    op: Op,
    pipeline: Option<String>,
}

impl Encode for Documents {
    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let mut action = Action {
            index: self.index.bind(batch),
            id: self.id.as_mut().map(|id| id.bind(batch)),
            routing: self.routing.as_mut().map(|routing| routing.bind(batch)),
            op: self.op,
            pipeline: self.pipeline.as_deref(),
            text: Vec::new(),
        };
        for &row in rows {
            let document = batch.payload().value(row);
            let written = match document.trim_ascii().is_empty() {
                true => Err("the message is empty, and no document".to_owned()),
                false => action.write(row, into.buffer()),
            };
            match written {
                Ok(()) => {
                    one_line(document, into.buffer());
                    into.buffer().push(b'\n');
                    into.end(row);
                }
                Err(reason) => into.reject(row, reason),
            }
        }
    }
}

/// The line before a document.
struct Action<'a> {
    index: BoundTemplate<'a>,
    id: Option<BoundTemplate<'a>>,
    routing: Option<BoundTemplate<'a>>,
    op: Op,
    pipeline: Option<&'a str>,
    /// The text of a template, kept for its memory.
    text: Vec<u8>,
}

impl Action<'_> {
    fn write(&mut self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let text = &mut self.text;
        text.clear();
        self.index.render(row, text);
        if !is_index(text) {
            let shown = String::from_utf8_lossy(text);
            return Err(format!("`{}` is no name of an index", beginning(&shown, 100)));
        }
        out.extend_from_slice(b"{\"");
        out.extend_from_slice(self.op.name().as_bytes());
        out.extend_from_slice(b"\":{\"_index\":");
        write_text(&String::from_utf8_lossy(text), out);
        if let Some(id) = &mut self.id {
            text.clear();
            id.render(row, text);
            match text.len() {
                0 => return Err("the message has no id: the fields of `id` are empty".to_owned()),
                1..=LONGEST_ID => {}
                length => {
                    return Err(format!("the id has {length} bytes, but at most {LONGEST_ID} are possible"));
                }
            }
            out.extend_from_slice(b",\"_id\":");
            write_text(&String::from_utf8_lossy(text), out);
        }
        if let Some(routing) = &mut self.routing {
            text.clear();
            routing.render(row, text);
            if !text.is_empty() {
                out.extend_from_slice(b",\"routing\":");
                write_text(&String::from_utf8_lossy(text), out);
            }
        }
        if let Some(pipeline) = self.pipeline {
            out.extend_from_slice(b",\"pipeline\":");
            write_text(pipeline, out);
        }
        out.extend_from_slice(b"}}\n");
        Ok(())
    }
}

/// The bulk interface.
pub(crate) struct Bulk {
    /// True if all documents are for the same index.
    pub(crate) has_one_index: bool,
}

impl Service for Bulk {
    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        answer::read(request, answer, self.has_one_index)
    }
}
