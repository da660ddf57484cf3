//! The dead letters of the run that answers.
//!
//! The database has one user, the store of the run, which serves its letters on a local socket. They are
//! asked for there, as `thalweg errors list` does: the store of a run opens when it has something to keep,
//! and only the engine knows it. Payloads are cut. One answer is made at a time, because a page of letters
//! has one message as a whole.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::Observed;
use super::reply::Refusal;

/// The oldest letters, at most this many.
#[cfg(target_os = "linux")]
pub(super) async fn letters(run: &Arc<Observed>, limit: u32) -> Result<Value, Refusal> {
    let unread = |reason: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason);
    let one = run.letters.clone().lock_owned().await;
    let folder = run.state.clone();
    let read = tokio::task::spawn_blocking(move || {
        let found = linux::read(&folder, limit);
        drop(one);
        found
    });
    match read.await {
        Ok(found) => found.map_err(|error| unread(error.full())),
        Err(error) => Err(unread(format!("the dead letters cannot be read: {error}"))),
    }
}

/// Dead letters are served on a socket with an abstract name, which only Linux has.
#[cfg(not(target_os = "linux"))]
pub(super) async fn letters(_: &Arc<Observed>, _: u32) -> Result<Value, Refusal> {
    let reason = "dead letters can be read during a run on Linux alone";
    Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, reason))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    use chrono::{DateTime, SecondsFormat};
    use thalweg_engine::{DeadLetter, DeadLetterId, Error, RunningLetters};
    use thalweg_redact::{longest_secret, redacted_start};

    use super::{Value, json};

    /// Payloads are cut to this many bytes. `thalweg errors show` has them whole.
    const EXCERPT: usize = 4096;

    /// Reads the letters of the store at this folder, if a run has it open.
    pub(super) fn read(folder: &Path, limit: u32) -> Result<Value, Error> {
        let Some(running) = RunningLetters::find(folder, None)? else {
            return Ok(json!({ "dead_letters": [], "dropped": 0 }));
        };
        let letters = running.letters().take(limit as usize);
        let letters = letters.map(|found| found.map(|(id, letter)| excerpt(id, &letter)));
        let letters = letters.collect::<Result<Vec<_>, _>>()?;
        Ok(json!({ "dead_letters": letters, "dropped": running.dropped()? }))
    }

    fn excerpt(id: DeadLetterId, letter: &DeadLetter) -> Value {
        let payload = letter.payload_bytes();
        let text = String::from_utf8_lossy(&payload);
        let start = text.get(..text.floor_char_boundary(EXCERPT + longest_secret())).unwrap_or_default();
        let time = DateTime::from_timestamp_micros(letter.time_us)
            .map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true));
        json!({
            "id": id,
            "time": time,
            "component": letter.component,
            "source": letter.source,
            "path": letter.path,
            "position": letter.position,
            "reason": letter.reason,
            "file": letter.file.as_ref().map(|file| json!({ "name": file.name, "size": file.size })),
            "payload": redacted_start(start, EXCERPT),
            "payload_is_cut": text.len() > EXCERPT,
        })
    }
}
