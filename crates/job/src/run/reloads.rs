//! Reloading the configuration of a run: when, and how it went.
//!
//! A client, a signal and a changed file ask for the same thing. Requests come one after the other, and each
//! reads the file when its turn comes. A configuration with mistakes, or one that the run cannot follow,
//! changes nothing, and the reason stays until a reload succeeds: in the log, for clients, and in the status
//! for the service manager.
//!
//! The file is looked at once a second. (Rejected: inotify. It sees no changes on network file systems, and
//! follows a path through links, as in a mounted configuration map of Kubernetes, only with a watch on each
//! folder of the way.)

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use thalweg_config::{Document, count};
use thalweg_dialects::foreign;
use thalweg_engine::{Changes, Difference, Refused, Written};
use thalweg_net::net::Handover;

use crate::configuration::Configuration;
use crate::error::LoadError;
use crate::job::{Job, Overrides, Phase};

/// How often the file is looked at. A file that has changed is read once two looks find the same, so that no
/// half of it is.
const LOOK: Duration = Duration::from_secs(1);

/// How long a read may take. A reload that waits longer fails, so that the next one has its turn.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The most mistakes that a failure names. It is kept, and sent to each client that asks.
const MOST_MISTAKES: usize = 100;

/// Reloads the configuration of a run. All clones are of the same run.
#[derive(Clone)]
pub struct Reloads(Arc<Shared>);

struct Shared {
    path: PathBuf,
    overrides: Overrides,
    /// The file as it was when it was read last, to run or to reload.
    read: Mutex<Option<Stamp>>,
    /// Set while a run is active.
    changes: Mutex<Option<Changes>>,
    status: Mutex<ReloadStatus>,
    turn: tokio::sync::Mutex<()>,
    /// Held while the file is read and checked, also by a read that was given up: reads that hang hold one
    /// thread.
    reading: Arc<tokio::sync::Mutex<()>>,
}

/// How the reloads of a process went.
#[derive(Debug, Clone, Default)]
pub struct ReloadStatus {
    /// How many have begun.
    pub begun: u64,
    /// How many have ended.
    pub ended: u64,
    /// Why the last one changed nothing, if it did not.
    pub failure: Option<String>,
    /// The difference that the last successful one found.
    pub difference: Option<Arc<Difference>>,
}

/// Why a configuration was not reloaded. The run goes on as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The configuration cannot be read, or has mistakes.
    #[error("the configuration cannot be used: {0}")]
    Mistakes(String),
    /// The run cannot follow it.
    #[error("the configuration cannot be followed: {0}")]
    Refused(#[from] Refused),
    /// It was not read in time.
    #[error(
        "the configuration was not read within {} s: its file system may hang, or a file in it may be a pipe; \
         reload it again when it can be read",
        READ_WITHIN.as_secs()
    )]
    TooSlow,
    /// No run is active.
    #[error("no run is active")]
    NotRunning,
}

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reloads").field(&self.0.path).finish()
    }
}

impl Reloads {
    /// Reloads a configuration from its file, with the same settings beside it.
    ///
    /// # Errors
    /// If it was not read from a file, or is in the form of another program.
    pub fn of(configuration: &Configuration, overrides: &Overrides) -> Result<Self, LoadError> {
        let path = configuration.file().filter(|_| configuration.dialect().is_native()).ok_or_else(|| {
            let text = "`--watch` needs a configuration in a file, in thalweg's own form";
            LoadError::Options(text.to_owned())
        })?;
        Handover::make_possible();
        // It may have changed since it was read. Then it is read again.
        let first = Stamp::of(path);
        let text = configuration.document().text();
        let is_read = first.is_none() || text_of(path).is_ok_and(|found| found == text);
        Ok(Self(Arc::new(Shared {
            path: path.to_owned(),
            overrides: overrides.clone(),
            read: Mutex::new(first.filter(|_| is_read)),
            changes: Mutex::default(),
            status: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            reading: Arc::default(),
        })))
    }

    /// Compares the file with the configuration that runs. It waits for another read.
    ///
    /// # Errors
    /// If it has mistakes, or the run cannot follow it.
    pub async fn show(&self) -> Result<Difference, ReloadError> {
        let changes = self.changes()?;
        let written = self.read(READ_WITHIN, |_| ()).await?;
        Ok(changes.show(&written)?)
    }

    /// Lets the run follow the file. It takes place also if this future is dropped.
    ///
    /// # Errors
    /// If the file has mistakes, or the run cannot follow it.
    pub async fn reload(&self) -> Result<Difference, ReloadError> {
        let reloads = self.clone();
        let reloaded = tokio::spawn(async move {
            let _turn = reloads.0.turn.lock().await;
            reloads.0.status.lock().begun += 1;
            let result = reloads.apply().await;
            reloads.note(&result);
            result
        });
        // The runtime ends with the run.
        reloaded.await.unwrap_or(Err(ReloadError::NotRunning))
    }

    /// How it went so far.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.0.status.lock().clone()
    }

    /// A run begins.
    pub(super) fn begin(&self, changes: Changes) {
        *self.0.changes.lock() = Some(changes);
    }

    /// The run has ended.
    pub(super) fn end(&self) {
        *self.0.changes.lock() = None;
    }

    /// Reloads whenever the file has changed. It never returns.
    pub(super) async fn follow(self) {
        let mut last = *self.0.read.lock();
        // The change of a file that was not read in time would be forgotten.
        let mut is_unread = false;
        loop {
            tokio::time::sleep(LOOK).await;
            let path = self.0.path.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || Stamp::of(&path)).await else { return };
            // An editor may remove the file before it writes it again.
            let known = *self.0.read.lock();
            if found.is_some() && (found != known || is_unread) && found == last {
                // The status has the result.
                is_unread = matches!(self.reload().await, Err(ReloadError::TooSlow));
            }
            last = found;
        }
    }

    async fn apply(&self) -> Result<Difference, ReloadError> {
        let changes = self.changes()?;
        let stamp = |shared: &Shared| {
            let found = Stamp::of(&shared.path);
            *shared.read.lock() = found;
        };
        let written = self.read(READ_WITHIN, stamp).await?;
        let difference = changes.show(&written)?;
        if difference.is_empty() {
            // Sockets that wait since the last reload still do.
            return Ok(difference);
        }
        // Until the new listeners are there, connections wait.
        let _handover = Handover::begin();
        Ok(changes.apply(written).await?)
    }

    fn note(&self, result: &Result<Difference, ReloadError>) {
        let mut status = self.0.status.lock();
        status.ended += 1;
        match result {
            Ok(difference) => {
                status.failure = None;
                status.difference = Some(Arc::new(difference.clone()));
            }
            Err(error) => {
                let text = error.to_string();
                tracing::error!("not reloaded, and the run goes on as it was: {text}");
                status.failure = Some(text);
            }
        }
    }

    fn changes(&self) -> Result<Changes, ReloadError> {
        self.0.changes.lock().clone().ok_or(ReloadError::NotRunning)
    }

    /// Reads the file, after `before`. One read comes after the other.
    async fn read(&self, limit: Duration, before: fn(&Shared)) -> Result<Written, ReloadError> {
        let shared = self.0.clone();
        let read = async move {
            let reading = shared.reading.clone().lock_owned().await;
            let read = tokio::task::spawn_blocking(move || {
                let _reading = reading;
                before(&shared);
                let text = text_of(&shared.path).map_err(ReloadError::Mistakes)?;
                let job = parsed(&shared.path, &text)
                    .and_then(|configuration| configuration.job(&crate::registry(), &shared.overrides));
                job.map_err(|error| ReloadError::Mistakes(shown(&error))).and_then(|job| written(&job))
            });
            read.await.unwrap_or(Err(ReloadError::NotRunning))
        };
        tokio::time::timeout(limit, read).await.unwrap_or(Err(ReloadError::TooSlow))
    }
}

/// Returns the text of a regular file. The file may have become a pipe, which may take for ever to open.
fn text_of(path: &Path) -> Result<String, String> {
    let name = path.display();
    let unreadable = |error: io::Error| format!("`{name}` cannot be read: {error}");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(format!("`{name}` is not a regular file"));
    }
    let bytes = Document::read(file).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| format!("`{name}` is not UTF-8 text"))
}

/// Parses the text of a file.
fn parsed(path: &Path, text: &str) -> Result<Configuration, LoadError> {
    // A document takes its folder from its name, which is another one if the path is not UTF-8.
    let Some(name) = path.to_str() else { return Configuration::open(path) };
    let document = Document::parse(name, text).map_err(foreign::explained)?;
    Ok(Configuration::new(document, path))
}

/// Returns the text of an error, with its first mistakes and the number of the others.
fn shown(error: &LoadError) -> String {
    let LoadError::Mistakes(all) = error else { return error.to_string() };
    let mut first = all.another();
    for mistake in all.iter().take(MOST_MISTAKES) {
        first.push(mistake.clone());
    }
    match all.len().saturating_sub(MOST_MISTAKES) {
        0 => first.to_string(),
        more => format!("{first}\n{} more are not shown.", count(more as u64)),
    }
}

fn written(job: &Job) -> Result<Written, ReloadError> {
    let text = || ReloadError::Mistakes("it is of another form now: restart thalweg for it".to_owned());
    job.phases.first().and_then(Phase::written).filter(|_| job.phases.len() == 1).ok_or_else(text)
}

/// By which a changed file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    device: u64,
    inode: u64,
}

impl Stamp {
    /// None if there is no regular file.
    fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            modified: found.modified().ok(),
            bytes: found.len(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

#[cfg(test)]
mod tests {
    use thalweg_config::{Diagnostics, Span};

    use super::*;

    fn reloads_of(path: &Path) -> Reloads {
        Reloads(Arc::new(Shared {
            path: path.to_owned(),
            overrides: Overrides::default(),
            read: Mutex::default(),
            changes: Mutex::default(),
            status: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            reading: Arc::default(),
        }))
    }

    #[test]
    fn only_the_text_of_a_regular_file_within_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.yaml");
        assert!(text_of(&path).unwrap_err().contains("c.yaml` cannot be read: "));
        fs::write(&path, "a: ö\n").unwrap();
        assert_eq!(text_of(&path).unwrap(), "a: ö\n");
        fs::write(&path, b"a: \xff\n").unwrap();
        assert!(text_of(&path).unwrap_err().ends_with("c.yaml` is not UTF-8 text"));
        File::create(&path).unwrap().set_len(Document::MAX_BYTES as u64 + 1).unwrap();
        assert!(text_of(&path).unwrap_err().contains("cannot be read: it is larger than"));
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(text_of(&path).unwrap_err().ends_with("c.yaml` is not a regular file"));
    }

    #[test]
    fn a_hundred_mistakes_are_named_and_the_others_counted() {
        let text_with = |mistakes: usize| {
            let mut all = Diagnostics::new("c.yaml", &"x\n".repeat(mistakes));
            for line in 0..mistakes {
                all.error(Span::new(2 * line, 2 * line + 1), format!("Mistake {line}."));
            }
            shown(&LoadError::Mistakes(all))
        };
        assert!(text_with(100).ends_with("c.yaml:100:1: Mistake 99."));
        let text = text_with(1350);
        assert!(text.ends_with("c.yaml:100:1: Mistake 99.\n1,250 more are not shown."), "{text}");
        assert_eq!(text.lines().count(), 101);
    }

    #[tokio::test]
    async fn a_read_that_hangs_keeps_others_from_reading_and_from_waiting_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let reloads = reloads_of(&folder.path().join("absent.yaml"));
        let hangs = reloads.0.reading.clone().lock_owned().await;
        let read = reloads.read(Duration::ZERO, |_| panic!("two reads at once")).await.map(|_| ());
        assert_eq!(read, Err(ReloadError::TooSlow));
        reloads.note(&Err(ReloadError::TooSlow));
        let failure = reloads.status().failure.unwrap();
        assert!(failure.starts_with("the configuration was not read within 30 s: "), "{failure}");
        drop(hangs);
        let read = reloads.read(READ_WITHIN, |_| ()).await.map(|_| ());
        assert!(
            matches!(&read, Err(ReloadError::Mistakes(text)) if text.contains("cannot be read")),
            "{read:?}"
        );
    }
}
