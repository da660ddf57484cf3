//! Open sessions: the messages of a key without a long gap between them.
//!
//! A session is in a slot, and 128 slots are a block, which is saved as a whole. Sessions of one key are
//! found by their starts. Those that a checkpoint has know their places in it, so that the state can leave
//! out the ones whose results are delivered.
//!
//! A session that is over is no longer found: a message that comes later starts another one. So which session
//! a message is in does not depend on when results leave, which is after a whole batch.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::Error;
use thalweg_record::{Ack, Outcome};

use super::accumulator::Scratch;
use super::group::{BLOCK, Group, Rows};
use super::timing::Span;
use crate::saved::{Place, Places};

/// The memory of a session besides that of its group, in bytes: of the slot, of two places in trees, and of a
/// place in a checkpoint.
const SESSION: usize = size_of::<Session>() - size_of::<Group>() + 2 * 64 + 32;

/// Messages of one key without a gap.
#[derive(Debug)]
struct Session {
    span: Span,
    /// The time of its place in [`Sessions::ends`].
    noted: i64,
    group: Group,
    /// Where the last checkpoint has it, or those that it is merged from.
    places: Vec<Place>,
    /// The acks of messages that no checkpoint covers, and the number of their batches.
    ack: Ack,
    held: usize,
}

impl Session {
    fn new(span: Span, group: Group, places: Vec<Place>) -> Self {
        Self { span, noted: span.end, group, places, ack: Ack::noop(), held: 0 }
    }

    fn bytes(&self) -> usize {
        self.group.bytes() + SESSION
    }

    /// Adds the messages of another session of the key, but not its span. Returns by how many bytes both grew
    /// or shrank together.
    fn merge(&mut self, other: Self, scratch: &mut Scratch) -> isize {
        let before = self.bytes() + other.bytes();
        self.group.merge(other.group, scratch);
        self.places.extend(other.places);
        self.ack.merge(other.ack);
        self.held += other.held;
        self.bytes().cast_signed() - before.cast_signed()
    }
}

/// A session as it is saved.
#[derive(Serialize)]
struct Shown<'a> {
    span: Span,
    group: &'a Group,
}

/// A session that was saved.
#[derive(Deserialize)]
pub(super) struct Restored {
    pub(super) span: Span,
    pub(super) group: Group,
}

/// Sessions that were removed, because their results leave.
pub(super) struct Leaving {
    pub(super) sessions: Vec<(Span, Group)>,
    /// Where the last checkpoint has them.
    pub(super) places: Places,
    pub(super) ack: Ack,
    pub(super) held: usize,
    pub(super) bytes: usize,
}

/// Open sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    slots: Vec<Option<Session>>,
    free: BTreeSet<u32>,
    /// Sessions that are not over: the hash of the key, the start, and the slot. Those of a key do not
    /// overlap.
    starts: BTreeSet<(u128, i64, u32)>,
    /// When sessions are over at the earliest, and their slots. The end of a session moves with each message,
    /// and its place here only when the time of that place comes.
    ends: BTreeSet<(i64, u32)>,
    /// The slots of sessions that are over.
    over: Vec<u32>,
    /// The entry of the journal that has a block of slots, if it has changed no more since.
    blocks: Vec<Option<u64>>,
    /// Entries that are out of date.
    replaced: Vec<u64>,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The memory of all sessions.
    pub(super) fn bytes(&self) -> usize {
        self.slots.iter().flatten().map(Session::bytes).sum()
    }

    /// The latest end of the sessions in these slots.
    pub(super) fn last_end(&self, slots: &[u32]) -> Option<i64> {
        slots.iter().filter_map(|slot| Some(self.get(*slot)?.span.end)).max()
    }

    /// The time before which no session is over.
    pub(super) fn next_end(&self) -> Option<i64> {
        let over = self.over.first().and_then(|slot| Some(self.get(*slot)?.span.end));
        over.or_else(|| self.ends.first().map(|(end, _)| *end))
    }

    fn get(&self, slot: u32) -> Option<&Session> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Session> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Ends the sessions that are over at a time.
    pub(super) fn end(&mut self, time: i64) {
        while let Some(&(noted, slot)) = self.ends.first()
            && noted <= time
        {
            self.ends.remove(&(noted, slot));
            let Some(session) = self.get_mut(slot) else { continue };
            let (Span { start, end }, hash) = (session.span, session.group.hash());
            if end > time {
                session.noted = end;
                self.ends.insert((end, slot));
            } else {
                self.starts.remove(&(hash, start, slot));
                self.over.push(slot);
            }
        }
    }

    /// Finds the sessions of a key that overlap a span, the last one first.
    pub(super) fn overlapping(&self, hash: u128, span: Span, found: &mut Vec<u32>) {
        found.clear();
        let before = self.starts.range((hash, i64::MIN, 0)..(hash, span.end, 0));
        let slots = before.rev().map(|(.., slot)| *slot);
        found.extend(
            slots.take_while(|slot| self.get(*slot).is_some_and(|session| session.span.end > span.start)),
        );
    }

    /// Notes that a slot changes. The entry of the journal that has it is out of date.
    fn change(&mut self, slot: u32) {
        let block = slot as usize / BLOCK;
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, None);
        }
        self.replaced.extend(self.blocks[block].take());
    }

    /// The entries of the journal that are out of date since the last call.
    pub(super) fn take_replaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.replaced)
    }

    fn insert(&mut self, session: Session) -> u32 {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.put(slot, session);
        slot
    }

    fn put(&mut self, slot: u32, session: Session) {
        self.starts.insert((session.group.hash(), session.span.start, slot));
        self.ends.insert((session.noted, slot));
        self.slots[slot as usize] = Some(session);
    }

    /// Adds a message to the sessions that were [found](Self::overlapping), which become one, or to a new
    /// one. Returns the slot, and by how many bytes the sessions grew or shrank.
    pub(super) fn add(
        &mut self,
        rows: &Rows<'_>,
        row: usize,
        span: Span,
        found: &[u32],
        scratch: &mut Scratch,
    ) -> Option<(u32, isize)> {
        let (slot, mut grown) = match found.split_first() {
            None => {
                let group = Group::new(rows, row, *rows.hashes.get(row)?);
                let grown = (group.bytes() + SESSION).cast_signed();
                (self.insert(Session::new(span, group, Vec::new())), grown)
            }
            Some((&slot, others)) => {
                let former = self.get(slot)?.span;
                let (mut merged, mut grown) = (former.and(span), 0);
                for other in others {
                    let other = self.take(*other)?;
                    merged = merged.and(other.span);
                    grown += self.get_mut(slot)?.merge(other, scratch);
                }
                if merged.start != former.start {
                    let hash = self.get(slot)?.group.hash();
                    self.starts.remove(&(hash, former.start, slot));
                    self.starts.insert((hash, merged.start, slot));
                }
                self.get_mut(slot)?.span = merged;
                (slot, grown)
            }
        };
        self.change(slot);
        // The values of merged sessions are in the order of time, as no other is known.
        grown += self.get_mut(slot)?.group.add(rows, row, span.start, scratch);
        Some((slot, grown))
    }

    /// Adds the ack of a batch, of which a session has messages.
    pub(super) fn hold(&mut self, slot: u32, ack: Ack) {
        match self.get_mut(slot) {
            Some(session) => {
                match session.ack.is_noop() {
                    true => session.ack = ack,
                    false => session.ack.merge(ack),
                }
                session.held += 1;
            }
            None => ack.settle(Outcome::Filtered),
        }
    }

    /// Removes a session.
    fn take(&mut self, slot: u32) -> Option<Session> {
        let session = self.slots.get_mut(slot as usize)?.take()?;
        self.change(slot);
        self.free.insert(slot);
        self.starts.remove(&(session.group.hash(), session.span.start, slot));
        self.ends.remove(&(session.noted, slot));
        Some(session)
    }

    /// The slots of sessions that are over, which their caller removes.
    pub(super) fn take_over(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.over)
    }

    /// The slots of all sessions, which their caller removes.
    pub(super) fn take_all(&mut self) -> Vec<u32> {
        self.over.clear();
        (0..self.slots.len() as u32).filter(|slot| self.get(*slot).is_some()).collect()
    }

    /// The slots of the sessions that hold the most acks: as many as hold this number together.
    pub(super) fn holders(&self, least: usize) -> Vec<u32> {
        let held = |slot: u32| self.get(slot).map_or(0, |session| session.held);
        let mut slots: Vec<u32> = (0..self.slots.len() as u32).filter(|slot| held(*slot) > 0).collect();
        slots.sort_by_key(|slot| std::cmp::Reverse(held(*slot)));
        let mut sum = 0;
        slots.retain(|slot| {
            let is_needed = sum < least;
            sum += held(*slot);
            is_needed
        });
        slots
    }

    /// Removes sessions whose results leave, in the order of their ends.
    pub(super) fn leave(&mut self, slots: Vec<u32>) -> Leaving {
        let mut sessions: Vec<Session> = slots.into_iter().filter_map(|slot| self.take(slot)).collect();
        while let Some(None) = self.slots.last() {
            self.slots.pop();
            self.free.remove(&(self.slots.len() as u32));
        }
        self.blocks.truncate(self.slots.len().div_ceil(BLOCK));
        sessions.sort_by_key(|session| (session.span.end, session.span.start, session.group.hash()));
        let mut leaving = Leaving {
            sessions: Vec::with_capacity(sessions.len()),
            places: Places::default(),
            ack: Ack::noop(),
            held: 0,
            bytes: sessions.iter().map(Session::bytes).sum(),
        };
        for session in sessions {
            session.places.into_iter().for_each(|place| leaving.places.add_one(place));
            leaving.ack.merge(session.ack);
            leaving.held += session.held;
            leaving.sessions.push((session.span, session.group));
        }
        leaving
    }

    /// Passes the blocks that have changed to `save`, which returns the entry of the journal that has them.
    pub(super) fn save(&mut self, mut save: impl FnMut(&Value) -> Result<u64, Error>) -> Result<(), Error> {
        for (slots, saved) in self.slots.chunks_mut(BLOCK).zip(&mut self.blocks) {
            if saved.is_some() || slots.iter().all(Option::is_none) {
                continue;
            }
            let shown = slots
                .iter()
                .map(|slot| slot.as_ref().map(|session| Shown { span: session.span, group: &session.group }));
            let shown = serde_json::to_value(shown.collect::<Vec<_>>()).map_err(unsaved)?;
            let entry = save(&shown)?;
            *saved = Some(entry);
            for (slot, session) in (0..).zip(slots) {
                if let Some(session) = session {
                    session.places = vec![(entry, slot)];
                }
            }
        }
        Ok(())
    }

    /// The entries of the journal that have all sessions, after [`save`](Self::save).
    pub(super) fn entries(&self) -> Vec<u64> {
        self.blocks.iter().flatten().copied().collect()
    }

    /// Settles the acks of all messages: a checkpoint has them.
    pub(super) fn settle(&mut self) {
        for session in self.slots.iter_mut().flatten() {
            session.held = 0;
            std::mem::replace(&mut session.ack, Ack::noop()).settle(Outcome::Delivered);
        }
    }

    /// Adds all sessions that an entry of the journal has. They get a block of their own, which stays as it
    /// is.
    pub(super) fn restore(&mut self, entry: u64, block: Vec<Option<Restored>>) {
        while !self.slots.len().is_multiple_of(BLOCK) {
            self.free.insert(self.slots.len() as u32);
            self.slots.push(None);
        }
        for (place, restored) in (0..).zip(block) {
            let slot = self.slots.len() as u32;
            self.slots.push(None);
            match restored {
                Some(restored) => {
                    self.put(slot, Session::new(restored.span, restored.group, vec![(entry, place)]))
                }
                None => {
                    self.free.insert(slot);
                }
            }
        }
        self.blocks.resize(self.slots.len().div_ceil(BLOCK), None);
        if let Some(last) = self.blocks.last_mut() {
            *last = Some(entry);
        }
    }

    /// Adds some of the sessions that an entry of the journal has, which is then out of date.
    pub(super) fn restore_some(
        &mut self,
        entry: u64,
        block: Vec<Option<Restored>>,
        is_kept: impl Fn(usize) -> bool,
    ) {
        self.replaced.push(entry);
        for (place, restored) in block.into_iter().enumerate().filter(|(place, _)| is_kept(*place)) {
            if let Some(Restored { span, group }) = restored {
                let slot = self.insert(Session::new(span, group, vec![(entry, place as u32)]));
                self.change(slot);
            }
        }
    }
}

/// Returns the error of sessions that cannot be written.
fn unsaved(error: serde_json::Error) -> Error {
    Error::permanent(format!("the groups cannot be written to the state: {error}"))
}
