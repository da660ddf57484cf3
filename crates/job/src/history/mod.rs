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
//! Root reads the history of any user. So the folder and its files are opened without links: the user of a
//! state directory could otherwise have root read another folder.
//!
//! A record has counters and names, no data, and no secret: its texts are redacted. The digest is that of the
//! configuration as it was written, before variables and secrets are put in.
//!
//! See docs/decisions/102-a-configuration-runs-on-a-schedule.md.

mod folder;
mod lock;
mod record;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use thalweg_engine::{Error, Summary};
use thalweg_runtime::private::{create_private, open_regular, open_regular_with, private_file};

use crate::error::RunError;
use folder::Folder;
use lock::Lock;
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

    /// True if runs have left records, or nothing tells. Other programs have a folder of this name too.
    #[must_use]
    pub fn exists(&self) -> bool {
        let is_folder = fs::symlink_metadata(&self.folder).is_ok_and(|found| found.is_dir());
        is_folder && !self.found().is_ok_and(|found| found.is_empty())
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
        let mut killed = None;
        // A run that ends meanwhile has one of the two at any time. It releases its lock after the second one
        // is there, so a run that looks killed may have ended well.
        for ending in [ENDED, ACTIVE, ENDED] {
            match self.read(id, ending) {
                Ok(record) if ending == ACTIVE && record.outcome == RunOutcome::Interrupted => {
                    killed = Some(record);
                }
                Ok(record) => return Ok(Some(record)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unread(&self.path(id, ending), error)),
            }
        }
        Ok(killed)
    }

    /// Completes the records of killed runs, removes the oldest ones, and begins one. Only the process that
    /// has the state directory may do so: its store has made the directory, and has found no links in it.
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
        self.files(&[ACTIVE, ENDED])
    }

    /// The files with these endings whose names are ours, by their numbers.
    fn files(&self, endings: &[&'static str]) -> io::Result<Vec<(u64, &'static str)>> {
        let mut found = Vec::new();
        for name in Folder::open(&self.folder)?.names()? {
            let name = name?;
            let Some((number, ending)) = name.split_once('.') else { continue };
            // `+7` and `007` are numbers too, and no names of ours.
            let id = number.parse::<u64>().ok().filter(|id| id.to_string() == number);
            found.extend(id.zip(endings.iter().copied().find(|known| *known == ending)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Ends the records of runs that were killed, and removes the files that they were writing. A file that
    /// does not allow it stays, and keeps no run from its record.
    fn complete_killed(&self) -> io::Result<()> {
        for (id, ending) in self.files(&[ACTIVE])? {
            // A run that was about to end may have removed the file meanwhile.
            if let Err(error) = self.complete(id)
                && error.kind() != io::ErrorKind::NotFound
            {
                let path = self.path(id, ending);
                tracing::warn!("the record `{}` cannot be completed: {error}", path.display());
            }
        }
        for (id, ending) in self.files(&[UNFINISHED])? {
            let path = self.path(id, ending);
            if !self.is_about_to_end(id)
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!("`{}` cannot be removed: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Ends the record of a run, if it was killed.
    fn complete(&self, id: u64) -> io::Result<()> {
        let path = self.path(id, ACTIVE);
        if self.is_about_to_end(id) {
            return Ok(());
        }
        if !self.path(id, ENDED).exists() {
            match self.read(id, ACTIVE) {
                Ok(mut record) => {
                    record.interrupt();
                    self.write_ended(&record)?;
                }
                Err(error) if open_regular(&path).is_ok() => {
                    tracing::warn!("the record `{}` is dropped: {error}", path.display());
                }
                Err(error) => return Err(error),
            }
        }
        fs::remove_file(path)
    }

    /// True if a run has not ended its record yet, though another one begins: the former run of this process,
    /// or one of another process. Where nothing tells, it was killed.
    fn is_about_to_end(&self, id: u64) -> bool {
        open_regular(&self.path(id, ACTIVE)).is_ok_and(|file| Lock::of(&file) == Lock::Held)
    }

    /// Reads a record. One of a run that is neither ended nor active is that of a killed run.
    fn read(&self, id: u64, ending: &str) -> io::Result<RunRecord> {
        let file = Folder::open(&self.folder)?.file(&name(id, ending))?;
        let mut text = Vec::new();
        (&file).take(LARGEST as u64 + 1).read_to_end(&mut text)?;
        let mut record: RunRecord = serde_json::from_slice(&text)?;
        record.restrict(id);
        if record.outcome == RunOutcome::Running && Lock::of(&file) == Lock::Free {
            record.interrupt();
        }
        Ok(record)
    }

    /// Removes the records of ended runs that are too many or too old. One that cannot be removed stays, and
    /// so does a file that is none: the folder may be older than the history.
    fn forget_old(&self, found: &[(u64, &'static str)], now: SystemTime) {
        let too_many = (found.len() + 1).saturating_sub(MOST);
        for (at, (id, ending)) in found.iter().enumerate() {
            let path = self.path(*id, ending);
            let age = || now.duration_since(fs::metadata(&path).ok()?.modified().ok()?).ok();
            if at >= too_many && age().is_none_or(|age| age < OLDEST) {
                return;
            }
            if *ending == ENDED
                && let Err(error) = self.read(*id, ending).and_then(|_| fs::remove_file(&path))
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
        self.folder.join(name(id, ending))
    }
}

/// The name of a file of a run.
fn name(id: u64, ending: &str) -> String {
    format!("{id}.{ending}")
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
        let forget_active = || fs::remove_file(history.path(record.id, ACTIVE));
        let ended = match history.write_ended(record) {
            Ok(()) => forget_active(),
            // A full disk may have room after it. If not, no record is better than one of a killed run.
            Err(_) => forget_active().and_then(|()| history.write_ended(record)),
        };
        if let Err(error) = ended {
            warn(history, &error);
        }
    }
}

/// Says that a run has no record. It runs as well.
pub(crate) fn warn(history: &History, error: &io::Error) {
    tracing::warn!("the history of runs in `{}` cannot be written: {error}", history.folder.display());
}

/// Writes a file with a record.
fn written(path: &Path, record: &RunRecord) -> io::Result<File> {
    let mut options = private_file();
    let mut file = open_regular_with(options.write(true).create(true).truncate(true), path)?;
    file.write_all(record.text()?.as_bytes())?;
    Ok(file)
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
            reads_out_of_files: false,
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
    fn a_run_whose_end_cannot_be_written_does_not_look_killed() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        let recording = history.begin(&configuration()).unwrap();
        fs::create_dir(history.path(1, UNFINISHED)).unwrap();
        recording.end(&Ok(summary(1)));
        assert!(all(&history).is_empty());
    }

    #[test]
    fn a_run_that_ends_while_it_is_read_does_not_look_killed() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        std::thread::scope(|scope| {
            let runs =
                || (0..200).for_each(|_| history.begin(&configuration()).unwrap().end(&Ok(summary(1))));
            let writer = scope.spawn(runs);
            while !writer.is_finished() {
                // The first run makes the folder.
                for record in history.records().into_iter().flatten().take(2) {
                    assert_ne!(record.unwrap().outcome, RunOutcome::Interrupted);
                }
            }
        });
        assert_eq!(all(&history).len(), 200);
    }

    #[test]
    fn files_of_others_stay_and_keep_no_run_from_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        fs::create_dir(&history.folder).unwrap();
        fs::write(history.folder.join("notes.new"), "").unwrap();
        assert!(!history.exists());
        for name in ["+7.json", "007.json", "3.json"] {
            fs::write(history.folder.join(name), "{}").unwrap();
        }
        fs::create_dir(history.path(4, ACTIVE)).unwrap();
        fs::create_dir(history.path(9, UNFINISHED)).unwrap();
        let recording = history.begin(&configuration()).unwrap();
        assert_eq!(recording.record.id, 5);
        recording.end(&Ok(summary(1)));
        assert!(history.path(5, ENDED).exists());
        history.forget_old(&history.found().unwrap(), SystemTime::now() + OLDEST * 2);
        let names = fs::read_dir(&history.folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["+7.json", "007.json", "3.json", "4.running", "9.new", "notes.new"]);
    }

    #[test]
    fn a_run_that_is_about_to_end_keeps_its_files_when_another_one_begins() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        let first = history.begin(&configuration()).unwrap();
        fs::write(history.path(1, UNFINISHED), "").unwrap();
        let second = history.begin(&configuration()).unwrap();
        assert!(history.path(1, UNFINISHED).exists());
        first.end(&Ok(summary(1)));
        assert_eq!(all(&history), [(2, RunOutcome::Running), (1, RunOutcome::Done)]);
        second.end(&Ok(summary(1)));
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_no_history() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        History::of(other.path()).begin(&configuration()).unwrap().end(&Ok(summary(1)));
        std::os::unix::fs::symlink(other.path().join(FOLDER), folder.path().join(FOLDER)).unwrap();
        let history = History::of(folder.path());
        assert!(!history.exists() && history.records().is_err() && history.record(1).is_err());
    }

    #[test]
    fn a_record_has_the_number_of_its_file_and_short_texts() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        history.begin(&configuration()).unwrap().end(&Ok(summary(1)));
        let mut value: serde_json::Value =
            serde_json::from_slice(&fs::read(history.path(1, ENDED)).unwrap()).unwrap();
        value["outcome"] = "running".into();
        value["error"] = "x".repeat(100_000).into();
        fs::write(history.path(8, ACTIVE), value.to_string()).unwrap();
        history.complete_killed().unwrap();
        assert_eq!(all(&history), [(8, RunOutcome::Interrupted), (1, RunOutcome::Done)]);
        value["outcome"] = "failed".into();
        fs::write(history.path(8, ENDED), value.to_string()).unwrap();
        let error = history.record(8).unwrap().unwrap().error.unwrap();
        assert!(error.len() < 10_000, "{}", error.len());
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
