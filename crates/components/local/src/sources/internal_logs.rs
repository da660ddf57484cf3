//! thalweg's own log as messages.
//!
//! The program installs a subscriber that passes everything logged in the process to [`record`]. Each
//! listening source has a bounded queue of its own, since a thread that logs must never wait for a pipeline.
//! Records that do not fit are counted, and a separate record reports the count.
//!
//! Processing these messages may itself log. Records logged on the stack of this source while it sends a
//! batch are ignored, which prevents an endless loop there. Records that other threads log about these
//! messages are accepted. The engine and the components log at a limited pace, with growing pauses.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{
    ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray,
    builder::StringViewBuilder,
};
use arrow_schema::{Field, Schema};
use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, Reading, Source, SourceConfig, SourceOutput};
use thalweg_record::{Meta, PayloadWriter};
use tokio::sync::Notify;

/// Emits thalweg's own log, one message for each record.
///
/// The payload is a line of text. The fields are `level` (`error`, `warn`, `info`, `debug`, `trace`),
/// `target` (the part of the program), `time`, `message`, and the fields of the record itself. A field of the
/// record with one of these names gets a leading underscore. The log on the standard error output does not
/// change.
///
/// It ends when all other sources have ended and their messages are settled.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InternalLogs {
    /// The least severe level to emit. The default is the level of the log, which the variable `THALWEG_LOG`
    /// sets: the most verbose one if it differs between modules. Without the variable it is `info`.
    level: Option<LogLevel>,
    /// The maximum number of records that wait to be sent. Further records are dropped and counted, and a
    /// record reports the count. The default is 10000.
    #[schemars(range(min = 1))]
    max_records: usize,
}

impl Default for InternalLogs {
    fn default() -> Self {
        Self { level: None, max_records: 10_000 }
    }
}

/// The severity of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something is not as it should be.
    Warn,
    /// Something happened.
    Info,
    /// Details that help to find a mistake.
    Debug,
    /// Every step.
    Trace,
}

/// The variable with the level of the log: `debug`, or by module (`warn,thalweg_engine=debug`).
pub const LOG_VARIABLE: &str = "THALWEG_LOG";

impl LogLevel {
    const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Returns the most verbose level in the value of [`LOG_VARIABLE`].
    fn most_verbose(directives: &str) -> Option<Self> {
        let levels = directives.split(',').map(|one| one.rsplit('=').next().unwrap_or_default().trim());
        let known = |text: &str| Self::ALL.into_iter().find(|level| text.eq_ignore_ascii_case(level.name()));
        levels.filter_map(known).max()
    }

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// A log record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its severity.
    pub level: LogLevel,
    /// The part of the program that logged it.
    pub target: String,
    /// Its time, in microseconds since 1970 (UTC).
    pub time_us: i64,
    /// Its text.
    pub message: String,
    /// The names and values of its fields.
    pub fields: Vec<(String, String)>,
}

impl Record {
    /// Creates a record with the present time.
    pub fn new(level: LogLevel, target: &str, message: String, fields: Vec<(String, String)>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_us = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        Self { level, target: target.to_owned(), time_us, message, fields }
    }

    fn write_line(&self, to: &mut Vec<u8>) {
        use std::io::Write;
        let time = DateTime::from_timestamp_micros(self.time_us).unwrap_or_default();
        let time = time.to_rfc3339_opts(SecondsFormat::Micros, true);
        // Writing to memory does not fail.
        let _ = write!(to, "{time} {} {}: {}", self.level.name(), self.target, self.message);
        for (name, value) in &self.fields {
            let _ = write!(to, " {name}={value}");
        }
    }

    fn size(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| name.len() + value.len() + 2);
        self.message.len() + self.target.len() + fields.sum::<usize>() + 64
    }
}

/// The listeners, each with the least severe level that it accepts. Do not drop the last reference to a
/// listener while this is locked: its destructor takes the same lock.
static LISTENERS: Mutex<Vec<(LogLevel, Weak<Listener>)>> = Mutex::new(Vec::new());
/// The least severe level that any listener accepts; 0 if there is no listener.
static WANTED: AtomicU8 = AtomicU8::new(0);

thread_local! {
    /// True while this thread sends records. Anything that it logs meanwhile concerns them.
    static IS_FEEDING: Cell<bool> = const { Cell::new(false) };
}

/// True if a record of this level would be accepted.
pub fn wants(level: LogLevel) -> bool {
    WANTED.load(Relaxed) >= level as u8 && !IS_FEEDING.get()
}

/// Passes a record to all listeners. Never waits for any of them.
pub fn record(record: &Record) {
    if !wants(record.level) {
        return;
    }
    let listening: Vec<Arc<Listener>> = {
        let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        let wanting = listeners.iter().filter(|(level, _)| record.level <= *level);
        wanting.filter_map(|(_, listener)| listener.upgrade()).collect()
    };
    listening.iter().for_each(|listener| listener.take(record));
}

struct Listener {
    bound: usize,
    waiting: Mutex<VecDeque<Record>>,
    dropped: AtomicU64,
    news: Notify,
}

impl Listener {
    fn new(level: LogLevel, bound: usize) -> Arc<Self> {
        let listener = Arc::new(Self {
            bound,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
            news: Notify::new(),
        });
        let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push((level, Arc::downgrade(&listener)));
        refresh(&mut listeners);
        drop(listeners);
        listener
    }

    fn take(&self, record: &Record) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= self.bound {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        waiting.push_back(record.clone());
        drop(waiting);
        self.news.notify_one();
    }

    /// Takes the waiting records that fit into a batch, and adds a record with the number of dropped ones.
    fn give(&self, batch_bytes: usize) -> Vec<Record> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut given = Vec::new();
        let mut bytes = 0;
        while bytes < batch_bytes
            && given.len() < MOST_ROWS
            && let Some(record) = waiting.pop_front()
        {
            bytes += record.size();
            given.push(record);
        }
        let dropped = if waiting.is_empty() { self.dropped.swap(0, Relaxed) } else { 0 };
        if dropped > 0 {
            let message = format!(
                "{dropped} log records were dropped: more than `max_records` ({}) were waiting to be sent on",
                self.bound
            );
            let fields = vec![("dropped".to_owned(), dropped.to_string())];
            given.push(Record::new(LogLevel::Warn, module_path!(), message, fields));
        }
        given
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        refresh(&mut LISTENERS.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Removes the listeners that are gone.
fn refresh(listeners: &mut Vec<(LogLevel, Weak<Listener>)>) {
    listeners.retain(|(_, listener)| listener.strong_count() > 0);
    WANTED.store(listeners.iter().map(|(level, _)| *level as u8).max().unwrap_or(0), Relaxed);
}

/// The maximum number of records in a batch.
const MOST_ROWS: usize = 8192;

impl Component for InternalLogs {
    const NAME: &'static str = "internal_logs";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: "hello", count: 10 } }
  own: { internal_logs: { level: info } }
pipelines:
  main: { from: messages, to: screen }
  diary: { from: own, to: log }
sinks:
  screen: { stdout: {} }
  log: { file: { path: out/thalweg.jsonl, encode: json } }
"#;
}

impl SourceConfig for InternalLogs {
    fn is_auxiliary(&self) -> bool {
        true
    }

    fn collects_logs(&self) -> bool {
        true
    }

    // A record is logged only once.
    fn resends(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        // It listens from here on, so that it receives the records of other components as they start.
        let of_log = || LogLevel::most_verbose(&std::env::var(LOG_VARIABLE).ok()?);
        let level = self.level.or_else(of_log).unwrap_or(LogLevel::Info);
        let listener = Listener::new(level, self.max_records.max(1));
        Ok(Box::new(Listening { listener, batch_bytes: context.batch_bytes.max(1) }))
    }
}

struct Listening {
    listener: Arc<Listener>,
    batch_bytes: usize,
}

#[async_trait]
impl Source for Listening {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        loop {
            // Read before the queue: records logged before the end are still sent.
            let is_last = out.is_stopping();
            let records = self.listener.give(self.batch_bytes);
            if !records.is_empty() {
                let bytes = records.iter().map(Record::size).sum();
                let lease = out.reserve(bytes).await;
                let (reading, fields) = batch_of(&records)?;
                let first = records.first().map_or(0, |record| record.time_us);
                let meta = Meta {
                    source: out.name().clone(),
                    path: None,
                    time_us: first,
                    sequence: None,
                    number: 0,
                };
                feeding(out.send_again(reading, meta, Some(fields))).await?;
                drop(lease);
                continue;
            }
            if is_last {
                return Ok(());
            }
            tokio::select! {
                () = self.listener.news.notified() => {}
                () = out.stopping() => {}
            }
        }
    }
}

/// Runs a future. Records logged on its stack are ignored.
async fn feeding<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let before = IS_FEEDING.replace(true);
        let polled = future.as_mut().poll(context);
        IS_FEEDING.set(before);
        polled
    })
    .await
}

fn batch_of(records: &[Record]) -> Result<(Reading, RecordBatch), Error> {
    let mut payload = PayloadWriter::with_capacity(records.iter().map(Record::size).sum(), records.len());
    for record in records {
        record.write_line(payload.buffer());
        payload.end();
    }
    let text = |value: fn(&Record) -> &str| -> ArrayRef {
        Arc::new(StringViewArray::from_iter_values(records.iter().map(value)))
    };
    let times = TimestampMicrosecondArray::from_iter_values(records.iter().map(|record| record.time_us));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("level".to_owned(), text(|record| record.level.name())),
        ("target".to_owned(), text(|record| &record.target)),
        ("time".to_owned(), Arc::new(times.with_timezone("UTC"))),
        ("message".to_owned(), text(|record| &record.message)),
    ];
    const TAKEN: [&str; 4] = ["level", "target", "time", "message"];
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in records.iter().flat_map(|record| &record.fields) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        let mut values = StringViewBuilder::with_capacity(records.len());
        for record in records {
            values.append_option(record.fields.iter().find(|field| field.0 == name).map(|field| &field.1));
        }
        let shown = if TAKEN.contains(&name) { format!("_{name}") } else { name.to_owned() };
        if columns.iter().all(|(taken, _)| *taken != shown) {
            columns.push((shown, Arc::new(values.finish())));
        }
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(name, column.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(records.len()));
    let fields = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?;
    Ok((Reading { payload: payload.finish(), path: None, positions: None, checkpoint: None }, fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::testing::{Arrived, payloads, rows, start};

    /// All listeners of a process share one list, so these tests run one after the other.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn said(level: LogLevel, message: &str, fields: &[(&str, &str)]) -> Record {
        let fields = fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Record { time_us: 1_700_000_000_000_000, ..Record::new(level, "test", message.to_owned(), fields) }
    }

    #[test]
    fn the_most_verbose_level_of_the_variable_counts() {
        for (directives, expected) in [
            ("debug", Some(LogLevel::Debug)),
            ("WARN", Some(LogLevel::Warn)),
            ("warn,thalweg_engine=debug, h2=info", Some(LogLevel::Debug)),
            ("off", None),
            ("", None),
        ] {
            assert_eq!(LogLevel::most_verbose(directives), expected, "{directives}");
        }
    }

    #[tokio::test]
    async fn records_become_messages_with_fields_and_what_is_there_at_the_end_is_sent() {
        let _alone = ALONE.lock().await;
        let running = start::<InternalLogs>("level: warn", 1 << 20, Default::default());
        assert!(wants(LogLevel::Warn) && !wants(LogLevel::Info));
        record(&said(LogLevel::Warn, "one", &[("tries", "2"), ("level", "high")]));
        record(&said(LogLevel::Info, "not wanted", &[]));
        record(&said(LogLevel::Error, "two", &[("what", "x")]));
        running.stop.request();
        let sent = running.finish().await;
        assert!(sent.result.is_none());
        let time = "2023-11-14T22:13:20.000000Z";
        assert_eq!(
            sent.payloads(),
            [format!("{time} warn test: one tries=2 level=high"), format!("{time} error test: two what=x"),]
        );
        let found: Vec<_> = sent.main.iter().flat_map(|batch| rows(batch.fields())).collect();
        let time = 1_700_000_000_000_000_i64;
        assert_eq!(
            found,
            [
                json!({"level": "warn", "target": "test", "time": time, "message": "one", "tries": "2", "_level": "high"}),
                json!({"level": "error", "target": "test", "time": time, "message": "two", "what": "x"}),
            ]
        );
        assert!(!wants(LogLevel::Error), "it listens after its end");
    }

    #[tokio::test]
    async fn what_is_too_much_is_dropped_and_counted_and_nobody_waits() {
        let _alone = ALONE.lock().await;
        let running = start::<InternalLogs>("max_records: 3", 1 << 20, Default::default());
        for number in 0..10 {
            record(&said(LogLevel::Info, &number.to_string(), &[]));
        }
        let Some((_, Arrived::Messages(batch))) = running.main.take().await else { panic!("it ended") };
        let given = payloads(&batch);
        assert_eq!(given.len(), 4);
        assert!(given[3].contains("7 log records were dropped"), "{given:?}");
        record(&said(LogLevel::Info, "later", &[]));
        running.stop.request();
        assert!(running.finish().await.payloads()[0].ends_with("info test: later"));
    }

    #[tokio::test]
    async fn what_is_logged_while_records_are_handed_on_is_not_taken() {
        let _alone = ALONE.lock().await;
        let listener = Listener::new(LogLevel::Trace, 10);
        feeding(async {
            record(&said(LogLevel::Info, "of itself", &[]));
            tokio::task::yield_now().await;
            record(&said(LogLevel::Info, "of itself", &[]));
        })
        .await;
        record(&said(LogLevel::Info, "of another", &[]));
        let given = listener.give(1 << 20);
        assert_eq!(given.iter().map(|record| record.message.as_str()).collect::<Vec<_>>(), ["of another"]);
    }
}
