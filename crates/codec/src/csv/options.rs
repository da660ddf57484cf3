//! The options that all components have that read comma-separated values.
//!
//! `quote` is not one of them: its documentation says whether a quoted value may contain line feeds, and that
//! differs by component.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, Mistake};

use super::Dialect;
use crate::columns::{FieldType, Typing, unknown_types};

/// The common options of components that read comma-separated values. Their configurations flatten this
/// struct.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CsvOptions {
    /// The character between values: one ASCII character. The default is a comma.
    pub delimiter: String,
    /// The types of columns that are not text: `{age: int, height: float}`. A record with a value that does
    /// not fit its type leaves by the `errors` output.
    types: BTreeMap<String, FieldType>,
    /// The texts that mean NULL. By default these are `-` and the empty text, in columns with a type other
    /// than text.
    null_values: Option<List<String>>,
    /// True to remove white space around values. The default is `false`.
    trim: bool,
    /// True to accept records with a wrong number of values: missing values at the end are NULL, and excess
    /// values are ignored. The default is `false`.
    flexible: bool,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: ",".to_owned(),
            types: BTreeMap::new(),
            null_values: None,
            trim: false,
            flexible: false,
        }
    }
}

impl CsvOptions {
    /// Returns the dialect. The options must have passed [`mistakes`](Self::mistakes).
    pub fn dialect(&self, quote: &str) -> Dialect {
        let delimiter = character(&self.delimiter).unwrap_or(b',');
        Dialect { delimiter, quote: character(quote), trim: self.trim, flexible: self.flexible }
    }

    /// Returns the types of the columns.
    pub fn typing(&self) -> Typing {
        Typing::new(&self.types, self.null_values.as_deref())
    }

    /// Returns the mistakes in these options and in the options `columns` and `quote` beside them.
    pub fn mistakes(&self, columns: &[String], quote: &str) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for (at, name) in columns.iter().enumerate() {
            if columns.iter().take(at).any(|other| other == name) {
                mistakes.push(Mistake::new("columns", format!("Two columns are called `{name}`.")));
            }
        }
        if character(&self.delimiter).is_none() {
            let mistake = Mistake::new("delimiter", "The delimiter must be one ASCII character.");
            mistakes.push(mistake.help("A tab is written `\"\\t\"`, in double quotes."));
        }
        if !quote.is_empty() && character(quote).is_none() {
            let message = "The quote must be one ASCII character, or empty for none.";
            mistakes.push(Mistake::new("quote", message));
        } else if quote == self.delimiter {
            mistakes.push(Mistake::new("quote", "The quote cannot be the delimiter too."));
        }
        if !columns.is_empty() {
            mistakes.extend(unknown_types(&self.types, columns.iter().map(String::as_str)));
        }
        mistakes
    }
}

/// Returns the byte of a text that is one ASCII character.
fn character(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}
