//! The option `columns`: which columns of the table messages get, under which names.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::ordered::Ordered;
use thalweg_config::{List, Mistake};
use thalweg_record::is_metadata;

use super::on::Keys;
use super::unusable::Unusable;

/// The columns of the table that messages get.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Names {
    /// Columns, under their names.
    Same(List<String, 1>),
    /// Columns, each with the name of the field.
    Renamed(Ordered<String>),
}

/// Which columns messages get.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    names: Option<Names>,
    prefix: String,
    /// True if messages get no columns.
    is_none: bool,
}

impl Chosen {
    /// The columns that the options name.
    pub(super) fn new(names: Option<Names>, prefix: String) -> Self {
        Self { names, prefix, is_none: false }
    }

    /// No columns.
    pub(super) fn none() -> Self {
        Self { is_none: true, ..Self::default() }
    }

    /// Returns the columns and the names that the options give them. None if these are all columns of the
    /// table but the keys.
    fn entries(&self) -> Option<Vec<(&str, &str)>> {
        match &self.names {
            _ if self.is_none => Some(Vec::new()),
            None => None,
            Some(Names::Same(names)) => {
                Some(names.iter().map(|name| (name.as_str(), name.as_str())).collect())
            }
            Some(Names::Renamed(entries)) => {
                Some(entries.0.iter().map(|(column, name)| (column.as_str(), name.as_str())).collect())
            }
        }
    }

    /// Returns the columns. None if these are all columns of the table but the keys.
    pub(super) fn columns(&self) -> Option<Vec<&str>> {
        Some(self.entries()?.into_iter().map(|(column, _)| column).collect())
    }

    /// Returns the columns and their fields. None if these are all columns of the table but the keys.
    pub(super) fn listed(&self) -> Option<Vec<(String, String)>> {
        let named = |(column, name): (&str, &str)| (column.to_owned(), format!("{}{name}", self.prefix));
        Some(self.entries()?.into_iter().map(named).collect())
    }

    /// Returns the columns and their fields, out of the columns of a table.
    ///
    /// # Errors
    /// If a field would replace one that is compared, or cannot have its name.
    pub(super) fn of<'a>(
        &self,
        path: &Path,
        keys: &Keys,
        columns: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<(String, String)>, Unusable> {
        let compared = keys.columns();
        let all = columns.filter(|column| !compared.contains(column));
        let chosen = self
            .listed()
            .unwrap_or_else(|| all.map(|name| (name.to_owned(), format!("{}{name}", self.prefix))).collect());
        for (column, field) in &chosen {
            let what = if is_metadata(field) || field.is_empty() {
                format!("cannot be a field called `{field}`, which means something else")
            } else if keys.fields().any(|compared| compared == field) {
                format!("would replace the field `{field}` of messages")
            } else {
                continue;
            };
            let message = format!("the column `{column}` of `{}` {what}.", path.display());
            return Err(Unusable::new("columns", message).help(format!(
                "Give a `prefix`, or another name: `columns: {{ {column}: another_name }}`."
            )));
        }
        Ok(chosen)
    }

    /// Returns the mistakes that the schema cannot express.
    pub(super) fn mistakes(&self) -> Vec<Mistake> {
        let Some(listed) = self.listed().filter(|_| !self.is_none) else { return Vec::new() };
        let twice = listed
            .iter()
            .enumerate()
            .find(|(at, (_, field))| listed.iter().take(*at).any(|(_, other)| other == field));
        let mistake = twice.map(|(_, (_, field))| {
            Mistake::new("columns", format!("Two columns cannot both become the field `{field}`."))
        });
        let empty = listed.is_empty().then(|| {
            let mistake = Mistake::new("columns", "`columns` names no column.");
            mistake.help("Leave it out for all columns.")
        });
        mistake.into_iter().chain(empty).collect()
    }
}
