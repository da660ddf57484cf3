//! Counts the messages of batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use thalweg_engine::{Error, Outputs};
use thalweg_record::{Ack, Batch, Outcome};

use super::evaluation::Evaluation;
use super::group::Rows;
use super::left::Left;
use super::running::Aggregator;
use super::timing::{Gaps, Timing};
use super::window::Window;
use crate::open::{Acks, Open, no_ack};
use crate::scalar::View;

/// The result of counting a message.
enum Counted {
    Yes,
    Late,
    /// There is no room for its group, with the reason.
    NoRoom(String),
}

/// The windows and sessions of the messages of a batch.
#[derive(Default)]
struct Touched {
    /// The starts of windows.
    windows: BTreeSet<i64>,
    /// The slots of sessions.
    sessions: BTreeSet<u32>,
}

impl Aggregator {
    /// The time of a message, in microseconds since 1970. Without a time of its own, it is `now`.
    fn time_of(evaluation: &Evaluation, row: usize, now: i64) -> i64 {
        match evaluation.times.as_ref().map(|times| times.view(row)) {
            Some(View::Time(time)) => time,
            // Messages without a time are rejected before.
            _ => now,
        }
    }

    /// Finds the windows of a message that are not over.
    fn windows_of(&self, time: i64, starts: &mut Vec<i64>) {
        starts.clear();
        match self.timing {
            Timing::Arrival(spans) => starts.extend(spans.starts(time)),
            Timing::Event(spans, _) => {
                let is_open = |start: &i64| start + spans.length > self.watermark;
                starts.extend(spans.starts(time).filter(is_open));
            }
            Timing::Whole | Timing::Count(_) | Timing::EventSessions(..) | Timing::ArrivalSessions(_) => {
                starts.push(self.windows.keys().next().copied().unwrap_or(self.watermark));
            }
        }
    }

    /// Returns why there is no room for a message that needs `new` groups.
    fn no_room(&self, new: usize) -> Option<String> {
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
    pub(super) fn count(&mut self, batch: Batch, out: &mut Outputs) -> Result<Option<Batch>, Error> {
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
        self.omitted.fetch_add(std::mem::take(&mut self.scratch.omitted), Relaxed);
        let rest = self.send_left(batch, left, out)?;
        let Some(mut counted) = rest else { return Ok(None) };
        let ack = counted.take_ack();
        match self.acks {
            Acks::AtOnce => ack.settle(Outcome::Delivered),
            Acks::Checkpoint(_) | Acks::Results => self.hold(ack, touched),
        }
        self.note_memory();
        Ok(None)
    }

    /// Keeps the ack of a batch in its windows.
    fn hold(&mut self, ack: Ack, touched: Touched) {
        for start in touched.windows {
            if let Some(window) = self.windows.get_mut(&start) {
                window.ack.merge(ack.split());
                window.held += 1;
                self.held += 1;
            }
        }
        for slot in touched.sessions {
            self.sessions.hold(slot, ack.split());
            self.held += 1;
        }
        // All windows have parts of it; the rest covers none.
        ack.settle(Outcome::Filtered);
    }

    /// Counts messages. Returns their windows, and the messages that are not counted.
    fn count_rows(
        &mut self,
        evaluation: &Evaluation,
        hashes: &[u128],
        count: usize,
        failed: &mut BTreeMap<u32, String>,
    ) -> (Touched, Left) {
        let mut left = Left { late: vec![false; count], ..Left::default() };
        let mut touched = Touched::default();
        let now = (self.now)().max(self.watermark);
        let kinds = std::mem::take(&mut self.kinds);
        let rows = Rows { hashes, keys: &evaluation.keys, kinds: &kinds, values: &evaluation.values };
        for row in 0..hashes.len() {
            let number = row as u32;
            let objection = failed.remove(&number).or_else(|| self.objection(evaluation, row));
            if let Some(reason) = objection {
                left.failed.push((number, reason));
                continue;
            }
            let time = Self::time_of(evaluation, row, now);
            if let Some(delay) = self.timing.delay() {
                self.watermark = self.watermark.max(time - delay);
            }
            let counted = match self.timing.gaps() {
                Some(gaps) => self.count_in_session(&rows, row, time, gaps, &mut touched),
                None => self.count_in_windows(&rows, row, time, &mut touched),
            };
            match counted {
                Counted::Yes => {}
                Counted::NoRoom(reason) => left.failed.push((number, reason)),
                Counted::Late => {
                    if let Some(late) = left.late.get_mut(row) {
                        *late = true;
                    }
                    left.has_late = true;
                }
            }
        }
        self.kinds = kinds;
        (touched, left)
    }

    fn count_in_windows(&mut self, rows: &Rows<'_>, row: usize, time: i64, touched: &mut Touched) -> Counted {
        let mut starts = std::mem::take(&mut self.starts);
        self.windows_of(time, &mut starts);
        let new = match self.groups + starts.len() <= self.max_groups && self.bytes <= self.most {
            // There is room in any case.
            true => 0,
            false => {
                let hash = rows.hashes.get(row).copied().unwrap_or_default();
                let has = |start: &i64| self.windows.get(start).is_some_and(|window| window.has(hash));
                starts.iter().filter(|start| !has(start)).count()
            }
        };
        let counted = if starts.is_empty() {
            Counted::Late
        } else if let Some(reason) = self.no_room(new) {
            Counted::NoRoom(reason)
        } else {
            starts.iter().for_each(|start| self.add_to_window(*start, rows, row));
            touched.windows.extend(&starts);
            Counted::Yes
        };
        self.starts = starts;
        counted
    }

    fn add_to_window(&mut self, start: i64, rows: &Rows<'_>, row: usize) {
        let component = &self.component;
        let window = self.windows.entry(start).or_insert_with(|| Window::new(no_ack(component)));
        let groups = window.len();
        let (grown, replaced) = window.add(rows, row, &mut self.scratch);
        self.groups += window.len() - groups;
        self.bytes = self.bytes.saturating_add_signed(grown);
        if let Some(kept) = self.acks.windows() {
            kept.replaced(replaced);
        }
    }

    fn count_in_session(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        time: i64,
        gaps: Gaps,
        touched: &mut Touched,
    ) -> Counted {
        let Some(&hash) = rows.hashes.get(row) else { return Counted::Late };
        // A session that is over gets no more messages, although its results leave after the whole batch.
        self.sessions.end(self.watermark);
        let span = gaps.span(time);
        let mut found = std::mem::take(&mut self.found);
        self.sessions.overlapping(hash, span, &mut found);
        let counted = if found.is_empty() && span.end <= self.watermark {
            Counted::Late
        } else if let Some(reason) = self.no_room(usize::from(found.is_empty())) {
            Counted::NoRoom(reason)
        } else {
            if let Some((slot, grown)) = self.sessions.add(rows, row, span, &found, &mut self.scratch) {
                self.bytes = self.bytes.saturating_add_signed(grown);
                found.iter().for_each(|merged| {
                    touched.sessions.remove(merged);
                });
                touched.sessions.insert(slot);
            }
            self.groups = self.sessions.len();
            Counted::Yes
        };
        self.found = found;
        counted
    }
}
