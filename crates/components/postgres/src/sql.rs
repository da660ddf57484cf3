//! Names and texts as SQL has them.

use thalweg_engine::Mistake;

/// The form of names of tables.
const FORM: &str = "Write `TABLE` or `SCHEMA.TABLE`, for example `audit.Events`, without quotation marks: upper and \
                    lower case differ. The database has its place in `database`.";

/// The name of a table, with its schema if it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// Reads `TABLE` or `SCHEMA.TABLE`. Upper and lower case differ, and there are no quotation marks.
    pub(crate) fn new(text: &str) -> Self {
        match text.split_once('.') {
            Some((schema, table)) => Self { schema: Some(schema.to_owned()), table: table.to_owned() },
            None => Self { schema: None, table: text.to_owned() },
        }
    }

    /// Returns the mistake in the option with the name, if no table has it.
    pub(crate) fn mistake(option: &'static str, text: &str) -> Option<Mistake> {
        let is_part = |part: &str| !part.is_empty() && part.trim() == part;
        let message = if text.contains(['"', '\'', '`']) {
            format!("`{text}` has quotation marks.")
        } else if !text.split('.').all(is_part) {
            format!("`{text}` is no table.")
        } else {
            return None;
        };
        Some(Mistake::new(option, message).help(FORM))
    }

    /// Returns the remark on a table whose name has a dot. It is probably meant with its database.
    pub(crate) fn remark(option: &'static str, text: &str) -> Option<Mistake> {
        let (schema, table) = text.split_once('.').filter(|(_, table)| table.contains('.'))?;
        let message = format!("`{text}` is the table `{table}` in the schema `{schema}`.");
        Some(Mistake::new(option, message).help(FORM))
    }

    /// Returns the name as SQL has it.
    pub(crate) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", identifier(schema), identifier(&self.table)),
            None => identifier(&self.table),
        }
    }
}

/// Returns a name as SQL has it.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('\0', "").replace('"', "\"\""))
}

/// Returns names as SQL has them, between commas.
pub(crate) fn identifiers<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(identifier).collect::<Vec<_>>().join(", ")
}

/// Returns a text as SQL has it. The form with `E` means the same whatever `standard_conforming_strings` is.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\0', "").replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_cannot_end_early() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal(r"it's \ here"), r"E'it''s \\ here'");
        assert_eq!(TableName::new("s.t").quoted(), "\"s\".\"t\"");
        assert_eq!(TableName::new("T").quoted(), "\"T\"");
        let mistake = |text: &str| TableName::mistake("table", text).map(|mistake| mistake.message);
        for text in ["s.", "", ".t", "s .t", " t"] {
            assert_eq!(mistake(text), Some(format!("`{text}` is no table.")));
        }
        assert_eq!(mistake("\"s\".\"t\"").as_deref(), Some("`\"s\".\"t\"` has quotation marks."));
        let remark = |text: &str| TableName::remark("table", text).map(|remark| remark.message);
        assert_eq!(remark("d.s.t").as_deref(), Some("`d.s.t` is the table `s.t` in the schema `d`."));
        // As partitions are called.
        assert_eq!((mistake("s.events.2026"), remark("s.T"), remark("t")), (None, None, None));
        assert_eq!((mistake("s.T"), mistake("t-1"), mistake("my table")), (None, None, None));
    }
}
