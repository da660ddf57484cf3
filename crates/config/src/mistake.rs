//! A mistake that the schema of an option cannot express.

use crate::decode::sentence;

/// A mistake in a configured component that its schema cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The name of the option, or `""` for the component as a whole.
    pub option: &'static str,
    /// The mistake, as a sentence.
    pub message: String,
    /// How to correct it, as a sentence.
    pub help: Option<String>,
}

impl Mistake {
    /// Creates a mistake in an option, or, with `""`, in the component as a whole. The message is a sentence.
    pub fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into(), help: None }
    }

    /// Creates a mistake as [`new`](Self::new) does, of the text of an error: a phrase, or a question at its
    /// end.
    ///
    /// ```
    /// let mistake = thalweg_config::Mistake::of("url", "`s3` has no option `a`; did you mean `b`?");
    /// assert_eq!(mistake.message, "`s3` has no option `a`; did you mean `b`?");
    /// ```
    pub fn of(option: &'static str, phrase: &str) -> Self {
        Self::new(option, sentence(phrase))
    }

    /// Adds a sentence that says how to correct it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
