//! Open windows in a checkpoint.
//!
//! The groups are in the journal, in blocks. A checkpoint names the entries that belong to it. An entry is
//! never changed: a block that has changed is written to a new one, and the old one is deleted once no
//! checkpoint needs it. So a checkpoint costs what has changed since the last one, and a kill between the
//! entries and the checkpoint leaves the former one whole.
//!
//! Between two checkpoints, results may leave whose messages are in the former one. They stay in the state
//! until they are delivered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Journal};
use thalweg_record::{Ack, Outcome, Settlement};

use super::function::Kind;
use super::timing::is_reachable;
use super::window::{BLOCK, Group, Window};

/// The state for a later run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The options that determine what groups have.
    options: String,
    /// That of the hashes of keys.
    secret: Secret,
    /// The end of time: messages before it are late.
    pub(super) watermark: i64,
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

/// The open windows of a former run, its watermark, and the secret of its hashes.
type Restored = (BTreeMap<i64, Window>, i64, Secret);

/// Keeps open windows in the journal.
pub(super) struct KeptWindows {
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
}

/// The beginning of the names of entries.
fn prefix() -> String {
    format!("{}groups/", Journal::UNFINISHED)
}

fn name(entry: u64) -> String {
    format!("{}{entry:020}", prefix())
}

/// Refuses a state with open windows that this run cannot continue.
pub(super) fn unneeded(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.windows.is_empty() {
        true => Ok(()),
        false => Err(Error::permanent(
            "an earlier run left open windows, but a source of this configuration cannot read its messages again. Set \
             the sources back until their input ends, or use another state folder",
        )),
    }
}

impl KeptWindows {
    /// Keeps windows with groups of these options. `watermark` is that before the first message, `secret`
    /// that of the hashes without a state.
    pub(super) fn new(
        journal: Journal,
        options: String,
        secret: Secret,
        watermark: i64,
        place: &str,
    ) -> Self {
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
        }
    }

    /// An entry of the journal is out of date.
    pub(super) fn replaced(&mut self, entry: Option<u64>) {
        self.finished.extend(entry);
    }

    /// The results of a window leave, with this ack.
    pub(super) fn leaves(&mut self, start: i64, window: &mut Window) {
        if !self.starts.contains(&start) {
            return;
        }
        let fate = Arc::new(AtomicU8::new(OPEN));
        let told = fate.clone();
        let ack = Ack::new(self.place.clone(), move |settlement: Settlement| {
            told.store(if settlement.outcome.is_safe() { SAFE } else { FAILED }, Ordering::Release);
        });
        window.ack.merge(ack);
        self.leaving.insert(start, fate);
    }

    /// True if results have failed whose messages the last checkpoint settled. No position shows that, and
    /// one of several sinks may have them: only the last saved checkpoint has all sinks without them.
    pub(super) fn has_failed(&self) -> bool {
        self.leaving.values().any(|fate| fate.load(Ordering::Acquire) == FAILED)
    }

    /// True if results have left of windows that the last checkpoint has.
    pub(super) fn has_news(&self) -> bool {
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
    pub(super) fn keep(
        &mut self,
        windows: &mut BTreeMap<i64, Window>,
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
            for block in 0..window.blocks.len() {
                if window.blocks[block].is_none() {
                    let groups = serde_json::to_value(window.block(block)).map_err(|error| {
                        Error::permanent(format!("the groups cannot be written to the state: {error}"))
                    })?;
                    self.journal.note(&name(self.next), &groups)?;
                    window.blocks[block] = Some(self.next);
                    self.next += 1;
                }
            }
            let entries = window.blocks.iter().flatten().copied().collect();
            saved.push(SavedWindow { start, count: window.count, entries });
        }
        self.old.append(&mut self.finished);
        let (options, secret) = (self.options.clone(), self.secret);
        self.starts = saved.iter().map(|window| window.start).collect();
        self.last = Saved { options, secret, watermark, next: self.next, windows: saved };
        for window in windows.values_mut() {
            window.held = 0;
            std::mem::replace(&mut window.ack, no_ack()).settle(Outcome::Delivered);
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
    pub(super) fn state(&mut self) -> Option<Value> {
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

    /// Reads the windows of a state, its watermark and its secret. Returns None if the options are others,
    /// and no window was open.
    pub(super) fn restore(
        &mut self,
        saved: Value,
        keys: usize,
        kinds: &[Kind],
        no_ack: impl Fn() -> Ack,
    ) -> Result<Option<Restored>, Error> {
        let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.options != self.options && saved.windows.is_empty() {
            return Ok(None);
        }
        if saved.options != self.options {
            return Err(Error::permanent(format!(
                "an earlier run left open windows of other options: `{}`. Set the options back until the input ends, or \
                 use another state folder, with which all input is read from its beginning",
                saved.options
            )));
        }
        let is_possible = |time: i64| time == i64::MIN || is_reachable(time);
        let entries = || saved.windows.iter().flat_map(|window| &window.entries);
        if !is_possible(saved.watermark)
            || saved.windows.iter().any(|window| !is_reachable(window.start))
            || saved.next > u64::MAX / 2
            || entries().any(|entry| *entry >= saved.next)
        {
            return Err(crate::unusable_state("a number is impossible"));
        }
        let mut windows = BTreeMap::new();
        let mut needed = HashSet::new();
        for kept in &saved.windows {
            let window: &mut Window = windows.entry(kept.start).or_insert_with(|| Window::new(no_ack()));
            if window.len() > 0 {
                return Err(crate::unusable_state("a window is there twice"));
            }
            window.count = kept.count;
            for &entry in &kept.entries {
                needed.insert(name(entry));
                for group in self.block(entry)? {
                    let is_whole = group.is_valid(keys, kinds) && window.restore(group);
                    if !is_whole {
                        return Err(crate::unusable_state("a group does not fit the options"));
                    }
                }
                window.blocks.push(Some(entry));
            }
            if window.blocks.len() != window.len().div_ceil(BLOCK) {
                return Err(crate::unusable_state("groups are missing"));
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
    fn block(&self, entry: u64) -> Result<Vec<Group>, Error> {
        let found = self.journal.entries(&name(entry))?;
        let Some((_, groups)) = found.into_iter().next() else {
            return Err(crate::unusable_state(format!("the groups of entry {entry} are missing")));
        };
        serde_json::from_value(groups).map_err(crate::unusable_state)
    }
}
