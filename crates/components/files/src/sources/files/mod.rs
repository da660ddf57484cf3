//! `files`: whole files from folders.
//!
//! [`walk`] walks folders without keeping their contents in memory. [`pass`] decides which of the files are
//! new, and [`own_changes`] which of them the run itself has rewritten.

mod filter;
mod own_changes;
mod pass;
mod recent;

#[cfg(test)]
mod tests;
mod walk;

use std::collections::HashSet;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, Flow, Mistake, Reads, Source, SourceConfig, SourceOutput,
};
use thalweg_record::{Content, File, FileState, Origin, Problem, Times};

use thalweg_stream::io_error::io_error;
use thalweg_stream::links::{LinksOut, Symlinks};

use crate::group::Group;
use filter::Filter;
use own_changes::{ChangedBy, Rewritten};
use pass::Pass;
use thalweg_codec::pattern::{self, Root};
use walk::{Step, Walk, Walking};

/// Reads whole files from folders.
///
/// A path is a file, a folder with everything below it, or a pattern such as `photos/**/*.jpg`. Files are
/// sent as they are found, so a million of them need no more memory than ten. With `--state`, a run sends
/// only files that are new or have changed since the last run. Folders are then read in order of names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// The files to read: a path or a list of paths. Each is a file, a folder or a pattern, with `*` and `?`
    /// for parts of a name and `**` for any folders.
    #[schemars(example = "photos/**/*.jpg")]
    pub path: List<String>,
    /// Whether subfolders are read. The default is `true`.
    #[serde(default = "yes")]
    pub recursive: bool,
    /// The action for a path that is a folder. The default is `enter`.
    #[serde(default)]
    pub folders: Folders,
    /// The action for symbolic links. The default is `inside`.
    #[serde(default)]
    pub symlinks: Symlinks,
    /// Patterns; a file must match at least one. A pattern without `/` applies to the file's name, one with
    /// `/` to its path relative to the folder that is read. The default is no patterns: all files match.
    #[serde(default)]
    pub include: List<String>,
    /// Patterns; a file must match none. The default is no patterns.
    #[serde(default)]
    pub exclude: List<String>,
    /// Whether files and folders whose names begin with a dot are read. By default, a folder is read with
    /// them. A pattern then matches such a name only where the pattern itself has the dot.
    pub hidden: Option<bool>,
    /// The minimum size of a file in bytes. By default there is none.
    pub min_file_bytes: Option<ByteSize>,
    /// The maximum size of a file in bytes. By default there is none.
    pub max_file_bytes: Option<ByteSize>,
    /// The minimum time since a file was last modified. With `follow` the default is `1s`, so that a file
    /// that is still being written is not sent: set it to more than the longest pause of those who write.
    /// Without `follow` there is none.
    #[schemars(example = "10s")]
    pub min_age: Option<TimeSpan>,
    /// The maximum time since a file was last modified. By default there is none.
    pub max_age: Option<TimeSpan>,
    /// True to wait for new and changed files. A file that a transform of the run rewrites in its place does
    /// not count as changed. With `false` (the default) the source ends after the last file.
    #[serde(default)]
    pub follow: bool,
    /// With `follow`: the time between two searches for new and changed files, at least 10 ms. The default is
    /// 1 s.
    #[serde(default = "second")]
    pub poll_interval: TimeSpan,
    /// The order in which the files of a folder are sent. The default is `any`; with `--state` it is always
    /// `name`.
    #[serde(default)]
    pub order: Order,
}

/// The action for a path that is a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Folders {
    /// Reads the files in the folder.
    #[default]
    Enter,
    /// Skips the folder.
    Skip,
}

/// The order in which the files of a folder are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The order of the file system. No names are kept in memory.
    #[default]
    Any,
    /// By name. The names of one folder at each level are kept in memory for sorting.
    Name,
}

fn yes() -> bool {
    true
}

fn second() -> TimeSpan {
    TimeSpan::seconds(1)
}

impl Component for FilesConfig {
    const NAME: &'static str = "files";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/**/*.jpg", min_file_bytes: 1B } }
pipelines:
  main: { from: photos, to: backup }
sinks:
  backup: { directory: { path: backup } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let patterns = [("include", &self.include), ("exclude", &self.exclude)];
        for (option, patterns) in patterns {
            mistakes.extend(patterns.iter().filter_map(|text| pattern::mistake(option, text)));
        }
        mistakes.extend(self.path.iter().filter_map(|text| pattern::mistake("path", text)));
        if let (Some(min), Some(max)) = (self.min_file_bytes, self.max_file_bytes)
            && min.0 > max.0
        {
            let message = format!("No file has at least {min} and at most {max}.");
            mistakes.push(Mistake::new("min_file_bytes", message).help("Exchange them."));
        }
        mistakes
    }
}

impl SourceConfig for FilesConfig {
    fn endless(&self) -> Option<Endless> {
        Endless::by("follow", self.follow)
    }

    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn reads(&self) -> Vec<Reads> {
        let all = self.path.iter().flat_map(|text| Reads::of(text));
        all.map(|reads| reads.filtered(&self.include, &self.exclude)).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let roots = self
            .path
            .iter()
            .map(|text| Root::new(text))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::permanent(error.to_string()))?;
        let by_name = self.order == Order::Name || context.resumes;
        Ok(Box::new(Files {
            filter: Filter::new(self)?,
            config: self.clone(),
            roots,
            by_name,
            has_reported_links: AtomicBool::new(false),
            rejected: Mutex::default(),
            rewritten: self.follow.then(Arc::default),
        }))
    }
}

struct Files {
    config: FilesConfig,
    roots: Vec<Root>,
    filter: Filter,
    by_name: bool,
    /// True if links that were skipped have been reported.
    has_reported_links: AtomicBool,
    /// The entries that were rejected. With `follow`, each pass meets them again.
    rejected: Mutex<HashSet<PathBuf>>,
    /// The files that the run itself rewrites. Only with `follow`: other runs meet each file once.
    rewritten: Option<Arc<Rewritten>>,
}

#[async_trait]
impl Source for Files {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut pass = Pass::begin(out);
        if pass.is_resumed() {
            let name = out.name();
            tracing::warn!(
                "`{name}` resumes after an interrupted run: files that were in progress may be sent a second time"
            );
        }
        loop {
            self.read(out, &mut pass).await?;
            if out.is_stopping() {
                return Ok(());
            }
            if self.by_name {
                pass.save_finished(out);
            }
            if !self.config.follow {
                return Ok(());
            }
            if out.sleep(self.config.poll_interval.duration().max(Duration::from_millis(10))).await {
                return Ok(());
            }
            pass.begin_next();
            if let Some(rewritten) = &self.rewritten {
                rewritten.forget_before(pass.known_before());
            }
        }
    }
}

impl Files {
    /// Sends the new files of all roots.
    async fn read(&self, out: &mut SourceOutput, pass: &mut Pass) -> Result<(), Error> {
        for (number, root) in self.roots.iter().enumerate().skip(pass.first_root()) {
            let walking = Walking {
                recursive: self.config.recursive,
                symlinks: self.config.symlinks,
                hidden: self.config.hidden,
                sorted: self.by_name,
                folders: self.config.folders,
            };
            let mut walk = match Walk::new(root, walking) {
                Ok(walk) => walk,
                // The file may be created later.
                Err(error) if self.config.follow && error.kind() == ErrorKind::NotFound => continue,
                Err(error) if root.is_pattern() && error.kind() == ErrorKind::NotFound => {
                    self.unmatched(out, root);
                    continue;
                }
                Err(error) => return Err(io_error("read", root.base(), &error)),
            };
            pass.enter(number);
            if self.send(&mut walk, out, pass).await? == 0 && root.is_pattern() && !self.config.follow {
                self.unmatched(out, root);
            }
        }
        Ok(())
    }

    fn unmatched(&self, out: &SourceOutput, root: &Root) {
        tracing::warn!("`{}`: no file matches `{}`", out.name(), root.text());
    }

    /// Sends the new files of one root. Returns the number of files and links found.
    async fn send(&self, walk: &mut Walk<'_>, out: &mut SourceOutput, pass: &mut Pass) -> Result<u64, Error> {
        let source = out.name().clone();
        let (mut found, mut group) = (0, Group::default());
        let mut links = LinksOut::default();
        // Where to resume once the files of the group are settled.
        let mut checkpoint = None;
        while let Some(step) = walk.next_step() {
            if out.is_stopping() {
                break;
            }
            match step {
                Step::File { path, metadata } => {
                    found += 1;
                    if !self.is_due(&path, &metadata, walk, pass) {
                        continue;
                    }
                    pass.add_sent(&path, &metadata);
                    checkpoint = self.by_name.then(|| pass.checkpoint(&path));
                    let lease = group.lease(out).await;
                    group.add(self.file(&source, path, walk, &metadata).with_lease(lease));
                    if group.is_full(out) {
                        if self.by_name {
                            pass.save_recent(out);
                        }
                        out.send_files(group.take(), checkpoint.take()).await?;
                    }
                }
                Step::LinkOut { path } => {
                    found += 1;
                    links.add(path.to_string_lossy());
                }
                Step::Failed { path, error } => self.reject(path, &error, walk.base(), out).await?,
            }
        }
        if !group.is_empty() {
            if self.by_name {
                pass.save_recent(out);
            }
            out.send_files(group.take(), checkpoint).await?;
        }
        // With `follow`, only once.
        if !links.is_empty() && !self.has_reported_links.swap(true, Relaxed) {
            links.report(&source, "`symlinks: files`");
        }
        Ok(found)
    }

    /// True if a file is to be sent now. The pass notes those that are sent later, or were rewritten by the
    /// run.
    fn is_due(&self, path: &Path, metadata: &Metadata, walk: &Walk<'_>, pass: &mut Pass) -> bool {
        let below = path.strip_prefix(walk.base()).unwrap_or(path);
        if !self.filter.allows(below, metadata) || !pass.is_new(path, metadata) {
            return false;
        }
        let rewritten = self.rewritten.as_ref();
        match rewritten.map_or(ChangedBy::Others, |rewritten| rewritten.changed_by(path, metadata)) {
            ChangedBy::Run => pass.add_sent(path, metadata),
            ChangedBy::Unknown => pass.defer(path),
            ChangedBy::Others if self.filter.is_too_young(metadata) => pass.defer(path),
            ChangedBy::Others => return true,
        }
        false
    }

    /// Rejects an entry that cannot be examined like a file that cannot be read. The other files are still
    /// read.
    async fn reject(
        &self,
        path: PathBuf,
        error: &io::Error,
        folder: &Arc<Path>,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let is_new = self.rejected.lock().insert(path.clone());
        if !is_new {
            return Ok(());
        }
        let origin = Origin::found(out.name().clone(), path.clone(), folder.clone(), 0, Times::default());
        let problem = Problem::new(io_error("read", &path, error).to_string()).code("FILE_CAN_NOT_BE_OPENED");
        out.reject_file(File::new(origin, Content::Path(path)), problem, None).await
    }

    /// Returns a file that was found.
    fn file(&self, source: &Arc<str>, path: PathBuf, walk: &Walk<'_>, metadata: &Metadata) -> File {
        let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
        let times = Times {
            modified: metadata.modified().ok(),
            accessed: metadata.accessed().ok(),
            changed: Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)),
            mode: Some(metadata.mode()),
        };
        let mut origin =
            Origin::found(source.clone(), path.clone(), walk.base().clone(), metadata.len(), times);
        origin.own_changes = self.rewritten.clone().map(|rewritten| rewritten as _);
        let origin = origin.beneath(walk.opening()).in_state(FileState::of(metadata));
        File::new(origin, Content::Path(path))
    }
}
