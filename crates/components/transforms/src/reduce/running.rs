//! The transform as it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow_array::{Array, BooleanArray};
use hashbrown::HashMap;
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_expression::Evaluator;
use thalweg_record::{Batch, Outcome, is_record};

use super::Options;
use super::group::{Group, Message, Read, batches};
use super::merge::Strategy;
use crate::kept::Kept;
use crate::open::{Acks, KeptOpen, no_ack};
use crate::saved::unneeded;
use crate::scalar::Column;

/// The memory of an ack that waits, in bytes.
const ACK: usize = 128;

/// A span after which no group ends.
pub(super) const NEVER: i64 = i64::MAX;

pub(super) struct Reducer {
    pub(super) component: Arc<str>,
    pub(super) options: Options,
    pub(super) starts_when: Option<Evaluator>,
    pub(super) ends_when: Option<Evaluator>,
    /// In microseconds.
    pub(super) idle_timeout: i64,
    pub(super) max_age: i64,
    pub(super) max_count: u64,
    pub(super) max_bytes: usize,
    pub(super) max_groups: usize,
    /// The most memory of groups, in bytes, for a new one. Groups that are there may use as much again.
    pub(super) most: usize,
    /// The open groups, by their numbers: in the order in which they began.
    pub(super) groups: BTreeMap<i64, Group>,
    /// The number of the open group of a key.
    pub(super) places: HashMap<u128, i64>,
    /// When each group ends if no message comes, in microseconds since 1970, with its number.
    pub(super) due: BTreeSet<(i64, i64)>,
    /// The number of the next group.
    pub(super) next: i64,
    /// The number of groups, as `/metrics` shows it.
    pub(super) shown: Arc<AtomicU64>,
    /// The memory of the groups.
    pub(super) bytes: usize,
    pub(super) memory: Kept,
    /// The number of acks of batches in all groups.
    pub(super) held: usize,
    pub(super) acks: Acks<KeptOpen<Group>>,
    /// That of the hashes of keys: otherwise a sender could make messages that are merged with those of
    /// another key.
    pub(super) secret: Secret,
    pub(super) hashes: Vec<u128>,
    pub(super) now: fn() -> i64,
}

/// Which messages of a batch begin and end groups, and those for which that cannot be said.
struct Bounds {
    starts: Option<BooleanArray>,
    ends: Option<BooleanArray>,
    failed: BTreeMap<u32, String>,
}

/// True if a condition is true for a message.
fn is_true(answers: Option<&BooleanArray>, row: usize) -> bool {
    answers.is_some_and(|answers| answers.is_valid(row) && answers.value(row))
}

impl Reducer {
    fn bounds(&mut self, batch: &Batch) -> Bounds {
        let mut failed = BTreeMap::new();
        let mut answers = |condition: &mut Option<Evaluator>| {
            let answers = condition.as_mut()?.condition(batch);
            for (row, reason) in answers.failed {
                failed.entry(row).or_insert(reason);
            }
            Some(answers.values)
        };
        let (starts, ends) = (answers(&mut self.starts_when), answers(&mut self.ends_when));
        Bounds { starts, ends, failed }
    }

    /// Returns the columns of a batch, but for those that are left out.
    fn columns(&self, batch: &Batch) -> Result<Vec<Read>, Error> {
        let fields = batch.fields();
        let schema = fields.schema_ref();
        let mut columns = Vec::with_capacity(fields.num_columns());
        for (field, values) in schema.fields().iter().zip(fields.columns()) {
            let strategy = self.options.strategy(field.name());
            if strategy != Some(Strategy::Drop) {
                let values = Column::of_field(field, values)?;
                columns.push(Read { name: field.name().as_str().into(), strategy, values });
            }
        }
        Ok(columns)
    }

    /// Returns why there is no room for a message of a group that is open, or of a new one.
    fn no_room(&self, is_new: bool) -> Option<String> {
        if is_new && self.groups.len() >= self.max_groups {
            return Some(format!("there are {} groups already, as `max_groups` allows", self.groups.len()));
        }
        if is_new && self.bytes > self.most {
            return Some("the groups use an eighth of `memory` already".to_owned());
        }
        (self.bytes > self.most.saturating_mul(2))
            .then(|| "the groups use a quarter of `memory` already".to_owned())
    }

    /// Adds a message to the group of its key. Puts groups that end to `ended`, and the number of the group
    /// to `touched` if it is the first message of the batch in it. Returns the reason if there is no room.
    fn add(
        &mut self,
        hash: u128,
        message: &Message<'_>,
        (is_start, is_end): (bool, bool),
        now: i64,
        (touched, ended): (&mut Vec<i64>, &mut Vec<Group>),
    ) -> Option<String> {
        let mut open = self.places.get(&hash).copied();
        if let Some(number) = open {
            let group = self.groups.get(&number);
            let has_room =
                || group.is_some_and(|group| group.has_room(message, &self.options, self.max_bytes));
            if is_start || !has_room() {
                self.end(number, ended);
                open = None;
            }
        }
        if let Some(reason) = self.no_room(open.is_none()) {
            return Some(reason);
        }
        let number = open.unwrap_or(self.next);
        if open.is_none() {
            self.next += 1;
            self.places.insert(hash, number);
        }
        let (component, meta) = (&self.component, message.meta);
        let group =
            self.groups.entry(number).or_insert_with(|| Group::begin(no_ack(component), hash, now, meta));
        let before = if open.is_some() { group.memory() } else { 0 };
        group.add(message, &self.options);
        self.bytes = (self.bytes + group.memory()).saturating_sub(before);
        if let Acks::Checkpoint(kept) = &mut self.acks {
            kept.replaced(group.entry[0].take());
        }
        if !std::mem::replace(&mut group.is_touched, true) {
            touched.push(number);
        }
        let due = now.saturating_add(self.idle_timeout).min(group.content.begun.saturating_add(self.max_age));
        if group.due != due || open.is_none() {
            self.due.remove(&(group.due, number));
            group.due = due;
            self.due.insert((due, number));
        }
        if is_end || group.count >= self.max_count || group.is_full(&self.options, self.max_bytes) {
            self.end(number, ended);
        }
        None
    }

    /// Ends a group.
    fn end(&mut self, number: i64, ended: &mut Vec<Group>) {
        let Some(mut group) = self.groups.remove(&number) else { return };
        let hash = group.hash();
        if self.places.get(&hash) == Some(&number) {
            self.places.remove(&hash);
        }
        self.due.remove(&(group.due, number));
        if let Acks::Checkpoint(kept) = &mut self.acks {
            kept.leaves(number, &mut group);
        }
        self.held -= group.held;
        self.bytes = self.bytes.saturating_sub(group.memory());
        ended.push(group);
    }

    /// Ends the groups whose time has come, in the order of those times.
    fn end_due(&mut self, now: i64, ended: &mut Vec<Group>) {
        while let Some(&(due, number)) = self.due.first()
            && due <= now
        {
            self.end(number, ended);
        }
    }

    /// Sends merged messages.
    fn send(&mut self, ended: Vec<Group>, out: &mut Outputs) -> Result<(), Error> {
        for batch in batches(ended, || no_ack(&self.component))? {
            out.send(batch);
        }
        self.note_memory();
        Ok(())
    }

    /// Sends all groups, in the order in which they began.
    fn send_all(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let mut ended = Vec::with_capacity(self.groups.len());
        while let Some((&number, _)) = self.groups.first_key_value() {
            self.end(number, &mut ended);
        }
        self.send(ended, out)
    }

    /// Counts the groups, and the acks that wait, on the budget, and shows the number of groups.
    fn note_memory(&mut self) {
        self.memory.set(self.bytes + self.held * ACK);
        self.shown.store(self.groups.len() as u64, Relaxed);
    }

    /// Gives parts of the ack of a batch to its groups.
    fn share_ack(&mut self, batch: Option<Batch>, touched: &[i64], ended: &mut [Group]) {
        let ack = batch.map(|mut batch| batch.take_ack());
        let is_held = !matches!(self.acks, Acks::AtOnce);
        for number in touched {
            let Some(group) = self.groups.get_mut(number) else { continue };
            group.is_touched = false;
            if let (Some(ack), true) = (&ack, is_held) {
                group.ack.merge(ack.split());
                group.held += 1;
                self.held += 1;
            }
        }
        for group in ended.iter_mut().filter(|group| group.is_touched) {
            if let (Some(ack), true) = (&ack, is_held) {
                group.ack.merge(ack.split());
            }
        }
        // All groups have parts of it; the rest covers none.
        let outcome = if is_held { Outcome::Filtered } else { Outcome::Delivered };
        ack.into_iter().for_each(|ack| ack.settle(outcome));
    }

    /// True if the acks that wait for merged messages may wait on. Their memory must leave some to the
    /// sources: a group that waits for more messages would fill the budget.
    fn may_hold(&self) -> bool {
        !matches!(self.acks, Acks::Results) || self.held <= self.most / ACK
    }
}

/// Returns why a message cannot be merged, whatever else is.
fn objection(columns: &[Read], row: usize) -> Option<String> {
    let mut sums = columns.iter().filter(|column| column.strategy == Some(Strategy::Sum));
    let is_wrong = |column: &&Read| {
        let value = column.values.view(row);
        !value.is_null() && value.number().is_none()
    };
    sums.find(is_wrong).map(|column| format!("the value of `{}` is not a number", column.name))
}

impl Transform for Reducer {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let now = (self.now)();
        let (mut touched, mut ended) = (Vec::new(), Vec::new());
        self.end_due(now, &mut ended);
        let Bounds { starts, ends, mut failed } = self.bounds(&batch);
        let columns = self.columns(&batch)?;
        let mut hashes = std::mem::take(&mut self.hashes);
        if self.options.by.is_empty() {
            hashes.clear();
            hashes.resize(batch.rows(), 0);
        } else {
            self.secret.hash_keys(&batch, &self.options.by, &mut hashes);
        }
        let is_record = is_record(batch.fields().schema_ref());
        let mut rejected = Vec::new();
        for (row, hash) in hashes.iter().enumerate() {
            let reason = failed.remove(&(row as u32)).or_else(|| objection(&columns, row)).or_else(|| {
                let payload = batch.payload().value(row);
                let message = Message { payload, columns: &columns, row, meta: batch.meta(), is_record };
                let bounds = (is_true(starts.as_ref(), row), is_true(ends.as_ref(), row));
                self.add(*hash, &message, bounds, now, (&mut touched, &mut ended))
            });
            rejected.extend(reason.map(|reason| (row as u32, reason)));
        }
        self.hashes = hashes;
        let rest = out.reject(batch, rejected)?;
        self.share_ack(rest, &touched, &mut ended);
        while !self.may_hold()
            && let Some((&number, _)) = self.groups.first_key_value()
        {
            self.end(number, &mut ended);
        }
        self.send(ended, out)
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.send_all(out)
    }

    /// Groups that the state has stay open for the next run.
    fn stop(&mut self, out: &mut Outputs) -> Result<(), Error> {
        match self.acks {
            Acks::Checkpoint(_) => Ok(()),
            Acks::Results | Acks::AtOnce => self.send_all(out),
        }
    }

    fn due(&self) -> Option<Instant> {
        let (due, _) = self.due.first().filter(|(due, _)| *due < NEVER)?;
        let left = due.saturating_sub((self.now)()).max(0);
        Instant::now().checked_add(Duration::from_micros(left.unsigned_abs()))
    }

    fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let mut ended = Vec::new();
        self.end_due((self.now)(), &mut ended);
        self.send(ended, out)
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        let Acks::Checkpoint(kept) = &mut self.acks else { return Ok(()) };
        let component = &self.component;
        kept.keep(&mut self.groups, self.next, || no_ack(component))?;
        self.held = 0;
        // Sources may wait for this memory, so no batch need come that gives it back.
        self.note_memory();
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.acks.has_failed()
    }

    fn has_news(&self) -> bool {
        self.acks.has_news()
    }

    fn state(&mut self) -> Option<Value> {
        self.acks.state()
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let (component, options) = (&self.component, &self.options);
        let read = |group: &mut Group, entry, saved| group.restore(entry, saved, options);
        let Acks::Checkpoint(kept) = &mut self.acks else { return unneeded::<Group>(saved) };
        let Some(restored) = kept.restore(saved, || no_ack(component), read)? else { return Ok(()) };
        (self.groups, self.next, self.secret) = restored;
        let now = (self.now)();
        let mut over = Vec::new();
        for (&number, group) in &mut self.groups {
            if number >= self.next {
                return Err(crate::unusable_state("a number is impossible"));
            }
            // The former one has ended: it is there because it was not delivered.
            over.extend(self.places.insert(group.hash(), number));
            // The time between the runs does not count as one without messages.
            let end = group.content.begun.saturating_add(self.max_age);
            group.due = now.saturating_add(self.idle_timeout).min(end);
            self.due.insert((group.due, number));
            self.bytes += group.memory();
        }
        for number in over {
            if let Some(group) = self.groups.get_mut(&number) {
                self.due.remove(&(group.due, number));
                group.due = i64::MIN;
                self.due.insert((group.due, number));
            }
        }
        self.note_memory();
        Ok(())
    }
}
