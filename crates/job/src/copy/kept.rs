//! The state of a copy, from which an interrupted one resumes.
//!
//! Each job has its own folder, named by a hash of everything that distinguishes the job from others. The
//! folder is removed when everything was copied. If something could not be copied, the folder stays for
//! inspection. The next copy then restarts, because it should retry what failed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{DeadLetter, Journal, Owner, StateDir, Store};
use thalweg_files::sinks::objects::{discard_unfinished, is_finished};
use thalweg_runtime::private::private_file;
use xxhash_rust::xxh3::xxh3_128;

use super::configuration::SINK;
use super::endpoints::{Endpoints, is_stream};
use super::{CopyOptions, ObjectLinks};
use crate::error::LoadError;
use crate::identity::Identity;

/// The options of resuming.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StateOptions {
    /// Where checkpoints are kept, also after the copy has ended.
    pub state: Option<PathBuf>,
    /// True if the state of an earlier copy is ignored.
    pub restart: bool,
    /// True if no state is kept.
    pub no_resume: bool,
}

impl StateOptions {
    /// Finds options that contradict each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let other = [("--state", self.state.is_some()), ("--restart", self.restart)];
        match other.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) if self.no_resume => {
                Err(LoadError::Options(format!("`--no-resume` cannot be used with `{option}`")))
            }
            _ => Ok(()),
        }
    }
}

/// The state of a copy.
pub struct Kept {
    /// The state directory of its run.
    pub state_dir: StateDir,
    /// True if this copy resumes an interrupted one.
    pub resumes: bool,
    /// The folder of the job, if the user named none.
    job: Option<PathBuf>,
}

/// The reason of a failure without the name of the object.
fn nameless(letter: &DeadLetter) -> String {
    let names = [letter.path.as_deref(), letter.file.as_ref().map(|file| file.name.as_str())];
    let names = names.into_iter().flatten().filter(|name| !name.is_empty());
    names.fold(letter.reason.clone(), |reason, name| reason.replace(name, ""))
}

/// The store within the folder of a job.
const STORE: &str = "state";
/// The name of a store that is being removed.
const REMOVED: &str = "removed";
/// A file that marks the folder of a job that has ended. The rest of the folder is for inspection.
const ENDED: &str = "ended";

impl Kept {
    /// Finds the state of this job.
    ///
    /// # Errors
    /// If obsolete state cannot be removed.
    pub(super) fn new(options: &CopyOptions, endpoints: &Endpoints) -> Result<Self, LoadError> {
        let kept = &options.state;
        if let Some(folder) = &kept.state {
            let (from, to) = (plain(&endpoints.from), plain(&endpoints.to));
            let owner = Some(Owner::named(format!("a copy from {from} to {to}")));
            let state_dir = StateDir { folder: folder.clone(), positions: true, owner };
            return Ok(Self { resumes: !is_empty(folder), state_dir, job: None });
        }
        let is_stream = is_stream(&endpoints.from) || is_stream(&endpoints.to);
        let Some(jobs) = jobs_folder().filter(|_| !kept.no_resume && !is_stream) else {
            return Ok(Self {
                state_dir: Identity::unknown("copy").state_dir(Path::new(""), None, None),
                resumes: false,
                job: None,
            });
        };
        let job = jobs.join(name(options, endpoints));
        if job.join(ENDED).exists() {
            remove(&job)?;
        }
        let folder = job.join(STORE);
        let resumes = !is_empty(&folder);
        let state_dir = StateDir { folder, positions: true, owner: None };
        let mut kept = Self { state_dir, resumes, job: Some(job) };
        kept.forget_finished(endpoints)?;
        Ok(kept)
    }

    /// Removes the state of a copy of rows that was killed after its end, and before it removed its state.
    /// Otherwise this copy would continue after it, and write all rows again into a further object.
    fn forget_finished(&mut self, endpoints: &Endpoints) -> Result<(), LoadError> {
        let Some(job) = self.job.clone().filter(|_| self.resumes) else { return Ok(()) };
        let state = Store::open_for(&self.state_dir.folder, None)?.sink_state(SINK)?;
        if state.is_some_and(|state| is_finished(&state)) {
            self.discard(endpoints)?;
            remove(&job)?;
            self.resumes = false;
        }
        Ok(())
    }

    /// Removes the state of an earlier copy, here and in the target store.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn forget(&mut self, endpoints: &Endpoints) -> Result<(), LoadError> {
        if std::mem::take(&mut self.resumes) {
            let store = self.discard(endpoints)?;
            store.forget_progress()?;
        }
        Ok(())
    }

    /// Says how to list what could not be copied, and why: the reason that all have in common, or else the
    /// first one.
    #[must_use]
    pub fn failures(&self) -> String {
        let reason = self.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("`thalweg errors list --state {}` shows them{reason}", self.state_dir.folder.display())
    }

    fn reason(&self) -> Option<String> {
        /// The number of failures to compare.
        const MOST: usize = 1000;
        let folder = &self.state_dir.folder;
        let store = Store::exists(folder).then(|| Store::open_for(folder, None).ok()).flatten()?;
        let mut letters = store.letters().take(MOST).filter_map(|letter| Some(letter.ok()?.1));
        let first = letters.next()?;
        let (common, mut is_alone, mut is_common) = (nameless(&first), true, true);
        for letter in letters {
            (is_alone, is_common) = (false, is_common && nameless(&letter) == common);
        }
        Some(match (is_alone, is_common) {
            (true, _) => first.reason,
            (false, true) => format!("all alike: {}", first.reason),
            (false, false) => format!("the first one: {}", first.reason),
        })
    }

    /// Cleans up after a copy. `is_clean` is true if everything was copied.
    ///
    /// # Errors
    /// If the state cannot be removed.
    pub(super) fn end(&self, endpoints: &Endpoints, is_clean: bool) -> Result<(), LoadError> {
        let Some(job) = &self.job else { return Ok(()) };
        // An earlier copy may have left parts of objects that the source no longer has.
        self.discard(endpoints)?;
        match is_clean {
            true => remove(job),
            false => {
                private_file().write(true).create(true).truncate(true).open(job.join(ENDED))?;
                Ok(())
            }
        }
    }

    /// Removes unfinished objects from the target. Returns the store that lists them.
    fn discard(&self, endpoints: &Endpoints) -> Result<Arc<Store>, LoadError> {
        let store = Arc::new(Store::open_for(&self.state_dir.folder, self.state_dir.owner.as_ref())?);
        let journal = Journal::new(store.clone(), SINK);
        let saved = store.sink_state(SINK)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(discard_unfinished(&endpoints.to, &journal, saved.as_ref()))?;
        Ok(store)
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

/// Removes the folder of a job. The store is renamed first: a copy that is killed meanwhile must not leave a
/// part of a store, which the next one would take for a damaged one.
fn remove(job: &Path) -> Result<(), LoadError> {
    let removed = job.join(REMOVED);
    let absent_or = |result: io::Result<()>| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LoadError::NotRemoved { folder: job.display().to_string(), error })
        }
        _ => Ok(()),
    };
    absent_or(fs::remove_dir_all(&removed))?;
    absent_or(fs::rename(job.join(STORE), &removed))?;
    absent_or(fs::remove_dir_all(job))
}

/// The folder of all jobs, if it is known.
fn jobs_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("thalweg/copies"))
}

/// The name of a job's folder. It does not depend on the concurrency.
fn name(options: &CopyOptions, endpoints: &Endpoints) -> String {
    let rows = &options.rows;
    let job = serde_json::json!([
        plain(&endpoints.from),
        plain(&endpoints.to),
        options.include,
        options.exclude,
        options.symlinks == Some(ObjectLinks::Files),
        options.existing.map(super::Existing::name),
        options.content_type,
        rows.parse.map(|parse| format!("{parse:?}")),
        rows.written().name(),
        rows.condition,
        rows.set,
        rows.keep,
        rows.types,
        rows.delimiter,
        rows.columns,
        rows.template,
        rows.unordered,
    ]);
    format!("{:032x}", xxh3_128(job.to_string().as_bytes()))
}

/// Returns a URL without secrets, or an absolute path.
fn plain(url: &str) -> String {
    const SECRET: [&str; 6] = ["key", "secret", "token", "password", "credential", "sas"];
    let Some((scheme, rest)) = url.split_once("://") else {
        let path = std::path::absolute(url).unwrap_or_else(|_| PathBuf::from(url));
        return path.display().to_string();
    };
    let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
    let end = target.find('/').unwrap_or(target.len());
    let target = target[..end].rfind('@').map_or(target, |at| &target[at + 1..]);
    let is_open = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        !SECRET.iter().any(|secret| name.contains(secret))
    };
    let mut pairs: Vec<&str> = query.split('&').filter(is_open).collect();
    pairs.sort_unstable();
    format!("{scheme}://{target}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_was_killed_while_it_removed_its_state_leaves_none() {
        let job = tempfile::tempdir().unwrap();
        let (store, removed) = (job.path().join(STORE), job.path().join(REMOVED));
        for folder in [&store, &removed] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("version"), "").unwrap();
        }
        // Killed after the first step.
        fs::remove_dir_all(&removed).unwrap();
        fs::rename(&store, &removed).unwrap();
        assert!(is_empty(&store));
        fs::create_dir(&store).unwrap();
        remove(job.path()).unwrap();
        assert!(!job.path().exists());
    }

    #[test]
    fn credentials_make_no_other_job_but_endpoints_do() {
        let one = plain("s3://b/k?endpoint=http://h&access_key_id=a&secret_access_key=b");
        assert_eq!(one, plain("s3://b/k?access_key_id=c&endpoint=http://h"));
        assert_ne!(one, plain("s3://b/k?endpoint=http://g"));
        assert_eq!(plain("https://u:p@h/f"), plain("https://h/f"));
    }

    #[test]
    fn a_path_is_the_same_from_wherever_it_is_named() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(plain("a/b"), plain(&here.join("a/b").display().to_string()));
    }
}
