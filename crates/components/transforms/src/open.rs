//! Open windows and groups of transforms, and the acks of their messages.
//!
//! With a state, a checkpoint has what is open, and settles the acks. Without one, they are settled when the
//! results are delivered, unless a run starts over from the beginning of its input anyway: the acks of all
//! batches of a long input would then be kept for nothing.
//!
//! Each window or group has a number, and is in the journal, in blocks ([`crate::entries`]). A checkpoint
//! names the entries that belong to it, and costs what has changed since the last one.
//!
//! Between two checkpoints, results may leave whose messages are in the former one. They stay in the state
//! until they are delivered.
//!
//! See docs/decisions/108-aggregates-hold-acks-or-state.md.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Context, Error, Journal};
use thalweg_record::{Ack, Outcome};

use crate::entries::{Entries, Fate};
use crate::saved::{Saved, SavedWindow};

/// A window or group of a transform: its messages leave later, as one or several results.
pub(crate) trait Open {
    /// The noun for several of them.
    const PLURAL: &'static str;

    /// Creates one without messages. `ack` is one of no message.
    fn new(ack: Ack) -> Self;

    /// True if one may have this number: a state may be damaged.
    fn is_possible(number: i64) -> bool;

    /// The number of its messages.
    fn count(&mut self) -> &mut u64;

    /// The acks of messages that no checkpoint covers.
    fn ack(&mut self) -> &mut Ack;

    /// The acks are settled.
    fn has_settled(&mut self);

    /// The entry of the journal that has a block, if the block has not changed since.
    fn entries(&mut self) -> &mut [Option<u64>];

    /// Returns a block as it is saved.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    fn block(&self, block: usize) -> serde_json::Result<Value>;

    /// True if all of it was read from a state.
    fn is_whole(&self) -> bool;
}

/// Returns an ack of no message, held by a component.
pub(crate) fn no_ack(component: &Arc<str>) -> Ack {
    let mut ack = Ack::noop();
    ack.enter(component);
    ack
}

/// Keeps what is open in checkpoints.
pub(crate) trait Keeps {
    /// True if results have failed whose messages the last checkpoint settled. No position shows that, and
    /// one of several sinks may have them: only the last saved checkpoint has all sinks without them.
    fn has_failed(&self) -> bool;

    /// True if results have left of what the last checkpoint has.
    fn has_news(&self) -> bool;

    /// Returns the state, if it has changed since the last call.
    fn state(&mut self) -> Option<Value>;
}

/// When the acks of messages are settled.
pub(crate) enum Acks<K> {
    /// At a checkpoint, which has what is open.
    Checkpoint(Box<K>),
    /// When the results are delivered.
    Results,
    /// At once: a run starts over.
    AtOnce,
}

impl<K: Keeps> Acks<K> {
    /// Chooses for a run. `keep` begins to keep windows or groups in a journal.
    pub(crate) fn new(context: &Context, keep: impl FnOnce(Journal) -> K) -> Self {
        match context.journal.clone().filter(|_| context.resumes && context.rereads) {
            Some(journal) => Acks::Checkpoint(Box::new(keep(journal))),
            None if context.starts_over && !context.resumes => Acks::AtOnce,
            None => Acks::Results,
        }
    }

    /// See [`Transform::has_failed`](thalweg_engine::Transform::has_failed).
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Acks::Checkpoint(kept) => kept.has_failed(),
            Acks::Results | Acks::AtOnce => false,
        }
    }

    /// See [`Transform::has_news`](thalweg_engine::Transform::has_news).
    pub(crate) fn has_news(&self) -> bool {
        match self {
            Acks::Checkpoint(kept) => kept.has_news(),
            Acks::Results | Acks::AtOnce => false,
        }
    }

    /// See [`Transform::state`](thalweg_engine::Transform::state).
    pub(crate) fn state(&mut self) -> Option<Value> {
        match self {
            Acks::Checkpoint(kept) => kept.state(),
            Acks::Results | Acks::AtOnce => None,
        }
    }
}

/// The windows or groups that a former run had open, by their numbers, its watermark, and the secret of its
/// hashes.
type Restored<T> = (BTreeMap<i64, T>, i64, Secret);

/// Keeps what is open in the journal.
pub(crate) struct KeptOpen<T> {
    entries: Entries,
    options: String,
    secret: Secret,
    /// The name of the transform.
    place: Arc<str>,
    /// The state at the last call of [`keep`](Self::keep), or before the first message. It is there from the
    /// beginning, so that also the first checkpoint waits until nothing moves.
    last: Saved,
    /// The state that was returned last.
    told: Option<Saved>,
    /// The starts of its windows.
    starts: HashSet<i64>,
    /// Of these, the windows whose results have left.
    leaving: HashMap<i64, Fate>,
    of: PhantomData<fn() -> T>,
}

impl<T: Open> KeptOpen<T> {
    /// Keeps what these options determine. `secret` is that of the hashes without a state, and `watermark` is
    /// that before the first message.
    pub(crate) fn new(
        journal: Journal,
        options: String,
        secret: Secret,
        watermark: i64,
        place: &str,
    ) -> Self {
        Self {
            entries: Entries::new(journal),
            options: options.clone(),
            secret,
            place: place.into(),
            last: Saved::new(options, secret, watermark),
            told: None,
            starts: HashSet::new(),
            leaving: HashMap::new(),
            of: PhantomData,
        }
    }

    /// An entry of the journal is out of date.
    pub(crate) fn replaced(&mut self, entry: Option<u64>) {
        self.entries.replaced(entry);
    }

    /// The results of a window leave, with this ack.
    pub(crate) fn leaves(&mut self, start: i64, window: &mut T) {
        if self.starts.contains(&start) {
            self.leaving.insert(start, Fate::of(window.ack(), &self.place));
        }
    }

    /// Returns what the last checkpoint has of windows whose results are not delivered.
    fn undelivered(&self) -> Vec<SavedWindow> {
        let is_open = |start: &i64| self.leaving.get(start).is_some_and(|fate| !fate.is_safe());
        let saved = self.last.windows.iter();
        saved.filter(|window| is_open(&window.start)).cloned().collect()
    }

    /// Puts windows into the journal, and settles their acks. `no_ack` makes acks of no messages.
    pub(crate) fn keep(
        &mut self,
        windows: &mut BTreeMap<i64, T>,
        watermark: i64,
        no_ack: impl Fn() -> Ack,
    ) -> Result<(), Error> {
        // Nothing moves, so a transform behind this one holds the results that are not delivered. It settles
        // them at the same checkpoint, if not yet, then before `state`. A later run sends again what failed.
        let mut saved = self.undelivered();
        // Also of results that are delivered by now: the last checkpoint may have been before.
        let listed = self.last.windows.iter().filter(|window| self.leaving.contains_key(&window.start));
        let needed: HashSet<u64> = listed.flat_map(|window| window.entries.iter().copied()).collect();
        self.entries.forget_old(|entry| needed.contains(&entry))?;
        self.forget_delivered(&saved);
        for (&start, window) in windows.iter_mut() {
            for block in 0..window.entries().len() {
                if window.entries()[block].is_none() {
                    let value = window.block(block).map_err(|error| {
                        Error::permanent(format!("the groups cannot be written to the state: {error}"))
                    })?;
                    window.entries()[block] = Some(self.entries.write(&value)?);
                }
            }
            let entries = window.entries().iter().flatten().copied().collect();
            saved.push(SavedWindow { start, count: *window.count(), entries });
        }
        self.entries.are_complete();
        self.starts = saved.iter().map(|window| window.start).collect();
        let before = Saved::new(self.options.clone(), self.secret, watermark);
        self.last = Saved { next: self.entries.next(), windows: saved, ..before };
        for window in windows.values_mut() {
            window.has_settled();
            std::mem::replace(window.ack(), no_ack()).settle(Outcome::Delivered);
        }
        Ok(())
    }

    /// Notes that the entries of windows whose results are delivered are out of date. The others are `kept`.
    fn forget_delivered(&mut self, kept: &[SavedWindow]) {
        let kept: HashSet<i64> = kept.iter().map(|window| window.start).collect();
        let leaving = &self.leaving;
        let saved = self.last.windows.iter();
        let gone =
            saved.filter(|window| leaving.contains_key(&window.start) && !kept.contains(&window.start));
        // Those of blocks that have changed since are there already.
        self.entries.replaced(gone.flat_map(|window| window.entries.iter().copied()));
        self.leaving.retain(|start, _| kept.contains(start));
    }

    /// Reads what a state has open, its watermark and its secret. `read` adds the value of an entry. Returns
    /// None if the options are others, and nothing was open.
    pub(crate) fn restore(
        &mut self,
        saved: Value,
        no_ack: impl Fn() -> Ack,
        read: impl Fn(&mut T, u64, Value) -> Result<(), Error>,
    ) -> Result<Option<Restored<T>>, Error> {
        let Some(saved) = Saved::read::<T>(saved, &self.options)? else { return Ok(None) };
        let mut windows = BTreeMap::new();
        for kept in &saved.windows {
            let mut window = T::new(no_ack());
            *window.count() = kept.count;
            for &entry in &kept.entries {
                read(&mut window, entry, self.entries.read(entry)?)?;
            }
            if !window.is_whole() {
                return Err(crate::unusable_state("groups are missing"));
            }
            if windows.insert(kept.start, window).is_some() {
                return Err(crate::unusable_state("a number is there twice"));
            }
        }
        self.entries.resume(saved.next, saved.entries())?;
        self.secret = saved.secret;
        let (watermark, secret) = (saved.watermark, saved.secret);
        self.told = Some(saved.clone());
        self.starts = saved.windows.iter().map(|window| window.start).collect();
        self.last = saved;
        Ok(Some((windows, watermark, secret)))
    }
}

impl<T: Open> Keeps for KeptOpen<T> {
    fn has_failed(&self) -> bool {
        self.leaving.values().any(Fate::has_failed)
    }

    fn has_news(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn state(&mut self) -> Option<Value> {
        let last = &self.last;
        let undelivered = self.undelivered();
        let is_left = |window: &&SavedWindow| self.leaving.contains_key(&window.start);
        let mut windows: Vec<SavedWindow> =
            last.windows.iter().filter(|window| !is_left(window)).cloned().collect();
        windows.extend(undelivered);
        let state = Saved { windows, ..last.clone() };
        if self.told.as_ref() == Some(&state) {
            return None;
        }
        let value = serde_json::to_value(&state).ok();
        self.told = Some(state);
        value
    }
}
