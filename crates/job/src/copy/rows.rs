//! The options of rows: how they are parsed, changed and encoded.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::LoadError;

/// The form in which rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Parse {
    /// Apache Avro: object container files.
    Avro,
    /// Comma-separated values; the first record names the columns.
    Csv,
    /// Each line is a row.
    Lines,
    /// Each line is a JSON object.
    #[serde(alias = "json")]
    Jsonl,
}

/// The form in which rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encode {
    /// A JSON object a line.
    #[serde(alias = "jsonl")]
    Json,
    /// Comma-separated values, after a line of names.
    Csv,
    /// `key=value` pairs.
    Logfmt,
    /// A text built from `--template`.
    Text,
    /// A Parquet table; its columns are those of the first rows.
    Parquet,
    /// As they were read.
    Raw,
}

impl Encode {
    /// Its name in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Logfmt => "logfmt",
            Self::Text => "text",
            Self::Parquet => "parquet",
            Self::Raw => "raw",
        }
    }

    /// The extension of files in this form.
    fn extension(self) -> &'static str {
        match self {
            Self::Json => "jsonl",
            Self::Csv => "csv",
            Self::Logfmt => "log",
            Self::Text => "txt",
            Self::Parquet => "parquet",
            Self::Raw => "",
        }
    }
}

/// How rows are parsed, changed and encoded.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rows {
    /// Reads rows in this form instead of copying bytes.
    pub parse: Option<Parse>,
    /// The form in which rows are written.
    pub encode: Option<Encode>,
    /// Copies only the rows for which this SQL condition is true.
    #[serde(rename = "where")]
    pub condition: Option<String>,
    /// Fields and the SQL expressions whose values they are set to, in order.
    pub set: Vec<(String, String)>,
    /// Keeps only these fields.
    pub keep: Vec<String>,
    /// The types of columns.
    #[serde(rename = "type")]
    pub types: Vec<(String, String)>,
    /// The character between the values of CSV.
    pub delimiter: Option<String>,
    /// The character set of the rows. Written rows are in UTF-8.
    pub charset: Option<String>,
    /// The names of the columns of CSV without a header.
    pub columns: Vec<String>,
    /// The template of a row that is written as text.
    pub template: Option<String>,
    /// True if rows may change their order.
    pub unordered: bool,
}

impl Rows {
    /// Finds options that contradict each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), LoadError> {
        let given = [
            ("--encode", self.encode.is_some()),
            ("--where", self.condition.is_some()),
            ("--set", !self.set.is_empty()),
            ("--keep", !self.keep.is_empty()),
            ("--type", !self.types.is_empty()),
            ("--delimiter", self.delimiter.is_some()),
            ("--columns", !self.columns.is_empty()),
            ("--charset", self.charset.is_some()),
            ("--template", self.template.is_some()),
            ("--unordered", self.unordered),
        ];
        let usage = |text: String| Err(LoadError::Options(text));
        for (option, pairs) in [("--set", &self.set), ("--type", &self.types)] {
            if pairs.iter().any(|(name, _)| name.trim().is_empty()) {
                return usage(format!("`{option}` must be a name, `=`, and a value"));
            }
        }
        if self.parse.is_none() {
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => usage(format!(
                    "`{option}` applies to rows, but bytes are copied unchanged; add the form of the rows, \
                     for example `--parse csv`"
                )),
                None => Ok(()),
            };
        }
        self.check_form()
    }

    /// Finds options that contradict the form in which rows are read or written.
    fn check_form(&self) -> Result<(), LoadError> {
        let usage = |text: String| Err(LoadError::Options(text));
        let of_csv = [("--delimiter", self.delimiter.is_some()), ("--columns", !self.columns.is_empty())];
        for (option, is_given) in of_csv {
            if is_given && self.parse != Some(Parse::Csv) {
                return usage(format!("`{option}` applies to CSV; add `--parse csv`"));
            }
        }
        if self.parse == Some(Parse::Avro) && !self.types.is_empty() {
            return usage("`--type` applies to text, but the columns of Avro have types".to_owned());
        }
        if self.parse == Some(Parse::Lines) && !self.types.is_empty() {
            return usage(
                "`--type` applies to columns, but lines have none; parse `csv` or `jsonl`".to_owned(),
            );
        }
        match (self.encode == Some(Encode::Text), self.template.is_some()) {
            (true, false) => usage(
                "`--encode text` needs a `--template`, for example `--template \"{name}: {age}\"`".to_owned(),
            ),
            (false, true) => usage("`--template` applies to text; add `--encode text`".to_owned()),
            _ => Ok(()),
        }
    }

    /// The form in which rows are written.
    #[must_use]
    pub fn written(&self) -> Encode {
        let changes = !self.set.is_empty() || !self.keep.is_empty();
        match (self.encode, self.parse) {
            (Some(encode), _) => encode,
            (None, Some(Parse::Avro)) => Encode::Json,
            (None, Some(Parse::Csv)) => Encode::Csv,
            (None, Some(Parse::Jsonl)) if changes => Encode::Json,
            (None, _) => Encode::Raw,
        }
    }

    /// The name of the object for the rows of a file of this name.
    #[must_use]
    pub fn name_for(&self, name: &str) -> String {
        const COMPRESSED: [&str; 9] = [".gz", ".zst", ".bz2", ".xz", ".lz4", ".br", ".zz", ".sz", ".z"];
        let plain = COMPRESSED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let extension = self.written().extension();
        // A dot at the start of a name starts no extension.
        let stem = plain.rfind('.').filter(|dot| *dot > 0).map_or(plain, |dot| &plain[..dot]);
        if extension.is_empty() { plain.to_owned() } else { format!("{stem}.{extension}") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rows(options: Value) -> Rows {
        serde_json::from_value(options).unwrap()
    }

    #[test]
    fn a_name_gets_the_extension_of_the_new_form() {
        let json = rows(json!({ "parse": "csv", "encode": "jsonl" }));
        for (name, wanted) in [
            ("a.csv", "a.jsonl"),
            ("a.b.csv.gz", "a.b.jsonl"),
            ("plain", "plain.jsonl"),
            (".hidden", ".hidden.jsonl"),
        ] {
            assert_eq!(json.name_for(name), wanted);
        }
        assert_eq!(rows(json!({ "parse": "lines" })).name_for("a.log.zst"), "a.log");
        assert_eq!(rows(json!({ "parse": "avro" })).name_for("a.avro"), "a.jsonl");
    }

    #[test]
    fn a_change_of_rows_is_written_although_no_form_is_given() {
        assert_eq!(rows(json!({ "parse": "csv" })).written(), Encode::Csv);
        assert_eq!(rows(json!({ "parse": "jsonl", "where": "a > 1" })).written(), Encode::Raw);
        assert_eq!(rows(json!({ "parse": "jsonl", "keep": ["a"] })).written(), Encode::Json);
    }

    #[test]
    fn options_that_contradict_each_other_are_rejected() {
        for options in [
            json!({ "encode": "json" }),
            json!({ "keep": ["a"] }),
            json!({ "charset": "latin1" }),
            json!({ "parse": "lines", "delimiter": ";" }),
            json!({ "parse": "lines", "type": [["a", "int"]] }),
            json!({ "parse": "avro", "type": [["a", "int"]] }),
            json!({ "parse": "csv", "encode": "text" }),
            json!({ "parse": "csv", "template": "{a}" }),
            json!({ "parse": "csv", "set": [["", "1"]] }),
        ] {
            assert!(rows(options.clone()).check().is_err(), "{options}");
        }
        assert!(rows(json!({ "parse": "csv", "encode": "text", "template": "{a}" })).check().is_ok());
    }
}
