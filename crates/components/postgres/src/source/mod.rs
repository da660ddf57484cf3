//! `postgres`: reads a table or the result of a query.
//!
//! Rows come by `COPY … TO STDOUT` in the binary format: the server sends them as fast as the network takes
//! them, without a message of its own for each value. A table is read in the order of a unique column, and
//! the last value is the checkpoint, so a later run continues behind it (keyset pagination). Offsets were
//! rejected: they count rows that others delete. Cursors of the server were rejected: they end with the
//! connection.
//!
//! Logical replication would be a source of its own. The client's library does not have it.

mod ranges;
mod reader;
mod select;
mod statement;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{Component, Context, Endless, Error, Mistake, Source, SourceConfig, SourceOutput};
use thalweg_net::net::{check_timeout, long_time};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::failure::Moment;
use crate::options::ServerOptions;
use crate::sql::TableName;
use ranges::{Range, ranges};
use reader::Reader;
use select::Select;
use statement::NoQuery;

/// Reads the rows of a PostgreSQL table, or of the result of a query.
///
/// Each row is a message, and its columns are fields: numbers, texts, `bool`, `bytea`, `date`, `time` and
/// `timestamp` have their types, `numeric` is a decimal if the column says how many digits it has (up to 38)
/// and text otherwise, `json` and `jsonb` are JSON, arrays and composite types become JSON. Values of other
/// types are text. The payload is the row in PostgreSQL's binary format; see `payload`.
///
/// A table with `key`, a unique column, is read in the order of that column. With `--state`, a later run
/// continues behind the last row that the checkpoint covers, and so does a run whose connection broke. With
/// `partitions`, several connections read ranges of the key at the same time.
///
/// With `every`, the source looks for new rows again and again: rows with a larger key, or, with `cursor`,
/// rows with a larger value of that column, such as `updated_at`. A transaction may commit a row after others
/// with larger values were read, and its row would be missed. Set `delay` to a time that is longer than any
/// transaction takes. Deleted rows are not seen.
///
/// A query is read as a whole, once or at each interval. A run that was killed reads it again from the
/// beginning.
///
/// A row with a value that has no counterpart, such as the timestamp `infinity`, leaves by `errors`.
/// `meta.path` is the name of the table, with the number of the partition if there are several.
/// `meta.position` is the key, if it is a whole number and no `cursor` is given.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresSource {
    #[serde(flatten)]
    server: ServerOptions,
    /// The table or view to read, as `TABLE` or `SCHEMA.TABLE`, without quotation marks.
    #[serde(default)]
    table: Option<String>,
    /// The query to read in place of a table: a `SELECT`.
    #[serde(default)]
    query: Option<String>,
    /// The columns of the table to read. The default is all.
    #[serde(default)]
    columns: List<String>,
    /// The column of the table whose values are unique, and in whose order rows are read. Rows without a
    /// value are not read. The default is the primary key, if that is one column. Without a key, a run that
    /// resumes reads the table from its beginning.
    #[serde(default)]
    key: Option<String>,
    /// The column whose values grow with each change of a row, such as `updated_at`. Rows are read in the
    /// order of this column, and of `key` where it is equal. Rows without a value are not read, nor those
    /// with `infinity` or NaN, behind which no row would come.
    #[serde(default)]
    cursor: Option<String>,
    /// How long a row waits behind `cursor` before it is read, for transactions that commit late. The column
    /// must be a date or a timestamp; one without a time zone is in UTC. The default is no time.
    #[serde(default)]
    delay: Option<TimeSpan>,
    /// Read the table or query again after this time. By default the source ends when it has read all.
    #[serde(default)]
    every: Option<TimeSpan>,
    /// The number of connections that read ranges of `key` at the same time. The key must be a whole number.
    /// A run that resumes keeps the ranges of the first. The default is 1.
    #[serde(default = "thalweg_net::net::defaults::one")]
    #[schemars(range(min = 1, max = 64))]
    partitions: usize,
    /// The column whose value becomes the payload. By default the payload is the row in PostgreSQL's binary
    /// format.
    #[serde(default)]
    payload: Option<String>,
    /// The largest row, in bytes. A larger one ends the source with an error, because the client must hold a
    /// row as a whole. The default is 16 MiB.
    #[serde(default = "row")]
    max_row_bytes: ByteSize,
    /// How long the server may send no row, for example because it sorts. The default is 10 minutes.
    #[serde(default = "ten_minutes")]
    read_timeout: TimeSpan,
}

fn row() -> ByteSize {
    ByteSize::mib(16)
}

fn ten_minutes() -> TimeSpan {
    TimeSpan::seconds(600)
}

impl PostgresSource {
    fn mistake_of_input(&self) -> Option<Mistake> {
        let example =
            "For example `table: events`, or `query: SELECT * FROM events WHERE day = current_date`.";
        match (&self.table, &self.query) {
            (None, None) => Some(Mistake::new("table", "There is nothing to read.").help(example)),
            (Some(_), Some(_)) => {
                let mistake = Mistake::new("query", "The source reads a table or a query.");
                Some(mistake.help(example))
            }
            (Some(table), None) => TableName::mistake("table", table),
            (None, Some(query)) => {
                if let Err(wrong) = statement::query(query) {
                    return Some(Mistake::new("query", said(wrong)).help(example));
                }
                let of_tables = [
                    ("columns", !self.columns.is_empty()),
                    ("key", self.key.is_some()),
                    ("cursor", self.cursor.is_some()),
                    ("partitions", self.partitions > 1),
                ];
                let (option, _) = of_tables.into_iter().find(|(_, is_given)| *is_given)?;
                let mistake = Mistake::new(option, "A query is read as a whole.");
                Some(mistake.help("Remove this option, or make a view of the query, and name it in `table`."))
            }
        }
    }

    fn mistake_of_order(&self) -> Option<Mistake> {
        if self.cursor.is_some() && self.partitions > 1 {
            let mistake = Mistake::new("partitions", "Rows in the order of `cursor` have no ranges.");
            return Some(mistake.help("Remove `partitions` or `cursor`."));
        }
        if self.delay.is_some() && self.cursor.is_none() {
            let mistake = Mistake::new("delay", "`delay` is for the times of `cursor`.");
            return Some(mistake.help("For example `{ cursor: updated_at, delay: 30s }`."));
        }
        None
    }
}

/// Says why a text is no query.
fn said(wrong: NoQuery) -> &'static str {
    match wrong {
        NoQuery::Empty => "The query is empty.",
        NoQuery::Several => "The query has several statements.",
        NoQuery::Other => {
            "A query begins with `SELECT`, `WITH`, `VALUES` or `TABLE`: the source reads its rows."
        }
    }
}

impl Component for PostgresSource {
    const NAME: &'static str = "postgres";
    const EXAMPLE: &'static str = r#"
sources:
  events:
    postgres:
      server: "127.0.0.1:5432"
      database: shop
      auth: { user: thalweg, password: "not-a-secret" }
      table: events
      key: id
      partitions: 4
pipelines:
  main: { from: events, to: all }
sinks:
  all: { file: { path: out/events.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.server.check();
        mistakes.extend(self.mistake_of_input());
        mistakes.extend(self.mistake_of_order());
        mistakes.extend(check_timeout("read_timeout", self.read_timeout));
        if self.max_row_bytes.bytes() == 0 {
            let mistake = Mistake::new("max_row_bytes", "No row has 0 bytes.");
            mistakes.push(mistake.help("The default is `16MiB`."));
        }
        if self.every.is_some_and(|every| every.duration().is_zero()) {
            let mistake = Mistake::new("every", "The source cannot look without a pause.");
            mistakes.push(mistake.help("For example `10s`."));
        }
        mistakes
    }
}

impl SourceConfig for PostgresSource {
    fn endless(&self) -> Option<Endless> {
        Endless::by("every", self.every.is_some())
    }

    fn blocks(&self) -> bool {
        false
    }

    // A table without a key is read from its beginning too, but that is not known here.
    fn rereads(&self) -> bool {
        self.table.is_some()
    }

    // The positions are the values of the key.
    fn has_growing_positions(&self) -> bool {
        self.table.is_some() && self.cursor.is_none()
    }

    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        // The default may be more: few rows are as large.
        if self.max_row_bytes <= memory.max(row()) {
            return Vec::new();
        }
        let message = format!("A row may have {}, but `memory` is {memory}.", self.max_row_bytes);
        vec![Mistake::new("max_row_bytes", message).help("Lower it, or raise `memory`.")]
    }

    fn remarks(&self) -> Vec<Mistake> {
        let table = self.table.as_ref().and_then(|table| TableName::remark("table", table));
        let times = [("timeout", self.server.timeout), ("read_timeout", self.read_timeout)];
        let times = times.into_iter().filter_map(|(option, time)| long_time(option, time));
        table.into_iter().chain(times).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Postgres {
            config: Arc::new(self.clone()),
            batch_bytes: context.batch_bytes,
            select: None,
            ranges: Vec::new(),
        }))
    }
}

struct Postgres {
    config: Arc<PostgresSource>,
    batch_bytes: usize,
    /// The columns and the order, once the server has said what there is.
    select: Option<Arc<Select>>,
    /// How far each range is. They outlive a broken connection.
    ranges: Vec<Range>,
}

#[async_trait]
impl Source for Postgres {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let select = match &self.select {
            Some(select) => select.clone(),
            None => self.prepare(out).await?,
        };
        loop {
            self.round(&select, out).await?;
            match self.config.every {
                Some(every) if !out.sleep(every.duration()).await => {}
                _ => return Ok(()),
            }
        }
    }
}

impl Postgres {
    /// Asks the server for columns and ranges.
    async fn prepare(&mut self, out: &SourceOutput) -> Result<Arc<Select>, Error> {
        let connection =
            Connection::open(&self.config.server, self.config.max_row_bytes.bytes(), None, Moment::Start);
        let connection = connection.await?;
        let select = Arc::new(Select::new(&self.config, &connection).await?);
        self.ranges = ranges(&self.config, &select, &connection, out).await?;
        self.select = Some(select.clone());
        Ok(select)
    }

    /// Reads all ranges up to their ends.
    async fn round(&mut self, select: &Arc<Select>, out: &mut SourceOutput) -> Result<(), Error> {
        let reader = |out: SourceOutput| Reader {
            config: self.config.clone(),
            select: select.clone(),
            batch_bytes: self.batch_bytes,
            out,
        };
        if let [range] = &mut self.ranges[..] {
            return reader(out.clone()).read(range).await;
        }
        let mut reading = JoinSet::new();
        for mut range in self.ranges.drain(..) {
            let mut reader = reader(out.clone());
            reading.spawn(async move {
                let result = reader.read(&mut range).await;
                (range, result)
            });
        }
        let mut failed: Option<Error> = None;
        while let Some(ended) = reading.join_next().await {
            let (range, result) =
                ended.map_err(|error| Error::permanent("a reader panicked").caused_by(error))?;
            self.ranges.push(range);
            match result {
                Ok(()) => {}
                // The others are of no use any more.
                Err(error) if !error.kind().is_temporary() => return Err(error),
                Err(error) => failed = Some(error),
            }
        }
        self.ranges.sort_by_key(|range| range.number);
        failed.map_or(Ok(()), Err)
    }
}
