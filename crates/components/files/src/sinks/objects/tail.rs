//! The last bytes of an unfinished object.
//!
//! A store accepts a small part only as the last one of an object. So at a checkpoint, the bytes after the
//! last part that was sent are kept in the state directory, and a run that continues the object begins its
//! next part with them. A checkpoint adds only the bytes that came since the one before it. (Rejected:
//! sending a small part where the store allows it. An object would have thousands of parts, of which a store
//! has a maximum.)

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use thalweg_engine::{Error, Journal};

use crate::kept_bytes::{self, KeptBytes};

/// The first bytes of a part, which the state directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tail {
    /// The number of the part.
    pub(super) part: u32,
    /// The bytes.
    pub(super) kept: KeptBytes,
}

/// The tails of one object.
pub(super) struct Tails<'a> {
    pub(super) journal: &'a Journal,
    /// The [id](super::object::Object::id) of the object.
    pub(super) id: u64,
}

/// The beginning of the names of all entries.
const PREFIX: &str = "tail/";

fn prefix() -> String {
    format!("{}{PREFIX}", Journal::UNFINISHED)
}

impl Tails<'_> {
    /// Adds bytes to a tail.
    pub(super) fn add<'b>(
        &self,
        tail: &mut Tail,
        mut pieces: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), Error> {
        let name = self.name(tail.part);
        let mut adding = tail.kept.adding(self.journal, &name);
        pieces.try_for_each(|piece| adding.add(piece))?;
        tail.kept = adding.finish()?;
        Ok(())
    }

    /// Passes the bytes of a tail to `take`, a piece at a time.
    pub(super) fn read(
        &self,
        tail: Tail,
        take: impl FnMut(Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        tail.kept.read(self.journal, &self.name(tail.part), take)
    }

    /// Removes the tail of a part.
    pub(super) fn forget(&self, part: u32) -> Result<(), Error> {
        kept_bytes::forget(self.journal, &self.name(part))
    }

    fn name(&self, part: u32) -> String {
        name(self.id, part)
    }
}

fn name(id: u64, part: u32) -> String {
    format!("{}{id}/{part}/", prefix())
}

/// Removes the tails of all objects, except these of objects with these ids.
pub(super) fn forget_tails(
    journal: &Journal,
    kept: impl IntoIterator<Item = (u64, Tail)>,
) -> Result<(), Error> {
    let kept: HashSet<String> = kept.into_iter().map(|(id, tail)| name(id, tail.part)).collect();
    journal.forget_outputs_except(kept.iter().map(String::as_str))?;
    for name in journal.names(&prefix())? {
        // The name of an entry is that of the tail, the page and the number in it.
        let mut parts = name.rsplitn(3, '/');
        let tail = parts.nth(2).unwrap_or_default();
        if !kept.contains(&format!("{tail}/")) {
            journal.forget(&name)?;
        }
    }
    Ok(())
}
