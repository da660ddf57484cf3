//! `file`: messages from files, read once or followed.
//!
//! A file is read into memory of the budget, cut there, and sent on without a copy
//! ([`crate::shared::framing`]). Without `follow` the files are read one after the other in the order of
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
pub(crate) mod tail;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow_buffer::Buffer;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, ErrorKind as Kind, Mistake, Outlet, Reading, Source, SourceConfig};
use thalweg_record::Arena;
use thalweg_runtime::blocking;

use crate::shared::decompress::Compression;
use crate::shared::framing::{After, DEFAULT_LIMIT, Framing};
use crate::shared::io::io_error;
use find::{Finder, Findings, Found, Identity, find_in_folder, pattern_mistake, unreadable};
use tail::{Saved, Tail};

/// How many files are held open while following. Of more, those that have been quiet longest are closed.
const MAX_OPEN: usize = 512;

/// For how many looks a followed file that is gone must be quiet before it is let go: its writer may not have
/// noticed yet that it was renamed.
const LINGER: u32 = 20;

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
    fn to_vec(&self) -> Vec<String> {
        match self {
            Paths::One(path) => vec![path.clone()],
            Paths::Many(paths) => paths.clone(),
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
        let paths = self.path.to_vec();
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
            finder: Finder::new(self.path.to_vec(), &self.exclude, ignore_older)?,
            config: self.clone(),
            reader: Reader { arena: None, batch_bytes: context.batch_bytes.max(1) },
            has_begun: false,
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
    async fn run(&mut self, out: &mut Outlet) -> Result<(), Error> {
        let result = if self.config.follow { self.follow(out).await } else { self.read_once(out).await };
        self.reader.arena = None;
        result
    }
}

/// Reads a piece of a file and sends the messages in it.
struct Reader {
    /// Memory of which so little was needed last time that it was copied out.
    arena: Option<Arena>,
    batch_bytes: usize,
}

/// How a step of reading ended.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There may be more.
    More,
    /// At the end of the file.
    End,
    /// With the failure that the tail keeps.
    Failed,
    /// The run is to stop.
    Stopped,
}

impl Reader {
    /// `after` says what is known when the end of the file is reached.
    async fn step(&mut self, tail: &mut Tail, after: After, out: &mut Outlet) -> Result<Step, Error> {
        // Nothing here waits while there is memory and the next stage has room.
        tokio::task::consume_budget().await;
        // What is carried over fills at most half of it, so that a long message costs few copies.
        let capacity = self.batch_bytes.max(2 * tail.carry.len());
        let kept = self.arena.take().filter(|arena| arena.len() >= capacity);
        let mut arena = match kept {
            Some(arena) => arena,
            None => tokio::select! {
                arena = out.arena(capacity) => arena,
                () = out.stopping() => return Ok(Step::Stopped),
            },
        };
        let filled = blocking(|| tail.fill(&mut arena));
        out.add_progress(filled.progress);
        if filled.progress > 0 {
            tail.active = Instant::now();
        }
        let after = if filled.is_end { after } else { After::More };
        let buffer = if filled.bytes < arena.len() / 4 {
            let copy = Buffer::from(arena.get(..filled.bytes).unwrap_or_default());
            self.arena = Some(arena);
            copy
        } else {
            arena.freeze().slice_with_length(0, filled.bytes)
        };
        send(tail, &buffer, after, out).await?;
        Ok(match (filled.is_end, &tail.failure) {
            (_, Some(_)) => Step::Failed,
            (true, None) => Step::End,
            (false, None) => Step::More,
        })
    }
}

/// Sends the messages in a buffer; what is left becomes what the tail carries over.
async fn send(tail: &mut Tail, buffer: &Buffer, after: After, out: &mut Outlet) -> Result<(), Error> {
    let marker = tail.marker();
    tail.cutter.send(buffer, after, Some(&tail.shown), |place| marker.mark(place), out).await?;
    let done = tail.cutter.advance();
    tail.carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
    Ok(())
}

/// Sends what is complete in what a tail carries over, now that more is known of what comes after.
async fn send_carried(tail: &mut Tail, after: After, out: &mut Outlet) -> Result<(), Error> {
    let buffer = Buffer::from_vec(std::mem::take(&mut tail.carry));
    send(tail, &buffer, after, out).await
}

/// Gives up a file whose compressed data is damaged, if it is: the message in which it breaks off is
/// rejected.
async fn give_up(tail: &mut Tail, out: &mut Outlet) -> Result<Option<Error>, Error> {
    let Some(damage) = tail.damage() else { return Ok(None) };
    let path = tail.shown.clone();
    let reason = format!("breaks off: of `{path}`, {damage}");
    tail.cutter.reject_rest(&tail.carry, &reason, Some(&path), out).await?;
    tail.carry.clear();
    Ok(Some(Error::permanent(format!(
        "cannot read `{path}` to its end: {damage}. What comes before was read."
    ))))
}

impl Files {
    async fn read_once(&mut self, out: &mut Outlet) -> Result<(), Error> {
        if !self.has_begun {
            let findings = blocking(|| self.finder.find());
            self.waiting = self.readable(findings)?.into();
            let lanes = self.waiting.iter().map(|found| found.identity.lane()).collect();
            forget_missing(&lanes, self.waiting.make_contiguous(), out);
            out.add_expected(self.waiting.iter().map(|found| found.size).sum());
            self.has_begun = true;
        }
        while !out.is_stopping() {
            let Some(tail) = &mut self.current else {
                let Some(found) = self.waiting.front() else { break };
                match blocking(|| Tail::open(&found.path, &self.config, out, true)) {
                    Ok(tail) => {
                        out.add_progress(found.size.saturating_sub(tail.expected()));
                        self.current = Some(tail);
                    }
                    Err(error) => {
                        let error = unreadable(&found.path, &error);
                        if error.kind() == Kind::Temporary {
                            return Err(error);
                        }
                        self.failed.push(error);
                    }
                }
                self.waiting.pop_front();
                continue;
            };
            match self.reader.step(tail, After::End, out).await? {
                Step::More => {}
                Step::Stopped => break,
                Step::End => self.current = None,
                Step::Failed => {
                    let error = match give_up(tail, out).await? {
                        Some(error) => error,
                        None => match tail.failure.take() {
                            Some(error) => io_error("read", &tail.path, &error),
                            None => continue,
                        },
                    };
                    if error.kind() == Kind::Temporary {
                        tail.recover().map_err(|error| io_error("read", &tail.path, &error))?;
                        return Err(error);
                    }
                    self.failed.push(error);
                    self.current = None;
                }
            }
        }
        summary(std::mem::take(&mut self.failed))
    }

    /// The files that were found, if all of them can be read.
    fn readable(&self, findings: Findings) -> Result<Vec<Found>, Error> {
        let ignores = self.config.on_missing == OnMissing::Ignore;
        for (path, error) in &findings.failed {
            if !(ignores && error.kind() == ErrorKind::NotFound) {
                return Err(unreadable(path, error));
            }
        }
        if let Some(pattern) = findings.unmatched.first().filter(|_| !ignores) {
            let folder = std::env::current_dir().unwrap_or_default();
            let folder = if Path::new(pattern).is_absolute() {
                String::new()
            } else {
                format!(" (looked for in `{}`)", folder.display())
            };
            return Err(Error::permanent(format!(
                "no file matches `{pattern}`{folder}. If that is no mistake, say `on_missing: ignore`; to wait for \
                 files, `follow: true`."
            )));
        }
        let files: Vec<Found> = findings.files.into_iter().filter(|found| !found.is_old).collect();
        for found in &files {
            blocking(|| File::open(&found.path)).map_err(|error| unreadable(&found.path, &error))?;
        }
        Ok(files)
    }

    async fn follow(&mut self, out: &mut Outlet) -> Result<(), Error> {
        let interval = self.config.poll_interval.duration();
        loop {
            let looked = Instant::now();
            self.look(out)?;
            let mut is_busy = true;
            while is_busy && looked.elapsed() < interval {
                is_busy = false;
                for at in 0..self.tails.len() {
                    if out.is_stopping() {
                        return Ok(());
                    }
                    is_busy |= self.visit(at, out).await?;
                }
            }
            self.let_go(out).await?;
            if out.is_stopping() || (!is_busy && out.sleep(interval).await) {
                return Ok(());
            }
        }
    }

    /// Looks which files there are.
    fn look(&mut self, out: &mut Outlet) -> Result<(), Error> {
        let findings = blocking(|| self.finder.find());
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        for (path, error) in findings.failed {
            match error.kind() {
                ErrorKind::NotFound => {}
                ErrorKind::IsADirectory | ErrorKind::InvalidInput => return Err(unreadable(&path, &error)),
                _ => self.warn(path, &error),
            }
        }
        let mut known: HashMap<Identity, usize> =
            self.tails.iter().enumerate().map(|(at, tail)| (tail.identity(), at)).collect();
        let mut open = self.tails.iter().filter(|tail| tail.is_open()).count();
        for found in &findings.files {
            if let Some(tail) = known.remove(&found.identity).and_then(|at| self.tails.get_mut(at)) {
                tail.rename(&found.path);
                tail.is_gone = false;
                match blocking(|| tail.reopen(found.size)) {
                    Ok(()) => {
                        self.warned.remove(&found.path);
                    }
                    Err(error) => self.warn(found.path.clone(), &error),
                }
                continue;
            }
            if found.is_old {
                continue;
            }
            match blocking(|| Tail::open(&found.path, &self.config, out, is_first)) {
                Ok(mut tail) => {
                    self.warned.remove(&found.path);
                    self.finished.retain(|(lane, _)| *lane != tail.lane);
                    if open >= MAX_OPEN {
                        tail.close();
                    }
                    open += usize::from(tail.is_open());
                    self.tails.push(tail);
                }
                // It went while we looked.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.warn(found.path.clone(), &error),
            }
        }
        for at in known.into_values() {
            let Some(tail) = self.tails.get_mut(at) else { continue };
            if !std::mem::replace(&mut tail.is_gone, true) {
                tail.active = Instant::now();
            }
            if !tail.is_open()
                && let Some(path) =
                    tail.path.parent().and_then(|folder| find_in_folder(folder, tail.identity()))
            {
                tail.rename(&path);
                // Nothing that can be done, if it went again.
                let _ = tail.reopen(u64::MAX);
            }
        }
        if is_first {
            self.find_renamed(&findings.files, out);
        }
        self.close_quiet();
        Ok(())
    }

    /// Files that were renamed between the runs, so that no pattern finds them any more, are read to their
    /// end.
    fn find_renamed(&mut self, found: &[Found], out: &Outlet) {
        let mut lanes: HashSet<String> = found.iter().map(|found| found.identity.lane()).collect();
        for lane in out.lanes() {
            let Some((identity, saved)) = Identity::of_lane(&lane).zip(Saved::of(out, &lane)) else {
                continue;
            };
            let folder = Path::new(&saved.path).parent().map(Path::to_owned).unwrap_or_default();
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            if lanes.contains(&*lane) {
                continue;
            }
            let Some(path) = find_in_folder(&folder, identity) else { continue };
            match Tail::open(&path, &self.config, out, false) {
                // If it began elsewhere it is another file.
                Ok(mut tail) if tail.lane == lane && tail.cutter.place().offset == saved.offset => {
                    tail.is_gone = true;
                    lanes.insert(tail.lane.to_string());
                    self.tails.push(tail);
                }
                Ok(_) => {}
                Err(error) => self.warn(path, &error),
            }
        }
        forget_missing(&lanes, found, out);
    }

    fn warn(&mut self, path: PathBuf, error: &std::io::Error) {
        if self.warned.insert(path.clone()) {
            tracing::warn!("{}; trying again", io_error("read", &path, error));
        }
    }

    /// Closes the handles of the files that have been quiet longest, if too many are open.
    fn close_quiet(&mut self) {
        let mut open: Vec<&mut Tail> =
            self.tails.iter_mut().filter(|tail| tail.is_open() && !tail.is_gone).collect();
        if open.len() > MAX_OPEN {
            open.sort_unstable_by_key(|tail| tail.active);
            let surplus = open.len() - MAX_OPEN;
            open.iter_mut().take(surplus).for_each(|tail| tail.close());
        }
    }

    /// Reads a piece of a followed file; says whether there may be more.
    async fn visit(&mut self, at: usize, out: &mut Outlet) -> Result<bool, Error> {
        let Some(tail) = self.tails.get_mut(at) else { return Ok(false) };
        let quiet = self.config.framing.quiet();
        if std::mem::take(&mut tail.begins_at_end) {
            // Remembered at once: a later run is to read what was written after this moment.
            let payload = arrow_array::BinaryViewArray::new_null(0);
            let mark = tail.marker().mark(tail.cutter.place());
            out.send(Reading { payload, path: Some(tail.shown.clone()), positions: None, mark }).await?;
        }
        match blocking(|| tail.has_news()) {
            Ok(true) => {}
            Ok(false) => {
                if !tail.carry.is_empty() && quiet.is_some_and(|quiet| tail.active.elapsed() >= quiet) {
                    send_carried(tail, After::Quiet, out).await?;
                    tail.active = Instant::now();
                }
                return Ok(false);
            }
            Err(error) => {
                tail.failure = Some(error);
                self.fail(at, out).await?;
                return Ok(false);
            }
        }
        let after = if tail.is_packed() { After::End } else { After::More };
        match self.reader.step(tail, after, out).await? {
            Step::More => {
                tail.has_warned = false;
                Ok(true)
            }
            Step::End => {
                tail.has_warned = false;
                tail.rest_until_changed();
                Ok(false)
            }
            Step::Failed => {
                self.fail(at, out).await?;
                Ok(false)
            }
            Step::Stopped => Ok(false),
        }
    }

    /// A followed file could not be read: says so once, and leaves it for later.
    async fn fail(&mut self, at: usize, out: &mut Outlet) -> Result<(), Error> {
        let Some(tail) = self.tails.get_mut(at) else { return Ok(()) };
        let damage = tail.damage();
        let error = match &damage {
            // It may still be being written.
            Some(damage) if damage.is_truncation() => {
                Error::temporary(format!("of `{}`, {damage}; waiting for more of it", tail.shown))
            }
            _ => match give_up(tail, out).await? {
                Some(error) => error,
                None => match &tail.failure {
                    Some(error) => io_error("read", &tail.path, error),
                    None => return Ok(()),
                },
            },
        };
        if !std::mem::replace(&mut tail.has_warned, true) {
            tracing::warn!("{}", error.full());
        }
        tail.failure = None;
        if damage.is_some() {
            tail.rest_until_changed();
        } else if let Err(error) = tail.recover() {
            tracing::debug!("cannot go back in `{}`: {error}", tail.shown);
        }
        Ok(())
    }

    /// Lets go of files that are gone and were read to their end, and forgets their lanes when all of it is
    /// safe.
    async fn let_go(&mut self, out: &mut Outlet) -> Result<(), Error> {
        let linger = self.config.poll_interval.duration() * LINGER;
        let mut at = 0;
        while let Some(tail) = self.tails.get_mut(at) {
            let is_done =
                tail.is_gone && tail.active.elapsed() >= linger && !tail.has_news().unwrap_or(false);
            if !is_done {
                at += 1;
                continue;
            }
            if tail.is_packed() {
                tail.carry.clear();
            } else {
                send_carried(tail, After::End, out).await?;
            }
            let what = if tail.is_deleted() { "deleted" } else { "renamed" };
            tracing::debug!("`{}` was {what} and is read to its end", tail.shown);
            self.finished.push((tail.lane.clone(), tail.cutter.place().offset));
            self.tails.remove(at);
        }
        // Forgotten any earlier, a lane would be remembered again by the batches still on their way.
        self.finished.retain(|(lane, end)| match Saved::of(out, lane) {
            Some(saved) if saved.offset >= *end => {
                out.forget(lane);
                false
            }
            Some(_) => true,
            None => false,
        });
        Ok(())
    }
}

/// Forgets the lanes of files that are no more: nothing is at their path while other files are in their
/// folder. That the whole folder is empty or away may be a disk that is not mounted.
fn forget_missing(lanes: &HashSet<String>, found: &[Found], out: &Outlet) {
    let folders: HashSet<_> = found.iter().filter_map(|found| found.path.parent()).collect();
    for lane in out.lanes().into_iter().filter(|lane| !lanes.contains(&**lane)) {
        let Some(saved) = Saved::of(out, &lane) else { continue };
        let path = Path::new(&saved.path);
        if path.parent().is_some_and(|folder| folders.contains(folder)) && !path.exists() {
            out.forget(&lane);
        }
    }
}

/// One error for all.
fn summary(failed: Vec<Error>) -> Result<(), Error> {
    /// More than that nobody reads.
    const SHOWN: usize = 5;
    let count = failed.len();
    if count <= 1 {
        return failed.into_iter().next().map_or(Ok(()), Err);
    }
    let shown: Vec<String> = failed.iter().take(SHOWN).map(Error::full).collect();
    let more = if count > SHOWN { format!("; and {} more", count - SHOWN) } else { String::new() };
    Err(Error::permanent(format!("{count} files were not read to their end: {}{more}", shown.join("; "))))
}

#[cfg(test)]
mod tests;
