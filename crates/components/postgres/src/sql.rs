//! Names and texts as SQL has them.

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

    /// True if a part is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() || self.schema.as_ref().is_some_and(String::is_empty)
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
        assert!(TableName::new("s.").is_empty() && TableName::new("").is_empty());
    }
}
