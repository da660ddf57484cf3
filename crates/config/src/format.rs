//! Formats: checks of a text that a schema names and cannot express.
//!
//! Decoding by `serde` stops at the first error and does not know its place. A format is checked before
//! decoding, together with everything else, and points into the text.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::types::{byte_range, byte_size, pattern, time_span};

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// Which of its bytes are wrong; all, if none are named.
    pub range: Option<Range<usize>>,
    /// What is wrong: a sentence.
    pub message: String,
    /// What to do about it: a sentence.
    pub help: Option<String>,
}

impl FormatError {
    /// A mistake in the whole of a text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { range: None, message: message.into(), help: None }
    }

    /// Says which bytes are wrong.
    #[must_use]
    pub fn at(mut self, range: Range<usize>) -> Self {
        self.range = Some(range);
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(formatter, " {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FormatError {}

type Check = fn(&str) -> Result<(), FormatError>;

static FORMATS: LazyLock<RwLock<HashMap<&'static str, Check>>> = LazyLock::new(|| {
    let own: [(&str, Check); 4] = [
        (byte_range::FORMAT, byte_range::check),
        (byte_size::FORMAT, byte_size::check),
        (time_span::FORMAT, time_span::check),
        (pattern::FORMAT, pattern::check),
    ];
    RwLock::new(HashMap::from(own))
});

/// Makes `check` the meaning of `"format": name` in schemas, in this process.
///
/// Doing it again changes nothing, so every user of a format can register it first.
///
/// ```
/// use thalweg_config::{FormatError, register_format};
///
/// register_format("even", |text| match text.len() % 2 {
///     0 => Ok(()),
///     _ => Err(FormatError::new(format!("`{text}` has an odd length."))),
/// });
/// ```
pub fn register_format(name: &'static str, check: fn(&str) -> Result<(), FormatError>) {
    FORMATS.write().unwrap_or_else(PoisonError::into_inner).insert(name, check);
}

/// The check of the format `name`, if there is one.
pub(crate) fn registered(name: &str) -> Option<Check> {
    FORMATS.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
}
