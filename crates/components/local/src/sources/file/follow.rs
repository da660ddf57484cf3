//! Reads files as they are written.

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thalweg_beneath::{Beneath, Links};
use thalweg_config::TimeSpan;
use thalweg_engine::{Error, Reading, SourceOutput};
use thalweg_runtime::blocking;

use super::find::{Found, Identity, find_in_folder, unreadable};
use super::read::{Step, reject_damaged, send_carried};
use super::saved::Saved;
use super::tail::Tail;
use super::{Files, forget_missing};
use thalweg_codec::framing::After;
use thalweg_stream::io_error::io_error;

/// The maximum number of files that are open while following. If more have something to be read, those that
/// are read to their end are closed.
const MAX_OPEN: usize = 512;

/// The pause before the next search while files wait to be opened.
const CROWDED: Duration = Duration::from_millis(10);

/// The number of polls for which a deleted file must be quiet before it is dropped.
const LINGER: u32 = 20;

/// The number of renamed files that are kept for `rotate_timeout`. Each has an open handle.
const RENAMED: usize = 64;

/// The shortest time between two requests for a checkpoint.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Files {
    /// Reads all present and future files until the run is stopped.
    pub(super) async fn follow(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let interval = self.config.poll_interval.duration();
        loop {
            let scan = self.config.scan_interval.map_or(interval, TimeSpan::duration);
            if self.looked.is_none_or(|last| last.elapsed() >= scan) {
                self.looked = Some(Instant::now());
                self.look(out)?;
            }
            // Not from the search, which may take longer than the interval.
            let begun = Instant::now();
            let mut is_busy = true;
            while is_busy && begun.elapsed() < interval {
                is_busy = false;
                for at in 0..self.tails.len() {
                    if out.is_stopping() {
                        return Ok(());
                    }
                    is_busy |= self.visit(at, out).await?;
                }
            }
            self.let_go(out).await?;
            if !is_busy {
                self.ask_for_save(out);
            }
            let pause = if self.is_crowded { CROWDED } else { interval };
            if self.is_crowded {
                self.looked = None;
            }
            if out.is_stopping() || (!is_busy && out.sleep(pause).await) {
                return Ok(());
            }
        }
    }

    /// Searches for files.
    fn look(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut findings = blocking(|| self.finder.find());
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.warn_of_skipped(&mut findings, out.name());
        for (path, error) in findings.failed {
            match error.kind() {
                ErrorKind::NotFound => {}
                ErrorKind::IsADirectory | ErrorKind::InvalidInput => return Err(unreadable(&path, &error)),
                _ => self.warn(path, &error),
            }
        }
        let mut known: HashMap<Identity, usize> =
            self.tails.iter().enumerate().map(|(at, tail)| (tail.identity(), at)).collect();
        let mut open = self.make_room();
        self.is_crowded = false;
        for found in &findings.files {
            match known.remove(&found.identity) {
                Some(at) => self.refresh(at, found, &mut open),
                None if found.is_old => {}
                None => self.open_new(found, is_first, &mut open, out),
            }
        }
        known.into_values().for_each(|at| self.note_gone(at));
        if is_first {
            self.find_renamed(&findings.files, out);
        }
        Ok(())
    }

    /// Updates a followed file that was found again. `open` is the number of open files.
    fn refresh(&mut self, at: usize, found: &Found, open: &mut usize) {
        let Some(tail) = self.tails.get_mut(at) else { return };
        tail.rename(&found.path);
        tail.beneath = found.beneath.clone();
        tail.is_gone = false;
        if tail.is_open() {
            return;
        }
        if *open >= MAX_OPEN {
            self.is_crowded |= tail.is_behind(found.size);
            return;
        }
        match blocking(|| tail.reopen(found.size)) {
            Ok(()) => {
                *open += usize::from(tail.is_open());
                self.warned.remove(&found.path);
            }
            Err(error) => self.warn(found.path.clone(), &error),
        }
    }

    /// Opens a new file. `open` is the number of open files.
    fn open_new(&mut self, found: &Found, is_first: bool, open: &mut usize, out: &SourceOutput) {
        match blocking(|| {
            let sequences = self.sequences.as_ref();
            Tail::open(&found.path, &found.beneath, &self.config, sequences, out, is_first)
        }) {
            Ok(mut tail) => {
                self.warned.remove(&found.path);
                self.finished.retain(|(partition, _)| *partition != tail.partition);
                if *open >= MAX_OPEN {
                    tail.close();
                    self.is_crowded = true;
                }
                *open += usize::from(tail.is_open());
                self.tails.push(tail);
            }
            // The file was removed during the search.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => self.warn(found.path.clone(), &error),
        }
    }

    /// Notes that a followed file was not found. It may have a new name in its folder.
    fn note_gone(&mut self, at: usize) {
        let Some(tail) = self.tails.get_mut(at) else { return };
        if !std::mem::replace(&mut tail.is_gone, true) {
            tail.active = Instant::now();
        }
        if !tail.is_open()
            && let Some(path) = tail.path.parent().and_then(|folder| find_in_folder(folder, tail.identity()))
        {
            tail.rename(&path);
            // An error means that the file was removed again; nothing can be done then.
            let _ = tail.reopen(u64::MAX);
        }
    }

    /// Reads files to their end that were renamed between the runs, so that no pattern matches them any more.
    fn find_renamed(&mut self, found: &[Found], out: &SourceOutput) {
        let mut partitions: HashSet<String> = found.iter().map(|found| found.identity.partition()).collect();
        for partition in out.partitions() {
            let Some((identity, saved)) = Identity::of_partition(&partition).zip(Saved::of(out, &partition))
            else {
                continue;
            };
            let folder = Path::new(&saved.path).parent().map(Path::to_owned).unwrap_or_default();
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            if partitions.contains(&*partition) {
                continue;
            }
            let Some(path) = find_in_folder(&folder, identity) else { continue };
            let beneath = Beneath::new(folder, Links::Refused);
            match Tail::open(&path, &beneath, &self.config, self.sequences.as_ref(), out, false) {
                // With another position it is another file.
                Ok(mut tail)
                    if tail.partition == partition && tail.cutter.position().offset == saved.offset =>
                {
                    tail.is_gone = true;
                    partitions.insert(tail.partition.to_string());
                    self.tails.push(tail);
                }
                Ok(_) => {}
                Err(error) => self.warn(path, &error),
            }
        }
        forget_missing(&partitions, found, self.sequences.as_mut(), out);
    }

    fn warn(&mut self, path: PathBuf, error: &std::io::Error) {
        if self.warned.insert(path.clone()) {
            tracing::warn!("{}; trying again", io_error("read", &path, error));
        }
    }

    /// Asks for a checkpoint if something was read that none covers: a file may be deleted as soon as it was
    /// read, and a run that is killed before the checkpoint could not read it again.
    fn ask_for_save(&mut self, out: &SourceOutput) {
        let mut is_urgent = false;
        let mut is_unsaved = false;
        for tail in self.tails.iter_mut().filter(|tail| tail.is_unsaved) {
            let end = tail.cutter.position().offset;
            let committed = Saved::committed(out, &tail.partition).map_or(0, |saved| saved.offset);
            tail.is_unsaved = committed < end;
            is_unsaved |= tail.is_unsaved;
            is_urgent |= tail.is_unsaved && tail.is_gone;
        }
        let may_ask = self.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        if is_urgent || is_unsaved && may_ask {
            self.asked = Some(Instant::now());
            out.save_soon();
        }
    }

    /// Closes files if as many are open as may be: half of those that are read to their end and were quiet
    /// for longest, or else some others. Returns the number of open files.
    fn make_room(&mut self) -> usize {
        let open = self.tails.iter().filter(|tail| tail.is_open()).count();
        if open < MAX_OPEN {
            return open;
        }
        let mut may_close: Vec<&mut Tail> =
            self.tails.iter_mut().filter(|tail| tail.is_open() && !tail.is_gone).collect();
        may_close.sort_by_cached_key(|tail| (tail.expected() > 0, tail.active));
        let read = may_close.iter().filter(|tail| tail.expected() == 0).count();
        let most = open - MAX_OPEN / 2;
        let count = most.min(read.max(MAX_OPEN / 8));
        may_close.iter_mut().take(count).for_each(|tail| tail.close());
        self.tails.iter().filter(|tail| tail.is_open()).count()
    }

    /// Reads a piece of a followed file. Returns true if there may be more.
    async fn visit(&mut self, at: usize, out: &mut SourceOutput) -> Result<bool, Error> {
        let Some(tail) = self.tails.get_mut(at) else { return Ok(false) };
        let quiet = self.config.cut.framing.quiet();
        if std::mem::take(&mut tail.begins_at_end) {
            // The position is saved at once: a later run must read the data written after this moment.
            let payload = arrow_array::BinaryViewArray::new_null(0);
            let checkpoint = tail.checkpoints().checkpoint(tail.cutter.position());
            out.send(Reading { payload, path: Some(tail.shown.clone()), positions: None, checkpoint })
                .await?;
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
        self.note_sequences(at, out)?;
        let Some(tail) = self.tails.get_mut(at) else { return Ok(false) };
        if tail.failure.is_some() {
            self.fail(at, out).await?;
            return Ok(false);
        }
        let after = if tail.is_packed() { After::End } else { After::More };
        match self.reader.step(tail, after, out).await? {
            Step::More => {
                tail.has_warned = false;
                tail.is_unsaved = true;
                Ok(true)
            }
            Step::End => {
                tail.has_warned = false;
                tail.is_unsaved = true;
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

    /// Notes what the sequence of a file was begun for, before a message of it is sent, and those of all
    /// other files with something to read: many new files cost one write. The file has a failure if it cannot
    /// be read.
    fn note_sequences(&mut self, at: usize, out: &SourceOutput) -> Result<(), Error> {
        let Some(sequences) = &mut self.sequences else { return Ok(()) };
        if !sequences.is_due() && !self.tails.get(at).is_some_and(Tail::is_unnoted) {
            return Ok(());
        }
        blocking(|| {
            for (number, tail) in self.tails.iter_mut().enumerate().filter(|(_, tail)| tail.is_unnoted()) {
                if number == at {
                    tail.failure = sequences.note(tail, out).err();
                } else if tail.expected() > 0 {
                    // An error is that of the file when its turn comes.
                    let _ = sequences.note(tail, out);
                }
            }
            sequences.write(out)
        })
    }

    /// Reports once that a followed file could not be read, and leaves it for later.
    async fn fail(&mut self, at: usize, out: &mut SourceOutput) -> Result<(), Error> {
        let Some(tail) = self.tails.get_mut(at) else { return Ok(()) };
        let damage = tail.damage();
        let error = match &damage {
            // The file may still be growing.
            Some(damage) if damage.is_truncation() => Error::temporary(format!(
                "the end of `{}` is missing: {damage}; waiting for more data",
                tail.shown
            )),
            _ => match reject_damaged(tail, out).await? {
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

    /// Drops files that are gone and read to their end. Deletes their checkpoints when all their messages are
    /// committed.
    async fn let_go(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let linger = self.config.poll_interval.duration() * LINGER;
        let mut renamed: Vec<Instant> = self
            .tails
            .iter()
            .filter(|tail| tail.is_gone && !tail.is_deleted())
            .map(|tail| tail.active)
            .collect();
        renamed.sort_unstable();
        let surplus = renamed.len().saturating_sub(RENAMED);
        let kept_since = renamed.get(surplus).copied();
        let mut at = 0;
        while let Some(tail) = self.tails.get_mut(at) {
            let is_kept = kept_since.is_some_and(|since| tail.active >= since) && !tail.is_deleted();
            let linger = if is_kept { self.config.rotate_timeout.duration() } else { linger };
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
            self.finished.push((tail.partition.clone(), tail.cutter.position().offset));
            self.tails.remove(at);
        }
        // If a checkpoint were deleted earlier, batches in flight would create it again.
        self.finished.retain(|(partition, end)| {
            match Saved::of(out, partition) {
                Some(saved) if saved.offset < *end => return true,
                Some(_) => out.forget(partition),
                // Nothing of it became a message.
                None => {}
            }
            if let Some(sequences) = &mut self.sequences {
                sequences.forget_gone(|gone, _| *gone == **partition);
            }
            false
        });
        Ok(())
    }
}
