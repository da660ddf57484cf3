//! Open windows in a checkpoint.
//!
//! The groups are in the journal, in blocks. A checkpoint names the entries that belong to it, and costs what
//! has changed since the last one.
//!
//! Between two checkpoints, results may leave whose messages are in the former one. They stay in the state
//! until they are delivered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::{Error, Journal};
use thalweg_record::{Ack, Outcome};

use super::entries::{Entries, Fate};
use super::function::Kind;
use super::group::{BLOCK, Group};
use super::saved::{Saved, SavedWindow};
use super::window::Window;

/// The open windows of a former run, its watermark, and the secret of its hashes.
type Restored = (BTreeMap<i64, Window>, i64, Secret);

/// Keeps open windows in the journal.
pub(super) struct KeptWindows {
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
            entries: Entries::new(journal),
            options: options.clone(),
            secret,
            place: place.into(),
            last: Saved::new(options, secret, watermark),
            told: None,
            starts: HashSet::new(),
            leaving: HashMap::new(),
        }
    }

    /// An entry of the journal is out of date.
    pub(super) fn replaced(&mut self, entry: Option<u64>) {
        self.entries.replaced(entry);
    }

    /// The results of a window leave, with this ack.
    pub(super) fn leaves(&mut self, start: i64, window: &mut Window) {
        if self.starts.contains(&start) {
            self.leaving.insert(start, Fate::of(&mut window.ack, &self.place));
        }
    }

    /// True if results have failed whose messages the last checkpoint settled. No position shows that, and
    /// one of several sinks may have them: only the last saved checkpoint has all sinks without them.
    pub(super) fn has_failed(&self) -> bool {
        self.leaving.values().any(Fate::has_failed)
    }

    /// True if results have left of windows that the last checkpoint has.
    pub(super) fn has_news(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns what the last checkpoint has of windows whose results are not delivered.
    fn undelivered(&self) -> Vec<SavedWindow> {
        let is_open = |start: &i64| self.leaving.get(start).is_some_and(|fate| !fate.is_safe());
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
        // Nothing moves, so a transform behind this one holds the results that are not delivered. It settles
        // them at the same checkpoint, if not yet, then before `state`. A later run sends again what failed.
        let mut saved = self.undelivered();
        // Also of results that are delivered by now: the last checkpoint may have been before.
        let listed = self.last.windows.iter().filter(|window| self.leaving.contains_key(&window.start));
        let needed: HashSet<u64> = listed.flat_map(|window| window.entries.iter().copied()).collect();
        self.entries.forget_old(|entry| needed.contains(&entry))?;
        self.forget_delivered(&saved);
        for (&start, window) in windows.iter_mut() {
            for block in 0..window.blocks.len() {
                if window.blocks[block].is_none() {
                    let groups = serde_json::to_value(window.block(block)).map_err(|error| {
                        Error::permanent(format!("the groups cannot be written to the state: {error}"))
                    })?;
                    window.blocks[block] = Some(self.entries.write(&groups)?);
                }
            }
            let entries = window.blocks.iter().flatten().copied().collect();
            saved.push(SavedWindow { start, count: window.count, entries });
        }
        self.entries.are_complete();
        self.starts = saved.iter().map(|window| window.start).collect();
        let before = Saved::new(self.options.clone(), self.secret, watermark);
        self.last = Saved { next: self.entries.next(), windows: saved, ..before };
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
        self.entries.replaced(gone.flat_map(|window| window.entries.iter().copied()));
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
        let Some(saved) = Saved::read(saved, &self.options)? else { return Ok(None) };
        let mut windows = BTreeMap::new();
        for kept in &saved.windows {
            let window: &mut Window = windows.entry(kept.start).or_insert_with(|| Window::new(no_ack()));
            if window.len() > 0 {
                return Err(crate::unusable_state("a window is there twice"));
            }
            window.count = kept.count;
            for &entry in &kept.entries {
                for group in self.entries.read::<Group>(entry)? {
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
        self.entries.resume(saved.next, saved.entries())?;
        self.secret = saved.secret;
        let (watermark, secret) = (saved.watermark, saved.secret);
        self.told = Some(saved.clone());
        self.starts = saved.windows.iter().map(|window| window.start).collect();
        self.last = saved;
        Ok(Some((windows, watermark, secret)))
    }
}
