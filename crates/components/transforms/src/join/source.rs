//! Reads the file of a table.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_record::{FileState, Share};

use super::chosen::Chosen;
use super::file;
use super::gathered::Gathered;
use super::index::Duplicates;
use super::on::Keys;
use super::parquet;
use super::rows::Text;
use super::table::{Parts, Table};
use super::unusable::Unusable;
use crate::kept::Kept;

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableFormat {
    /// Comma-separated values, whose first record names the columns.
    Csv,
    /// JSON objects, one in each line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

impl TableFormat {
    /// Returns the format that the ending of a file's name tells.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let plain = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(*end)).unwrap_or(&name);
        match plain.rsplit_once('.')?.1 {
            "csv" | "tsv" => Some(Self::Csv),
            "jsonl" | "ndjson" | "json" => Some(Self::Jsonl),
            "parquet" | "pq" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// A file, and what is made of it.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) format: TableFormat,
    pub(super) delimiter: u8,
    pub(super) types: BTreeMap<String, FieldType>,
    pub(super) null_values: Option<Vec<String>>,
    pub(super) keys: Keys,
    pub(super) chosen: Chosen,
    pub(super) duplicates: Duplicates,
}

impl Source {
    /// Reads the table. It counts on the memory of this account, of which it may use a quarter.
    pub(super) fn read(&self, memory: &Share) -> Result<(Table, FileState), Unusable> {
        let path = &*self.path;
        let most = memory.budget().limit() / 4;
        let (file, state) = file::open(path)?;
        let needed = self.needed();
        let mut gathered = Gathered::new(path, needed.clone(), most, Kept::new(memory));
        if self.format == TableFormat::Parquet {
            let is_needed = |column: &str| needed.as_ref().is_none_or(|needed| needed.contains(column));
            let reading = file.try_clone().map_err(|error| Unusable::unreadable(path, &error))?;
            parquet::read(path, reading, most, is_needed, &mut |rows: &RecordBatch| gathered.add(rows))?;
        } else {
            let bytes = file::bytes(path, &file, state, most)?;
            gathered.count_file(bytes.len());
            let text = Text { path, bytes: Buffer::from_vec(bytes), types: &self.types };
            let mut add = |rows: &RecordBatch| gathered.add(rows);
            match self.format {
                TableFormat::Csv => text.csv(self.delimiter, self.null_values.as_deref(), &mut add)?,
                _ => {
                    let needed = needed
                        .map(|needed| needed.into_iter().map(str::to_owned).collect::<HashSet<String>>());
                    text.json_lines(needed, memory.budget().limit(), &mut add)?;
                }
            }
        }
        file::is_unchanged(path, &file, state)?;
        let names = gathered.names().to_vec();
        let (rows, kept) = gathered.finish(memory.budget())?;
        let chosen = self.fields(names.iter().map(String::as_str), rows.num_rows())?;
        let parts = Parts { path, rows, keys: &self.keys, chosen, duplicates: self.duplicates, most };
        Ok((Table::new(parts, kept)?, state))
    }

    /// Returns the delimiter that CSV with one column probably has, as it is written in an option.
    fn other_delimiter<'c>(&self, mut columns: impl Iterator<Item = &'c str>) -> Option<&'static str> {
        let only = columns.next().filter(|_| self.format == TableFormat::Csv)?;
        let delimiters = [(';', ";"), ('\t', "\\t"), ('|', "|"), (',', ",")];
        let found = delimiters
            .iter()
            .find(|(sign, _)| *sign != char::from(self.delimiter) && only.contains(*sign))?;
        columns.next().is_none().then_some(found.1)
    }

    /// Returns the columns that are needed. None if these are all.
    fn needed(&self) -> Option<HashSet<&str>> {
        let listed = self.chosen.columns()?;
        Some(self.keys.columns().into_iter().chain(listed).collect())
    }

    /// Returns the columns that messages get, with their fields. The types are those of columns that no row
    /// has.
    fn fields<'c>(
        &self,
        columns: impl Iterator<Item = &'c str> + Clone,
        rows: usize,
    ) -> Result<Vec<(String, Field)>, Unusable> {
        // A row of JSON has no member that is NULL, so a column may be in no row.
        let may_lack = self.format == TableFormat::Jsonl;
        let has = |column: &str| columns.clone().any(|known| known == column);
        let missing = self.keys.columns().into_iter().find(|column| !has(column));
        if let Some(missing) = missing.filter(|_| !may_lack || rows > 0) {
            let unusable = Unusable::no_column("on", &self.path, missing, columns.clone());
            return Err(match self.other_delimiter(columns) {
                Some(written) => unusable.help(format!(
                    "It has one column. If the columns are divided by `{written}`, write `delimiter: \"{written}\"`."
                )),
                None => unusable,
            });
        }
        let chosen = self.chosen.of(&self.path, &self.keys, columns.clone())?;
        if let Some((missing, _)) = chosen.iter().find(|(column, _)| !may_lack && !has(column.as_str())) {
            return Err(Unusable::no_column("columns", &self.path, missing, columns));
        }
        let field = |(column, field): (String, String)| {
            let field = self.types.get(&column).copied().unwrap_or_default().field(&field);
            (column, field)
        };
        Ok(chosen.into_iter().map(field).collect())
    }
}
