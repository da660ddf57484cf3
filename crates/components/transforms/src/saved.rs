//! The state for a later run: which entries of the journal have what is open.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_codec::keys::Secret;
use thalweg_engine::Error;

use crate::open::Open;

/// The state for a later run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// The options that determine what is saved.
    pub(crate) options: String,
    /// That of the hashes of keys.
    pub(crate) secret: Secret,
    /// A number that grows: of windows by time the end of time, otherwise the number of the next one.
    pub(crate) watermark: i64,
    /// The number of the next entry.
    pub(crate) next: u64,
    pub(crate) windows: Vec<SavedWindow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedWindow {
    pub(crate) start: i64,
    pub(crate) count: u64,
    /// The entries of its blocks.
    pub(crate) entries: Vec<u64>,
}

impl Saved {
    /// The state before the first message.
    pub(crate) fn new(options: String, secret: Secret, watermark: i64) -> Self {
        Self { options, secret, watermark, next: 0, windows: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// The entries of the journal that it needs.
    pub(crate) fn entries(&self) -> impl Iterator<Item = u64> {
        self.windows.iter().flat_map(|window| window.entries.iter().copied())
    }

    /// Reads a state. Returns None if the options are others, and nothing was open.
    pub(crate) fn read<T: Open>(saved: Value, options: &str) -> Result<Option<Self>, Error> {
        let saved: Self = serde_json::from_value(saved).map_err(crate::unusable_state)?;
        if saved.options != options && saved.is_empty() {
            return Ok(None);
        }
        if saved.options != options {
            return Err(Error::permanent(format!(
                "an earlier run left open {} of other options: `{}`. Set the options back until the input ends, or \
                 use another state folder, with which all input is read from its beginning",
                T::PLURAL,
                saved.options
            )));
        }
        let is_possible = |number: i64| number == i64::MIN || T::is_possible(number);
        if !is_possible(saved.watermark)
            || saved.windows.iter().any(|window| !T::is_possible(window.start))
            || saved.next > u64::MAX / 2
            || saved.entries().any(|entry| entry >= saved.next)
        {
            return Err(crate::unusable_state("a number is impossible"));
        }
        Ok(Some(saved))
    }
}

/// Refuses a state with something open that this run cannot continue.
pub(crate) fn unneeded<T: Open>(saved: Value) -> Result<(), Error> {
    let saved: Saved = serde_json::from_value(saved).map_err(crate::unusable_state)?;
    match saved.is_empty() {
        true => Ok(()),
        false => Err(Error::permanent(format!(
            "an earlier run left open {}, but a source of this configuration cannot read its messages again. Set \
             the sources back until their input ends, or use another state folder",
            T::PLURAL
        ))),
    }
}
