//! Comma-separated values: the common part of the transforms of messages and of files.

mod dialect;
mod records;

use std::collections::BTreeMap;

use hashbrown::HashMap;
use thalweg_config::Mistake;

pub use dialect::Dialect;
pub use records::{Fault, Record, RecordPosition, Records};

use crate::columns::{FieldType, unknown_types};
use dialect::text;

/// Returns the byte of a text that is one ASCII character.
fn character(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Some(*byte),
        _ => None,
    }
}

impl Dialect {
    /// Creates the dialect from the options of a component. They must have passed [`mistakes`].
    pub fn new(delimiter: &str, quote: &str, trim: bool, flexible: bool) -> Self {
        Self { delimiter: character(delimiter).unwrap_or(b','), quote: character(quote), trim, flexible }
    }
}

/// Returns the mistakes in the options of a component that reads comma-separated values.
pub fn mistakes(
    columns: &[String],
    delimiter: &str,
    quote: &str,
    types: &BTreeMap<String, FieldType>,
) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (at, name) in columns.iter().enumerate() {
        if columns.iter().take(at).any(|other| other == name) {
            mistakes.push(Mistake::new("columns", format!("Two columns are called `{name}`.")));
        }
    }
    if character(delimiter).is_none() {
        mistakes.push(Mistake::new("delimiter", "The delimiter must be one ASCII character."));
    }
    if !quote.is_empty() && character(quote).is_none() {
        let message = "The quote must be one ASCII character, or empty for none.";
        mistakes.push(Mistake::new("quote", message));
    } else if quote == delimiter {
        mistakes.push(Mistake::new("quote", "The quote cannot be the delimiter too."));
    }
    if !columns.is_empty() {
        mistakes.extend(unknown_types(types, columns.iter().map(String::as_str)));
    }
    mistakes
}

/// Returns the column names in a header of at most `most` columns. A repeated name gets a number; an empty
/// name becomes `column_` and its number.
///
/// # Errors
/// If the header is not UTF-8, has a wrong quote, or has more than `most` columns.
pub fn names(
    dialect: Dialect,
    value: &[u8],
    most: usize,
    scratch: &mut String,
) -> Result<Vec<String>, String> {
    let record = text(value)?;
    let record = record.strip_prefix('\u{feff}').unwrap_or(record);
    let mut names: Vec<String> = Vec::new();
    let mut taken: HashMap<String, usize> = HashMap::new();
    let found = dialect.split(record, scratch, |column, name| {
        if column >= most {
            return;
        }
        let name = if name.is_empty() { format!("column_{}", column + 1) } else { name.to_owned() };
        let mut free = name.clone();
        while let Some(times) = taken.get_mut(&free) {
            // Numbering continues from the last number, because all columns may have the same name.
            *times += 1;
            let number = *times;
            free = format!("{name}_{number}");
        }
        taken.insert(free.clone(), 1);
        names.push(free);
    })?;
    if found > most {
        return Err(format!("it has {found} columns, and `max_columns` is {most}"));
    }
    Ok(names)
}
