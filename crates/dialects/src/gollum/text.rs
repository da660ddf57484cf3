//! Merges formatters that only put text around a value into one template.
//!
//! `Envelope`, `Timestamp`, `Hostname`, `StreamName`, `Sequence`, `Override` and `Double` each combine a
//! value with other text. As long as each works on the result of the previous one, a single template does the
//! work of all.

use thalweg_config::{Node, Span};

use super::made::{self, Made};

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TextPart {
    /// Literal characters.
    Literal(String),
    /// The value of a column.
    Column(String),
    /// The time at which the message was read, in strftime's notation.
    Time(String),
    /// The name of the host.
    Hostname,
    /// The number of the message, counted from 1. A number, counted from this one.
    Sequence(i64),
    /// An id of this kind for the message.
    Id(&'static str),
}

/// A text that a column is set to.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) parts: Vec<TextPart>,
    pub(super) into: String,
    /// If set, messages where this column is empty are left unchanged.
    pub(super) unless_empty: Option<String>,
    pub(super) span: Span,
}

impl Text {
    /// True if a message's text depends on earlier messages.
    pub(super) fn is_stateful(&self) -> bool {
        self.parts.iter().any(|part| {
            matches!(part, TextPart::Sequence(_) | TextPart::Id("sequence" | "sequence_hex" | "time"))
        })
    }

    /// Returns this text combined with the text that follows it, if one template can do both.
    pub(super) fn followed_by(&self, next: &Text) -> Option<Text> {
        let here = TextPart::Column(self.into.clone());
        let hashes = next.parts.contains(&TextPart::Id("hash"));
        let numbers = self
            .parts
            .iter()
            .chain(&next.parts)
            .filter(|part| matches!(part, TextPart::Sequence(_) | TextPart::Id(_)));
        if self.into != next.into
            || hashes
            || numbers.count() > 1
            || self.unless_empty != next.unless_empty
            || self.unless_empty.as_ref().is_some_and(|column| *column != self.into)
        {
            return None;
        }
        let mut parts = Vec::new();
        for part in &next.parts {
            if *part == here {
                parts.extend(self.parts.iter().cloned());
            } else {
                parts.push(part.clone());
            }
        }
        Some(Text { parts, ..self.clone() })
    }

    /// Returns the equivalent transforms, each with its kind and options.
    pub(super) fn transforms(&self) -> Vec<(&'static str, Node)> {
        if let [TextPart::Id(kind)] = self.parts.as_slice() {
            return vec![("add_id", self.id(kind, &self.into))];
        }
        const NUMBER: &str = "number_of_message";
        const ID: &str = "id_of_message";
        let mut before = Vec::new();
        let mut helpers = Vec::new();
        for part in &self.parts {
            match part {
                TextPart::Sequence(start) => {
                    let mut options = Made::new(self.span);
                    options.text("into", NUMBER, self.span).number("start", *start, self.span);
                    before.push(("add_sequence", options.done()));
                    helpers.push(made::text(NUMBER, self.span));
                }
                TextPart::Id(kind) => {
                    before.push(("add_id", self.id(kind, ID)));
                    helpers.push(made::text(ID, self.span));
                }
                _ => {}
            }
        }
        let mut options = Made::new(self.span);
        options.text("format", "text", self.span).text("template", self.template(NUMBER, ID), self.span);
        if self.into != "payload" {
            options.text("into", &self.into, self.span);
        }
        if let Some(column) = &self.unless_empty {
            if column != "payload" {
                options.text("field", column, self.span);
            }
            options.flag("skip_empty", true, self.span);
        }
        before.push(("encode", options.done()));
        if !helpers.is_empty() {
            before.push(("drop", made::list(helpers, self.span)));
        }
        before
    }

    fn id(&self, kind: &str, into: &str) -> Node {
        let mut options = Made::new(self.span);
        options.text("into", into, self.span).text("kind", kind, self.span);
        options.done()
    }

    fn template(&self, number: &str, id: &str) -> String {
        let mut template = String::new();
        for part in &self.parts {
            match part {
                TextPart::Literal(text) => template.push_str(&text.replace('{', "{{").replace('}', "}}")),
                TextPart::Column(name) => template.push_str(&format!("{{{name}}}")),
                TextPart::Time(format) => {
                    // A brace cannot stand within the format of a time.
                    for piece in format.split_inclusive(['{', '}']) {
                        let (time, brace) = match piece.strip_suffix(['{', '}']) {
                            Some(time) => (time, &piece[time.len()..]),
                            None => (piece, ""),
                        };
                        push_time(&mut template, time);
                        template.push_str(&brace.repeat(2));
                    }
                }
                TextPart::Hostname => template.push_str("{meta.hostname}"),
                TextPart::Sequence(_) => template.push_str(&format!("{{{number}}}")),
                TextPart::Id(_) => template.push_str(&format!("{{{id}}}")),
            }
        }
        template
    }
}

/// Appends a time to a template. Text before the first and after the last time element goes outside of the
/// time, where it is easier to read.
fn push_time(template: &mut String, format: &str) {
    let end = format.rfind('%').map_or(0, |at| at + element_length(&format[at..]));
    let start = format.find('%').unwrap_or(0).min(end);
    template.push_str(&format[..start].replace("%%", "%"));
    if end > start {
        template.push_str(&format!("{{meta.time:{}}}", &format[start..end]));
    }
    template.push_str(&format[end..].replace("%%", "%"));
}

/// Returns the length in bytes of the strftime element at the start of `format`: `%`, flags, a letter.
fn element_length(format: &str) -> usize {
    let flags = format[1..].find(|character: char| character.is_ascii_alphabetic() || character == '%');
    flags.map_or(format.len(), |flags| flags + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(parts: &[TextPart]) -> Text {
        Text { parts: parts.to_vec(), into: "payload".into(), unless_empty: None, span: Span::default() }
    }

    fn payload() -> TextPart {
        TextPart::Column("payload".into())
    }

    #[test]
    fn neighbours_are_one_template() {
        let envelope = text(&[TextPart::Literal("<{".into()), payload(), TextPart::Literal("\n".into())]);
        let timestamp = text(&[TextPart::Time("%Y-%m-%d %Z | ".into()), payload()]);
        let both = envelope.followed_by(&timestamp).unwrap();
        assert_eq!(both.template("", ""), "{meta.time:%Y-%m-%d %Z} | <{{{payload}\n");
        let elsewhere = Text { into: "other".into(), ..timestamp.clone() };
        assert!(envelope.followed_by(&elsewhere).is_none());
        let braced = text(&[TextPart::Time("{%Y} ".into()), payload()]);
        assert_eq!(braced.template("", ""), "{{{meta.time:%Y}}} {payload}");
        let careful = Text { unless_empty: Some("payload".into()), ..timestamp };
        assert!(envelope.followed_by(&careful).is_none());
    }

    #[test]
    fn a_text_is_written_over_by_a_constant() {
        let constant = text(&[TextPart::Literal("x".into())]);
        let envelope = text(&[payload(), TextPart::Literal("\n".into())]);
        assert_eq!(envelope.followed_by(&constant).unwrap().template("", ""), "x");
    }
}
