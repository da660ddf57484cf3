//! Writes messages into objects whose names depend on the messages.
//!
//! Each name has a [writer](Messages) of its own while its object is open. The number of writers and their
//! memory are bounded: the object that got no message for longest is finished, and later messages of its name
//! go to an object with the next number.
//!
//! A batch has messages of several names, so a checkpoint must cover all objects or none of a batch. If
//! checkpoints are kept, batches count as durable only at a *cut*: a moment at which the messages of all
//! batches so far are in full objects or in the saved state. An object that can be continued is in the saved
//! state, so every checkpoint is a cut, and each name begins its next object by itself. A table cannot be
//! continued: as soon as one table is full, all are finished, which makes a cut. (Rejected: making full
//! tables visible one by one. After a kill, the messages of a batch that another table lacks come again, and
//! would be twice in the visible one. Rejected as well: holding back only the full ones until the last of the
//! others is full. A name with few messages would hold back all.)
//!
//! See docs/decisions/077-objects-appear-when-a-checkpoint-covers-them.md.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Error, Rejects, Sink, WriteOutcome};
use thalweg_record::{Ack, Batch};
use thalweg_runtime::blocking;
use thalweg_store::Begun;
use xxhash_rust::xxh3::xxh3_128;

use super::messages::{Messages, OTHER_OPTIONS, OTHER_SINK, Saved, unusable};
use super::name::{Named, ObjectPaths};
use super::places::Places;
use super::sealed::{Seals, Step, close_last};
use super::tail::forget_tails;

/// Writes messages into objects whose names depend on the messages.
pub(super) struct ByName {
    naming: ObjectPaths,
    /// Checks the places of new objects, if the store is a folder of this machine.
    places: Option<Places>,
    /// The model of all writers. It has no messages.
    model: Messages,
    writers: HashMap<String, Writer>,
    /// The maximum number of writers.
    most: usize,
    /// Numbers the objects of all names.
    ids: Arc<AtomicU64>,
    /// The numbers of the next objects of names without a writer, by their hashes. If checkpoints are kept,
    /// only of those that the journal does not have yet. Otherwise at most 80 bytes for each name of the run.
    /// (Rejected: a maximum. The first object of a forgotten name would be replaced.)
    numbers: HashMap<u128, u64>,
    /// Counts the batches, to tell which writer was used last.
    batches: u64,
    /// A batch that an error interrupted. The engine passes the same batch again.
    interrupted: Option<Division>,
    /// True if only some messages of a batch are written. Then there is no cut.
    is_within_batch: bool,
    /// True if an object was finished since the last cut. The next flush makes one: a client that waits for
    /// its answer may be the only one whose messages would lead to another.
    is_cut_due: bool,
    owed: Owed,
    /// The number of batches that became durable since the engine last asked.
    take_committed: usize,
    /// The steps that wait for a checkpoint. The first `covered` ones wait for one with the state of the last
    /// cut.
    steps: VecDeque<Step>,
    covered: usize,
    /// The state of the last cut.
    cut: SavedNames,
    is_finished: bool,
}

/// The writer of one name.
struct Writer {
    messages: Messages,
    /// The number of the last batch with a message for it.
    used: u64,
    /// The numbers of the batches in its object, if no checkpoints are kept.
    batches: VecDeque<u64>,
}

/// Batches that are not durable.
enum Owed {
    /// Batches become durable at a cut. Their number.
    AtCut(usize),
    /// No checkpoints are kept: a batch is durable when all objects with its messages are complete. The
    /// batches from the number `first` on.
    Each { first: u64, batches: VecDeque<OwedBatch> },
}

/// A batch that is not durable, where no checkpoints are kept.
struct OwedBatch {
    /// The number of objects with its messages that are not complete.
    objects: usize,
    /// False if the batch took another route: the engine does not wait for it.
    is_kept: bool,
}

/// A batch that is being written.
struct Division {
    /// The messages of each name that are not written yet.
    rest: VecDeque<Named>,
    rejected: Vec<(u32, String)>,
}

/// The saved state for a later run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SavedNames {
    /// The unfinished objects, by their names.
    names: Vec<(String, Saved)>,
    /// The id after those of all objects.
    next: u64,
    /// True if the input had ended, and all objects were full.
    is_finished: bool,
}

impl SavedNames {
    /// True if the state covers all messages of a sealed object: the object was full before.
    fn covers(&self, id: u64) -> bool {
        id < self.next && self.names.iter().all(|(_, saved)| saved.id != Some(id))
    }
}

impl ByName {
    pub(super) fn new(naming: ObjectPaths, model: Messages, most: usize) -> Self {
        let owed = match model.journal {
            Some(_) => Owed::AtCut(0),
            None => Owed::Each { first: 0, batches: VecDeque::new() },
        };
        Self {
            places: model.target.store.is_here().then(|| Places::below(naming.root())),
            naming,
            model,
            writers: HashMap::new(),
            most: most.max(1),
            ids: Arc::default(),
            numbers: HashMap::new(),
            batches: 0,
            interrupted: None,
            is_within_batch: false,
            is_cut_due: false,
            owed,
            take_committed: 0,
            steps: VecDeque::new(),
            covered: 0,
            cut: SavedNames::default(),
            is_finished: false,
        }
    }

    /// True if all objects are finished together: checkpoints are kept, and no unfinished object can be
    /// continued.
    fn finishes_together(&self) -> bool {
        self.model.journal.is_some() && !self.model.resumes
    }

    /// Returns the next number of a name without a writer.
    fn next_number(&self, name: &str) -> Result<u64, Error> {
        match (self.numbers.get(&xxh3_128(name.as_bytes())), &self.model.journal) {
            (Some(number), _) => Ok(*number),
            (None, Some(journal)) => Seals { target: &self.model.target, journal }.next_number(name),
            (None, None) => Ok(1),
        }
    }

    /// Writes the rest of a batch.
    async fn write_rest(&mut self, batch: &Batch, division: &mut Division) -> Result<(), Error> {
        if !self.is_within_batch {
            for named in &division.rest {
                if self.writers.get(&named.path).is_some_and(|writer| writer.messages.is_full()) {
                    self.complete(&named.path).await?;
                }
            }
        }
        while let Some(named) = division.rest.front() {
            let rejected = self.write_named(batch, named).await?;
            division.rejected.extend(rejected);
            division.rest.pop_front();
        }
        Ok(())
    }

    /// Writes the messages of one name. Returns the rejected ones.
    async fn write_named(&mut self, batch: &Batch, named: &Named) -> Result<Vec<(u32, String)>, Error> {
        let whole = batch.with_ack(Ack::noop());
        let part = if named.rows.len() == batch.rows() { Some(whole) } else { whole.select(&named.rows)? };
        let Some(part) = part else { return Ok(Vec::new()) };
        if let Some(reason) = self.refused(&named.path)? {
            return Ok(named.rows.iter().map(|row| (*row, reason.clone())).collect());
        }
        self.make_room(&named.path).await?;
        let mut rejects = Rejects::default();
        let number = self.batches;
        let writer = self.writer(&named.path)?;
        writer.messages.write(&part, &mut rejects).await?;
        writer.used = number;
        writer.batches.push_back(number);
        self.is_within_batch = true;
        if let Owed::Each { batches, .. } = &mut self.owed
            && let Some(owed) = batches.back_mut()
        {
            owed.objects += 1;
        }
        self.collect(&named.path);
        let row = |(row, reason): (u32, String)| Some((*named.rows.get(row as usize)?, reason));
        Ok(rejects.take().into_iter().filter_map(row).collect())
    }

    /// Prepares the place of a name without a writer. Returns the reason if its objects cannot be written.
    fn refused(&self, name: &str) -> Result<Option<String>, Error> {
        let Some(places) = self.places.as_ref().filter(|_| !self.writers.contains_key(name)) else {
            return Ok(None);
        };
        let path = self.model.path_of(name, self.next_number(name)?);
        let is_at = |name: &String, path: &str| {
            self.writers.get(name).is_some_and(|writer| writer.messages.present_path() == path)
        };
        let is_due = |path: &str| self.naming.names_of(path).iter().any(|name| is_at(name, path));
        Ok(blocking(|| places.prepare(&path, is_due)).err())
    }

    /// Returns the writer of a name.
    fn writer(&mut self, name: &str) -> Result<&mut Writer, Error> {
        if !self.writers.contains_key(name) {
            let messages = self.model.of_name(name.to_owned(), self.next_number(name)?, &self.ids);
            let writer = Writer { messages, used: self.batches, batches: VecDeque::new() };
            self.writers.insert(name.to_owned(), writer);
        }
        let missing = || Error::permanent("an object of the sink `objects` is missing from its table");
        self.writers.get_mut(name).ok_or_else(missing)
    }

    /// Takes what a writer did: its steps, and the batches that became durable.
    fn collect(&mut self, name: &str) {
        let Some(writer) = self.writers.get_mut(name) else { return };
        for step in writer.messages.take_steps() {
            if let (Some(places), Step::Complete { path, .. }) = (&mut self.places, &step) {
                places.seal(path);
            }
            self.steps.push_back(step);
            close_last(&mut self.steps);
        }
        let durable = writer.messages.take_committed();
        let Owed::Each { first, batches } = &mut self.owed else {
            writer.batches.clear();
            return;
        };
        for number in writer.batches.drain(..durable.min(writer.batches.len())) {
            let place = number.checked_sub(*first).and_then(|place| usize::try_from(place).ok());
            if let Some(batch) = place.and_then(|place| batches.get_mut(place)) {
                batch.objects = batch.objects.saturating_sub(1);
            }
        }
        self.take_durable();
    }

    /// Takes the first whole batches of which all objects are complete.
    fn take_durable(&mut self) {
        let Owed::Each { first, batches } = &mut self.owed else { return };
        while *first < self.batches
            && let Some(batch) = batches.pop_front_if(|batch| batch.objects == 0)
        {
            *first += 1;
            self.take_committed += usize::from(batch.is_kept);
        }
    }

    /// Finishes objects for which there is no place or memory beside one of this name.
    async fn make_room(&mut self, name: &str) -> Result<(), Error> {
        if !self.writers.contains_key(name) && self.writers.len() >= self.most {
            self.complete_oldest().await?;
        }
        while self.memory() >= self.most_memory() && self.release().await? {}
        Ok(())
    }

    /// Returns the memory of all objects, in bytes.
    fn memory(&self) -> usize {
        self.writers.values().map(|writer| writer.messages.memory()).sum()
    }

    /// Returns the memory in bytes that all objects together may take. The sources need the rest.
    fn most_memory(&self) -> usize {
        self.model.budget.limit() / 4
    }

    /// Releases memory: sends what is collected for the largest object, or finishes the one that got no
    /// message for longest. Returns false if there is none.
    async fn release(&mut self) -> Result<bool, Error> {
        let before = self.memory();
        if self.send_largest().await? && self.memory() < before {
            return Ok(true);
        }
        let has_any = !self.writers.is_empty();
        self.complete_oldest().await?;
        Ok(has_any)
    }

    /// Sends what is collected for the largest object of which something can be sent. Returns false if there
    /// is none.
    async fn send_largest(&mut self) -> Result<bool, Error> {
        let sendable = self.writers.iter().filter(|(_, writer)| writer.messages.can_make_way());
        let largest = sendable.max_by_key(|(_, writer)| writer.messages.memory());
        let Some(name) = largest.map(|(name, _)| name.clone()) else { return Ok(false) };
        if let Some(writer) = self.writers.get_mut(&name) {
            writer.messages.make_way().await?;
            writer.messages.settle_parts().await?;
        }
        self.collect(&name);
        Ok(true)
    }

    /// Finishes the object that got no message for longest, and drops its writer.
    async fn complete_oldest(&mut self) -> Result<(), Error> {
        let oldest = self.writers.iter().min_by_key(|(_, writer)| writer.used).map(|(name, _)| name.clone());
        match oldest {
            Some(name) => self.complete(&name).await,
            None => Ok(()),
        }
    }

    /// Finishes an object, or all of them if they are finished together.
    async fn complete(&mut self, name: &str) -> Result<(), Error> {
        match self.finishes_together() {
            true => self.complete_all().await,
            false => self.complete_one(name).await,
        }
    }

    /// Finishes an object, if it has messages, and drops its writer.
    async fn complete_one(&mut self, name: &str) -> Result<(), Error> {
        let Some(writer) = self.writers.get_mut(name) else { return Ok(()) };
        let has_messages = writer.messages.has_messages();
        if has_messages {
            writer.messages.complete().await?;
            self.is_cut_due = matches!(self.owed, Owed::AtCut(_));
            self.collect(name);
        }
        let Some(number) = self.writers.get(name).map(|writer| writer.messages.number()) else {
            return Ok(());
        };
        // A name whose messages were all rejected has the number that it had before.
        if has_messages || self.next_number(name)? != number {
            self.numbers.insert(xxh3_128(name.as_bytes()), number);
        }
        self.writers.remove(name);
        Ok(())
    }

    /// Finishes all objects. Then all batches are durable, except one of which only a part is written.
    async fn complete_all(&mut self) -> Result<(), Error> {
        for name in self.names() {
            self.complete_one(&name).await?;
        }
        self.end_at_cut();
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.writers.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Notes that the messages of all batches so far are durable. Of a batch that is being written, some may
    /// be in full objects already: then this is no cut.
    fn end_at_cut(&mut self) {
        let Owed::AtCut(owed) = &mut self.owed else { return };
        if self.is_within_batch {
            return;
        }
        self.is_cut_due = false;
        self.take_committed += std::mem::take(owed);
        let unfinished = self.writers.iter().map(|(name, writer)| (name.clone(), writer.messages.saved()));
        self.cut = SavedNames {
            names: unfinished.collect(),
            next: self.ids.load(Relaxed),
            is_finished: self.is_finished,
        };
        self.covered = self.steps.len();
    }

    /// Puts all messages where a later run finds them.
    async fn keep_all(&mut self) -> Result<(), Error> {
        let Some(journal) = self.model.journal.clone().filter(|_| self.model.resumes) else { return Ok(()) };
        for name in self.names() {
            if let Some(writer) = self.writers.get_mut(&name) {
                writer.messages.keep(&journal).await?;
            }
            self.collect(&name);
        }
        self.end_at_cut();
        Ok(())
    }

    /// Takes results of requests, and finishes the objects that are old.
    async fn settle(&mut self) -> Result<(), Error> {
        self.model.target.check_present()?;
        for name in self.names() {
            let Some(writer) = self.writers.get_mut(&name) else { continue };
            writer.messages.catch_up()?;
            let is_old = writer.messages.is_old();
            self.collect(&name);
            if is_old {
                self.complete(&name).await?;
            }
        }
        match self.is_cut_due && !self.is_within_batch {
            true if self.model.resumes => self.keep_all().await,
            true => self.complete_all().await,
            false => Ok(()),
        }
    }

    /// True if a source waits for memory, and the objects hold much of it that can be released. (Rejected: to
    /// finish objects then. A fast source often waits, and all objects would be small.)
    fn is_in_the_way(&self) -> bool {
        self.model.budget.is_short()
            && self.memory() >= self.most_memory() / 2
            && self.writers.values().any(|writer| writer.messages.can_make_way())
    }

    /// Finishes what earlier runs sealed, and removes what they began after their last checkpoint. Returns
    /// the ids of the finished objects.
    async fn clean_up(&mut self, saved: &SavedNames) -> Result<Vec<u64>, Error> {
        let Some(journal) = self.model.journal.clone() else { return Ok(Vec::new()) };
        let seals = Seals { target: &self.model.target, journal: &journal };
        let (rewrites, resumes) = (self.model.rewrites, self.model.resumes);
        let completed = seals.resume(|id| !rewrites || saved.covers(id)).await?;
        let continued = || {
            let resumed = saved.names.iter().map(|(_, saved)| saved).filter(|_| resumes);
            resumed.filter_map(|saved| Some((saved.id?, saved))).filter(|(id, _)| !completed.contains(id))
        };
        let ids: HashSet<u64> = continued().map(|(id, _)| id).collect();
        seals.forget_begun(|id| ids.contains(&id))?;
        let begun: Vec<&Begun> = continued().filter_map(|(_, saved)| saved.begun.as_ref()).collect();
        self.model.discard_unsaved(&begun).await?;
        forget_tails(&journal, continued().filter_map(|(id, saved)| Some((id, saved.tail?))))?;
        Ok(completed)
    }
}

#[async_trait]
impl Sink for ByName {
    async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        self.model.spares_former &= saved.is_none();
        let saved: SavedNames = match saved {
            Some(saved) => serde_json::from_value(saved).map_err(|_| unusable(OTHER_SINK))?,
            None => SavedNames::default(),
        };
        if !self.model.resumes && saved.names.iter().any(|(_, saved)| saved.has_messages()) {
            return Err(unusable(OTHER_OPTIONS));
        }
        let completed = self.clean_up(&saved).await?;
        let next = completed.last().map_or(0, |last| last + 1).max(saved.next);
        self.ids = Arc::new(AtomicU64::new(next));
        self.writers.clear();
        for (name, saved) in saved.names {
            if saved.id.is_none_or(|id| completed.contains(&id)) {
                continue;
            }
            let mut messages = self.model.of_name(name.clone(), saved.number, &self.ids);
            messages.resume(saved).await?;
            self.writers.insert(name, Writer { messages, used: 0, batches: VecDeque::new() });
        }
        self.end_at_cut();
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.model.target.check_present()?;
        let mut division = match self.interrupted.take() {
            Some(division) => division,
            None => {
                if let Owed::Each { batches, .. } = &mut self.owed {
                    batches.push_back(OwedBatch { objects: 0, is_kept: true });
                }
                let (named, rejected) = self.naming.group(batch);
                Division { rest: named.into(), rejected }
            }
        };
        if let Err(error) = self.write_rest(batch, &mut division).await {
            self.interrupted = Some(division);
            return Err(error);
        }
        self.is_within_batch = false;
        self.batches += 1;
        match &mut self.owed {
            Owed::AtCut(owed) => *owed += 1,
            Owed::Each { .. } => self.take_durable(),
        }
        division.rejected.sort_unstable_by_key(|(row, _)| *row);
        division.rejected.into_iter().for_each(|(row, reason)| rejects.reject(row, reason));
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.settle().await?;
        while self.is_in_the_way() && self.send_largest().await? {}
        Ok(())
    }

    async fn pre_commit(&mut self) -> Result<(), Error> {
        self.flush().await?;
        self.keep_all().await
    }

    async fn make_durable(&mut self) -> Result<(), Error> {
        self.model.target.check_present()?;
        match self.finishes_together() {
            true => self.complete_all().await,
            false => Ok(()),
        }
    }

    fn uncommitted(&self) -> usize {
        self.covered
    }

    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        let Some(journal) = self.model.journal.clone() else { return Ok(()) };
        for _ in 0..count.min(self.covered) {
            let Some(step) = self.steps.front() else { break };
            let seals = Seals { target: &self.model.target, journal: &journal };
            if let Some((name, next)) = seals.take(step).await? {
                let hash = xxh3_128(name.as_bytes());
                if self.numbers.get(&hash) == Some(&next) {
                    self.numbers.remove(&hash);
                }
            }
            if let (Some(places), Step::Complete { path, .. }) = (&mut self.places, step) {
                places.complete(path);
            }
            self.steps.pop_front();
            self.covered -= 1;
        }
        Ok(())
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.take_committed)
    }

    fn is_due(&self) -> bool {
        self.is_cut_due
            || self.is_in_the_way()
            || self.writers.values().any(|writer| writer.messages.is_old())
    }

    /// The messages of the batch that are written stay.
    fn drop_batch(&mut self) {
        if self.interrupted.take().is_none() {
            return;
        }
        self.is_within_batch = false;
        self.batches += 1;
        if let Owed::Each { batches, .. } = &mut self.owed
            && let Some(batch) = batches.back_mut()
        {
            batch.is_kept = false;
        }
        self.take_durable();
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        match self.model.rotate.is_some() {
            true => self.complete_all().await,
            false => self.flush().await,
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.model.target.check_present()?;
        self.is_finished = true;
        self.complete_all().await
    }

    async fn suspend(&mut self) -> Result<(), Error> {
        self.model.target.check_present()?;
        match self.model.resumes && self.model.rotate.is_none() {
            true => self.keep_all().await,
            false => self.complete_all().await,
        }
    }

    fn state(&self) -> Option<Value> {
        serde_json::to_value(&self.cut).ok()
    }
}

#[cfg(all(test, feature = "parquet"))]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringViewArray};
    use arrow_schema::{DataType, Field};
    use thalweg_engine::testing::{batch, context, options};
    use thalweg_engine::{Context, Journal, Rejects, Sink, Store};
    use thalweg_record::{Batch, Budget};

    use super::super::ObjectsSink;
    use super::super::messages::Messages;
    use super::ByName;

    /// Returns a message whose fields are too many for a table.
    fn too_wide(name: usize) -> Batch {
        let fields = (0..300).map(|column| {
            let values: ArrayRef = Arc::new(StringViewArray::from(vec![name.to_string()]));
            (Field::new(format!("c{column}"), DataType::Utf8View, true), values)
        });
        batch(["x"]).set_fields(fields).expect("the fields have one row")
    }

    #[tokio::test]
    async fn a_name_whose_messages_were_all_rejected_is_forgotten() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().display();
        let config: ObjectsSink =
            options(&format!("{{ url: '{path}/', name: '{{c0}}.parquet', encode: parquet }}"));
        let budget = Budget::new(16 << 20);
        for has_state in [false, true] {
            let journal = Journal::new(Arc::new(Store::open(state.path()).unwrap()), "out");
            let journal = Some(journal).filter(|_| has_state);
            let context =
                Context { memory: budget.share(), resumes: has_state, resends: true, journal, ..context() };
            let naming = config.paths().unwrap();
            let messages =
                Messages::new(&config, naming.numbers(), config.target(&context).unwrap(), &context);
            let mut sink = ByName::new(naming, messages, 2);
            sink.open(None).await.unwrap();
            let mut rejects = Rejects::default();
            for name in 0..5 {
                sink.write(&too_wide(name), &mut rejects).await.unwrap();
            }
            sink.finish().await.unwrap();
            assert_eq!((rejects.take().len(), sink.numbers.len()), (5, 0), "{has_state}");
        }
    }
}
