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
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use thalweg_engine::{Changes, Difference, Refused, Written};
use thalweg_net::net::Handover;

use crate::configuration::Configuration;
use crate::error::LoadError;
use crate::job::{Job, Overrides, Phase};

/// How often the file is looked at. A file that has changed is read once two looks find the same, so that no
/// half of it is.
const LOOK: Duration = Duration::from_secs(1);

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
        let text = configuration.document().text().as_bytes();
        let is_read = first.is_none() || fs::read(path).is_ok_and(|bytes| bytes == text);
        Ok(Self(Arc::new(Shared {
            path: path.to_owned(),
            overrides: overrides.clone(),
            read: Mutex::new(first.filter(|_| is_read)),
            changes: Mutex::default(),
            status: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })))
    }

    /// Compares the file with the configuration that runs.
    ///
    /// # Errors
    /// If it has mistakes, or the run cannot follow it.
    pub async fn show(&self) -> Result<Difference, ReloadError> {
        let changes = self.changes()?;
        let written = self.read(|_| ()).await?;
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
        loop {
            tokio::time::sleep(LOOK).await;
            let path = self.0.path.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || Stamp::of(&path)).await else { return };
            // An editor may remove the file before it writes it again.
            let known = *self.0.read.lock();
            if found.is_some() && found != known && found == last {
                // The status has the result.
                let _ = self.reload().await;
            }
            last = found;
        }
    }

    async fn apply(&self) -> Result<Difference, ReloadError> {
        let changes = self.changes()?;
        let written = self.read(|shared| *shared.read.lock() = Stamp::of(&shared.path)).await?;
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

    /// Reads the file, after `before`.
    async fn read(&self, before: fn(&Shared)) -> Result<Written, ReloadError> {
        let shared = self.0.clone();
        let read = tokio::task::spawn_blocking(move || {
            before(&shared);
            if fs::metadata(&shared.path).is_ok_and(|found| !found.is_file()) {
                // To open a pipe may take for ever.
                let text = format!("`{}` is not a regular file", shared.path.display());
                return Err(ReloadError::Mistakes(text));
            }
            let job = Configuration::open(&shared.path)
                .and_then(|configuration| configuration.job(&crate::registry(), &shared.overrides));
            job.map_err(|error| ReloadError::Mistakes(error.to_string())).and_then(|job| written(&job))
        });
        read.await.unwrap_or(Err(ReloadError::NotRunning))
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
