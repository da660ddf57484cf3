//! What a component says to the person who watches, beside what it writes: figures of a measurement.
//!
//! It belongs on the standard error output, where the program may be drawing lines of progress, or be writing JSON. So
//! the program says how it is shown ([`show_by`]); where nobody did, the text is written as it is.

use std::io::Write;
use std::sync::OnceLock;

use serde_json::Value;

/// Shows something: the text is for people (whole lines), the object for programs.
pub type Show = fn(text: &str, object: &Value);

static SHOW: OnceLock<Show> = OnceLock::new();

/// Sets how things are shown in this process. Only the first call counts.
pub fn show_by(show: Show) {
    // Fails only if it was set before.
    let _ = SHOW.set(show);
}

/// Shows something.
pub(crate) fn tell(text: &str, object: &Value) {
    match SHOW.get() {
        Some(show) => show(text, object),
        // That nobody can see it is no reason to stop the work.
        None => drop(std::io::stderr().lock().write_all(text.as_bytes())),
    }
}
