//! `file`: messages from files, read once or followed.
//!
//! A file is read into memory of the budget, cut there, and sent without a copy ([`thalweg_codec::framing`]).
//! Without `follow` the files are read one after the other in the order of their names. Wrong names and
//! missing permissions are reported before anything is read. If a file is damaged, the other files are still
//! read, and the run ends with the error.
//!
//! With `follow` the pattern is evaluated again and again. A file is identified by its inode, not by its name
//! ([`tail`]). A renamed file is therefore read to its end, even if the pattern does not match its new name,
//! while the new file under the old name is started. Kernel notifications (inotify) were rejected: they are
//! missing on network file systems and in many containers, so polling would be needed anyway. Polling costs
//! one `stat` per file, four times a second.
//!
//! Positions count bytes of text, after decompression. A compressed file cannot be read from its middle, so
//! resuming decompresses it again up to the position.

pub(crate) mod find;
mod follow;
mod once;
mod read;
mod saved;
mod sequences;
pub(crate) mod tail;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{List, Pattern as Regex, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, Journal, KnownFields, Mistake, Reads, Source, SourceConfig,
    SourceOutput,
};

use find::{Finder, Findings, Found};
use read::Reader;
use saved::Saved;
use sequences::Sequences;
use tail::Tail;
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::CutOptions;
use thalweg_codec::pattern;
use thalweg_runtime::blocking;
use thalweg_stream::arenas::Arenas;
use thalweg_stream::links::Symlinks;

/// Reads messages from files: lines, or parts separated by another delimiter or a pattern.
///
/// Without `follow`, the files are read to their end, one after the other in the order of their names. With
/// `follow`, they are read as they are written, across rotation, truncation and deletion. Compressed files
/// (gzip, zstd) are recognised. With `--state`, a later run resumes where this one ended.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// The file to read, a pattern for several files, or a list of both: `logs/app.log`, `logs/*.log`,
    /// `logs/**/*.log`, `[ a.log, b/*.log ]`. `*` matches any characters of a name, `?` one character,
    /// `[a-c]` one of these characters, `**` any folders. A name that begins with a dot matches only if the
    /// pattern contains that dot.
    pub path: List<String>,
    /// Patterns of files not to read, for example `*.gz`. A pattern without `/` applies to the name in any
    /// folder; a pattern with `/` applies to the whole path. With `follow`, exclude the files that rotation
    /// compresses: `app.log.1.gz` is a different file from `app.log.1`, and would be read again.
    #[serde(default)]
    pub exclude: List<String>,
    /// A regular expression for paths. Of the files that `path` finds, only those that match it are read.
    #[serde(default)]
    pub include_regex: Option<Regex>,
    /// A regular expression for the paths of files not to read. With `include_regex` as well, a file that
    /// matches both is read, and so is a file that matches neither.
    #[serde(default)]
    pub exclude_regex: Option<Regex>,
    /// Whether to wait for more data at the end of a file, and for new files, until the run is stopped. A
    /// last line then becomes a message only when its line feed is written. The default is `false`.
    ///
    /// If a file is rotated, let `path` match the rotated names as well (`app.log*`). Otherwise lines are
    /// lost if a file is rotated several times within `poll_interval`, or while no run reads it. A file that
    /// is moved to another folder while no run reads it is not read to its end.
    #[serde(default)]
    pub follow: bool,
    /// The compression of all files. The default is `auto`, which recognises it by the first bytes of each
    /// file.
    #[serde(default)]
    pub compression: Compression,
    #[serde(flatten)]
    cut: CutOptions,
    /// With `follow`: where to start in files that exist at the start and have no saved position. The default
    /// is `beginning`.
    #[serde(default)]
    pub read_from: ReadFrom,
    /// With `follow`: the time between two checks for more data. The default is 250 ms.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: TimeSpan,
    /// With `follow`: the time between two searches for new files. The default is `poll_interval`. Increase
    /// it if a pattern matches very many files, because the search takes time.
    #[serde(default)]
    pub scan_interval: Option<TimeSpan>,
    /// With `follow`: how long a file that was renamed out of the search must be quiet before it is no longer
    /// read. Its writer keeps it open until it has noticed, perhaps until its next line. The default is `5m`.
    /// Of several such files, the 64 youngest are kept for this time.
    #[serde(default = "default_rotate_timeout")]
    pub rotate_timeout: TimeSpan,
    /// Ignores files that were not changed for this time, for example `7d`. By default no file is ignored.
    #[serde(default)]
    pub max_age: Option<TimeSpan>,
    /// The action for symbolic links that a pattern finds. The default is `inside`: a link that leads out of
    /// the constant folder at the beginning of the pattern is skipped. `path` itself may be a link.
    #[serde(default)]
    pub symlinks: Symlinks,
    /// The reaction to a file that does not exist or a pattern that matches none. The default is `error`.
    /// With `follow` the source waits for the files.
    #[serde(default)]
    pub on_missing: OnMissing,
}

fn default_poll_interval() -> TimeSpan {
    TimeSpan::milliseconds(250)
}

fn default_rotate_timeout() -> TimeSpan {
    TimeSpan::from(Duration::from_mins(5))
}

/// Where to start in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadFrom {
    /// At its beginning.
    #[default]
    Beginning,
    /// At its end: only data that is written from now on is read.
    End,
}

/// The reaction if there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// The run ends with an error.
    #[default]
    Error,
    /// The missing files are ignored.
    Ignore,
}

impl Component for FileSource {
    const NAME: &'static str = "file";
    const EXAMPLE: &'static str = "\
sources:
  logs:
    file:
      path: logs/**/*.log*
      on_missing: ignore

pipelines:
  main: { from: logs, to: all }

sinks:
  all: { file: { path: out/all.log } }
";

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cut.check();
        let paths = self.path.to_vec();
        if paths.is_empty() || paths.iter().any(String::is_empty) {
            let mistake = Mistake::new("path", "No path is given.");
            mistakes.push(mistake.help("Write a path such as `logs/*.log`."));
        }
        let wanted = paths.iter().filter(|path| !path.is_empty() && !Path::new(path).exists());
        mistakes.extend(wanted.filter_map(|path| pattern::mistake("path", path)));
        let excluded = self.exclude.iter().filter(|text| !text.is_empty());
        mistakes.extend(excluded.filter_map(|text| pattern::mistake("exclude", text)));
        if self.read_from == ReadFrom::End && !self.follow {
            let mistake = Mistake::new("read_from", "`read_from: end` reads nothing without `follow: true`.");
            mistakes.push(mistake.help("Add `follow: true`, or remove it."));
        }
        if self.follow && self.poll_interval.is_zero() {
            let message = "`poll_interval` is 0, which would keep a core busy.";
            mistakes.push(Mistake::new("poll_interval", message).help("The default is `250ms`."));
        }
        mistakes
    }
}

impl SourceConfig for FileSource {
    fn endless(&self) -> Option<Endless> {
        Endless::by("follow", self.follow)
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn reads(&self) -> Vec<Reads> {
        let all = self.path.iter().flat_map(|text| Reads::of(text));
        let has_regex = self.include_regex.is_some() || self.exclude_regex.is_some();
        let filtered = all.map(|reads| {
            let mut reads = reads.filtered(&[], &self.exclude);
            // Regular expressions are not evaluated here, so no file is read for certain.
            reads.except.extend(has_regex.then(|| "?*".to_owned()));
            reads
        });
        filtered.collect()
    }

    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        let is_plain = |path: &&String| !path.contains(['*', '?', '[', ']']);
        let is_needed = !self.follow && self.on_missing == OnMissing::Error;
        self.path.iter().filter(|_| is_needed).filter(is_plain).map(|path| ("path", path.into())).collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let max_age = self.max_age.map(TimeSpan::duration);
        Ok(Box::new(Files {
            finder: Finder::new(self.path.to_vec(), &self.exclude, max_age)?
                .with_symlinks(self.symlinks)
                .with_regexes(self.include_regex.clone(), self.exclude_regex.clone()),
            config: self.clone(),
            reader: Reader { arenas: Arenas::new(context.batch_bytes) },
            journal: context.journal.clone(),
            keeps_sequences: context.keeps_sequences,
            sequences: None,
            has_begun: false,
            looked: None,
            is_crowded: false,
            waiting: VecDeque::new(),
            current: None,
            failed: Vec::new(),
            tails: Vec::new(),
            finished: Vec::new(),
            asked: None,
            warned: HashSet::new(),
            has_reported_links: false,
        }))
    }
}

struct Files {
    config: FileSource,
    finder: Finder,
    reader: Reader,
    /// Where sequences are noted.
    journal: Option<Journal>,
    /// True if they are noted, and those that no checkpoint has.
    keeps_sequences: bool,
    sequences: Option<Sequences>,
    has_begun: bool,
    /// With `follow`: the time of the last search for files.
    looked: Option<Instant>,
    /// With `follow`: true if files wait to be opened, because too many are open.
    is_crowded: bool,
    /// Without `follow`: the files to read, the file being read, and the errors of the files before it.
    waiting: VecDeque<Found>,
    current: Option<Tail>,
    failed: Vec<Error>,
    /// With `follow`: the files being read, in the order of their discovery. `finished` has the partition and
    /// end offset of each file that was dropped.
    tails: Vec<Tail>,
    finished: Vec<(Arc<str>, u64)>,
    /// With `follow`: when a checkpoint was last asked for.
    asked: Option<Instant>,
    /// The paths that were reported as unreadable.
    warned: HashSet<PathBuf>,
    /// True if links that were skipped have been reported.
    has_reported_links: bool,
}

#[async_trait]
impl Source for Files {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        // A dry run leaves no trace.
        if self.sequences.is_none()
            && let Some(journal) = self.journal.clone().filter(|_| !out.is_dry())
        {
            if self.keeps_sequences {
                self.sequences = Some(blocking(|| Sequences::load(&journal, out))?);
            } else {
                blocking(|| sequences::forget_all(&journal))?;
                self.journal = None;
            }
        }
        let result = if self.config.follow { self.follow(out).await } else { self.read_once(out).await };
        self.reader.arenas.clear();
        result
    }
}

impl Files {
    /// Reports once each what a search has skipped: links that lead back to a folder above them, links that
    /// lead out, and folders that cannot be read.
    fn warn_of_skipped(&mut self, findings: &mut Findings, source: &str) {
        if !findings.links.is_empty() && !std::mem::replace(&mut self.has_reported_links, true) {
            findings.links.report(source, "`symlinks: files`");
        }
        for (path, error) in findings.skipped.drain(..) {
            if self.warned.insert(path.clone()) {
                tracing::warn!("`{source}`: `{}` cannot be read, and is skipped: {error}", path.display());
            }
        }
        for path in findings.loops.drain(..) {
            if self.warned.insert(path.clone()) {
                tracing::warn!("`{}` is a link that leads back to itself: it is skipped", path.display());
            }
        }
    }
}

/// Deletes the checkpoints of files that no longer exist, and the notes of their sequences. A file counts as
/// gone if its path is missing while other files are in its folder. An empty or missing folder may be a disk
/// that is not mounted.
fn forget_missing(
    partitions: &HashSet<String>,
    found: &[Found],
    sequences: Option<&mut Sequences>,
    out: &SourceOutput,
) {
    let folders: HashSet<_> = found.iter().filter_map(|found| found.path.parent()).collect();
    let is_missing = |partition: &str, path: &str| {
        let path = Path::new(path);
        !partitions.contains(partition)
            && path.parent().is_some_and(|folder| folders.contains(folder))
            && !path.exists()
    };
    for partition in out.partitions() {
        if Saved::of(out, &partition).is_some_and(|saved| is_missing(&partition, &saved.path)) {
            out.forget(&partition);
        }
    }
    if let Some(sequences) = sequences {
        sequences.forget_gone(is_missing);
    }
}
