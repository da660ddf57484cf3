//! `clickhouse`: inserts messages as rows of a table, as JSON.
//!
//! Each request is one insert, which the server stores as a whole or not at all. Its deduplication token
//! follows from the origin and the text of its messages, so an insert whose answer was lost is not stored
//! twice. A request therefore has messages of one batch only: a batch that is sent again must be the same
//! insert. Joining small batches is left to the server (`async_insert`).
//!
//! The status of an answer does not tell bad rows from an absent table or a lack of memory; the number of the
//! server's exception does. Only numbers that blame the rows refuse them. All others are waited for.

#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use sha1::{Digest, Sha1};
use thalweg_config::ByteSize;
use thalweg_engine::{Component, Context, Error, InFlight, Mistake, Sink, SinkConfig, TransformConfig};
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

use crate::requests::{
    Answer, Check, Compression, Encode, Encoded, Failure, Moments, Parts, Reading, Request, Service, Shared,
    Store, StoreOptions, Target, one_line,
};
use token::{Tokens, push_head, row};

/// The numbers of exceptions that blame the rows: texts that are not of a column's type, NULL where there can
/// be none, unknown columns, violated constraints.
const OF_ROWS: [u32; 26] = [
    6, 10, 16, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 130, 131, 190, 321, 349, 376, 407, 441, 467, 469,
    675, 676, 691,
];

/// The numbers of exceptions for too much work: too many queries or parts, no memory, a limit of time.
const OF_LOAD: [u32; 7] = [159, 201, 202, 241, 243, 252, 290];

/// Inserts messages as rows of a ClickHouse table, as JSON (`JSONEachRow`).
///
/// A message is acknowledged when the server has stored its insert. A row that the server refuses leaves by
/// `errors` with the text of its exception: an insert that is refused is divided until the bad rows are
/// alone. While there is no server, no table, or no right to use it, messages wait.
///
/// Batches that sources read are inserts of their own. For sources with small batches, such as `http`, let
/// the server join them: `settings: { async_insert: "1", wait_for_async_insert: "1" }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClickhouseConfig {
    #[serde(flatten)]
    options: StoreOptions,
    /// The table.
    #[schemars(length(min = 1))]
    table: String,
    /// The database of the table. The default is that of the user.
    #[serde(default)]
    database: Option<String>,
    /// Whether an insert has a token by which the server recognises it when the run sends it again. A later
    /// run may divide messages into other inserts, with other tokens. The server keeps tokens for replicated
    /// tables, and for others with `non_replicated_deduplication_window`. Without, small batches are sent
    /// together. The default is `true`.
    #[serde(default = "crate::net::defaults::yes")]
    deduplicate: bool,
    /// Whether fields without a column are left out. Otherwise the server refuses their messages. The default
    /// is `false`.
    #[serde(default)]
    skip_unknown_fields: bool,
    /// Settings of the server for each insert, for example `{ async_insert: "1" }`. By default times are read
    /// in any usual form (`date_time_input_format: best_effort`).
    #[serde(default)]
    settings: BTreeMap<String, String>,
    /// The format of rows. They must be JSON objects. The default is `json`: a row has the fields of its
    /// message. With `raw`, the payload is the row.
    #[serde(default = "EncodeConfig::json")]
    encode: EncodeConfig,
    #[serde(skip)]
    shared: Shared,
}

impl ClickhouseConfig {
    /// Returns the parameters of requests.
    fn query(&self) -> Vec<(String, String)> {
        let mut query =
            vec![("query".to_owned(), format!("INSERT INTO {} FORMAT JSONEachRow", identifier(&self.table)))];
        query.extend(self.database.iter().map(|database| ("database".to_owned(), database.clone())));
        let mut settings = BTreeMap::from([
            // The status of the answer is that of the insert.
            ("wait_end_of_query", "1"),
            ("date_time_input_format", "best_effort"),
        ]);
        if self.skip_unknown_fields {
            settings.insert("input_format_skip_unknown_fields", "1");
        }
        settings.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        query.extend(settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        query
    }
}

/// Returns a name as SQL has it.
fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

impl Component for ClickhouseConfig {
    const NAME: &'static str = "clickhouse";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: rows }
sinks:
  rows: { clickhouse: { url: "http://127.0.0.1:8123", database: logs, table: events } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.options.check(&[Compression::Gzip, Compression::Zstd]);
        mistakes.extend(self.encode.mistakes());
        mistakes
    }
}

impl SinkConfig for ClickhouseConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn in_flight(&self) -> InFlight {
        self.options.in_flight()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.options.remarks()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.options.needed_files()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let target = Target {
            path: "/",
            query: self.query(),
            headers: HeaderMap::new(),
            most_bytes: ByteSize::mib(5),
            is_joining: !self.deduplicate,
            check: Check {
                path: "/",
                query: vec![("query".to_owned(), "SELECT 1".to_owned())],
                denied: &[401, 403],
            },
        };
        let inserts = Inserts::new(self.deduplicate);
        let moments = self.deduplicate.then(|| self.shared.moments());
        let rows = Rows { moments, first: 0 };
        Store::build(context, &self.options, &self.shared, target, inserts, rows)
    }
}

/// Writes messages as rows, each after its origin.
struct Rows {
    /// Without, rows have no origin.
    moments: Option<Moments>,
    /// The number of the first message of the batch: a time in nanoseconds that no other message has.
    first: u64,
}

impl Encode for Rows {
    fn begin(&mut self, batch: &Batch) {
        if let Some(moments) = &self.moments {
            self.first = moments.take(batch) as u64;
        }
    }

    fn encode(&mut self, batch: &Batch, rows: &[usize], into: &mut Encoded) {
        let source = source_of(batch);
        for &row in rows {
            let document = batch.payload().value(row);
            if document.trim_ascii().is_empty() {
                into.reject(row, "the message is empty, and no row");
                continue;
            }
            let out = into.buffer();
            if self.moments.is_some() {
                let number = self.first.wrapping_add(row as u64);
                // A message that comes only once is known by its number.
                let place = batch.positions().map_or(number, |positions| positions.value(row));
                push_head(source, place, number, out);
            }
            one_line(document, out);
            out.push(b'\n');
            into.end(row);
        }
    }
}

/// Returns a hash of the source and the file of a batch.
fn source_of(batch: &Batch) -> [u8; 8] {
    let meta = batch.meta();
    let path = meta.path.as_deref().unwrap_or_default();
    let hash =
        Sha1::new().chain_update(meta.source.as_bytes()).chain_update([0u8]).chain_update(path).finalize();
    let mut start = [0; 8];
    start.copy_from_slice(&hash[..8]);
    start
}

/// The HTTP interface of the server.
pub(crate) struct Inserts {
    /// Without, inserts have no token.
    tokens: Option<Tokens>,
}

impl Inserts {
    pub(crate) fn new(has_tokens: bool) -> Self {
        Self { tokens: has_tokens.then(Tokens::default) }
    }
}

impl Service for Inserts {
    fn body(&self, parts: &Parts) -> Bytes {
        if self.tokens.is_none() {
            return Bytes::copy_from_slice(parts.bytes());
        }
        let mut body = Vec::with_capacity(parts.bytes().len());
        parts.iter().for_each(|part| body.extend_from_slice(row(part)));
        body.into()
    }

    fn url(&self, base: &Url, parts: &Parts) -> Option<Url> {
        self.tokens.as_ref().map(|tokens| {
            let mut url = base.clone();
            url.query_pairs_mut().append_pair("insert_deduplication_token", &tokens.of(parts));
            url
        })
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        let number = exception(answer);
        if answer.status.is_success() && number.is_none() {
            return Reading::Accepted;
        }
        let is_of = |numbers: &[u32]| number.is_some_and(|number| numbers.contains(&number));
        if is_of(&OF_ROWS) || answer.status == reqwest::StatusCode::PAYLOAD_TOO_LARGE {
            return Reading::Refused(request.text(answer));
        }
        match is_of(&OF_LOAD) {
            true => Reading::Again(Failure::overloaded(request.text(answer)).after(answer.retry_after())),
            false => Reading::Again(request.failure(answer)),
        }
    }
}

/// Returns the number of the exception in an answer, if it has one.
fn exception(answer: &Answer) -> Option<u32> {
    let header = answer.headers.get("x-clickhouse-exception-code").and_then(|value| value.to_str().ok());
    let text = || {
        let rest = answer.body.strip_prefix(b"Code: ")?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(rest.get(..digits)?).ok()
    };
    header.or_else(text)?.parse().ok()
}
