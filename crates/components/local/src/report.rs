//! Output of a component for the user beside the data that it writes, such as the figures of a measurement.
//!
//! It belongs on the standard error output, where the program may be drawing progress lines or writing JSON.
//! The program therefore sets how it is shown ([`show_by`]). Without that, the text is written as it is.

use std::io::Write;
use std::sync::OnceLock;

use serde_json::Value;

/// Shows an output: the text (whole lines) is for people, the object for programs.
pub type Show = fn(text: &str, object: &Value);

static SHOW: OnceLock<Show> = OnceLock::new();

/// Sets how outputs are shown in this process. Only the first call has an effect.
pub fn show_by(show: Show) {
    // Fails only if it was set before.
    let _ = SHOW.set(show);
}

/// Shows an output.
pub(crate) fn report(text: &str, object: &Value) {
    match SHOW.get() {
        Some(show) => show(text, object),
        // A failed write is no reason to stop the run.
        None => drop(std::io::stderr().lock().write_all(text.as_bytes())),
    }
}
