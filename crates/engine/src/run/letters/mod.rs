//! The task that keeps what could not be processed and that no pipeline takes: the dead letters.
//!
//! It takes what is waiting and stores it in pages, each with one sync of the disk. A sync for each batch was
//! slower than what rejected them, so rejected batches filled the memory. A page is charged to the budget
//! while it is held.

mod made;
mod page;

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_config::counted;
use thalweg_record::{Batch, Budget, Outcome};
use thalweg_runtime::{Failpoint, Receiver, Stop, Taken, blocking};

use super::checkpoints::LazyStore;
use super::{Rehearsal, RunFailure};
use crate::metrics::ComponentMetrics;
use crate::parcel::{Files, Parcel};
use crate::store::{Added, DeadLetter};
use crate::{DeadLetterLimits, Error, WhenFull};
pub(super) use made::Before;
use page::{Group, Page};

/// At most this many messages become letters at once, and at most this many fields of them: a letter has the
/// name and the type of each of its fields.
const ROWS: usize = 1024;
const FIELDS: usize = 16 * ROWS;
/// How often a full task checks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a full task says that messages wait.
const REMIND_EVERY: Duration = Duration::from_secs(60);
/// How often dropped letters are reported.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Keeps dead letters.
pub(super) struct DeadLetters {
    pub(super) messages: Receiver<Batch>,
    pub(super) files: Receiver<Files>,
    pub(super) store: Arc<LazyStore>,
    pub(super) metrics: Arc<ComponentMetrics>,
    /// How many are kept.
    pub(super) limits: DeadLetterLimits,
    pub(super) before: Before,
    pub(super) budget: Budget,
    pub(super) stop: Stop,
    /// Receives the letters of a dry run, which keeps none.
    pub(super) rehearsal: Option<Arc<dyn Rehearsal>>,
}

/// Messages or files that were rejected together. It counts as moving until it is settled.
#[expect(clippy::large_enum_variant, reason = "nearly all are messages, and few exist at a time")]
enum Rejected {
    Messages(Taken<Batch>),
    Files(Taken<Files>),
}

impl Rejected {
    fn settle(self, metrics: &ComponentMetrics) {
        match self {
            Rejected::Messages(batch) => settle(batch.item, metrics),
            Rejected::Files(files) => settle(files.item, metrics),
        }
    }
}

fn settle<P: Parcel>(parcel: P, metrics: &ComponentMetrics) {
    metrics.add_in(parcel.items(), parcel.bytes());
    parcel.settle(Outcome::Rejected);
}

impl DeadLetters {
    pub(super) async fn run(self) -> Result<(), RunFailure> {
        if let Some(rehearsal) = &self.rehearsal {
            while let Some(rejected) = self.next().await {
                for letters in self.letters_of(&rejected) {
                    letters.iter().for_each(|letter| rehearsal.rejected(letter));
                }
                rejected.settle(&self.metrics);
            }
            return Ok(());
        }
        let mut keeper = Keeper { task: &self, page: Page::default(), drops: Drops::default() };
        while let Some(rejected) = self.next().await {
            keeper.add(rejected).await?;
            while let Some(rejected) = self.next_waiting() {
                keeper.add(rejected).await?;
            }
            keeper.store().await?;
        }
        keeper.drops.report();
        Ok(())
    }

    async fn next(&self) -> Option<Rejected> {
        tokio::select! {
            Some(batch) = self.messages.take() => Some(Rejected::Messages(batch)),
            Some(files) = self.files.take() => Some(Rejected::Files(files)),
            else => None,
        }
    }

    fn next_waiting(&self) -> Option<Rejected> {
        let batch = self.messages.try_take().map(Rejected::Messages);
        batch.or_else(|| self.files.try_take().map(Rejected::Files))
    }

    /// The letters of what was rejected together, in portions of limited size.
    fn letters_of<'r>(
        &'r self,
        rejected: &'r Rejected,
    ) -> Box<dyn Iterator<Item = Vec<DeadLetter>> + Send + 'r> {
        match rejected {
            Rejected::Messages(Taken { item: batch, .. }) => {
                let most = (FIELDS / batch.fields().num_columns().max(1)).clamp(1, ROWS);
                let starts = (0..batch.rows()).step_by(most);
                Box::new(starts.map(move |start| {
                    made::of_rows(batch, start..(start + most).min(batch.rows()), &self.before)
                }))
            }
            Rejected::Files(Taken { item: files, .. }) => {
                Box::new(files.iter().map(|file| vec![made::of_file(file, &self.before)]))
            }
        }
    }

    /// True if nothing can be rejected any more.
    fn has_ended(&self) -> bool {
        self.messages.is_ended() && self.files.is_ended()
    }
}

/// Stores letters in pages.
struct Keeper<'a> {
    task: &'a DeadLetters,
    page: Page,
    drops: Drops,
}

impl Keeper<'_> {
    /// Adds letters to the page, which is stored whenever it is full.
    async fn add(&mut self, rejected: Rejected) -> Result<(), RunFailure> {
        for letters in self.task.letters_of(&rejected) {
            self.add_letters(letters).await?;
        }
        if let Some(rejected) = self.page.end(rejected) {
            rejected.settle(&self.task.metrics);
        }
        Ok(())
    }

    async fn add_letters(&mut self, letters: Vec<DeadLetter>) -> Result<(), RunFailure> {
        self.page.add(letters, &self.task.budget);
        if self.page.is_full() { self.store().await } else { Ok(()) }
    }

    /// Stores the page and settles what has no other letters. If the page does not fit, stores its first
    /// groups that do.
    async fn store(&mut self) -> Result<(), RunFailure> {
        let start = Instant::now();
        let page = std::mem::take(&mut self.page);
        match self.write(page.letters())? {
            Added::Kept { .. } => page.groups.into_iter().for_each(|group| self.settle(group)),
            Added::Full => {
                for group in page.groups {
                    self.write_with_room(&group.letters).await?;
                    self.settle(group);
                }
            }
        }
        self.task.metrics.add_busy(start);
        Ok(())
    }

    /// Writes letters, all of them, as soon as they fit. If the run waits for room, they are written in
    /// parts: more letters than the store may have would wait for ever.
    async fn write_with_room(&mut self, mut letters: &[DeadLetter]) -> Result<(), RunFailure> {
        let may_divide = self.task.limits.when_full == WhenFull::Wait;
        let mut most = letters.len();
        while !letters.is_empty() {
            // Counted before the attempt, so that no removal is missed.
            let before = self.count()?;
            let (first, rest) = letters.split_at(most);
            if self.write(first.iter())? != Added::Full {
                letters = rest;
            } else if may_divide && most > 1 {
                most /= 2;
                continue;
            } else {
                self.removal(before).await?;
            }
            most = letters.len();
        }
        self.task.metrics.set_retrying(None);
        Ok(())
    }

    /// The number of letters in the store.
    fn count(&self) -> Result<u64, Error> {
        Ok(self.task.store.get()?.tally().count)
    }

    fn settle(&self, group: Group) {
        group.ends.into_iter().for_each(|rejected| rejected.settle(&self.task.metrics));
    }

    /// Writes letters, all or none.
    fn write<'l>(&mut self, letters: impl Iterator<Item = &'l DeadLetter>) -> Result<Added, Error> {
        let mut letters = letters.peekable();
        if letters.peek().is_none() {
            return Ok(Added::Kept { dropped: 0 });
        }
        let unwritable = |error| Error::permanent("dead letters cannot be written").caused_by(error);
        Failpoint::LettersBefore.check().map_err(unwritable)?;
        let added = blocking(|| self.task.store.get()?.add_letters(letters, &self.task.limits))?;
        Failpoint::LettersAfter.pass();
        if let Added::Kept { dropped } = added {
            self.task.metrics.add_errors(usize::try_from(dropped).unwrap_or(usize::MAX));
            self.drops.add(dropped);
        }
        Ok(added)
    }

    /// Waits, if the run should, until there are fewer letters than before.
    ///
    /// # Errors
    /// If the run should not wait, or is stopped.
    async fn removal(&self, before: u64) -> Result<(), RunFailure> {
        let task = self.task;
        let limits = task.limits;
        let text = format!(
            "the dead letters are full: {} or {} are the limit. Nothing is lost: what could not be kept is not \
             acknowledged. Look at them with `thalweg errors list`, and remove some with `thalweg errors clear`: a run \
             that waits goes on. Or process them with `thalweg errors replay` while no run is active; or raise \
             `dead_letters`",
            counted(limits.max_count, "letter"),
            limits.max_bytes,
        );
        if limits.when_full == WhenFull::Wait {
            task.metrics.set_retrying(Some(text.clone()));
            let mut said: Option<Instant> = None;
            loop {
                if said.is_none_or(|said| said.elapsed() >= REMIND_EVERY) {
                    tracing::warn!(
                        "{text}. Messages that cannot be processed wait, until there is room or the run is stopped"
                    );
                    said = Some(Instant::now());
                }
                if self.count()? < before {
                    return Ok(());
                }
                // Without an input, nothing is left that a stop could end.
                if task.has_ended() || task.stop.sleep(LOOK_EVERY).await {
                    break;
                }
            }
        }
        Err(Error::permanent(text).into())
    }
}

/// The letters that were dropped since the last report.
#[derive(Default)]
struct Drops {
    count: u64,
    reported: Option<Instant>,
}

impl Drops {
    fn add(&mut self, count: u64) {
        self.count += count;
        if self.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
            self.report();
        }
    }

    fn report(&mut self) {
        if self.count > 0 {
            let dropped = counted(std::mem::take(&mut self.count), "dead letter");
            tracing::warn!(
                "{dropped} dropped, the oldest first: there are more than `dead_letters` allows. \
                 `when_full: wait` or `error` would drop none"
            );
            self.reported = Some(Instant::now());
        }
    }
}
