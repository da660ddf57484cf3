//! `file`: messages from files, read once or followed.
//!
//! A file is read into memory of the budget, cut there, and sent on without a copy
//! ([`thalweg_codec::framing`]). Without `follow` the files are read one after the other in the order of
//! their names, and what is wrong with their names or permissions is said before anything is read. A file
//! that turns out to be damaged does not keep the others from being read; the run then ends with the error.
//!
//! With `follow` the pattern is looked for again and again. Files are known by what they are and not by what
//! they are called ([`tail`]), so that one which is renamed is read to its end under its new name, whether or
//! not the pattern finds it there, while the new file under the old name is begun. Notifications of the
//! kernel (inotify) were considered: they are missing on network file systems and in many containers, so that
//! looking would have to be there as well; and looking costs a `stat` for each file four times a second.
//!
//! Positions are counted in bytes of text, after decompression. Since there is no way into the middle of a
//! compressed file, resuming in one decompresses it again up to there.

pub(crate) mod find;
mod follow;
mod once;
mod read;
pub(crate) mod tail;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, Pattern as Regex, TimeSpan};
use thalweg_engine::{Context, Error, Mistake, Source, SourceConfig, SourceOutput};

use find::{Finder, Found, pattern_mistake};
use read::Reader;
use tail::{Saved, Tail};
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::{DEFAULT_LIMIT, Framing};
use thalweg_stream::arenas::Arenas;

/// Reads messages from files: lines, or what another delimiter or a pattern separates.
///
/// The files are read to their end, one after the other in the order of their names; or, with `follow`, as
/// they are written, over rotation, truncation and deletion. Compressed files (gzip, zstd) are recognised.
/// With `--state`, a later run goes on where this one ended.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// The file to read, or a pattern for several, or a list of both: `logs/app.log`, `logs/*.log`,
    /// `logs/**/*.log`, `[ a.log, b/*.log ]`. `*` and `?` stand for any letters in a name, `[a-c]` for one of
    /// these, `**` for any folders. Names that begin with a dot are found only if the pattern says the dot.
    pub path: Paths,
    /// Patterns of files not to read: `*.gz`. One without `/` is about the name, in whatever folder; one with
    /// `/` is about the whole path. With `follow`, leave out what rotation compresses: `app.log.1.gz` is
    /// another file than `app.log.1` was, and would be read again.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// A regular expression for paths: of what `path` finds, only those in which it is found are read.
    #[serde(default)]
    pub include_regex: Option<Regex>,
    /// A regular expression for paths that are not to be read. With `include_regex` as well, what both are found in is
    /// read, and so is what neither is found in.
    #[serde(default)]
    pub exclude_regex: Option<Regex>,
    /// Whether to go on when the end of a file is reached and wait for more, and for new files, until told to
    /// stop. The last line is then a message as soon as its line feed is there.
    #[serde(default)]
    pub follow: bool,
    /// How the files are compressed: as their first bytes tell (`auto`), or all in the same way.
    #[serde(default)]
    pub compression: Compression,
    /// Where one message ends and the next begins. The default: each line is one.
    #[serde(default)]
    pub framing: Framing,
    /// The longest that a message may be, at most 1 GiB. Of a longer one, the first 4 KiB leave by the
    /// `errors` output.
    #[serde(default = "default_limit")]
    pub max_message_bytes: ByteSize,
    /// With `follow`: where to begin in files that are there at the start and have no saved position.
    #[serde(default)]
    pub read_from: ReadFrom,
    /// With `follow`: how often to look for more.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: TimeSpan,
    /// With `follow`: how often to look which files there are; by default as often as for more in them. Where a pattern
    /// finds very many, looking takes time.
    #[serde(default)]
    pub scan_interval: Option<TimeSpan>,
    /// Ignores files that were not changed for so long: `7d`.
    #[serde(default)]
    pub ignore_older: Option<TimeSpan>,
    /// What to do if a file does not exist or a pattern matches none. With `follow` they are waited for.
    #[serde(default)]
    pub on_missing: OnMissing,
}

fn default_limit() -> ByteSize {
    DEFAULT_LIMIT
}

fn default_poll_interval() -> TimeSpan {
    TimeSpan::milliseconds(250)
}

/// One path or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Paths {
    /// A path or pattern.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Paths {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Paths::One(path) => std::slice::from_ref(path),
            Paths::Many(paths) => paths,
        }
    }
}

/// Where to begin in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadFrom {
    /// At its beginning.
    #[default]
    Beginning,
    /// At its end: only what is written from now on.
    End,
}

/// What to do if there is nothing to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// The run ends with an error.
    #[default]
    Error,
    /// There is nothing to do, then.
    Ignore,
}

impl SourceConfig for FileSource {
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
        let mut mistakes = self.framing.check(self.max_message_bytes);
        let paths = self.path.all().to_vec();
        if paths.is_empty() || paths.iter().any(String::is_empty) {
            let mistake = Mistake::new("path", "No path is given.");
            mistakes.push(mistake.help("Write a path such as `logs/*.log`."));
        }
        for path in &paths {
            if let Some(message) = pattern_mistake(path).filter(|_| !Path::new(path).exists()) {
                let help = "`**` must stand alone between slashes; for a bracket itself write `[[]`.";
                mistakes.push(Mistake::new("path", message).help(help));
            }
        }
        for message in self.exclude.iter().filter_map(|pattern| pattern_mistake(pattern)) {
            mistakes.push(Mistake::new("exclude", message));
        }
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

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let ignore_older = self.ignore_older.map(TimeSpan::duration);
        Ok(Box::new(Files {
            finder: Finder::new(self.path.all().to_vec(), &self.exclude, ignore_older)?
                .with_regexes(self.include_regex.clone(), self.exclude_regex.clone()),
            config: self.clone(),
            reader: Reader { arenas: Arenas::new(context.batch_bytes) },
            has_begun: false,
            looked: None,
            waiting: VecDeque::new(),
            current: None,
            failed: Vec::new(),
            tails: Vec::new(),
            finished: Vec::new(),
            warned: HashSet::new(),
        }))
    }
}

struct Files {
    config: FileSource,
    finder: Finder,
    reader: Reader,
    has_begun: bool,
    /// With `follow`: when it was last looked which files there are.
    looked: Option<Instant>,
    /// Without `follow`: the files to be read, the one being read, and what was wrong with those before.
    waiting: VecDeque<Found>,
    current: Option<Tail>,
    failed: Vec<Error>,
    /// With `follow`: the files being read, in the order found; and of those let go, the lane and the place
    /// of the end.
    tails: Vec<Tail>,
    finished: Vec<(Arc<str>, u64)>,
    /// The paths of which was said that they cannot be read.
    warned: HashSet<PathBuf>,
}

#[async_trait]
impl Source for Files {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let result = if self.config.follow { self.follow(out).await } else { self.read_once(out).await };
        self.reader.arenas.clear();
        result
    }
}

/// Forgets the lanes of files that are no more: nothing is at their path while other files are in their
/// folder. That the whole folder is empty or away may be a disk that is not mounted.
fn forget_missing(partitions: &HashSet<String>, found: &[Found], out: &SourceOutput) {
    let folders: HashSet<_> = found.iter().filter_map(|found| found.path.parent()).collect();
    for partition in out.partitions().into_iter().filter(|partition| !partitions.contains(&**partition)) {
        let Some(saved) = Saved::of(out, &partition) else { continue };
        let path = Path::new(&saved.path);
        if path.parent().is_some_and(|folder| folders.contains(folder)) && !path.exists() {
            out.forget(&partition);
        }
    }
}
