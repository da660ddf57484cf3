//! Whole files from folders.
//!
//! [`walk`] goes through folders without holding what is in them; [`pass`] says which of what it finds is new.

mod filter;
mod pass;

#[cfg(test)]
mod tests;
mod walk;

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Checkpoint, Context, Error, Flow, Mistake, Source, SourceConfig, SourceOutput};
use thalweg_record::{Content, File, Origin, Problem, Times};

use thalweg_local::sources::file::Paths;
use thalweg_stream::io_error::io_error;

use filter::Filter;
use pass::Pass;
use thalweg_codec::pattern::{self, Root};
use walk::{Step, Walk, Walking};

/// Whole files, each as it lies there.
///
/// A path may be a file, a folder, which means all that is in it and below, or a pattern: `photos/**/*.jpg`. Files are
/// passed on as they are found, so a million of them take no more memory than ten. With `--state`, a run sends what is new or
/// has changed since the last one; folders are then read in the order of names.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Files, folders, or patterns as shells have them: `*` and `?` for a part of a name, `**` for any folders.
    #[schemars(example = "photos/**/*.jpg")]
    pub path: Paths,
    /// Whether folders are read with all that is below them.
    #[serde(default = "yes")]
    pub recursive: bool,
    /// What to do with a path that is a folder.
    #[serde(default)]
    pub folders: Folders,
    /// What to do with symbolic links.
    #[serde(default)]
    pub symlinks: Symlinks,
    /// Patterns of which a file must match one. Without a `/` they are about its name, with one about its path below the
    /// folder that is read.
    #[serde(default)]
    pub include: Vec<String>,
    /// Patterns of which it must match none.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether to read what has a name that begins with a dot. Without it, folders are read with that, and patterns only
    /// find it where they begin with a dot themselves.
    pub hidden: Option<bool>,
    /// The fewest bytes that a file must have.
    pub min_size: Option<ByteSize>,
    /// The most bytes that a file may have.
    pub max_size: Option<ByteSize>,
    /// How long ago it must have been written last, at least: with `watch`, that it is complete.
    #[schemars(example = "10s")]
    pub min_age: Option<TimeSpan>,
    /// How long ago it may have been written last, at most.
    pub max_age: Option<TimeSpan>,
    /// Whether to go on, and to look for new files and for changed ones after each such time.
    #[schemars(example = "2s")]
    pub watch: Option<TimeSpan>,
    /// In which order the files of a folder are sent.
    #[serde(default)]
    pub order: Order,
}

/// What to do with a path that is a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Folders {
    /// Read what is in it.
    #[default]
    Enter,
    /// Leave it out.
    Skip,
}

/// What to do with symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Symlinks {
    /// Read files that links lead to, and leave links to folders alone.
    #[default]
    Files,
    /// Go into folders that they lead to as well.
    Follow,
    /// Leave them alone.
    Skip,
}

/// In which order the files of a folder are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As the system has them: nothing is held.
    #[default]
    Any,
    /// By name. The names of the files of a folder are held for it.
    Name,
}

fn yes() -> bool {
    true
}

impl SourceConfig for FilesConfig {
    const NAME: &'static str = "files";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/**/*.jpg", min_size: 1B } }
pipelines:
  main: { from: photos, to: backup }
sinks:
  backup: { directory: { path: backup } }
"#;
    const GIVES: Flow = Flow::Files;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let patterns = [("include", &self.include), ("exclude", &self.exclude)];
        for (option, patterns) in patterns {
            mistakes.extend(patterns.iter().filter_map(|text| pattern::mistake(option, text)));
        }
        mistakes.extend(self.path.all().iter().filter_map(|text| pattern::mistake("path", text)));
        if let (Some(min), Some(max)) = (self.min_size, self.max_size)
            && min.0 > max.0
        {
            let message = format!("No file has at least {min} and at most {max}.");
            mistakes.push(Mistake::new("min_size", message).help("Exchange them."));
        }
        mistakes
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let roots = self
            .path
            .all()
            .iter()
            .map(|text| Root::new(text))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::permanent(error.to_string()))?;
        let by_name = self.order == Order::Name || context.resumes;
        Ok(Box::new(Files { filter: Filter::new(self)?, config: self.clone(), roots, by_name }))
    }
}

/// How many files go together, at most, and how many bytes they may have together.
const GROUP: usize = 32;
const GROUP_BYTES: u64 = 1 << 20;

struct Files {
    config: FilesConfig,
    roots: Vec<Root>,
    filter: Filter,
    by_name: bool,
}

/// Files that are sent together.
#[derive(Default)]
struct Group {
    files: Vec<File>,
    bytes: u64,
    /// Where to go on once they are safe.
    checkpoint: Option<Checkpoint>,
}

impl Group {
    fn is_full(&self) -> bool {
        self.files.len() >= GROUP || self.bytes >= GROUP_BYTES
    }
}

#[async_trait]
impl Source for Files {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut pass = Pass::begin(out);
        if pass.is_doubtful() {
            let name = out.name();
            tracing::warn!(
                "`{name}` goes on after a run that was cut off: files that it had begun with may come a second time"
            );
        }
        loop {
            self.read(out, &mut pass).await?;
            if out.is_stopping() {
                return Ok(());
            }
            if self.by_name {
                pass.finished().into_iter().for_each(|checkpoint| out.checkpoint(checkpoint));
            }
            let Some(TimeSpan(pause)) = self.config.watch else { return Ok(()) };
            if out.sleep(pause.max(Duration::from_millis(10))).await {
                return Ok(());
            }
            pass.begin_next();
        }
    }
}

impl Files {
    /// Sends what is new in all roots.
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
                // It may come yet.
                Err(error) if self.config.watch.is_some() && error.kind() == ErrorKind::NotFound => continue,
                Err(error) if root.is_pattern() && error.kind() == ErrorKind::NotFound => {
                    self.unmatched(out, root);
                    continue;
                }
                Err(error) => return Err(io_error("read", root.base(), &error)),
            };
            pass.enter(number);
            if self.send(&mut walk, out, pass).await? == 0 && root.is_pattern() && self.config.watch.is_none()
            {
                self.unmatched(out, root);
            }
        }
        Ok(())
    }

    fn unmatched(&self, out: &SourceOutput, root: &Root) {
        tracing::warn!("`{}`: no file matches `{}`", out.name(), root.text());
    }

    /// Sends what is new in one. Says how many files there were.
    async fn send(&self, walk: &mut Walk<'_>, out: &mut SourceOutput, pass: &mut Pass) -> Result<u64, Error> {
        let source = out.name().clone();
        let (mut found, mut group) = (0, Group::default());
        let mut lease = Arc::new(out.reserve(GROUP * File::WEIGHT).await);
        while let Some(step) = walk.next_step() {
            if out.is_stopping() {
                break;
            }
            match step {
                Step::File { path, metadata } => {
                    found += 1;
                    let below = path.strip_prefix(walk.base()).unwrap_or(&path);
                    if !self.filter.allows(below, &metadata) || !pass.is_new(&path, &metadata) {
                        continue;
                    }
                    if self.filter.is_too_young(&metadata) {
                        pass.defer(&path);
                        continue;
                    }
                    group.checkpoint = self.by_name.then(|| pass.checkpoint(&path));
                    let file = file_of(&source, path, walk.base(), &metadata).with_lease(lease.clone());
                    group.bytes += file.size();
                    group.files.push(file);
                    if group.is_full() {
                        let Group { files, checkpoint, .. } = std::mem::take(&mut group);
                        out.send_files(files, checkpoint).await?;
                        lease = Arc::new(out.reserve(GROUP * File::WEIGHT).await);
                    }
                }
                // It is told like a file that cannot be read, and the others are read.
                Step::Failed { path, error } => {
                    let origin =
                        Origin::found(source.clone(), path.clone(), walk.base().clone(), 0, Times::default());
                    let problem = Problem::new(io_error("read", &path, &error).to_string());
                    let problem = problem.code("FILE_CAN_NOT_BE_OPENED");
                    out.reject_file(File::new(origin, Content::Path(path)), problem, None).await?;
                }
            }
        }
        if !group.files.is_empty() {
            out.send_files(group.files, group.checkpoint).await?;
        }
        Ok(found)
    }
}

fn file_of(source: &Arc<str>, path: PathBuf, folder: &Arc<Path>, metadata: &std::fs::Metadata) -> File {
    let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
    let times = Times {
        modified: metadata.modified().ok(),
        accessed: metadata.accessed().ok(),
        changed: Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)),
        mode: Some(metadata.mode()),
    };
    let origin = Origin::found(source.clone(), path.clone(), folder.clone(), metadata.len(), times);
    File::new(origin, Content::Path(path))
}
