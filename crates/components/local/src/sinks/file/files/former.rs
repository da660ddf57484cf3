//! Files that an earlier run wrote with other options than this run has.
//!
//! `atomic`, `rotate` and `compression` decide under which name a file lies and how it may be continued. If
//! they changed, the files of the earlier run are completed as it would have done it: cut to the saved length
//! and given their final names. Then this run continues a finished file, or starts the next piece. (Rejected:
//! an error at start. It would leave an unfinished file until the change is taken back.)

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use thalweg_engine::Error;

use super::super::names::Style;
use super::super::piece::PieceOptions;
use super::resuming::Saved;
use super::{Files, Settings};
use thalweg_codec::compress::Compression;

/// The options that decide where a file is, and what may be appended to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sinks::file) struct Form {
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) rotates: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) style: Style,
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    atomic: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    compression: Compression,
}

fn yes() -> bool {
    true
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for Form {
    fn default() -> Self {
        Self { rotates: false, style: Style::default(), atomic: true, compression: Compression::None }
    }
}

impl Form {
    /// Returns the settings of a sink that writes files of this form.
    fn settings(&self, now: &Settings) -> Settings {
        let pieces = PieceOptions {
            compression: self.compression,
            level: now.pieces.level.filter(|_| self.compression == now.pieces.compression),
            atomic: self.atomic,
            style: self.style.clone(),
            ..now.pieces.clone()
        };
        Settings { pieces, rotates: self.rotates, ..now.clone() }
    }
}

impl Settings {
    /// The form of the files that this run writes.
    pub(super) fn form(&self) -> Form {
        Form {
            rotates: self.rotates,
            style: self.pieces.style.clone(),
            atomic: self.pieces.atomic,
            compression: self.pieces.compression,
        }
    }
}

impl Saved {
    /// True if both entries are states of one file.
    pub(super) fn is_same_file(&self, other: &Saved) -> bool {
        let rotates = self.form.rotates || other.form.rotates;
        !rotates && self.number == other.number
    }
}

impl Files {
    /// Completes files of other forms, and notes where this run continues. `numbers` are those of the first
    /// pieces that were begun in a later form.
    pub(super) fn complete_former(
        &mut self,
        mut entries: Vec<Saved>,
        numbers: &HashMap<String, u32>,
    ) -> Result<(), Error> {
        while let Some(form) = entries.first().map(|entry| entry.form.clone()) {
            let (same, others): (Vec<_>, _) = entries.into_iter().partition(|entry| entry.form == form);
            entries = others;
            let mut former = Files::new(form.settings(&self.settings));
            former.begun_after.clone_from(numbers);
            former.begun.clone_from(&self.begun);
            former.noted.set(self.noted.get());
            for entry in &same {
                if former.begun_after.get(&entry.name).is_some_and(|first| entry.number >= Some(*first)) {
                    former.begun_after.remove(&entry.name);
                }
            }
            former.resume_entries(same)?;
            former.finish()?;
            for mut entry in former.now() {
                if form.rotates && !self.settings.rotates {
                    // The pieces stay as they are, beside the single file.
                    continue;
                }
                if form.rotates {
                    entry.form = self.settings.form();
                }
                self.known.insert(entry.name.clone(), entry);
            }
        }
        Ok(())
    }

    /// Refuses to continue a file with another compression.
    pub(super) fn check_form(&self, saved: &Saved) -> Result<(), Error> {
        let (was, is) = (saved.form.compression, self.settings.pieces.compression);
        if was == is {
            return Ok(());
        }
        let path = self.path(&saved.name, saved.number, saved.stamp.as_deref());
        Err(Error::permanent(format!(
            "`{}` was written with `compression: {}`, and nothing can be appended to it with `compression: {}`. It is \
             complete: give `path` another name, or set `compression` back.",
            path.display(),
            was.name(),
            is.name()
        )))
    }
}
