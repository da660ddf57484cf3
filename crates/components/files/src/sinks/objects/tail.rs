//! The last bytes of an unfinished object.
//!
//! A store accepts a small part only as the last one of an object. When a run leaves an object unfinished,
//! the bytes after its last part are kept in the journal, and the next run begins its next part with them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thalweg_engine::{Error, Journal};
use thalweg_store::Body;

/// Bytes that the journal has.
pub(super) struct Tail {
    /// The name of their entry.
    pub(super) name: String,
    /// The number of the part that begins with them.
    pub(super) part: u32,
}

/// The journal's record of such bytes.
pub(super) struct Tails<'a>(pub(super) &'a Journal);

/// The beginning of the names of the entries.
const PREFIX: &str = "tail/";

impl Tails<'_> {
    /// Keeps the bytes after the first `offset` bytes of an object. Returns the name of their entry. Other
    /// bytes get another name, because the saved state may still refer to earlier ones. No name is the
    /// beginning of another: entries are forgotten by the beginning of their names.
    pub(super) fn keep(&self, number: u64, offset: u64, bytes: &Body) -> Result<String, Error> {
        let name = format!("{PREFIX}{number}/{offset}/{}/", bytes.len());
        let bytes: Vec<u8> = bytes.pieces().iter().flatten().copied().collect();
        self.0.note(&name, &STANDARD.encode(bytes).into())?;
        Ok(name)
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let entries = self.0.entries(name)?;
        let found = entries.iter().find(|(found, _)| found == name).and_then(|(_, value)| value.as_str());
        found.and_then(|text| STANDARD.decode(text).ok()).ok_or_else(|| {
            Error::permanent(format!(
                "the state folder is damaged: it lacks the bytes `{name}` of an unfinished object. To write the object \
                 again, use another state folder"
            ))
        })
    }

    /// Removes all entries except this one.
    pub(super) fn forget_others(&self, kept: Option<&str>) -> Result<(), Error> {
        for (name, _) in self.0.entries(PREFIX)? {
            if Some(&*name) != kept {
                self.0.forget(&name)?;
            }
        }
        Ok(())
    }
}
