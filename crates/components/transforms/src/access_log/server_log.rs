//! The logs of a web server: its access log in some format, or its log of errors.

use thalweg_codec::columns::{Columns, FieldType, unknown_types};
use thalweg_engine::{KnownFields, Mistake, Transform};

use super::Format;
use crate::text_parser::{TextOptions, TextParser, TextReader};

/// A kind of a server's logs.
pub(crate) enum ServerLog {
    /// An access log.
    Access(Format),
    /// The log of errors, whose form is fixed.
    Errors {
        /// The fields and their types.
        fields: &'static [(&'static str, FieldType)],
        /// Reads a line into one column per field.
        reader: Box<dyn TextReader>,
    },
}

impl ServerLog {
    /// The name of the format of the log of errors.
    pub(crate) const ERROR: &str = "error";

    /// Returns the names and types of the fields.
    fn fields(&self) -> Vec<(&str, FieldType)> {
        match self {
            Self::Access(format) => format.fields(),
            Self::Errors { fields, .. } => fields.to_vec(),
        }
    }

    /// Returns the mistakes of a component: that of its option `format`, or the types of unknown fields.
    pub(crate) fn check(log: Result<Self, String>, options: &TextOptions) -> Vec<Mistake> {
        match log {
            Ok(log) => {
                unknown_types(&options.types, log.fields().into_iter().map(|(name, _)| name)).collect()
            }
            Err(message) => vec![Mistake::new("format", message)],
        }
    }

    /// Returns what is known of the fields after a component.
    pub(crate) fn fields_after(
        log: Result<Self, String>,
        options: &TextOptions,
        before: KnownFields,
    ) -> KnownFields {
        match log {
            Ok(log) => options.fields_after(before, log.fields()),
            Err(_) => before.with_others(),
        }
    }

    /// Creates the parser of lines.
    pub(crate) fn parser(self, options: &TextOptions) -> Box<dyn Transform> {
        match self {
            Self::Access(format) => format.parser(options),
            Self::Errors { fields, reader } => {
                let columns =
                    Columns::new(options.typing(fields.iter().copied()), fields.iter().map(|(name, _)| name));
                Box::new(TextParser::new(reader, columns, &options.field))
            }
        }
    }
}
