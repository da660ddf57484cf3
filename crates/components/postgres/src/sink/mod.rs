//! `postgres`: stores messages as rows of a table.
//!
//! A batch is one transaction, and its rows come by a binary `COPY`. Rows that the server refuses are found
//! by dividing the batch within the transaction ([`store`]), so one bad row costs a few more statements and
//! never the others. `upsert`, and columns whose types are not known here, go through a temporary table.
//!
//! With `exactly_once`, the positions of messages are stored in the same transaction ([`positions`]).

mod positions;
mod rows;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::BinaryViewArray;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{
    Component, Context, Error, InFlight, Journal, Mistake, Rejects, Sink, SinkConfig, WriteOutcome,
};
use thalweg_net::net::long_time;
use thalweg_record::{Batch, Share, is_same_payload};
use tokio::time::Instant;

use crate::failure::{Failure, Meaning, Moment};
use crate::options::ServerOptions;
use crate::sql::TableName;
use positions::{Plan, Positions};
use rows::encode;
use store::{Link, store};

/// Stores messages as rows of a PostgreSQL table.
///
/// The fields of a message are stored in the columns of the same names; `columns` chooses others. Numbers,
/// texts and times are converted to the column's type where nothing is lost: a text that spells a number or a
/// time is one, and any value can become text or JSON. A column that no message of a batch has a field for
/// gets its default.
///
/// A batch is one transaction. A message leaves by `errors` if its values do not fit the table's types, or if
/// the server refuses its row: the reason is that of the server. The other messages of the batch are stored.
/// If 16 rows were refused one by one and none was stored, others of the batch are refused together. While
/// the server is away, is read-only, has no room, or has no such table any more, messages wait. But if the
/// server refuses the whole batch before any row was stored, for example because the user may not insert, the
/// run ends with the server's reason.
///
/// The server takes no `COPY` for a view or a table with row security for the user: rows are inserted there.
/// A row that a policy forbids leaves by `errors`.
///
/// A message is acknowledged when its transaction is committed. A run that is killed, or whose connection
/// breaks during a commit, may store messages a second time. `upsert` makes that harmless, and so does
/// `on_conflict: nothing` if the table has a unique column. `exactly_once` prevents it.
///
/// `exactly_once` needs `--state`. The sink keeps, in a table of the same database and in the same
/// transaction, the position of the last message of each file or partition, and skips messages that come
/// again. So the positions of messages must grow (`meta.position`): those of `postgres` with a whole number
/// as `key`, of `kafka`, of `file`, and of file readers. A file that was replaced or rewritten is another
/// file, also under the same name, and a renamed one is the same. At most 4000 files or partitions can wait
/// for a checkpoint. Messages of other sources end the run. Messages must come to the sink by one pipeline,
/// in order, without a buffer on disk. If positions go back, the run ends with an error.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PostgresSink {
    #[serde(flatten)]
    server: ServerOptions,
    /// The table, as `TABLE` or `SCHEMA.TABLE`, without quotation marks.
    #[schemars(length(min = 1), example = &"events")]
    table: String,
    /// The columns to store, each with the field that it has, for example `{line: payload, at: meta.time}`. A
    /// message without the field has NULL. By default all fields are stored in columns of their names.
    #[serde(default)]
    columns: BTreeMap<String, String>,
    /// How rows are stored: `copy` (the fastest), `insert`, or `upsert`, which replaces a row with the same
    /// `key`. The default is `copy`.
    #[serde(default)]
    write_mode: Mode,
    /// How `insert` treats a row that is there already, by a unique column: `refuse`, or `nothing`. The
    /// default is `refuse`.
    #[serde(default)]
    on_conflict: OnConflict,
    /// The columns by which `upsert` finds the row to replace. They need a unique index. The default is the
    /// primary key.
    #[serde(default)]
    key: List<String>,
    /// Whether fields without a column are left out. Otherwise messages that have them leave by `errors`. The
    /// default is `false`.
    #[serde(default)]
    skip_unknown_fields: bool,
    /// Whether messages that a later run, or a broken connection, sends again are stored only once. The
    /// default is `false`.
    #[serde(default)]
    exactly_once: bool,
    /// The table in which `exactly_once` keeps positions. It is created unless it exists. The default is
    /// `thalweg_positions`.
    #[serde(default = "positions_table")]
    #[schemars(length(min = 1))]
    positions_table: String,
    /// After this time without success, the messages of a batch leave by `errors`. By default they wait for
    /// as long as it takes, and their sources with them when the memory is full.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// The number of batches that are stored at the same time, each over a connection of its own. With more
    /// than 1, the order of messages is not kept. `exactly_once` needs 1. The default is 1.
    #[serde(default = "thalweg_net::net::defaults::one")]
    #[schemars(range(min = 1, max = 64))]
    concurrency: usize,
}

/// How rows are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// By `COPY`.
    #[default]
    Copy,
    /// By `INSERT`.
    Insert,
    /// By `INSERT … ON CONFLICT … DO UPDATE`.
    Upsert,
}

/// The fate of a row that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnConflict {
    /// It is refused.
    #[default]
    Refuse,
    /// The row that is there stays.
    Nothing,
}

fn positions_table() -> String {
    "thalweg_positions".to_owned()
}

impl PostgresSink {
    fn mistake_of_mode(&self) -> Option<Mistake> {
        if self.on_conflict == OnConflict::Nothing && self.write_mode != Mode::Insert {
            let mistake = Mistake::new("on_conflict", "Only `insert` can leave a row as it is.");
            return Some(mistake.help("Set `write_mode: insert`."));
        }
        if !self.key.is_empty() && self.write_mode != Mode::Upsert {
            let mistake = Mistake::new("key", "Only `upsert` has a key.");
            return Some(mistake.help("Set `write_mode: upsert`, or remove `key`."));
        }
        if self.exactly_once && self.concurrency > 1 {
            let mistake = Mistake::new("concurrency", "`exactly_once` needs the messages in order.");
            return Some(mistake.help("Remove `concurrency` or `exactly_once`."));
        }
        None
    }
}

impl Component for PostgresSink {
    const NAME: &'static str = "postgres";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"id": %6d, "service": "shop"}', count: 100 } }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: rows }
sinks:
  rows:
    postgres:
      server: "127.0.0.1:5432"
      database: shop
      auth: { user: thalweg, password: "not-a-secret" }
      table: visits
      write_mode: upsert
      key: id
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.server.check();
        for (option, table) in [("table", &self.table), ("positions_table", &self.positions_table)] {
            mistakes.extend(TableName::mistake(option, table));
        }
        if self.exactly_once && self.table == self.positions_table {
            let mistake = Mistake::new("positions_table", "Rows and positions need a table each.");
            mistakes.push(mistake.help("Leave it out: the default is `thalweg_positions`."));
        }
        mistakes.extend(self.mistake_of_mode());
        mistakes
    }
}

impl SinkConfig for PostgresSink {
    fn fields(&self) -> Vec<String> {
        self.columns.values().cloned().collect()
    }

    fn in_flight(&self) -> InFlight {
        InFlight::chosen(self.concurrency)
    }

    fn knows_positions(&self) -> bool {
        self.exactly_once
    }

    fn remarks(&self) -> Vec<Mistake> {
        let table = TableName::remark("table", &self.table);
        table.into_iter().chain(long_time("timeout", self.server.timeout)).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(Postgres {
            config: self.clone(),
            memory: context.memory.clone(),
            journal: context.journal.clone(),
            // Dead letters are sent again without a journal. Each comes once.
            keeps_positions: self.exactly_once && !context.is_replay,
            positions: None,
            link: None,
            current: None,
            has_stored: false,
        }))
    }
}

struct Postgres {
    config: PostgresSink,
    memory: Share,
    journal: Option<Journal>,
    keeps_positions: bool,
    /// With `exactly_once`, once the sink is open.
    positions: Option<Positions>,
    link: Option<Link>,
    current: Option<Current>,
    /// True if a row was stored: the options are right.
    has_stored: bool,
}

/// The batch that is being stored.
struct Current {
    /// The same batch has the same payload. It is held, so that no other batch is at its place.
    payload: BinaryViewArray,
    since: Instant,
    /// The messages of it that are stored, with `exactly_once`.
    plan: Option<Plan>,
}

impl Postgres {
    /// Connects, unless there is a connection. Reads the table and the stored positions. Returns true if the
    /// connection is a new one.
    async fn connect(&mut self, moment: Moment) -> Result<bool, Error> {
        if self.link.is_some() {
            return Ok(false);
        }
        let link = Link::open(&self.config, moment).await?;
        if let Some(positions) = &mut self.positions {
            positions.load(&link.connection, moment).await?;
        }
        self.link = Some(link);
        Ok(true)
    }

    /// Begins a batch, or resumes it if it is the same as before.
    fn begin(&mut self, batch: &Batch) -> Instant {
        let payload = batch.payload();
        match &self.current {
            Some(current) if is_same_payload(&current.payload, payload) => current.since,
            _ => {
                let since = Instant::now();
                self.current = Some(Current { payload: payload.clone(), since, plan: None });
                since
            }
        }
    }

    /// Finds out what of the batch is stored already.
    fn plan(&mut self, batch: &Batch) -> Result<Option<Plan>, Error> {
        let Some(positions) = &self.positions else { return Ok(None) };
        let plan = Some(positions.plan(batch)?);
        if let Some(current) = &mut self.current {
            current.plan.clone_from(&plan);
        }
        Ok(plan)
    }

    /// Stores a batch in one transaction. Returns the refused rows.
    async fn store(&mut self, batch: &Batch) -> Result<Vec<(u32, String)>, Error> {
        let mut plan = self.plan(batch)?;
        if self.connect(Moment::Running).await? {
            // A commit whose confirmation was lost may have stored it.
            plan = self.plan(batch)?;
        }
        // Taken out, so that a write that is dropped leaves no connection within a transaction.
        let Some(mut link) = self.link.take() else {
            return Err(Error::permanent("the sink is not open"));
        };
        let wanted = unstored(plan.as_ref(), batch);
        let encoded = encode(batch, &wanted, &link.table, &self.config);
        let _lease = self.memory.claim(encoded.bytes.len());
        let lock = self.positions.as_ref().map(Positions::lock);
        let changes = |refused: &[(u32, String)]| {
            let (positions, plan) = (self.positions.as_ref()?, plan.as_ref()?);
            positions.statement(plan, refused)
        };
        let stored = store(&mut link, encoded, lock, changes).await;
        let refused = stored.map_err(|failure: Failure| {
            // Options that were right before may become so again. Others are refused at each attempt.
            let is_wrong = !self.has_stored && failure.meaning() == Meaning::SetUp;
            let moment = if is_wrong { Moment::Start } else { Moment::Running };
            failure.error(format!("cannot store rows in `{}`", self.config.table), moment)
        })?;
        self.has_stored |= refused.len() < wanted.len();
        self.link = Some(link);
        if let (Some(positions), Some(plan)) = (&mut self.positions, &plan) {
            positions.stored(plan, &refused);
        }
        Ok(refused)
    }

    fn gives_up(&self, since: Instant) -> Option<Duration> {
        let span = self.config.give_up?.duration();
        (since.elapsed() >= span).then_some(span)
    }

    /// Notes that the current batch is not stored: its messages end elsewhere.
    fn leave(&mut self) {
        if let (Some(Current { plan: Some(plan), .. }), Some(positions)) =
            (self.current.take(), &mut self.positions)
        {
            positions.left(&plan);
        }
    }
}

/// Returns the rows of a batch that are not stored already.
fn unstored(plan: Option<&Plan>, batch: &Batch) -> Vec<usize> {
    match plan {
        Some(plan) => plan.unstored().collect(),
        None => (0..batch.rows()).collect(),
    }
}

#[async_trait]
impl Sink for Postgres {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        if self.keeps_positions && self.positions.is_none() {
            let Some(journal) = &self.journal else {
                let message = "`exactly_once` needs `--state`: a run without one reads its input again";
                return Err(Error::permanent(message));
            };
            self.positions = Some(Positions::new(&self.config.positions_table, journal)?);
        }
        self.connect(Moment::Start).await.map(drop)
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let since = self.begin(batch);
        match self.store(batch).await {
            Ok(refused) => {
                self.current = None;
                refused.into_iter().for_each(|(row, reason)| rejects.reject(row, reason));
            }
            Err(error) => {
                // The transaction may have been committed or not.
                self.link = None;
                let Some(span) = self.gives_up(since).filter(|_| error.kind().is_temporary()) else {
                    return Err(error);
                };
                let seconds = span.as_secs_f64();
                let reason = format!("could not be stored for {seconds} s (`give_up`): {}", error.full());
                let plan = self.current.as_ref().and_then(|current| current.plan.as_ref());
                for row in unstored(plan, batch) {
                    rejects.reject(row as u32, reason.clone());
                }
                self.leave();
            }
        }
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn uncommitted(&self) -> usize {
        self.positions.as_ref().map_or(0, Positions::uncommitted)
    }

    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        if let Some(positions) = &mut self.positions {
            positions.commit(count);
        }
        Ok(())
    }

    fn drop_batch(&mut self) {
        self.leave();
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.link = None;
        Ok(())
    }
}
