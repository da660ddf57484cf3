//! Changes the columns of delimited text by directives (`format.ProcessTSV`).

use chrono::DateTime;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::time_text::TimeText;
use thalweg_codec::timestamps::{TimeFormat, TimeParser};
use thalweg_config::List;

use super::process_json::AGENT;
use crate::parse_user_agent::{Fact, facts_of};

/// Changes the columns of delimited text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessTsv {
    /// The changes, one after the other. A change of a column that the text does not have does nothing.
    directives: Vec<Directive>,
    /// The text between columns. The default is a tab.
    #[serde(default = "tab")]
    #[schemars(length(min = 1))]
    delimiter: String,
    /// True if columns in quotes may contain the delimiter. The default is `false`.
    #[serde(default)]
    quoted: bool,
}

fn tab() -> String {
    "\t".to_owned()
}

/// A change of one column.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Directive {
    /// The column, counted from 0 when the directive runs.
    column: usize,
    /// The change.
    action: Action,
    /// The parameters of the change. Formats of times are those of `parse_timestamp`.
    #[serde(default)]
    parameters: List<String>,
    /// For `time`: the number of bytes at the start of the column that are the time. The default is all.
    #[serde(default)]
    length: Option<usize>,
}

/// The effect of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Replaces a text: `[search, replacement]`.
    Replace,
    /// Puts a text before it: `[text]`.
    Prefix,
    /// Puts a text after it: `[text]`.
    Postfix,
    /// Removes characters from both ends: `[characters]`, by default spaces.
    Trim,
    /// Puts it in quotes.
    Quote,
    /// Converts a time: `[from, to]`.
    Time,
    /// Removes the column.
    Remove,
    /// Adds columns with what a user agent says: `[fact, ...]`, by default all.
    Agent,
}

#[derive(Debug)]
enum Change {
    Replace(String, String),
    Prefix(String),
    Postfix(String),
    Trim(Vec<char>),
    Quote,
    Time(Box<TimeParser>, Box<TimeText>, Option<usize>),
    Remove,
    Agent(Vec<Fact>),
}

/// Applies the directives to one text after the other.
#[derive(Debug)]
pub(super) struct Table {
    steps: Vec<(usize, Change)>,
    delimiter: String,
    quoted: bool,
}

/// A column of one text.
#[derive(Debug)]
struct Column {
    text: String,
    quoted: bool,
}

impl ProcessTsv {
    /// Prepares the directives.
    ///
    /// # Errors
    /// A directive whose parameters are wrong.
    pub(super) fn build(&self) -> Result<Table, String> {
        let steps = self.directives.iter().map(|directive| Ok((directive.column, directive.change()?)));
        let steps = steps.collect::<Result<_, String>>()?;
        Ok(Table { steps, delimiter: self.delimiter.clone(), quoted: self.quoted })
    }
}

impl Directive {
    fn change(&self) -> Result<Change, String> {
        let change = match (self.action, &*self.parameters) {
            (Action::Replace, [search, with]) => Change::Replace(search.clone(), with.clone()),
            (Action::Prefix, [text]) => Change::Prefix(text.clone()),
            (Action::Postfix, [text]) => Change::Postfix(text.clone()),
            (Action::Trim, []) => Change::Trim(vec![' ']),
            (Action::Trim, [characters]) => Change::Trim(characters.chars().collect()),
            (Action::Quote, []) => Change::Quote,
            (Action::Remove, []) => Change::Remove,
            (Action::Time, [from, to]) => {
                let written = TimeText::new(to).ok_or_else(|| format!("`{to}` is not a format for times"))?;
                let parser = TimeParser::new(TimeFormat::parse(from)?, 0);
                Change::Time(Box::new(parser), Box::new(written), self.length)
            }
            (Action::Agent, []) => Change::Agent(AGENT.map(|(_, fact)| fact).to_vec()),
            (Action::Agent, names) => {
                let known = |name: &String| AGENT.into_iter().find(|(known, _)| known == name);
                Change::Agent(names.iter().filter_map(known).map(|(_, fact)| fact).collect())
            }
            (action, parameters) => {
                let count = parameters.len();
                return Err(format!(
                    "`{action:?}` of column {} does not take {count} parameters",
                    self.column
                ));
            }
        };
        Ok(change)
    }
}

impl Table {
    /// Appends the changed text.
    ///
    /// # Errors
    /// A quote that is not closed.
    pub(super) fn write(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let text = std::str::from_utf8(value).map_err(|error| format!("it is not UTF-8: {error}"))?;
        let mut columns = if self.quoted {
            quoted(text, &self.delimiter).ok_or("a quote is not closed")?
        } else {
            text.split(self.delimiter.as_str()).map(plain).collect()
        };
        for (column, change) in &mut self.steps {
            change.apply(*column, &mut columns);
        }
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(self.delimiter.as_bytes());
            }
            let quote: &[u8] = if column.quoted { b"\"" } else { b"" };
            out.extend_from_slice(quote);
            out.extend_from_slice(column.text.as_bytes());
            out.extend_from_slice(quote);
        }
        Ok(())
    }
}

fn plain(text: &str) -> Column {
    Column { text: text.to_owned(), quoted: false }
}

/// Splits a text whose columns may be in quotes. A quote is part of the delimiters beside it, so columns may
/// contain quotes. `None` if the last quote is not closed.
fn quoted(text: &str, delimiter: &str) -> Option<Vec<Column>> {
    let (opening, closing) = (format!("{delimiter}\""), format!("\"{delimiter}"));
    let mut columns = Vec::new();
    let mut rest = text;
    loop {
        match rest.strip_prefix('"') {
            Some(after) => rest = after,
            None => {
                let (plains, after) =
                    rest.split_once(&opening).map_or((rest, None), |(plains, after)| (plains, Some(after)));
                columns.extend(plains.split(delimiter).map(plain));
                let Some(after) = after else { return Some(columns) };
                rest = after;
            }
        }
        match rest.split_once(&closing) {
            Some((column, after)) => {
                columns.push(Column { text: column.to_owned(), quoted: true });
                rest = after;
            }
            None => {
                columns.push(Column { text: rest.strip_suffix('"')?.to_owned(), quoted: true });
                return Some(columns);
            }
        }
    }
}

impl Change {
    fn apply(&mut self, at: usize, columns: &mut Vec<Column>) {
        let Some(column) = columns.get_mut(at) else { return };
        let text = &mut column.text;
        match self {
            Self::Replace(search, with) => *text = text.replace(search.as_str(), with),
            Self::Prefix(prefix) => text.insert_str(0, prefix),
            Self::Postfix(postfix) => text.push_str(postfix),
            Self::Trim(characters) => *text = text.trim_matches(characters.as_slice()).to_owned(),
            Self::Quote => column.quoted = true,
            Self::Time(parser, written, length) => {
                let time = text.get(..length.unwrap_or(text.len())).and_then(|text| parser.parse(text));
                if let Some(time) = time.and_then(DateTime::from_timestamp_micros) {
                    *text = written.of(time).to_owned();
                }
            }
            Self::Remove => {
                columns.remove(at);
            }
            Self::Agent(facts) => {
                let found = facts_of(text, facts).into_iter();
                let found: Vec<Column> = found.map(|fact| plain(&fact.unwrap_or_default())).collect();
                columns.splice(at + 1..at + 1, found);
            }
        }
    }
}
