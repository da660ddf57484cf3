//! What a copy keeps, so that one that was cut off goes on.
//!
//! Each job has a folder of its own, called by a print of all that makes it this job and no other. It is removed when
//! everything was copied. Where something could not be, it stays, so that one can look at that; but the next copy
//! begins anew then, since it should try again what did not work.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use thalweg_engine::{Journal, StateDir, Store};
use thalweg_files::sinks::objects::discard_unfinished;
use xxhash_rust::xxh3::xxh3_128;

use super::Arguments;
use super::configuration::SINK;
use super::places::Endpoints;
use crate::exit::CliError;
use crate::load::state_folder;

/// What is kept of a copy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Going on")]
pub struct StateOptions {
    /// Keep what a later copy goes on from in this folder, also when this one has ended: the next one copies what is new
    /// since. Without it, it is kept below `$XDG_STATE_HOME/thalweg/copies` or `~/.local/state/thalweg/copies`, until
    /// everything is copied.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Begin anew, whatever a former copy left.
    #[arg(long)]
    pub restart: bool,
    /// Keep nothing: a copy that is cut off begins anew.
    #[arg(long, conflicts_with_all = ["state", "restart"])]
    pub no_resume: bool,
}

/// Where a copy keeps what it keeps.
pub struct Kept {
    /// As a run takes it.
    pub keeping: StateDir,
    /// Whether a former copy was cut off, so that this one goes on with it.
    pub goes_on: bool,
    /// The folder of the job, if it is ours.
    job: Option<PathBuf>,
}

/// The store within the folder of a job.
const STORE: &str = "state";
/// Within the folder of a job, that it came to its end, and what is there is for looking at.
const ENDED: &str = "ended";

impl Kept {
    /// What there is of this job.
    ///
    /// # Errors
    /// If what has to be removed cannot be.
    pub fn new(arguments: &Arguments, places: &Endpoints) -> Result<Self, CliError> {
        let options = &arguments.state;
        if let Some(folder) = &options.state {
            let keeping = StateDir { folder: folder.clone(), positions: true };
            return Ok(Self { goes_on: !is_empty(folder), keeping, job: None });
        }
        let Some(copies) = copies().filter(|_| !options.no_resume) else {
            let (folder, positions) = state_folder(Path::new(""), None, None);
            return Ok(Self { keeping: StateDir { folder, positions }, goes_on: false, job: None });
        };
        let job = copies.join(print(arguments, places));
        if job.join(ENDED).exists() {
            remove(&job)?;
        }
        let folder = job.join(STORE);
        let goes_on = !is_empty(&folder);
        Ok(Self { keeping: StateDir { folder, positions: true }, goes_on, job: Some(job) })
    }

    /// Throws away what a former copy left, here and in the store that it wrote to.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget(&mut self, places: &Endpoints) -> Result<(), CliError> {
        if std::mem::take(&mut self.goes_on) {
            let store = self.discard(places)?;
            store.forget_progress()?;
        }
        Ok(())
    }

    /// The copy came to its end; `is_clean` if nothing was left over.
    ///
    /// # Errors
    /// If what was kept cannot be removed.
    pub fn end(&self, places: &Endpoints, is_clean: bool) -> Result<(), CliError> {
        let Some(job) = &self.job else { return Ok(()) };
        // A former copy may have begun what is not there to be copied any more.
        self.discard(places)?;
        match is_clean {
            true => remove(job),
            false => Ok(fs::write(job.join(ENDED), "")?),
        }
    }

    /// Removes from the store that is written to what is not complete there, and gives the one in which that was noted.
    fn discard(&self, places: &Endpoints) -> Result<Arc<Store>, CliError> {
        let store = Arc::new(Store::open(&self.keeping.folder)?);
        let journal = Journal::new(store.clone(), SINK);
        let saved = store.sink_state(SINK)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(discard_unfinished(&places.to, &journal, saved.as_ref()))?;
        Ok(store)
    }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

fn remove(folder: &Path) -> Result<(), CliError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::Failed(format!("`{}` cannot be removed: {error}", folder.display())))
        }
        _ => Ok(()),
    }
}

/// Where the folders of all jobs are, if that is known.
fn copies() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("thalweg/copies"))
}

/// Tells one job from all others. How fast it is to be done does not belong to it.
fn print(arguments: &Arguments, places: &Endpoints) -> String {
    let rows = &arguments.rows;
    let job = serde_json::json!([
        plain(&places.from),
        plain(&places.to),
        arguments.include,
        arguments.exclude,
        arguments.existing.map(super::Existing::name),
        arguments.content_type,
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

/// A URL without what is secret in it; a path from the root on.
fn plain(url: &str) -> String {
    const SECRET: [&str; 6] = ["key", "secret", "token", "password", "credential", "sas"];
    let Some((scheme, rest)) = url.split_once("://") else {
        let path = std::path::absolute(url).unwrap_or_else(|_| PathBuf::from(url));
        return path.display().to_string();
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let end = place.find('/').unwrap_or(place.len());
    let place = place[..end].rfind('@').map_or(place, |at| &place[at + 1..]);
    let is_open = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        !SECRET.iter().any(|secret| name.contains(secret))
    };
    let mut pairs: Vec<&str> = query.split('&').filter(is_open).collect();
    pairs.sort_unstable();
    format!("{scheme}://{place}?{}", pairs.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
