//! Shows mistakes to a person: `miette` draws each under its source line.

use std::borrow::Cow;
use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents,
};

use crate::diagnostic::Entry;
use crate::{Diagnostic, Span};

/// The width of the text in columns. It is fixed, so a log and a test show the same as a terminal.
const WIDTH: usize = 110;

/// The most mistakes that are shown. A document with more is most likely not a configuration.
pub(crate) const MOST: usize = 100;

/// Returns the line and column of a byte. Both count from 1; the column counts characters.
pub(crate) fn position(text: &str, byte: usize) -> (usize, usize) {
    Cursor::new(text).position(byte)
}

/// A position in a text that moves forward, so that many positions take one pass.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    byte: usize,
    line: usize,
    column: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, byte: 0, line: 1, column: 1 }
    }

    /// Returns the line and column of a byte, which must not be before the one of the last call.
    pub(crate) fn position(&mut self, byte: usize) -> (usize, usize) {
        let to = floor(self.text, byte);
        let between = self.text.get(self.byte..to).unwrap_or_default();
        self.line += between.bytes().filter(|&byte| byte == b'\n').count();
        self.column = match between.rsplit_once('\n') {
            Some((_, last)) => last.chars().count() + 1,
            None => self.column + between.chars().count(),
        };
        self.byte = self.byte.max(to);
        (self.line, self.column)
    }
}

/// Returns the last character boundary at or before `byte`.
fn floor(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

/// Renders the first mistakes of a document, and the number of all.
pub(crate) fn render(name: &str, text: &str, entries: &[Entry], all: usize, colour: bool) -> String {
    let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_links(false)
        .with_break_words(false)
        .with_context_lines(1)
        .without_syntax_highlighting();
    let mut shown = String::new();
    for entry in entries {
        let report = match excerpt(name, text, entry) {
            Some((entry, source)) => Report { entry: Cow::Owned(entry), source },
            None => Report { entry: Cow::Borrowed(entry), source: Source::whole(name, text) },
        };
        if handler.render_report(&mut shown, &report).is_err() {
            shown.push_str(&entry.diagnostic.message);
        }
        shown.push('\n');
    }
    if let hidden @ 1.. = all.saturating_sub(entries.len()) {
        shown.push_str(&format!("{hidden} more are not shown.\n"));
    }
    let plural = if all == 1 { "mistake" } else { "mistakes" };
    shown.push_str(&format!("{all} {plural} in {name}\n"));
    shown
}

/// Returns a piece of a line that is too long to show, such as JSON without line breaks, and the mistake
/// relative to that piece. Returns `None` if the lines around the mistake are short enough.
fn excerpt<'a>(name: &'a str, text: &'a str, entry: &Entry) -> Option<(Entry, Source<'a>)> {
    const LONGEST: usize = 400;
    const BEFORE: usize = 50;
    const AFTER: usize = 70;

    let at = floor(text, entry.diagnostic.span.start);
    let line_start = text.get(..at)?.rfind('\n').map_or(0, |index| index + 1);
    let line_end = text.get(at..)?.find('\n').map_or(text.len(), |length| at + length);
    let above = text.get(..line_start.saturating_sub(1))?.rsplit('\n').next().map_or(0, str::len);
    let below = text.get(line_end..)?.trim_start_matches('\n').split('\n').next().map_or(0, str::len);
    if (line_end - line_start).max(above).max(below) <= LONGEST {
        return None;
    }
    let start = floor(text, at.saturating_sub(BEFORE)).max(line_start);
    let end = floor(text, at + AFTER).min(line_end);
    let before = if start > line_start { "…" } else { "" };
    let after = if end < line_end { "…" } else { "" };
    let moved = |span: Span| {
        Span::new(
            span.start.saturating_sub(start) + before.len(),
            span.end.min(end).saturating_sub(start) + before.len(),
        )
    };
    let diagnostic = Diagnostic {
        span: moved(Span::new(at, entry.diagnostic.span.end.max(at))),
        ..entry.diagnostic.clone()
    };
    let within = |span: &Span| (start..end).contains(&span.start);
    let also =
        entry.also.iter().filter(|(span, _)| within(span)).map(|(span, label)| (moved(*span), label.clone()));
    let source = Source {
        name,
        text: format!("{before}{}{after}", text.get(start..end)?).into(),
        line: position(text, at).0 - 1,
        column: position(text, start).1 - 1 - before.chars().count(),
    };
    Some((Entry { diagnostic, also: also.collect() }, source))
}

/// A mistake in the form that `miette` draws.
struct Report<'a> {
    entry: Cow<'a, Entry>,
    source: Source<'a>,
}

impl Report<'_> {
    fn diagnostic(&self) -> &Diagnostic {
        &self.entry.diagnostic
    }

    /// Returns the start and length to underline: the part of the span within the text and within its first
    /// line.
    fn underlined(&self, span: Span) -> (usize, usize) {
        let start = floor(&self.source.text, span.start);
        let rest = self.source.text.get(start..floor(&self.source.text, span.end.max(start))).unwrap_or("");
        let line = rest.lines().next().unwrap_or("");
        let text = line.trim_end().len();
        (start, if text == 0 { line.len() } else { text })
    }

    fn labelled(&self, label: Option<&String>, span: Span, primary: bool) -> LabeledSpan {
        let (start, length) = self.underlined(span);
        let place = SourceSpan::new(start.into(), length);
        if primary {
            LabeledSpan::new_primary_with_span(label.cloned(), place)
        } else {
            LabeledSpan::new_with_span(label.cloned(), place)
        }
    }
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.diagnostic())
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.diagnostic().message)
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.diagnostic().help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // A file that is empty or unreadable has no source to show.
        if self.source.text.is_empty() { None } else { Some(&self.source) }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let first = self.labelled(self.diagnostic().label.as_ref(), self.diagnostic().span, true);
        let also = self.entry.also.iter().map(|(span, label)| self.labelled(Some(label), *span, false));
        Some(Box::new(std::iter::once(first).chain(also)))
    }
}

/// The document, or a piece of it, in the form that `miette` reads. Columns count characters, not bytes.
struct Source<'a> {
    name: &'a str,
    text: Cow<'a, str>,
    /// The position in the document where the text starts.
    line: usize,
    column: usize,
}

impl<'a> Source<'a> {
    fn whole(name: &'a str, text: &'a str) -> Self {
        Self { name, text: text.into(), line: 0, column: 0 }
    }
}

impl SourceCode for Source<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents = self.text.as_ref().read_span(span, lines_before, lines_after)?;
        let (_, column) = position(&self.text, contents.span().offset());
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.to_owned(),
            contents.data(),
            *contents.span(),
            self.line + contents.line(),
            self.column + column - 1,
            contents.line_count(),
        )))
    }
}
