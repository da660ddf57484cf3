//! The record of one run.

use std::io;

use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use thalweg_engine::{ComponentCounts, Summary};
use thalweg_redact::redacted;

/// The largest record that is written or read, in bytes. A larger one has no components.
pub(super) const LARGEST: usize = 256 << 10;
/// The longest text of a record, in bytes.
const LONGEST: usize = 4096;

/// The configuration of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigurationId {
    /// Its name, without secrets.
    name: String,
    digest: String,
}

impl ConfigurationId {
    /// The configuration of this name and this text, as it was written.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self { name: cut(name), digest: format!("sha256:{:x}", Sha256::digest(text)) }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// It is active.
    Running,
    /// Its sources ended, and all of it was delivered.
    Done,
    /// It was asked to stop, and what was in flight was delivered.
    Stopped,
    /// It failed.
    Failed,
    /// Its process ended before it did.
    Interrupted,
}

impl RunOutcome {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A run of the past, or the active one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its number in this state directory.
    pub id: u64,
    /// How it ended.
    pub outcome: RunOutcome,
    /// When it began, such as `2026-11-27T02:30:00.123Z`.
    pub started: String,
    /// When it ended. `None` while it is active, and if it was interrupted.
    pub ended: Option<String>,
    /// How long it took.
    pub elapsed_seconds: Option<f64>,
    /// The name of the configuration.
    pub configuration: String,
    /// The digest of the configuration as it was written: `sha256:`, and what `sha256sum` prints.
    pub configuration_digest: String,
    /// The version of thalweg.
    pub version: String,
    /// The unit of the counters: `message` or `file`.
    pub item: String,
    /// The number of messages or files that the sources read.
    pub read: u64,
    /// Its bytes.
    pub bytes_read: u64,
    /// The number that the sinks wrote.
    pub written: u64,
    /// Its bytes.
    pub bytes_written: u64,
    /// The number that was kept as dead letters.
    pub dead_letters: u64,
    /// Dead letters that were dropped.
    pub dead_letters_dropped: u64,
    /// The first error that made it fail.
    pub error: Option<String>,
    /// The counters of the components. Empty while the run is active, and if there are very many.
    #[serde(default)]
    pub components: Vec<ComponentRecord>,
}

/// The counters of a component in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentRecord {
    /// Its name.
    pub name: String,
    /// Its key in configurations.
    pub kind: String,
    /// Its role.
    pub role: String,
    /// Messages that it received (a source: read).
    pub rows_in: u64,
    /// Bytes of payload that it received.
    pub bytes_in: u64,
    /// Messages that it sent on (a sink: wrote).
    pub rows_out: u64,
    /// Bytes of payload that it sent on.
    pub bytes_out: u64,
    /// Messages that left by `errors`.
    pub errors: u64,
}

impl ComponentRecord {
    fn of(counts: &ComponentCounts) -> Self {
        Self {
            name: counts.name.clone(),
            kind: counts.kind.to_owned(),
            role: counts.role.to_owned(),
            rows_in: counts.rows_in,
            bytes_in: counts.bytes_in,
            rows_out: counts.rows_out,
            bytes_out: counts.bytes_out,
            errors: counts.errors,
        }
    }
}

impl RunRecord {
    /// The record of a run that begins.
    pub(super) fn new(id: u64, configuration: &ConfigurationId) -> Self {
        Self {
            id,
            outcome: RunOutcome::Running,
            started: now(),
            ended: None,
            elapsed_seconds: None,
            configuration: configuration.name.clone(),
            configuration_digest: configuration.digest.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            item: "message".to_owned(),
            read: 0,
            bytes_read: 0,
            written: 0,
            bytes_written: 0,
            dead_letters: 0,
            dead_letters_dropped: 0,
            error: None,
            components: Vec::new(),
        }
    }

    /// The record without its components.
    #[must_use]
    pub fn brief(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(entries) = value.as_object_mut() {
            entries.remove("components");
        }
        value
    }

    pub(super) fn count(&mut self, summary: &Summary) {
        let Summary { components, item, elapsed, dead_letters, dead_letters_dropped, .. } = summary;
        let sum = |role: &str, of: fn(&ComponentCounts) -> u64| {
            components.iter().filter(|counts| counts.role == role).map(of).sum::<u64>()
        };
        self.outcome = match (&summary.failure, summary.stopped) {
            (Some(_), _) => RunOutcome::Failed,
            (None, true) => RunOutcome::Stopped,
            (None, false) => RunOutcome::Done,
        };
        self.elapsed_seconds = Some(elapsed.as_secs_f64());
        self.item = (*item).to_owned();
        self.read = sum("source", |counts| counts.rows_in);
        self.bytes_read = sum("source", |counts| counts.bytes_in);
        self.written = sum("sink", |counts| counts.rows_out);
        self.bytes_written = sum("sink", |counts| counts.bytes_out);
        (self.dead_letters, self.dead_letters_dropped) = (*dead_letters, *dead_letters_dropped);
        self.error = summary.failure.as_ref().map(|failure| cut(&failure.to_string()));
        self.components = components.iter().map(ComponentRecord::of).collect();
    }

    /// Notes that its process was killed, if it is active.
    pub(super) fn interrupt(&mut self) {
        if self.outcome == RunOutcome::Running {
            self.fail(RunOutcome::Interrupted, "the process ended before the run did");
        }
    }

    /// Restricts what was read to what a record has: the number of its file, and short texts.
    pub(super) fn restrict(&mut self, id: u64) {
        self.id = id;
        let Self { started, ended, configuration, configuration_digest, version, item, error, .. } = self;
        let texts = [started, configuration, configuration_digest, version, item];
        for text in texts.into_iter().chain(ended).chain(error) {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
    }

    /// Notes that it ended now.
    pub(super) fn end(&mut self) {
        self.ended = Some(now());
    }

    /// Notes an error that made it fail, or its process end.
    pub(super) fn fail(&mut self, outcome: RunOutcome, error: &str) {
        self.outcome = outcome;
        self.error = Some(cut(error));
    }

    /// Its text, which has at most [`LARGEST`] bytes.
    pub(super) fn text(&self) -> io::Result<String> {
        let text = serde_json::to_string(self)?;
        match text.len() {
            0..LARGEST => Ok(text + "\n"),
            _ => Ok(serde_json::to_string(&Self { components: Vec::new(), ..self.clone() })? + "\n"),
        }
    }
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A text without secrets, of a bounded length.
fn cut(text: &str) -> String {
    let text = redacted(text);
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned()
}
