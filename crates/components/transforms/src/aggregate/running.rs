//! The transform as it runs.
//!
//! With a state that has the open windows, acks are settled at each checkpoint. Without one, they are settled
//! when the results are delivered, unless a run starts over from the beginning of its input anyway: the acks
//! of all batches of a long input would then be kept for nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Outputs, Transform};
use thalweg_expression::Evaluator;
use thalweg_record::{Ack, Batch, Meta};

use super::OnLate;
use super::accumulator::Scratch;
use super::function::Kind;
use super::kept::KeptWindows;
use super::results::{Form, Timed};
use super::sessions::{Leaving, Sessions};
use super::timing::Timing;
use super::window::Window;
use crate::clock::now;
use crate::kept::Kept;
use crate::open::{Acks, no_ack};
use crate::saved::unneeded;

/// The most batches whose acks wait for results, each counted in every window. Then the results of the oldest
/// window, or of the sessions with the most batches, leave early. With little memory they are fewer: see
/// [`Aggregator::may_hold`].
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
    pub(super) sessions: Sessions,
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
    pub(super) acks: Acks<KeptWindows>,
    /// When the last message came.
    pub(super) last: Instant,
    /// That of the hashes of keys: otherwise a sender could make messages that are counted for another key.
    pub(super) secret: Secret,
    pub(super) hashes: Vec<u128>,
    pub(super) scratch: Scratch,
    /// The number of values that lists do not have, as the summary shows it.
    pub(super) omitted: Arc<AtomicU64>,
    /// The starts of the windows of a message, and the slots of its sessions.
    pub(super) starts: Vec<i64>,
    pub(super) found: Vec<u32>,
    pub(super) now: fn() -> i64,
}

impl Aggregator {
    /// Counts the groups, and the acks that wait, on the budget, and shows the number of groups.
    pub(super) fn note_memory(&mut self) {
        self.memory.set(self.bytes + self.held * ACK);
        self.shown.store(self.groups as u64, Relaxed);
    }

    /// Sends the results of a window.
    fn send(&mut self, start: i64, out: &mut Outputs) -> Result<(), Error> {
        let Some(mut window) = self.windows.remove(&start) else { return Ok(()) };
        if let Some(kept) = self.acks.windows() {
            kept.leaves(start, &mut window);
        }
        self.groups -= window.len();
        self.held -= window.held;
        self.bytes = self.bytes.saturating_sub(window.bytes());
        let end = start + self.timing.spans().map_or(0, |spans| spans.length);
        let (groups, ack) = window.into_parts();
        self.send_results(groups.into_iter().map(|group| (start, end, group)), ack, out)?;
        if self.windows.is_empty() {
            self.bytes = 0;
        }
        self.note_memory();
        Ok(())
    }

    /// Sends the results of the sessions in these slots, in the order of their ends.
    fn send_sessions(&mut self, slots: Vec<u32>, out: &mut Outputs) -> Result<(), Error> {
        if slots.is_empty() {
            return Ok(());
        }
        let Leaving { sessions, places, mut ack, held, bytes } = self.sessions.leave(slots);
        ack.enter(&self.component);
        if let Some(kept) = self.acks.sessions() {
            kept.leaves(places, &mut ack);
        }
        self.groups = self.sessions.len();
        self.held -= held;
        self.bytes = if self.groups == 0 { 0 } else { self.bytes.saturating_sub(bytes) };
        let groups = sessions.into_iter().map(|(span, group)| (span.start, span.end, group));
        self.send_results(groups, ack, out)?;
        self.note_memory();
        Ok(())
    }

    fn send_results(
        &self,
        groups: impl Iterator<Item = Timed>,
        ack: Ack,
        out: &mut Outputs,
    ) -> Result<(), Error> {
        let meta =
            Meta { source: self.component.clone(), path: None, sequence: None, time_us: now(), number: 0 };
        let form = Form {
            by: &self.key_names,
            values: &self.value_names,
            kinds: &self.kinds,
            has_times: self.timing.spans().is_some() || self.timing.gaps().is_some(),
        };
        form.results(groups, &Arc::new(meta), ack)?.into_iter().for_each(|batch| out.send(batch));
        Ok(())
    }

    /// Sends the results of sessions that are over at a time.
    fn send_over_sessions(&mut self, time: i64, out: &mut Outputs) -> Result<(), Error> {
        self.sessions.end(time);
        let slots = self.sessions.take_over();
        if self.timing.is_by_arrival()
            && let Some(last) = self.sessions.last_end(&slots)
        {
            // As with windows: the clock may be set back.
            self.watermark = self.watermark.max(last);
        }
        self.send_sessions(slots, out)
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
        let slots = self.sessions.take_all();
        self.send_sessions(slots, out)
    }

    /// Sends what is over after a batch.
    fn send_due(&mut self, out: &mut Outputs) -> Result<(), Error> {
        match self.timing {
            Timing::Event(..) => self.send_over(self.watermark, out)?,
            Timing::Arrival(_) => self.send_over((self.now)(), out)?,
            Timing::EventSessions(..) => self.send_over_sessions(self.watermark, out)?,
            Timing::ArrivalSessions(_) => self.send_over_sessions((self.now)(), out)?,
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
        if self.timing.gaps().is_some() && !self.may_hold() {
            // Half of the acks leave, not only those beyond the most: each time, all sessions are looked at.
            let slots = self.sessions.holders(self.held - self.most_held() / 2);
            return self.send_sessions(slots, out);
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
        !matches!(self.acks, Acks::Results) || self.held <= self.most_held()
    }

    fn most_held(&self) -> usize {
        MOST_HELD.min(self.most / ACK)
    }

    /// When the first window is over at the earliest, if any is open.
    fn next_end(&self) -> Option<i64> {
        if self.timing.gaps().is_some() {
            return self.sessions.next_end();
        }
        let length = self.timing.spans().map_or(0, |spans| spans.length);
        self.windows.keys().next().map(|start| start + length)
    }
}

impl Transform for Aggregator {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.last = Instant::now();
        if self.timing.is_by_arrival() {
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
        let end = self.next_end()?;
        if !self.timing.is_by_arrival() {
            return self.last.checked_add(self.idle_timeout?);
        }
        let left = end.saturating_sub((self.now)()).max(0);
        Instant::now().checked_add(Duration::from_micros(left.unsigned_abs()))
    }

    fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if self.timing.is_by_arrival() {
            return self.send_due(out);
        }
        if self.timing.gaps().is_some() {
            let slots = self.sessions.take_all();
            // Messages of them that come later are late, as with windows.
            self.watermark = self.watermark.max(self.sessions.last_end(&slots).unwrap_or(i64::MIN));
            return self.send_sessions(slots, out);
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
        let component = &self.component;
        let Acks::Checkpoint(kept) = &mut self.acks else { return Ok(()) };
        match &mut **kept {
            KeptWindows::Windows(kept) => {
                kept.keep(&mut self.windows, self.watermark, || no_ack(component))?;
            }
            KeptWindows::Sessions(kept) => kept.keep(&mut self.sessions, self.watermark)?,
        }
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
        let (component, keys, kinds) = (&self.component, self.by.len(), &self.kinds);
        let Acks::Checkpoint(kept) = &mut self.acks else { return unneeded::<Window>(saved) };
        match &mut **kept {
            KeptWindows::Windows(kept) => {
                let read =
                    |window: &mut Window, entry, groups| window.restore_block(entry, groups, keys, kinds);
                let restored = kept.restore(saved, || no_ack(component), read)?;
                let Some(restored) = restored else { return Ok(()) };
                (self.windows, self.watermark, self.secret) = restored;
                self.groups = self.windows.values().map(Window::len).sum();
                self.bytes = self.windows.values().map(Window::bytes).sum();
            }
            KeptWindows::Sessions(kept) => {
                let Some(restored) = kept.restore(saved, keys, kinds)? else { return Ok(()) };
                (self.sessions, self.watermark, self.secret) = restored;
                self.groups = self.sessions.len();
                self.bytes = self.sessions.bytes();
            }
        }
        self.note_memory();
        Ok(())
    }
}
