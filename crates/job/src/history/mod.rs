//! The history of the runs of a state directory.
//!
//! Each run has a file in the folder `runs`: `17.running` while it is active, then `17.json`. The file of an
//! active run is locked, so that a reader knows a run from one that was killed, whatever its process was. The
//! next run completes the records of killed ones: it has the state directory for itself.
//!
//! A keyspace of the store was rejected: only one process can open the store, and the history is read while a
//! run is active and between runs. One file for all was rejected too: each run would write a thousand records
//! again.
//!
//! A record has counters and names, no data, and no secret: its texts are redacted. The digest is that of the
//! configuration as it was written, before variables and secrets are put in.
//!
//! See docs/decisions/102-a-configuration-runs-on-a-schedule.md.

mod record;

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use thalweg_engine::{Error, Summary};
use thalweg_runtime::private::{create_private, open_regular, open_regular_with, private_file};

use crate::error::RunError;
use record::LARGEST;

pub use record::{ComponentRecord, ConfigurationId, RunOutcome, RunRecord};

/// The folder of the records, in a state directory.
const FOLDER: &str = "runs";
/// The endings of the files of active runs, of ended ones, and of files that are being written.
const ACTIVE: &str = "running";
const ENDED: &str = "json";
const UNFINISHED: &str = "new";

/// At most this many runs are kept.
const MOST: usize = 1000;
/// A run that ended longer ago is not kept.
const OLDEST: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The records of a state directory.
#[derive(Debug, Clone)]
pub struct History {
    folder: PathBuf,
}

impl History {
    /// The history of a state directory. It need not exist.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// True if runs have left records.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Returns the records, the latest first. They are read one by one; one that cannot be read is an error
    /// in its place.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<RunRecord, Error>> + use<>, Error> {
        let found = self.found().map_err(|error| {
            Error::permanent(format!("the history in `{}` cannot be read: {error}", self.folder.display()))
        })?;
        let mut ids: Vec<u64> = found.into_iter().map(|(id, _)| id).collect();
        ids.dedup();
        let history = self.clone();
        Ok(ids.into_iter().rev().filter_map(move |id| history.record(id).transpose()))
    }

    /// Returns the record of a run, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn record(&self, id: u64) -> Result<Option<RunRecord>, Error> {
        let unread = |path: &Path, error: io::Error| {
            Error::permanent(format!("the record `{}` cannot be read: {error}", path.display()))
        };
        // A run that ends meanwhile has one of the two at any time.
        for ending in [ENDED, ACTIVE, ENDED] {
            let path = self.path(id, ending);
            match read(&path) {
                Ok(record) => return Ok(Some(record)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unread(&path, error)),
            }
        }
        Ok(None)
    }

    /// Completes the records of killed runs, removes the oldest ones, and begins one. Only the process that
    /// has the state directory may do so.
    pub(crate) fn begin(&self, configuration: &ConfigurationId) -> io::Result<Recording> {
        create_private(&self.folder)?;
        self.complete_killed()?;
        let found = self.found()?;
        self.forget_old(&found, SystemTime::now());
        let id = found.last().map_or(0, |(id, _)| *id).saturating_add(1);
        let record = RunRecord::new(id, configuration);
        let (new, active) = (self.path(id, UNFINISHED), self.path(id, ACTIVE));
        let locked = written(&new, &record)?;
        // Where a file cannot be locked, a killed run is shown as active until the next one begins.
        let _ = locked.try_lock();
        fs::rename(new, active)?;
        Ok(Recording { history: self.clone(), record, _locked: locked })
    }

    /// The runs that have a record, the oldest first: their numbers and the endings of their files.
    fn found(&self) -> io::Result<Vec<(u64, &'static str)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let Some((id, ending)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let ending = [ACTIVE, ENDED].into_iter().find(|known| *known == ending);
            found.extend(id.parse().ok().zip(ending));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Ends the records of runs that were killed. Files that a killed run was writing are removed.
    fn complete_killed(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
        for (id, _) in self.found()?.into_iter().filter(|(_, ending)| *ending == ACTIVE) {
            let path = self.path(id, ACTIVE);
            // The former run of this process or another one may still be about to end its record.
            if is_locked(&open_regular(&path)?) {
                continue;
            }
            if !self.path(id, ENDED).exists() {
                match read(&path) {
                    Ok(record) => self.write_ended(&record)?,
                    Err(error) => tracing::warn!("the record `{}` is dropped: {error}", path.display()),
                }
            }
            fs::remove_file(path)?;
        }
        Ok(())
    }

    /// Removes the records of ended runs that are too many or too old. One that cannot be removed stays.
    fn forget_old(&self, found: &[(u64, &'static str)], now: SystemTime) {
        let too_many = (found.len() + 1).saturating_sub(MOST);
        for (at, (id, ending)) in found.iter().enumerate() {
            let path = self.path(*id, ending);
            let age = || now.duration_since(fs::metadata(&path).ok()?.modified().ok()?).ok();
            if at >= too_many && age().is_none_or(|age| age < OLDEST) {
                return;
            }
            if *ending == ENDED
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::debug!("`{}` cannot be removed: {error}", path.display());
            }
        }
    }

    /// Writes the record of a run that has ended, in one step.
    fn write_ended(&self, record: &RunRecord) -> io::Result<()> {
        let new = self.path(record.id, UNFINISHED);
        written(&new, record)?.sync_data()?;
        fs::rename(new, self.path(record.id, ENDED))
    }

    fn path(&self, id: u64, ending: &str) -> PathBuf {
        self.folder.join(format!("{id}.{ending}"))
    }
}

/// The record of the active run. Dropped without an end, it stays as that of a killed run.
pub(crate) struct Recording {
    history: History,
    record: RunRecord,
    /// The file of the active run.
    _locked: File,
}

impl Recording {
    /// Ends the record. The run is over, so an error is only logged.
    pub(crate) fn end(mut self, ended: &Result<Summary, RunError>) {
        match ended {
            Ok(summary) => self.record.count(summary),
            Err(error) => {
                self.record.fail(RunOutcome::Failed, &error.to_string());
            }
        }
        self.record.end();
        let Self { history, record, .. } = &self;
        let ended = history.write_ended(record);
        if let Err(error) = ended.and_then(|()| fs::remove_file(history.path(record.id, ACTIVE))) {
            warn(history, &error);
        }
    }
}

/// Says that a run has no record. It runs as well.
pub(crate) fn warn(history: &History, error: &io::Error) {
    tracing::warn!("the history of runs in `{}` cannot be written: {error}", history.folder.display());
}

/// Reads a record. One of a run that is neither ended nor active is that of a killed run.
fn read(path: &Path) -> io::Result<RunRecord> {
    let file = open_regular(path)?;
    let mut text = Vec::new();
    (&file).take(LARGEST as u64 + 1).read_to_end(&mut text)?;
    let mut record: RunRecord = serde_json::from_slice(&text)?;
    if record.outcome == RunOutcome::Running && !is_locked(&file) {
        record.fail(RunOutcome::Interrupted, "the process ended before the run did");
    }
    Ok(record)
}

/// Writes a file with a record.
fn written(path: &Path, record: &RunRecord) -> io::Result<File> {
    let mut options = private_file();
    let mut file = open_regular_with(options.write(true).create(true).truncate(true), path)?;
    file.write_all(record.text()?.as_bytes())?;
    Ok(file)
}

/// True if a process has the file locked, or nothing tells.
fn is_locked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            // A reader that is slow must not look like a run.
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use thalweg_engine::ComponentCounts;

    use super::*;

    fn configuration() -> ConfigurationId {
        ConfigurationId::new("c.yaml", "sources: {}\n")
    }

    fn summary(components: usize) -> Summary {
        let counts = |number: usize| ComponentCounts {
            name: format!("component-{number}"),
            role: if number == 0 { "source" } else { "sink" },
            kind: "file",
            rows_in: 3,
            bytes_in: 30,
            rows_out: 2,
            bytes_out: 20,
            errors: 1,
            busy_ns: 0,
            expected_bytes: 0,
            progress_bytes: 0,
            retrying: None,
            taken_at_once: 0,
            queued: 0,
            details: std::collections::BTreeMap::new(),
            gauges: Vec::new(),
            missing_fields: Vec::new(),
        };
        Summary {
            components: (0..components).map(counts).collect(),
            item: "message",
            elapsed: Duration::from_millis(1500),
            budget_limit: 0,
            budget_peak: 0,
            dead_letters: 1,
            dead_letters_dropped: 0,
            state_folder: "state".into(),
            stopped: false,
            positions: std::collections::BTreeMap::new(),
            failure: None,
            undrained: None,
        }
    }

    fn all(history: &History) -> Vec<(u64, RunOutcome)> {
        let records = history.records().unwrap();
        records.map(|record| record.map(|record| (record.id, record.outcome)).unwrap()).collect()
    }

    #[test]
    fn a_run_is_active_then_ended_with_its_counts() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        assert!(!history.exists() && history.records().is_err());
        let recording = history.begin(&configuration()).unwrap();
        assert_eq!(all(&history), [(1, RunOutcome::Running)]);
        recording.end(&Ok(summary(2)));
        let record = history.record(1).unwrap().unwrap();
        assert_eq!((record.outcome, record.read, record.bytes_written), (RunOutcome::Done, 3, 20));
        assert_eq!((record.dead_letters, record.elapsed_seconds), (1, Some(1.5)));
        assert!(record.ended.is_some() && record.components.len() == 2);
        // As `sha256sum` prints it.
        assert_eq!(record.configuration_digest.len(), "sha256:".len() + 64);
        assert!(record.brief().get("components").is_none());
        assert_eq!(history.record(2).unwrap(), None);
        let failed = history.begin(&configuration()).unwrap();
        failed.end(&Err(RunError::Abandoned));
        assert_eq!(all(&history), [(2, RunOutcome::Failed), (1, RunOutcome::Done)]);
        assert_eq!(fs::read_dir(&history.folder).unwrap().count(), 2);
    }

    #[test]
    fn a_killed_run_was_interrupted_and_the_next_one_completes_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        drop(history.begin(&configuration()).unwrap());
        fs::write(history.path(1, UNFINISHED), "{").unwrap();
        assert_eq!(all(&history), [(1, RunOutcome::Interrupted)]);
        let next = history.begin(&configuration()).unwrap();
        assert_eq!(all(&history), [(2, RunOutcome::Running), (1, RunOutcome::Interrupted)]);
        assert!(history.path(1, ENDED).exists() && !history.path(1, ACTIVE).exists());
        // It was killed after it had ended its record.
        next.end(&Ok(summary(1)));
        fs::copy(history.path(2, ENDED), history.path(2, ACTIVE)).unwrap();
        let third = history.begin(&configuration()).unwrap();
        assert_eq!(
            all(&history),
            [(3, RunOutcome::Running), (2, RunOutcome::Done), (1, RunOutcome::Interrupted)]
        );
        third.end(&Ok(summary(1)));
        let mut names = fs::read_dir(&history.folder).unwrap().map(|entry| entry.unwrap().path());
        assert!(names.all(|path| path.extension().is_some_and(|ending| ending == ENDED)));
    }

    #[test]
    fn the_history_is_bounded_and_numbers_are_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        history.begin(&configuration()).unwrap().end(&Ok(summary(1)));
        for id in 2..=MOST as u64 + 5 {
            fs::copy(history.path(1, ENDED), history.path(id, ENDED)).unwrap();
        }
        fs::write(history.folder.join("notes.txt"), "").unwrap();
        let _active = history.begin(&configuration()).unwrap();
        let found = history.found().unwrap();
        assert_eq!((found.len(), found[0]), (MOST, (7, ENDED)));
        assert_eq!(found.last(), Some(&(MOST as u64 + 6, ACTIVE)));
        history.forget_old(&found, SystemTime::now() + OLDEST * 2);
        assert_eq!(history.found().unwrap(), [(MOST as u64 + 6, ACTIVE)]);
    }

    #[test]
    fn a_record_has_no_secret_and_a_bounded_size_and_damage_is_named() {
        thalweg_redact::keep("planted-in-a-record", Some("${PLANTED}"));
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        let mut summary = summary(5000);
        let error = format!("planted-in-a-record{}", "x".repeat(9000));
        summary.failure = Some(Error::permanent(error).into());
        history.begin(&ConfigurationId::new("planted-in-a-record", "")).unwrap().end(&Ok(summary));
        let text = fs::read_to_string(history.path(1, ENDED)).unwrap();
        assert!(!text.contains("planted-in-a-record") && text.len() < LARGEST, "{text}");
        let record = history.record(1).unwrap().unwrap();
        assert_eq!((record.configuration.as_str(), record.components.len()), ("${PLANTED}", 0));
        assert_eq!((record.outcome, record.read), (RunOutcome::Failed, 3));
        fs::write(history.path(2, ENDED), "{").unwrap();
        let mut records = history.records().unwrap();
        let damaged = records.next().unwrap().unwrap_err().full();
        assert!(damaged.contains("runs/2.json` cannot be read"), "{damaged}");
        assert_eq!(records.next().unwrap().unwrap().id, 1);
    }
}
