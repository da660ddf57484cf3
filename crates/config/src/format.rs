//! Formats: checks of a text that a schema names but cannot express.
//!
//! Decoding by `serde` stops at the first error and does not know its position. A format is checked before
//! decoding, together with everything else, and its mistakes have a position inside the text.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::check::without_secret;
use crate::types::{byte_range, byte_size, cron, pattern, time_span};
use crate::{Diagnostic, Node, place};

/// A mistake in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// The wrong bytes of the text; `None` means all of it.
    pub range: Option<Range<usize>>,
    /// The mistake: a sentence.
    pub message: String,
    /// The way to fix it: a sentence.
    pub help: Option<String>,
}

impl FormatError {
    /// Creates a mistake about the whole text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { range: None, message: message.into(), help: None }
    }

    /// Sets the range of wrong bytes.
    #[must_use]
    pub fn at(mut self, range: Range<usize>) -> Self {
        self.range = Some(range);
        self
    }

    /// Sets a sentence on how to fix the mistake.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the mistake in the text of a node, at its place in a document with this source. It shows no
    /// value of a variable.
    pub fn in_document(self, node: &Node, source: &str) -> Diagnostic {
        let span = match (self.range, node.text()) {
            (Some(range), Some(text)) => place::within(source, node.span, text, range),
            _ => node.span,
        };
        let hide = |message: &str| without_secret(node, message, source);
        let mut mistake = Diagnostic::new(span, hide(&self.message));
        mistake.help = self.help.map(|help| hide(&help));
        mistake
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
    let own: [(&str, Check); 5] = [
        (byte_range::FORMAT, byte_range::check),
        (byte_size::FORMAT, byte_size::check),
        (time_span::FORMAT, time_span::check),
        (cron::FORMAT, cron::check),
        (pattern::FORMAT, pattern::check),
    ];
    RwLock::new(HashMap::from(own))
});

/// Registers `check` as the meaning of `"format": name` in schemas, for this process.
///
/// Registering the same check again changes nothing, so every user of a format can register it first.
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

/// Returns the check of the format `name`, if it is registered.
pub(crate) fn registered(name: &str) -> Option<Check> {
    FORMATS.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
}
