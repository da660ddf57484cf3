//! Collects the mistakes and remarks about a file.

use thalweg_config::{Diagnostic, Diagnostics, Document, Span, nearest};

/// Mistakes and remarks, each with its position.
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

    /// Adds a mistake for an unknown name, with the nearest known name or else the text `otherwise` as help.
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
