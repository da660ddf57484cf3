//! The state of a writer, from which a later run resumes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::Error;
use thalweg_store::{Begun, UploadedPart};

use crate::sinks::objects::tail::Tail;

/// The saved state for a later run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sinks::objects) struct Saved {
    /// The number of the object.
    pub(in crate::sinks::objects) number: u64,
    /// Its number among those of all names, if messages decide the names.
    #[serde(default)]
    pub(in crate::sinks::objects) id: Option<u64>,
    pub(in crate::sinks::objects) begun: Option<Begun>,
    /// The parts that the store has, from the first one on without a gap.
    pub(super) parts: Vec<UploadedPart>,
    /// The bytes after these parts, if the journal has them.
    #[serde(default)]
    pub(in crate::sinks::objects) tail: Option<Tail>,
    /// True if an existing object of this number is this sink's.
    #[serde(default)]
    pub(super) is_claimed: bool,
    /// True if the input had ended, and all objects were full.
    #[serde(default)]
    pub(super) is_finished: bool,
    /// True if the next run continues the object, because its messages do not come again.
    #[serde(default)]
    pub(super) is_continued: bool,
}

impl Saved {
    /// True if messages that are not read again are in an object that is not full.
    pub(in crate::sinks::objects) fn has_messages(&self) -> bool {
        self.is_continued && (!self.parts.is_empty() || self.tail.is_some())
    }
}

/// Why a state cannot be used.
pub(in crate::sinks::objects) const OTHER_SINK: &str = "the saved state of the sink is not one of `objects`";
/// The same.
pub(in crate::sinks::objects) const OTHER_OPTIONS: &str =
    "an earlier run left an unfinished object, which cannot be continued as Parquet or in this store";

pub(in crate::sinks::objects) fn unusable(why: &str) -> Error {
    Error::permanent(format!(
        "{why}. Undo the change of the configuration, or give the sink another name or use another state folder: what \
         the state has is then not written"
    ))
}

/// Returns the upload that was in progress when a run saved this state.
pub(in crate::sinks::objects) fn unfinished(saved: &Value) -> Option<Begun> {
    serde_json::from_value::<Saved>(saved.clone()).ok()?.begun
}

/// True if the input of the run that saved this state had ended.
pub(in crate::sinks::objects) fn is_finished(saved: &Value) -> bool {
    serde_json::from_value::<Saved>(saved.clone()).is_ok_and(|saved| saved.is_finished)
}
