//! Lines of access logs, whose format is a text with variables.
//!
//! A format is compiled into literals and variables, without a regular expression: the value of a variable
//! ends where the literal after it begins. That is right because servers escape quotes in values, and because
//! a literal after a value that may have spaces is mostly more than a space. The other values with spaces are
//! known by their names: see [`Shape`]. A value is a view of the message unless it has escapes.
//!
//! The fields have the names that nginx gives its variables, for both servers, so that what follows in a
//! pipeline does not depend on the server. The exception is the time: `time_local`, `time_iso8601` and `msec`
//! are the field `time`.

mod request;
mod server_log;

use memchr::{memchr, memchr2};
use thalweg_codec::columns::{Columns, FieldType};
use thalweg_codec::delimiter::Delimiter;
use thalweg_engine::Transform;

pub(crate) use request::Request;
pub(crate) use server_log::ServerLog;

use crate::numbered::Names;
use crate::quoted::unescaped;
use crate::text_parser::{TextOptions, TextParser, TextReader, push};

/// The end of a value, and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It ends at the literal that follows.
    Plain,
    /// The same, but this many spaces are a part of the value.
    Spaced(usize),
    /// The line of a request, whose parts become fields as well.
    Request,
    /// As [`Plain`](Self::Plain), but it is empty or begins with `?`, so it may follow another variable
    /// directly.
    Query,
    /// One value or several, separated by `, ` and ` : `, as nginx writes those of upstream servers, and
    /// proxies the addresses of clients. A number is that of the last server, which answered.
    List,
}

/// A variable of a format.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) kind: FieldType,
    pub(crate) shape: Shape,
}

impl Variable {
    /// Creates a variable that ends at the literal that follows.
    pub(crate) fn new(name: impl Into<String>, kind: FieldType) -> Self {
        Self { name: name.into(), kind, shape: Shape::Plain }
    }

    /// Gives it another shape.
    pub(crate) fn shaped(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }
}

/// A part of a format.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Literal(String),
    Variable(Variable),
}

/// A format of lines: literals and variables in turn.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    parts: Vec<Part>,
}

impl Format {
    /// Creates a format. Variables of one name are numbered from the second on, as in `status_2`.
    ///
    /// # Errors
    /// If there is no variable, or nothing between two of them.
    pub(crate) fn new(parts: impl IntoIterator<Item = Part>) -> Result<Self, String> {
        let mut format = Self { parts: Vec::new() };
        let mut names = Names::default();
        for part in parts {
            match (part, format.parts.last_mut()) {
                (Part::Literal(text), Some(Part::Literal(before))) => before.push_str(&text),
                (Part::Literal(text), _) if text.is_empty() => {}
                (Part::Variable(variable), Some(Part::Variable(before)))
                    if variable.shape != Shape::Query || before.shape == Shape::Query =>
                {
                    let (one, other) = (&before.name, &variable.name);
                    return Err(format!(
                        "Nothing stands between `{one}` and `{other}`, so no line tells where the one ends."
                    ));
                }
                (Part::Variable(mut variable), _) => {
                    variable.name = names.give(&variable.name);
                    format.parts.push(Part::Variable(variable));
                }
                (part, _) => format.parts.push(part),
            }
        }
        if format.fields().is_empty() {
            return Err("The format has no variable, so it makes no field.".to_owned());
        }
        Ok(format)
    }

    /// Returns the names and types of the fields.
    pub(crate) fn fields(&self) -> Vec<(&str, FieldType)> {
        let variables = self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Literal(_) => None,
        });
        let mut fields: Vec<_> =
            variables.clone().map(|variable| (variable.name.as_str(), variable.kind)).collect();
        if variables.clone().any(|variable| variable.shape == Shape::Request) {
            let parts =
                Request::FIELDS.into_iter().filter(|name| fields.iter().all(|(known, _)| known != name));
            fields.extend(parts.map(|name| (name, FieldType::Text)).collect::<Vec<_>>());
        }
        fields
    }

    /// Creates the parser of lines of this format.
    pub(crate) fn parser(&self, options: &TextOptions) -> Box<dyn Transform> {
        let fields = self.fields();
        let columns =
            Columns::new(options.typing(fields.iter().copied()), fields.iter().map(|(name, _)| name));
        let mut steps = Vec::new();
        let mut prefix = String::new();
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(text) => prefix.clone_from(text),
                Part::Variable(variable) => {
                    let is_before_query = matches!(parts.peek(), Some(Part::Variable(_)));
                    let next = match parts.clone().find(|part| matches!(part, Part::Literal(_))) {
                        Some(Part::Literal(text)) => text.as_str(),
                        _ => "",
                    };
                    let kind = options.types.get(&variable.name).copied().unwrap_or(variable.kind);
                    steps.push(Step {
                        shape: variable.shape,
                        is_quoted: prefix.ends_with('"') && next.starts_with('"'),
                        is_last_of_list: matches!(kind, FieldType::Int | FieldType::Float),
                        is_before_query,
                        next: Delimiter::new(next),
                        next_text: next.into(),
                    });
                }
            }
        }
        let first = match self.parts.first() {
            Some(Part::Literal(text)) => text.as_str(),
            _ => "",
        };
        let request = Request::new(&columns, steps.len());
        let reader = Lines { first: first.into(), steps, request, decoded: Vec::new() };
        Box::new(TextParser::new(reader, columns, &options.field))
    }
}

/// A value and the literal after it. The number of the step is that of its column.
struct Step {
    shape: Shape,
    /// True if the value is in quotes, within which a backslash escapes a quote.
    is_quoted: bool,
    /// True if only the last of several values counts.
    is_last_of_list: bool,
    /// True if the value ends at a `?`, or where the query after it ends.
    is_before_query: bool,
    next: Delimiter,
    next_text: Box<str>,
}

impl Step {
    /// Returns the length of the value at the start of a text, and the length with the literal after it.
    fn lengths(&self, text: &str) -> Option<(usize, usize)> {
        let end = self.end(text)?;
        let value = text.as_bytes().get(..end)?;
        if self.is_before_query {
            let length = memchr(b'?', value).unwrap_or(end);
            return Some((length, length));
        }
        text.get(end..)?.starts_with(&*self.next_text).then(|| (end, end + self.next_text.len()))
    }

    /// Returns the offset of the literal that follows.
    fn end(&self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        if self.is_quoted {
            return closing_quote(bytes);
        }
        if self.next.is_empty() {
            return Some(bytes.len());
        }
        let find = |from: usize| Some(from + self.next.find(bytes.get(from..)?)?);
        let mut end = find(0)?;
        match self.shape {
            Shape::Spaced(spaces) if self.next_text.starts_with(' ') => {
                for _ in 0..spaces {
                    end = find(end + 1)?;
                }
            }
            Shape::List => {
                let joins = |end: usize| {
                    let after = bytes.get(end..).unwrap_or_default();
                    bytes.get(..end).is_some_and(|before| before.ends_with(b",") || before.ends_with(b" :"))
                        || after.starts_with(b" : ")
                        || after.starts_with(b", ")
                };
                while joins(end) {
                    end = find(end + 1)?;
                }
            }
            _ => {}
        }
        Some(end)
    }
}

/// Returns the index of the first quote that no backslash escapes.
fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

struct Lines {
    first: Box<str>,
    steps: Vec<Step>,
    request: Request,
    /// The last value with escapes, decoded.
    decoded: Vec<u8>,
}

impl TextReader for Lines {
    #[inline]
    fn read(&mut self, text: &str, columns: &mut Columns) -> Result<(), String> {
        let text = text.strip_suffix('\r').unwrap_or(text);
        let mut at = self.first.len();
        if !text.starts_with(&*self.first) {
            return Err(format!("does not begin with `{}`", self.first));
        }
        for (column, step) in self.steps.iter().enumerate() {
            let rest = text.get(at..).unwrap_or_default();
            let absent = || {
                let name = columns.name(column).unwrap_or_default();
                format!("`{}` does not follow the field `{name}`, which begins at byte {at}", step.next_text)
            };
            let (length, with_literal) = step.lengths(rest).ok_or_else(absent)?;
            at += with_literal;
            let piece = unescaped(rest.get(..length).unwrap_or_default(), &mut self.decoded);
            match step.shape {
                Shape::Request => self.request.push(columns, column, piece)?,
                Shape::List if step.is_last_of_list => {
                    push(columns, column, piece.rsplit([' ', ',']).next().unwrap_or_default())?;
                }
                _ => push(columns, column, piece)?,
            }
        }
        if at < text.len() {
            return Err(format!("the format ends before byte {at}, but the line does not"));
        }
        Ok(())
    }
}
