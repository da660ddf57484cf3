//! What is done to rows on their way.

use clap::{Args, ValueEnum};

use crate::exit::CliError;

/// In what form rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Parse {
    /// Comma-separated values; the first record names the columns.
    Csv,
    /// Each line is a row.
    Lines,
    /// Each line is a JSON object.
    Jsonl,
}

/// In what form rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Encode {
    /// A JSON object a line.
    #[value(alias = "jsonl")]
    Json,
    /// Comma-separated values, after a line of names.
    Csv,
    /// `key=value` pairs.
    Logfmt,
    /// A text made from `--template`.
    Text,
    /// A table in the format Parquet; its columns are those of the first rows.
    Parquet,
    /// As they were read.
    Raw,
}

impl Encode {
    /// What configurations call it.
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

    /// What names of files in this form end with.
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

/// What is done to rows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rows")]
pub struct Rows {
    /// Read rows out of the objects (which may be compressed) instead of copying their bytes. The rows of several objects
    /// become one object.
    #[arg(long, value_name = "FORM")]
    pub parse: Option<Parse>,
    /// Write rows in this form. Without it, CSV stays CSV, JSON stays JSON, and lines are written as they are.
    #[arg(long, value_name = "FORM")]
    pub encode: Option<Encode>,
    /// Copy only rows for which this SQL condition is true, for example `"age >= 18"`.
    #[arg(long = "where", value_name = "SQL")]
    pub condition: Option<String>,
    /// Set a field to the value of a SQL expression, for example `name="upper(name)"`. May be given several times; in
    /// their order, after `--where`.
    #[arg(long, value_name = "NAME=SQL", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// Keep only these fields, in this order; `*` stands for any characters. After `--set`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub keep: Vec<String>,
    /// The type of a column: int, float, bool, timestamp, json or text. Without it, columns of CSV are text. May be
    /// given several times.
    #[arg(long = "type", value_name = "NAME=TYPE", value_parser = pair)]
    pub types: Vec<(String, String)>,
    /// What stands between the values of CSV. Without it, a comma.
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<String>,
    /// The names of the columns of CSV that has no header.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// What a row looks like with `--encode text`, for example `"{name}: {age}"`.
    #[arg(long, value_name = "TEXT")]
    pub template: Option<String>,
    /// Rows need not come in the order in which they were.
    #[arg(long)]
    pub unordered: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("it must be a name, `=`, and what belongs to it".to_owned()),
    }
}

impl Rows {
    /// Whether the options go together.
    pub fn check(&self) -> Result<(), CliError> {
        let given = [
            ("--encode", self.encode.is_some()),
            ("--where", self.condition.is_some()),
            ("--set", !self.set.is_empty()),
            ("--keep", !self.keep.is_empty()),
            ("--type", !self.types.is_empty()),
            ("--delimiter", self.delimiter.is_some()),
            ("--columns", !self.columns.is_empty()),
            ("--template", self.template.is_some()),
            ("--unordered", self.unordered),
        ];
        let usage = |text: String| Err(CliError::Usage(text));
        if self.parse.is_none() {
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => usage(format!(
                    "`{option}` is about rows, but bytes are copied as they are; say in what form rows are read, \
                     for example `--parse csv`"
                )),
                None => Ok(()),
            };
        }
        for (option, is_given) in [("--delimiter", given[5].1), ("--columns", given[6].1)] {
            if is_given && self.parse != Some(Parse::Csv) {
                return usage(format!("`{option}` is about CSV, so it goes with `--parse csv`"));
            }
        }
        if self.parse == Some(Parse::Lines) && !self.types.is_empty() {
            return usage(
                "`--type` is about columns, but lines have none; parse `csv` or `jsonl`".to_owned(),
            );
        }
        match (self.encode == Some(Encode::Text), self.template.is_some()) {
            (true, false) => usage(
                "`--encode text` needs a `--template`, for example `--template \"{name}: {age}\"`".to_owned(),
            ),
            (false, true) => usage("`--template` goes with `--encode text`".to_owned()),
            _ => Ok(()),
        }
    }

    /// In what form rows are written.
    pub fn written(&self) -> Encode {
        let changes = !self.set.is_empty() || !self.keep.is_empty();
        match (self.encode, self.parse) {
            (Some(encode), _) => encode,
            (None, Some(Parse::Csv)) => Encode::Csv,
            (None, Some(Parse::Jsonl)) if changes => Encode::Json,
            (None, _) => Encode::Raw,
        }
    }

    /// The name of the object that the rows of a file of this name become.
    pub fn name_for(&self, name: &str) -> String {
        const COMPRESSED: [&str; 9] = [".gz", ".zst", ".bz2", ".xz", ".lz4", ".br", ".zz", ".sz", ".z"];
        let plain = COMPRESSED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let extension = self.written().extension();
        // A point at the beginning of a name begins no extension.
        let stem = plain.rfind('.').filter(|dot| *dot > 0).map_or(plain, |dot| &plain[..dot]);
        if extension.is_empty() { plain.to_owned() } else { format!("{stem}.{extension}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rows: Rows,
    }

    fn rows(arguments: &[&str]) -> Rows {
        Line::try_parse_from([&["copy"], arguments].concat()).unwrap().rows
    }

    #[test]
    fn a_name_gets_the_extension_of_the_new_form() {
        let json = rows(&["--parse", "csv", "--encode", "jsonl"]);
        for (name, wanted) in [
            ("a.csv", "a.jsonl"),
            ("a.b.csv.gz", "a.b.jsonl"),
            ("plain", "plain.jsonl"),
            (".hidden", ".hidden.jsonl"),
        ] {
            assert_eq!(json.name_for(name), wanted);
        }
        assert_eq!(rows(&["--parse", "lines"]).name_for("a.log.zst"), "a.log");
    }

    #[test]
    fn what_changes_rows_is_not_lost_where_the_form_is_not_said() {
        assert_eq!(rows(&["--parse", "csv"]).written(), Encode::Csv);
        assert_eq!(rows(&["--parse", "jsonl", "--where", "a > 1"]).written(), Encode::Raw);
        assert_eq!(rows(&["--parse", "jsonl", "--keep", "a"]).written(), Encode::Json);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for arguments in [
            &["--encode", "json"][..],
            &["--keep", "a"],
            &["--parse", "lines", "--delimiter", ";"],
            &["--parse", "lines", "--type", "a=int"],
            &["--parse", "csv", "--encode", "text"],
            &["--parse", "csv", "--template", "{a}"],
        ] {
            assert!(rows(arguments).check().is_err(), "{arguments:?}");
        }
        assert!(rows(&["--parse", "csv", "--encode", "text", "--template", "{a}"]).check().is_ok());
    }
}
