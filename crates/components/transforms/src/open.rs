//! Open windows and groups of transforms, and the acks of their messages.
//!
//! With a state, a checkpoint has what is open, and settles the acks. Without one, they are settled when the
//! results are delivered, unless a run starts over from the beginning of its input anyway: the acks of all
//! batches of a long input would then be kept for nothing.
//!
//! Each window or group has a number, and is in the journal, in blocks. A checkpoint names the entries that
//! belong to it. An entry is never changed: a block that has changed is written to a new one, and the old one
//! is deleted once no checkpoint needs it. So a checkpoint costs what has changed since the last one, and a
//! kill between the entries and the checkpoint leaves the former one whole.
//!
//! Between two checkpoints, results may leave whose messages are in the former one. They stay in the state
//! until they are delivered.
//!
//! See docs/decisions/108-aggregates-hold-acks-or-state.md.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Context, Error, Journal};
use thalweg_record::{Ack, Outcome, Settlement};

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

/// When the acks of messages are settled.
pub(crate) enum Acks<T> {
    /// At a checkpoint, which has what is open.
    Checkpoint(Box<KeptOpen<T>>),
    /// When the results are delivered.
    Results,
    /// At once: a run starts over.
    AtOnce,
}

impl<T: Open> Acks<T> {
    /// Chooses for a run. `options` are those that determine what is saved, `secret` is that of the hashes
    /// without a state, and `watermark` is that before the first message.
    pub(crate) fn new(
        context: &Context,
        options: impl FnOnce() -> String,
        secret: Secret,
        watermark: i64,
    ) -> Self {
        match context.journal.clone().filter(|_| context.resumes && context.rereads) {
            Some(journal) => {
                let kept = KeptOpen::new(journal, options(), secret, watermark, &context.name);
                Acks::Checkpoint(Box::new(kept))
            }
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

    /// Returns the state, if it has changed since the last call.
    pub(crate) fn state(&mut self) -> Option<Value> {
        match self {
            Acks::Checkpoint(kept) => kept.state(),
            Acks::Results | Acks::AtOnce => None,
        }
    }

    /// Reads what a state has open, its watermark and its secret: see [`KeptOpen::restore`].
    pub(crate) fn restore(
        &mut self,
        saved: Value,
        no_ack: impl Fn() -> Ack,
        read: impl Fn(&mut T, u64, Value) -> Result<(), Error>,
    ) -> Result<Option<Restored<T>>, Error> {
        match self {
            Acks::Checkpoint(kept) => kept.restore(saved, no_ack, read),
            Acks::Results | Acks::AtOnce => unneeded::<T>(saved).map(|()| None),
        }
    }
}

/// The state for a later run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Saved {
    /// The options that determine what is saved.
    options: String,
    /// That of the hashes of keys.
    secret: Secret,
    /// A number that grows: of windows by time the end of time, otherwise the number of the next one.
    watermark: i64,
    /// The number of the next entry.
    next: u64,
    windows: Vec<SavedWindow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SavedWindow {
    start: i64,
    count: u64,
    /// The entries of its blocks.
    entries: Vec<u64>,
}

/// The results are on their way.
const OPEN: u8 = 0;
/// They are delivered.
const SAFE: u8 = 1;
/// They are not, and no checkpoint may forget their messages.
const FAILED: u8 = 2;

/// The windows or groups that a former run had open, by their numbers, its watermark, and the secret of its
/// hashes.
type Restored<T> = (BTreeMap<i64, T>, i64, Secret);

/// Keeps what is open in the journal.
pub(crate) struct KeptOpen<T> {
    journal: Journal,
    options: String,
    secret: Secret,
    /// The name of the transform.
    place: Arc<str>,
    next: u64,
    /// The state at the last call of [`keep`](Self::keep), or before the first message. It is there from the
    /// beginning, so that also the first checkpoint waits until nothing moves.
    last: Saved,
    /// The state that was returned last.
    told: Option<Saved>,
    /// The starts of its windows.
    starts: HashSet<i64>,
    /// Of these, the windows whose results have left, each with one of the constants above.
    leaving: HashMap<i64, Arc<AtomicU8>>,
    /// The entries that are out of date since the last checkpoint, and those that were before it.
    finished: Vec<u64>,
    old: Vec<u64>,
    /// True once entries that belong to no checkpoint are deleted.
    is_clean: bool,
    of: PhantomData<fn() -> T>,
}

/// The beginning of the names of entries.
fn prefix() -> String {
    format!("{}groups/", Journal::UNFINISHED)
}

fn name(entry: u64) -> String {
    format!("{}{entry:020}", prefix())
}

/// Refuses a state with something open that this run cannot continue.
fn unneeded<T: Open>(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.windows.is_empty() {
        true => Ok(()),
        false => Err(Error::permanent(format!(
            "an earlier run left open {}, but a source of this configuration cannot read its messages again. Set \
             the sources back until their input ends, or use another state folder",
            T::PLURAL
        ))),
    }
}

impl<T: Open> KeptOpen<T> {
    fn new(journal: Journal, options: String, secret: Secret, watermark: i64, place: &str) -> Self {
        Self {
            journal,
            options: options.clone(),
            secret,
            place: place.into(),
            next: 0,
            last: Saved { options, secret, watermark, next: 0, windows: Vec::new() },
            told: None,
            starts: HashSet::new(),
            leaving: HashMap::new(),
            finished: Vec::new(),
            old: Vec::new(),
            is_clean: false,
            of: PhantomData,
        }
    }

    /// An entry of the journal is out of date.
    pub(crate) fn replaced(&mut self, entry: Option<u64>) {
        self.finished.extend(entry);
    }

    /// The results of a window leave, with this ack.
    pub(crate) fn leaves(&mut self, start: i64, window: &mut T) {
        if !self.starts.contains(&start) {
            return;
        }
        let fate = Arc::new(AtomicU8::new(OPEN));
        let told = fate.clone();
        let ack = Ack::new(self.place.clone(), move |settlement: Settlement| {
            told.store(if settlement.outcome.is_safe() { SAFE } else { FAILED }, Ordering::Release);
        });
        window.ack().merge(ack);
        self.leaving.insert(start, fate);
    }

    /// True if results have failed whose messages the last checkpoint settled. No position shows that, and
    /// one of several sinks may have them: only the last saved checkpoint has all sinks without them.
    fn has_failed(&self) -> bool {
        self.leaving.values().any(|fate| fate.load(Ordering::Acquire) == FAILED)
    }

    /// True if results have left of windows that the last checkpoint has.
    fn has_news(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns what the last checkpoint has of windows whose results are not delivered.
    fn undelivered(&self) -> Vec<SavedWindow> {
        let is_open =
            |start: &i64| self.leaving.get(start).is_some_and(|fate| fate.load(Ordering::Acquire) != SAFE);
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
        if !std::mem::replace(&mut self.is_clean, true) {
            // Of a run that was killed before its first checkpoint.
            self.journal.forget(&prefix())?;
        }
        // Nothing moves, so a transform behind this one holds the results that are not delivered. It settles
        // them at the same checkpoint, if not yet, then before `state`. A later run sends again what failed.
        let mut saved = self.undelivered();
        // Also of results that are delivered by now: the last checkpoint may have been before.
        let listed = self.last.windows.iter().filter(|window| self.leaving.contains_key(&window.start));
        let needed: HashSet<u64> = listed.flat_map(|window| window.entries.iter().copied()).collect();
        for entry in std::mem::take(&mut self.old) {
            match needed.contains(&entry) {
                true => self.old.push(entry),
                false => self.journal.forget(&name(entry))?,
            }
        }
        self.forget_delivered(&saved);
        for (&start, window) in windows.iter_mut() {
            for block in 0..window.entries().len() {
                if window.entries()[block].is_none() {
                    let value = window.block(block).map_err(|error| {
                        Error::permanent(format!("the groups cannot be written to the state: {error}"))
                    })?;
                    self.journal.note(&name(self.next), &value)?;
                    window.entries()[block] = Some(self.next);
                    self.next += 1;
                }
            }
            let entries = window.entries().iter().flatten().copied().collect();
            saved.push(SavedWindow { start, count: *window.count(), entries });
        }
        self.old.append(&mut self.finished);
        let (options, secret) = (self.options.clone(), self.secret);
        self.starts = saved.iter().map(|window| window.start).collect();
        self.last = Saved { options, secret, watermark, next: self.next, windows: saved };
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
        self.finished.extend(gone.flat_map(|window| window.entries.iter().copied()));
        self.finished.sort_unstable();
        self.finished.dedup();
        self.leaving.retain(|start, _| kept.contains(start));
    }

    /// Returns the state, if it has changed since the last call.
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

    /// Reads what a state has open, its watermark and its secret. `read` adds the value of an entry. Returns
    /// None if the options are others, and nothing was open.
    fn restore(
        &mut self,
        saved: Value,
        no_ack: impl Fn() -> Ack,
        read: impl Fn(&mut T, u64, Value) -> Result<(), Error>,
    ) -> Result<Option<Restored<T>>, Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.options != self.options && saved.windows.is_empty() {
            return Ok(None);
        }
        if saved.options != self.options {
            return Err(Error::permanent(format!(
                "an earlier run left open {} of other options: `{}`. Set the options back until the input ends, or \
                 use another state folder, with which all input is read from its beginning",
                T::PLURAL,
                saved.options
            )));
        }
        let is_possible = |number: i64| number == i64::MIN || T::is_possible(number);
        let entries = || saved.windows.iter().flat_map(|window| &window.entries);
        if !is_possible(saved.watermark)
            || saved.windows.iter().any(|window| !T::is_possible(window.start))
            || saved.next > u64::MAX / 2
            || entries().any(|entry| *entry >= saved.next)
        {
            return Err(crate::unusable_state("a number is impossible"));
        }
        let mut windows = BTreeMap::new();
        let mut needed = HashSet::new();
        for kept in &saved.windows {
            let mut window = T::new(no_ack());
            *window.count() = kept.count;
            for &entry in &kept.entries {
                needed.insert(name(entry));
                read(&mut window, entry, self.entry(entry)?)?;
            }
            if !window.is_whole() {
                return Err(crate::unusable_state("groups are missing"));
            }
            if windows.insert(kept.start, window).is_some() {
                return Err(crate::unusable_state("a number is there twice"));
            }
        }
        for unneeded in self.journal.names(&prefix())?.into_iter().filter(|name| !needed.contains(name)) {
            self.journal.forget(&unneeded)?;
        }
        self.is_clean = true;
        self.next = saved.next;
        self.secret = saved.secret;
        let (watermark, secret) = (saved.watermark, saved.secret);
        self.told = Some(saved.clone());
        self.starts = saved.windows.iter().map(|window| window.start).collect();
        self.last = saved;
        Ok(Some((windows, watermark, secret)))
    }

    /// Reads an entry.
    fn entry(&self, entry: u64) -> Result<Value, Error> {
        let found = self.journal.entries(&name(entry))?;
        let value = found.into_iter().next().map(|(_, value)| value);
        value.ok_or_else(|| crate::unusable_state(format!("the groups of entry {entry} are missing")))
    }
}
