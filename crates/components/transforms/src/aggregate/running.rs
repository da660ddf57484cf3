//! The transform as it runs.
//!
//! With a state that has the open windows, acks are settled at each checkpoint. Without one, they are settled
//! when the results are delivered, unless a run starts over from the beginning of its input anyway: the acks
//! of all batches of a long input would then be kept for nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow_array::BooleanArray;
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_expression::Evaluator;
use thalweg_record::{Batch, Meta, Outcome};

use super::OnLate;
use super::evaluation::Evaluation;
use super::function::Kind;
use super::timing::Timing;
use super::window::{Names, Rows, Window};
use crate::clock::now;
use crate::kept::Kept;
use crate::open::{Acks, Open, no_ack};
use crate::scalar::View;

/// The most batches whose acks wait for results, each counted in every window. Then the results of the oldest
/// window leave early. With little memory they are fewer: see [`Aggregator::may_hold`].
const MOST_HELD: usize = 1 << 16;
/// The memory of an ack that waits, in bytes.
const ACK: usize = 128;

/// A function and what it is applied to.
pub(super) struct Applied {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) of: Option<Evaluator>,
}

pub(super) struct Aggregator {
    pub(super) component: Arc<str>,
    pub(super) by: Vec<String>,
    /// The fields of the keys, and of the functions.
    pub(super) key_names: Vec<String>,
    pub(super) value_names: Vec<String>,
    pub(super) keys: Vec<Evaluator>,
    pub(super) functions: Vec<Applied>,
    pub(super) kinds: Vec<Kind>,
    /// True if the memory of a group may grow with its values.
    pub(super) grows: bool,
    pub(super) time: Option<(String, Evaluator)>,
    pub(super) timing: Timing,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) on_late: OnLate,
    pub(super) max_groups: usize,
    /// The most memory of groups, in bytes: of new ones, and of those that grow.
    pub(super) most: usize,
    pub(super) windows: BTreeMap<i64, Window>,
    /// Messages before this time are late, in microseconds since 1970. Of windows that are not by time, the
    /// number of the next one.
    pub(super) watermark: i64,
    /// The number of groups of all windows, and their memory.
    pub(super) groups: usize,
    /// The number of groups, as `/metrics` shows it.
    pub(super) shown: Arc<AtomicU64>,
    pub(super) bytes: usize,
    pub(super) memory: Kept,
    /// The number of acks of batches in all windows.
    pub(super) held: usize,
    pub(super) acks: Acks<Window>,
    /// When the last message came.
    pub(super) last: Instant,
    /// That of the hashes of keys: otherwise a sender could make messages that are counted for another key.
    pub(super) secret: Secret,
    pub(super) hashes: Vec<u128>,
    /// Memory for hashes of values.
    pub(super) scratch: Vec<u8>,
    pub(super) now: fn() -> i64,
}

/// The messages of a batch that are not counted.
#[derive(Default)]
struct Left {
    failed: Vec<(u32, String)>,
    late: Vec<bool>,
    has_late: bool,
}

impl Aggregator {
    /// Finds the windows of a message that are not over.
    fn windows_of(&mut self, evaluation: &Evaluation, row: usize, now: i64, starts: &mut Vec<i64>) {
        starts.clear();
        match self.timing {
            Timing::Whole | Timing::Count(_) => {
                starts.push(self.windows.keys().next().copied().unwrap_or(self.watermark))
            }
            Timing::Arrival(spans) => starts.extend(spans.starts(now)),
            Timing::Event(spans, delay) => {
                let view = evaluation.times.as_ref().map_or(View::Null, |times| times.view(row));
                if let View::Time(time) = view {
                    self.watermark = self.watermark.max(time - delay);
                    let watermark = self.watermark;
                    starts.extend(spans.starts(time).filter(|start| start + spans.length > watermark));
                }
            }
        }
    }

    /// Returns why there is no room for a message.
    fn no_room(&self, starts: &[i64], hash: u128) -> Option<String> {
        if self.groups + starts.len() <= self.max_groups && self.bytes <= self.most {
            return None;
        }
        let has = |start: &i64| self.windows.get(start).is_some_and(|window| window.has(hash));
        let new = starts.iter().filter(|start| !has(start)).count();
        if new > 0 && self.groups + new > self.max_groups {
            return Some(format!("there are {} groups already, as `max_groups` allows", self.groups));
        }
        if new > 0 && self.bytes > self.most {
            return Some("the groups use an eighth of `memory` already".to_owned());
        }
        // Groups that are there may use as much again.
        if self.bytes > self.most.saturating_mul(2) && self.grows {
            return Some("the groups use a quarter of `memory` already".to_owned());
        }
        None
    }

    /// Counts the messages of a batch. Returns the batch if its values are too large together.
    fn count(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        let Some(mut evaluation) = self.evaluate(&batch) else { return Ok(Some(batch)) };
        let mut hashes = std::mem::take(&mut self.hashes);
        if self.by.is_empty() {
            hashes.clear();
            hashes.resize(batch.rows(), 0);
        } else {
            self.secret.hash_keys(&batch, &self.by, &mut hashes);
        }
        let mut failed = std::mem::take(&mut evaluation.failed);
        let (touched, left) = self.count_rows(&evaluation, &hashes, batch.rows(), &mut failed);
        self.hashes = hashes;
        let rest = self.send_left(batch, left, out)?;
        let Some(mut counted) = rest else { return Ok(None) };
        let ack = counted.take_ack();
        match self.acks {
            Acks::AtOnce => ack.settle(Outcome::Delivered),
            Acks::Checkpoint(_) | Acks::Results => {
                for start in touched {
                    if let Some(window) = self.windows.get_mut(&start) {
                        window.ack.merge(ack.split());
                        window.held += 1;
                        self.held += 1;
                    }
                }
                // All windows have parts of it; the rest covers none.
                ack.settle(Outcome::Filtered);
            }
        }
        self.note_memory();
        Ok(None)
    }

    /// Counts the groups, and the acks that wait, on the budget, and shows the number of groups.
    fn note_memory(&mut self) {
        self.memory.set(self.bytes + self.held * ACK);
        self.shown.store(self.groups as u64, Relaxed);
    }

    /// Counts messages. Returns the starts of their windows, and the messages that are not counted.
    fn count_rows(
        &mut self,
        evaluation: &Evaluation,
        hashes: &[u128],
        count: usize,
        failed: &mut BTreeMap<u32, String>,
    ) -> (BTreeSet<i64>, Left) {
        let mut left = Left { late: vec![false; count], ..Left::default() };
        let mut touched = BTreeSet::new();
        let mut starts = Vec::new();
        let now = (self.now)().max(self.watermark);
        let kinds = std::mem::take(&mut self.kinds);
        let rows = Rows { hashes, keys: &evaluation.keys, kinds: &kinds, values: &evaluation.values };
        for (row, hash) in hashes.iter().enumerate() {
            let number = row as u32;
            let objection = failed.remove(&number).or_else(|| self.objection(evaluation, row));
            if let Some(reason) = objection {
                left.failed.push((number, reason));
                continue;
            }
            self.windows_of(evaluation, row, now, &mut starts);
            if starts.is_empty() {
                if let Some(late) = left.late.get_mut(row) {
                    *late = true;
                }
                left.has_late = true;
                continue;
            }
            if let Some(reason) = self.no_room(&starts, *hash) {
                left.failed.push((number, reason));
                continue;
            }
            for &start in &starts {
                let component = &self.component;
                let window = self.windows.entry(start).or_insert_with(|| Window::new(no_ack(component)));
                let groups = window.len();
                let (grown, replaced) = window.add(&rows, row, &mut self.scratch);
                self.groups += window.len() - groups;
                self.bytes = self.bytes.saturating_add_signed(grown);
                if let Acks::Checkpoint(kept) = &mut self.acks {
                    kept.replaced(replaced);
                }
                touched.insert(start);
            }
        }
        self.kinds = kinds;
        (touched, left)
    }

    /// Sends the messages that are not counted. Returns the others.
    fn send_left(&self, whole: Batch, left: Left, out: &mut Outputs) -> Result<Option<Batch>, Error> {
        if !left.has_late {
            return Ok(out.reject(whole, left.failed)?);
        }
        if self.on_late == OnLate::Error {
            let mut failed = left.failed;
            let late = left.late.iter().enumerate().filter(|(_, late)| **late);
            failed.extend(late.map(|(row, _)| (row as u32, LATE.to_owned())));
            failed.sort_unstable_by_key(|(row, _)| *row);
            return Ok(out.reject(whole, failed)?);
        }
        let is_late = BooleanArray::from(left.late.clone());
        let (late, rest) = whole.partition(&is_late)?;
        if let Some(late) = late {
            match self.on_late {
                OnLate::Route => out.send_to(0, late),
                OnLate::Drop | OnLate::Error => late.settle(Outcome::Filtered),
            }
        }
        let Some(rest) = rest else { return Ok(None) };
        // The rows of the rest have other numbers.
        let mut before = 0;
        let mut late = left.late.iter();
        let mut at = 0;
        let failed = left.failed.into_iter().map(|(row, reason)| {
            while at < row {
                before += u32::from(late.next().copied().unwrap_or_default());
                at += 1;
            }
            (row - before, reason)
        });
        let failed = failed.collect();
        Ok(out.reject(rest, failed)?)
    }

    /// Sends the results of a window.
    fn send(&mut self, start: i64, out: &mut Outputs) -> Result<(), Error> {
        let Some(mut window) = self.windows.remove(&start) else { return Ok(()) };
        if let Acks::Checkpoint(kept) = &mut self.acks {
            kept.leaves(start, &mut window);
        }
        self.groups -= window.len();
        self.held -= window.held;
        self.bytes = self.bytes.saturating_sub(window.bytes());
        let meta =
            Meta { source: self.component.clone(), path: None, sequence: None, time_us: now(), number: 0 };
        let names = Names { by: &self.key_names, values: &self.value_names };
        let times = self.timing.spans().map(|spans| (start, start + spans.length));
        for batch in window.results(&names, &self.kinds, times, &Arc::new(meta))? {
            out.send(batch);
        }
        if self.windows.is_empty() {
            self.bytes = 0;
        }
        self.note_memory();
        Ok(())
    }

    /// Sends the results of windows that are over at a time, in their order.
    fn send_over(&mut self, time: i64, out: &mut Outputs) -> Result<(), Error> {
        let Some(spans) = self.timing.spans() else { return Ok(()) };
        while let Some(&start) = self.windows.keys().next()
            && start + spans.length <= time
        {
            if let Timing::Arrival(_) = self.timing {
                // The clock may be set back: later messages belong to later windows.
                self.watermark = self.watermark.max(start + spans.length);
            }
            self.send(start, out)?;
        }
        Ok(())
    }

    /// Sends the results of all windows. Time does not move: a later run with the same state may read more
    /// messages of these windows, which are not late.
    fn send_all(&mut self, out: &mut Outputs) -> Result<(), Error> {
        while let Some(&start) = self.windows.keys().next() {
            self.send(start, out)?;
        }
        Ok(())
    }

    /// Sends what is over after a batch.
    fn send_due(&mut self, out: &mut Outputs) -> Result<(), Error> {
        match self.timing {
            Timing::Event(..) => self.send_over(self.watermark, out)?,
            Timing::Arrival(_) => self.send_over((self.now)(), out)?,
            Timing::Count(most) => {
                let window = self.windows.iter().next();
                if let Some((&start, _)) = window.filter(|(_, window)| window.count >= most) {
                    // The number of the next window.
                    self.watermark = start + 1;
                    self.send(start, out)?;
                }
            }
            Timing::Whole => {}
        }
        while !self.may_hold()
            && let Some(&start) = self.windows.keys().next()
        {
            self.send(start, out)?;
        }
        Ok(())
    }

    /// True if the acks that wait for results may wait on. Their memory must leave some to the sources: a
    /// window that waits for more messages would fill the budget.
    fn may_hold(&self) -> bool {
        !matches!(self.acks, Acks::Results) || self.held <= MOST_HELD.min(self.most / ACK)
    }
}

/// The reason why late messages are rejected.
const LATE: &str = "late: the results of its window have left already";

impl Transform for Aggregator {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.last = Instant::now();
        if let Timing::Arrival(_) = self.timing {
            self.send_due(out)?;
        }
        let mut waiting = VecDeque::from([batch]);
        while let Some(mut batch) = waiting.pop_front() {
            if let Timing::Count(most) = self.timing {
                let counted = self.windows.values().next().map_or(0, |window| window.count);
                let room = usize::try_from(most - counted.min(most)).unwrap_or(usize::MAX).max(1);
                if batch.rows() > room {
                    let (first, rest) = batch.split_at(room);
                    batch = first;
                    rest.into_iter().for_each(|rest| waiting.push_front(rest));
                }
            }
            if let Some(batch) = self.count(batch, out)? {
                let half = batch.rows() / 2;
                let (first, rest) = batch.split_at(half);
                rest.into_iter().for_each(|rest| waiting.push_front(rest));
                waiting.push_front(first);
                continue;
            }
            self.send_due(out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.send_all(out)
    }

    /// Windows that the state has stay open for the next run.
    fn stop(&mut self, out: &mut Outputs) -> Result<(), Error> {
        match self.acks {
            Acks::Checkpoint(_) => Ok(()),
            Acks::Results | Acks::AtOnce => self.send_all(out),
        }
    }

    fn due(&self) -> Option<Instant> {
        let start = *self.windows.keys().next()?;
        match self.timing {
            Timing::Arrival(spans) => {
                let left = (start + spans.length - (self.now)()).max(0);
                Instant::now().checked_add(Duration::from_micros(left.unsigned_abs()))
            }
            _ => self.last.checked_add(self.idle_timeout?),
        }
    }

    fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Timing::Arrival(_) = self.timing {
            return self.send_due(out);
        }
        if let Some(&last) = self.windows.keys().next_back() {
            // A window of the same start would be taken for the one that leaves: messages that come later are
            // late, or in a window of the next number.
            let length = self.timing.spans().map_or(1, |spans| spans.length);
            self.watermark = self.watermark.max(last + length);
        }
        self.send_all(out)
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        let component = self.component.clone();
        match &mut self.acks {
            Acks::Checkpoint(kept) => {
                kept.keep(&mut self.windows, self.watermark, || no_ack(&component))?;
                self.held = 0;
                // Sources may wait for this memory, so no batch need come that gives it back.
                self.note_memory();
                Ok(())
            }
            Acks::Results | Acks::AtOnce => Ok(()),
        }
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
        let (component, keys, kinds) = (self.component.clone(), self.by.len(), &self.kinds);
        let read = |window: &mut Window, entry, groups| window.restore_block(entry, groups, keys, kinds);
        let Some(restored) = self.acks.restore(saved, || no_ack(&component), read)? else { return Ok(()) };
        (self.windows, self.watermark, self.secret) = restored;
        self.groups = self.windows.values().map(Window::len).sum();
        self.bytes = self.windows.values().map(Window::bytes).sum();
        self.note_memory();
        Ok(())
    }
}
