//! Stand-in for the template that is written on branch `json`.

use std::borrow::Cow;

use arrow_array::{Array, StringViewArray, cast::AsArray};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_record::Batch;

/// Text with columns.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Template(String);

/// A template and the columns of a batch.
pub struct Bound<'a>(&'a Template, Vec<(usize, usize, Option<StringViewArray>)>);

impl Template {
    /// Whether it is the same for all messages.
    pub fn is_constant(&self) -> bool {
        !self.0.contains('{')
    }
    /// The text before the first column.
    pub fn prefix(&self) -> Cow<'_, str> {
        self.0.split('{').next().unwrap_or_default().into()
    }
    /// For a batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> Bound<'a> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(open) = self.0[at..].find('{').map(|open| open + at) {
            let close = self.0[open..].find('}').unwrap() + open;
            let name = &self.0[open + 1..close];
            found.push((open, close + 1, batch.column(name).map(|c| c.as_string_view().clone())));
            at = close + 1;
        }
        Bound(self, found)
    }
}

impl Bound<'_> {
    /// Appends the text of a row.
    pub fn render(&self, row: usize, to: &mut Vec<u8>) -> Result<(), String> {
        let mut at = 0;
        for (start, end, column) in &self.1 {
            to.extend_from_slice(self.0.0[at..*start].as_bytes());
            match column {
                Some(column) if !column.is_null(row) => to.extend_from_slice(column.value(row).as_bytes()),
                _ => return Err("a column is missing".to_owned()),
            }
            at = *end;
        }
        to.extend_from_slice(self.0.0[at..].as_bytes());
        Ok(())
    }
}
