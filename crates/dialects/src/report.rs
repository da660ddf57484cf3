//! What there is to say of a file: mistakes, and remarks.

use thalweg_config::{Diagnostic, Diagnostics, Document, Span, nearest};

/// Mistakes and remarks, each with its place.
pub(crate) struct Report {
    pub(crate) mistakes: Diagnostics,
    pub(crate) remarks: Diagnostics,
}

impl Report {
    pub(crate) fn new(document: &Document) -> Self {
        Self { mistakes: document.diagnostics(), remarks: document.diagnostics() }
    }

    pub(crate) fn mistake(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.mistakes.error(span, message)
    }

    pub(crate) fn remark(&mut self, span: Span, message: impl Into<String>) {
        self.remarks.error(span, message);
    }

    /// A name that is none of those there are.
    pub(crate) fn unknown<'a>(
        &mut self,
        span: Span,
        message: String,
        name: &str,
        known: impl IntoIterator<Item = &'a str> + Clone,
        otherwise: &str,
    ) {
        let help = match nearest(name, known) {
            Some(near) => format!("Did you mean `{near}`?"),
            None => otherwise.to_owned(),
        };
        let mistake = self.mistake(span, message);
        if !help.is_empty() {
            mistake.help(help);
        }
    }
}
