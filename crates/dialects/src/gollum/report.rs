//! What there is to say of a file: mistakes, and remarks.

use thalweg_config::{Diagnostic, Diagnostics, Document, Span, nearest};

/// Mistakes and remarks, each with its place.
pub(super) struct Report {
    pub(super) mistakes: Diagnostics,
    pub(super) remarks: Diagnostics,
}

impl Report {
    pub(super) fn new(document: &Document) -> Self {
        Self { mistakes: document.diagnostics(), remarks: document.diagnostics() }
    }

    pub(super) fn mistake(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.mistakes.error(span, message)
    }

    pub(super) fn remark(&mut self, span: Span, message: impl Into<String>) {
        self.remarks.error(span, message);
    }

    /// A name that is none of those there are.
    pub(super) fn unknown<'a>(
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
