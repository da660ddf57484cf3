//! Dead letters that no checkpoint covers: those of messages that come again after a run was killed.

use std::sync::Arc;

use super::Checkpoints;
use crate::Error;
use crate::store::{DeadLetterId, Store};

/// Removes the dead letters of a run that was killed, of messages that come again, and notes which ones are
/// there before this run.
///
/// # Errors
/// If the store cannot be used.
pub(in crate::run) fn begin(store: &Store, groups: &[Arc<Checkpoints>]) -> Result<(), Error> {
    remove_uncovered(store, &store.uncovered_letters()?)?;
    store.cover_letters(rereading(groups))
}

/// As [`begin`], for a part that begins while others run: their letters are their own. There are uncovered
/// ones if the part before this one could not deliver all that was in flight.
///
/// # Errors
/// If the store cannot be used.
pub(in crate::run) fn begin_beside(store: &Store, groups: &[Arc<Checkpoints>]) -> Result<(), Error> {
    let again = store.uncovered_letters_of(|source| rereading(groups).any(|own| **own == *source))?;
    remove_uncovered(store, &again)?;
    store.cover_letters_beside(rereading(groups))
}

/// As [`begin`], before the first part of several begins.
///
/// # Errors
/// If the store cannot be used.
pub(in crate::run) fn begin_parts(store: &Store) -> Result<(), Error> {
    remove_uncovered(store, &store.uncovered_letters()?)?;
    store.cover_letters(std::iter::empty())
}

/// The sources whose messages come again if the run is killed.
fn rereading(groups: &[Arc<Checkpoints>]) -> impl Iterator<Item = &Arc<str>> {
    let groups = groups.iter().filter(|group| group.covers_letters);
    groups.flat_map(|group| group.positions.iter().map(|(source, _)| source))
}

fn remove_uncovered(store: &Store, again: &[DeadLetterId]) -> Result<(), Error> {
    if !again.is_empty() {
        tracing::info!(
            "{} dead letters of a run that was killed are removed: their messages are processed again",
            again.len()
        );
        store.remove_letters(again)?;
    }
    Ok(())
}
