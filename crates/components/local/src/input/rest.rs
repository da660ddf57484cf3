//! The message of which a run has read only a part, in an input that cannot be read twice.
//!
//! Bytes read from a pipe are gone from it. A run that is asked to stop therefore keeps that part in its
//! checkpoint, and the next run continues the message. A run that is killed keeps nothing. The next run then
//! does not know whether the pipe continues a message, and rejects what comes before the first delimiter.
//! (Rejected: to send it, as the first message. It would be torn, and look like a whole one.)

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use thalweg_engine::{Checkpoint, SourceOutput};

/// The longest part that is kept in a checkpoint, in bytes.
pub(super) const MOST_KEPT: usize = 1 << 20;

/// The state that a run leaves to the next one.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Position {
    /// True while a run reads: it was killed if the next run finds this.
    is_read: bool,
    /// The part of the message that was read, in Base64.
    rest: String,
}

/// How an input begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With a message, of which these bytes were read before.
    Message(Vec<u8>),
    /// Perhaps within a message.
    Unknown,
    /// The run was asked to stop before it could begin.
    Stopped,
}

/// Returns how the input of a partition begins, and notes that this run reads it.
pub(super) async fn begin(partition: &str, out: &SourceOutput) -> Beginning {
    let former = out.saved(partition).and_then(|saved| serde_json::from_value(saved).ok());
    let found: Position = former.unwrap_or_default();
    note(partition, &Position { is_read: true, rest: String::new() }, out);
    // Without the note on the disk, the run after a kill would take a torn message for a whole one.
    tokio::select! {
        () = out.save() => {}
        () = out.stopping() => {
            note(partition, &found, out);
            return Beginning::Stopped;
        }
    }
    match found.is_read {
        true => Beginning::Unknown,
        false => Beginning::Message(STANDARD.decode(found.rest).unwrap_or_default()),
    }
}

/// Keeps the rest of the input for the next run. It has at most [`MOST_KEPT`] bytes.
pub(super) fn end(partition: &str, rest: &[u8], out: &SourceOutput) {
    note(partition, &Position { is_read: false, rest: STANDARD.encode(rest) }, out);
}

fn note(partition: &str, position: &Position, out: &SourceOutput) {
    if let Ok(offset) = serde_json::to_value(position) {
        out.checkpoint(Checkpoint { partition: partition.into(), offset });
    }
}
