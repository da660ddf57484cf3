//! The mistakes in a document, all collected.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::ser::{Serialize, SerializeSeq, SerializeStruct, Serializer};
use thalweg_redact::{for_terminal, foreign, in_place, masked, redacted};

use crate::render::{self, Cursor};
use crate::secrets::Hidden;
use crate::{Span, count, secrets, shortened};

/// The most mistakes that are written for programs and logs.
const MOST: usize = 1000;

/// A mistake and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The position of the mistake.
    pub span: Span,
    /// The mistake: a sentence, with the names of things in backticks.
    pub message: String,
    /// A few words for the position itself, shown under its underline.
    pub label: Option<String>,
    /// The way to fix it: a sentence.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates a mistake at a position. The message is a sentence.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), label: None, help: None }
    }

    /// Adds a few words that are shown at the position itself.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = Some(label.into());
        self
    }

    /// Adds a sentence on how to fix the mistake.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }
}

/// A mistake and other positions related to it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) diagnostic: Diagnostic,
    pub(crate) also: Vec<(Span, String)>,
}

impl Entry {
    /// The entry as it is shown: of a bounded length, without secrets and what a terminal would obey. Of a
    /// mistake within the ranges `hidden` of the document, no part of the value is repeated.
    fn redacted(&self, source: &str, hidden: &[Range<usize>]) -> Self {
        let Diagnostic { span, message, label, help } = &self.diagnostic;
        let plain = |text: &String| {
            let text = secrets::without_quoted(text, *span, source, hidden);
            for_terminal(&shortened(&redacted(&text)), false).into_owned()
        };
        Self {
            diagnostic: Diagnostic {
                span: *span,
                message: plain(message),
                label: label.as_ref().map(plain),
                help: help.as_ref().map(plain),
            },
            also: self.also.iter().map(|(span, label)| (*span, plain(label))).collect(),
        }
    }
}

/// All mistakes found so far in one document, ordered by position.
///
/// It holds the document's name and text in order to show the mistakes. [`render`](Self::render) is for a
/// person. `Display` writes one plain line per mistake. `Serialize` writes a list of objects with `file`,
/// `line`, `column`, `message` and `help`. Both write at most 1,000 mistakes, and then the number of the
/// others. The same mistake at the same position is kept once.
#[derive(Debug, Clone)]
pub struct Diagnostics {
    name: String,
    text: Arc<str>,
    /// The secrets of the text.
    hidden: Hidden,
    /// By position, and in the order in which they were added.
    entries: BTreeMap<(Span, usize), Entry>,
}

impl Diagnostics {
    /// Creates an empty collection.
    pub fn new(document_name: &str, text: &str) -> Self {
        Self::shared(document_name, text.into())
    }

    /// Creates an empty collection for a text that is not parsed. Its secrets are found in its lines.
    pub(crate) fn shared(document_name: &str, text: Arc<str>) -> Self {
        Self::hiding(document_name, text, Hidden::InLines)
    }

    pub(crate) fn hiding(document_name: &str, text: Arc<str>, hidden: Hidden) -> Self {
        Self { name: document_name.to_owned(), text, hidden, entries: BTreeMap::new() }
    }

    /// Creates an empty collection for the same document.
    pub fn another(&self) -> Self {
        Self::hiding(&self.name, self.text.clone(), self.hidden.clone())
    }

    /// Adds a mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.insert(diagnostic);
    }

    /// Adds a mistake and returns it, for [`Diagnostic::label`] and [`Diagnostic::help`].
    pub fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        &mut self.insert(Diagnostic::new(span, message)).diagnostic
    }

    /// Adds a mistake with related positions, each with a few words to show there.
    pub fn push_with(&mut self, diagnostic: Diagnostic, also: impl IntoIterator<Item = (Span, String)>) {
        self.insert(diagnostic).also.extend(also);
    }

    fn insert(&mut self, diagnostic: Diagnostic) -> &mut Entry {
        // A mistake in a node that aliases repeat is reported once.
        let span = diagnostic.span;
        let mut others = self.entries.range((span, 0)..=(span, usize::MAX));
        let same = others.find(|(_, entry)| entry.diagnostic.message == diagnostic.message);
        let place = same.map_or((span, self.entries.len()), |(place, _)| *place);
        self.entries.entry(place).or_insert(Entry { diagnostic, also: Vec::new() })
    }

    /// True if there are no mistakes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of mistakes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the mistakes, ordered by position.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.entries.values().map(|entry| &entry.diagnostic)
    }

    /// Returns the name of the document.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text of the document.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line and column of a byte of the text. Both count from 1; the column counts characters.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        render::position(&self.text, byte)
    }

    /// Returns a sentence about the mistakes that are not written, if there are some.
    fn more(&self) -> Option<String> {
        let more = self.len().checked_sub(MOST).filter(|more| *more > 0)?;
        Some(format!("{} more are not shown.", count(more as u64)))
    }

    /// Adds the mistakes of `other`, which must be about the same document.
    pub fn extend(&mut self, other: Diagnostics) {
        for entry in other.entries.into_values() {
            self.insert(entry.diagnostic).also.extend(entry.also);
        }
    }

    /// Returns `Ok(value)` if there are no mistakes, otherwise `self` as the error.
    pub fn into_result<T>(self, value: T) -> Result<T, Diagnostics> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// Returns the places of secrets in the text.
    fn hidden_ranges(&self) -> Vec<Range<usize>> {
        if self.is_empty() { Vec::new() } else { self.hidden.ranges(&self.text) }
    }

    /// Returns the first entries, as they are shown.
    fn redacted<'d>(&'d self, most: usize, hidden: &'d [Range<usize>]) -> impl Iterator<Item = Entry> + 'd {
        self.entries.values().take(most).map(move |entry| entry.redacted(&self.text, hidden))
    }

    /// Returns the text for a person: each mistake with its file, line, column, source line, underline,
    /// message and help. The last line is the number of mistakes.
    pub fn render(&self, colour: bool) -> String {
        let hidden = self.hidden_ranges();
        let entries: Vec<Entry> = self.redacted(render::MOST, &hidden).collect();
        let text = masked(&self.text, &hidden);
        render::render(&foreign(&self.name), &in_place(&text), &entries, self.len(), colour)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cursor = Cursor::new(&self.text);
        let hidden = self.hidden_ranges();
        for (index, entry) in self.redacted(MOST, &hidden).enumerate() {
            let diagnostic = entry.diagnostic;
            if index > 0 {
                writeln!(formatter)?;
            }
            let (line, column) = cursor.position(diagnostic.span.start);
            write!(formatter, "{}:{line}:{column}: {}", foreign(&self.name), diagnostic.message)?;
            if let Some(help) = &diagnostic.help {
                write!(formatter, " ({help})")?;
            }
        }
        match self.more() {
            Some(more) => write!(formatter, "\n{}: {more}", foreign(&self.name)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostics {}

impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut cursor = Cursor::new(&self.text);
        let hidden = self.hidden_ranges();
        for entry in self.redacted(MOST, &hidden) {
            let place = cursor.position(entry.diagnostic.span.start);
            list.serialize_element(&Placed { file: &self.name, place, diagnostic: &entry.diagnostic })?;
        }
        if let (Some(more), Some(entry)) = (self.more(), self.entries.values().nth(MOST)) {
            let span = entry.diagnostic.span;
            let place = cursor.position(span.start);
            list.serialize_element(&Placed {
                file: &self.name,
                place,
                diagnostic: &Diagnostic::new(span, more),
            })?;
        }
        list.end()
    }
}

/// A mistake with its file, line and column.
struct Placed<'a> {
    file: &'a str,
    place: (usize, usize),
    diagnostic: &'a Diagnostic,
}

impl Serialize for Placed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Diagnostic", 5)?;
        object.serialize_field("file", &self.file)?;
        object.serialize_field("line", &self.place.0)?;
        object.serialize_field("column", &self.place.1)?;
        object.serialize_field("message", &self.diagnostic.message)?;
        object.serialize_field("help", &self.diagnostic.help)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Diagnostics {
        let mut diagnostics = Diagnostics::new("x.yaml", "first\nsecønd line\n");
        diagnostics.error(Span::new(14, 18), "The `line` is wrong.").help("Write `row`.");
        diagnostics.error(Span::new(0, 5), "The first is wrong.").label("this");
        diagnostics.push(Diagnostic::new(Span::new(14, 18), "It is late."));
        diagnostics.error(Span::new(0, 5), "The first is wrong.");
        diagnostics
    }

    #[test]
    fn mistakes_are_in_the_order_of_their_places_and_each_is_kept_once() {
        let lines = three().to_string();
        assert_eq!(
            lines,
            "x.yaml:1:1: The first is wrong.\n\
             x.yaml:2:8: The `line` is wrong. (Write `row`.)\n\
             x.yaml:2:8: It is late."
        );
    }

    #[test]
    fn a_thousand_mistakes_are_written_and_the_others_counted() {
        let mut diagnostics = Diagnostics::new("x.yaml", &"ö\n".repeat(2000));
        for line in 0..1999 {
            diagnostics.error(Span::new(3 * line + 2, 3 * line + 3), format!("Mistake {line}."));
        }
        let written = diagnostics.to_string();
        assert_eq!(written.lines().count(), 1001);
        assert!(
            written.ends_with("x.yaml:1000:2: Mistake 999.\nx.yaml: 999 more are not shown."),
            "{written}"
        );
        let json = serde_json::to_value(&diagnostics).unwrap();
        assert_eq!(json.as_array().unwrap().len(), 1001);
        assert_eq!(
            (&json[1000]["line"], &json[1000]["message"]),
            (&1001.into(), &"999 more are not shown.".into())
        );
        let rendered = diagnostics.render(false);
        assert!(rendered.ends_with("\n1899 more are not shown.\n1999 mistakes in x.yaml\n"), "{rendered}");
    }

    /// Each was put before all that were there.
    #[test]
    fn many_mistakes_in_reverse_order_are_sorted() {
        let mut diagnostics = Diagnostics::new("x.yaml", "");
        for at in (0..300_000).rev() {
            diagnostics.error(Span::new(at, at + 1), "A mistake.");
        }
        assert!(diagnostics.iter().map(|mistake| mistake.span.start).eq(0..300_000));
    }

    #[test]
    fn a_program_reads_them_as_a_list_of_objects() {
        let json = serde_json::to_value(three()).unwrap();
        assert_eq!(
            json[1],
            serde_json::json!({
                "file": "x.yaml", "line": 2, "column": 8,
                "message": "The `line` is wrong.", "help": "Write `row`."
            })
        );
    }

    #[test]
    fn a_place_outside_of_the_text_is_shown_without_panic() {
        for text in ["", "x", "ø", "\n\n", "a\r\nb"] {
            let mut diagnostics = Diagnostics::new("x", text);
            for (start, end) in [(0, 0), (0, 1), (1, 1), (1, 2), (0, 99), (98, 99), (usize::MAX, usize::MAX)]
            {
                diagnostics.error(Span { start, end }, "Wrong.").label("here");
            }
            diagnostics.error(Span { start: 5, end: 1 }, "Backwards.");
            assert!(diagnostics.render(true).contains("Backwards."));
            assert!(diagnostics.to_string().contains("Backwards."));
        }
    }
}
