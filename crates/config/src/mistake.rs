//! A mistake that the schema of an option cannot express.

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

    /// Adds a sentence that says how to correct it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
