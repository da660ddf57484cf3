//! The places of secrets in a document. Excerpts have asterisks there, and messages about such a place do not
//! repeat the value.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use thalweg_redact::is_named_like_a_secret;

use super::{has, is_plain, is_secret_header, names_a_server, resembles_a_secret, text};
use crate::{Key, Node, Span, Value};

/// Where the secrets of a document are.
#[derive(Debug, Clone)]
pub(crate) enum Hidden {
    /// The text is not parsed: its lines are searched for names of secrets and for addresses.
    InLines,
    /// The nodes of a parsed text. Its comments are searched as lines are.
    InNodes(Arc<[Span]>),
}

impl Hidden {
    /// Finds the secrets of a tree.
    pub(crate) fn of(root: &Node) -> Self {
        let mut spans = Vec::new();
        of_node(root, Certainty::ByLooks, &mut spans);
        Self::InNodes(spans.into())
    }

    /// Returns the places of secrets in the text of the document, in their order.
    pub(crate) fn ranges(&self, source: &str) -> Vec<Range<usize>> {
        let mut ranges = match self {
            Self::InLines => text::in_lines(source),
            Self::InNodes(spans) => {
                let mut ranges = text::in_comments(source);
                ranges.extend(spans.iter().map(|span| span.start..span.end));
                ranges
            }
        };
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.dedup();
        ranges
    }
}

/// Whether a value that is named like a secret is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// The name may also be that of a field: the value has to look like a secret.
    ByLooks,
    Certain,
}

fn of_node(node: &Node, within: Certainty, spans: &mut Vec<Span>) {
    for item in node.items() {
        of_node(item, within, spans);
    }
    let entries = node.entries();
    let has_server = names_a_server(entries);
    let is_certain = within == Certainty::Certain || has_server || has(entries, &["user"]);
    let certainty = if is_certain { Certainty::Certain } else { Certainty::ByLooks };
    for (key, value) in entries {
        let is_auth = key.name == "auth" && has_server;
        let is_secret = within == Certainty::Certain || is_auth || is_like_a_secret(key);
        if is_secret && !is_plain(&key.name) {
            of_value(value, if is_auth { Certainty::Certain } else { certainty }, spans);
        }
        match key.name.as_str() {
            "headers" if has_server => of_headers(value, spans),
            "brokers" | "server" | "servers" => of_items(value, |text| text.contains('@'), spans),
            _ => {}
        }
        let is_of_auth = is_auth || within == Certainty::Certain && !is_plain(&key.name);
        of_node(value, if is_of_auth { Certainty::Certain } else { Certainty::ByLooks }, spans);
    }
}

/// Adds the values of headers that are named like secrets, also of those that are written as lines.
fn of_headers(node: &Node, spans: &mut Vec<Span>) {
    let is_secret = |key: &Key| is_like_a_secret(key) || is_secret_header(&key.name);
    let named = node.entries().iter().filter(|(key, _)| is_secret(key));
    named.for_each(|(_, value)| of_value(value, Certainty::Certain, spans));
    let name = |line: &str| line.split(':').next().is_some_and(is_secret_header);
    of_items(node, |line| line.contains(':') && name(line), spans);
}

/// Adds a text, or those of a list, that are secret.
fn of_items(node: &Node, is_secret: impl Fn(&str) -> bool, spans: &mut Vec<Span>) {
    let texts = node.items().iter().chain([node]);
    let secret =
        texts.filter(|item| item.as_str().is_some_and(&is_secret) && item.span.end > item.span.start);
    spans.extend(secret.map(|item| item.span));
}

/// Adds a value, or those of a list.
fn of_value(node: &Node, certainty: Certainty, spans: &mut Vec<Span>) {
    node.items().iter().for_each(|item| of_value(item, certainty, spans));
    let Some(value) = node.text() else { return };
    let is_open = match (&node.value, certainty) {
        (Value::Bool(_), _) => true,
        (_, Certainty::Certain) => text::is_variable(value),
        (_, Certainty::ByLooks) => !resembles_a_secret(value),
    };
    if !is_open && node.span.end > node.span.start {
        spans.push(node.span);
    }
}

/// True also for a misspelt name.
fn is_like_a_secret(key: &Key) -> bool {
    is_named_like_a_secret(&key.name) || resembles_a_name(&key.name)
}

/// True for a misspelt name of a secret.
pub(super) fn resembles_a_name(name: &str) -> bool {
    const NAMES: [(&str, usize); 8] = [
        ("password", 2),
        ("passphrase", 2),
        ("credentials", 2),
        ("authorization", 2),
        ("bearer", 1),
        ("secret", 1),
        ("token", 1),
        ("api_key", 1),
    ];
    /// Longer names are not compared.
    const LONGEST: usize = 20;
    name.len() <= LONGEST && {
        let name = name.to_lowercase().replace('-', "_");
        !is_plain(&name) && NAMES.iter().any(|(known, most)| strsim::osa_distance(&name, known) <= *most)
    }
}

/// Returns a message about a place of the document. If the place has secrets, `…` stands for each part in
/// backticks or quotes that repeats some of one. So it does for a secret shortly before: the place of a value
/// that is only a tag is after it.
pub(crate) fn without_quoted<'m>(
    message: &'m str,
    span: Span,
    source: &str,
    hidden: &[Range<usize>],
) -> Cow<'m, str> {
    /// The most secrets of one place, and the most bytes of each, that are compared.
    const MOST: usize = 16;
    const LONGEST: usize = 4096;
    /// How many bytes before the place secrets are compared as a whole.
    const BEFORE: usize = 256;
    /// Shorter secrets may be parts of other words.
    const SHORTEST: usize = thalweg_redact::SHORTEST;

    let end = span.end.max(span.start.saturating_add(1));
    let first = hidden.partition_point(|range| range.start < span.start);
    // Ranges that begin before the place may end in it.
    let from = first.saturating_sub(MOST);
    let near = hidden.iter().skip(from).take_while(|range| range.start < end);
    let mut shown = Cow::Borrowed(message);
    for range in near.filter(|range| range.end + BEFORE > span.start).take(2 * MOST) {
        let Some(secret) = source.get(range.clone()) else { continue };
        let value = secret.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        if (SHORTEST..=LONGEST).contains(&value.len()) && shown.contains(value) {
            shown = shown.replace(value, "…").into();
        }
        let is_within = range.end > span.start;
        let word_of = |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        let whole = word_of(secret.get(..LONGEST).unwrap_or(secret));
        let is_hidden = |part: &str| {
            let word = word_of(part);
            let repeats =
                if is_within { secret.len() > LONGEST || secret.contains(&word) } else { whole == word };
            !word.is_empty() && repeats
        };
        for quote in ['`', '"'] {
            if shown.split(quote).skip(1).step_by(2).any(&is_hidden) {
                shown = replaced(&shown, quote, is_hidden).into();
            }
        }
    }
    shown
}

/// Returns a message with `…` in place of those parts between two quotes that are hidden.
fn replaced(message: &str, quote: char, is_hidden: impl Fn(&str) -> bool) -> String {
    let parts = message.split(quote).enumerate();
    let parts: Vec<&str> =
        parts.map(|(at, part)| if at % 2 == 1 && is_hidden(part) { "…" } else { part }).collect();
    parts.join(&quote.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    fn hidden(source: &str) -> Vec<String> {
        let document = Document::parse("x", source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let ranges = Hidden::of(document.root()).ranges(source);
        ranges.into_iter().map(|range| source[range].to_owned()).collect()
    }

    #[test]
    fn secrets_of_a_tree_are_hidden_at_their_places_however_short_they_are() {
        let source = "\
a: { url: h, auth: q9, token: abc, password: '${A}', pasword: b1, tls: { password: '${A:-c3}' } }
b: { url: h, headers: ['Cookie: k', 'X: y'], brokers: 'me:p@h', auth: { user: me, bearer: [d], baerer: { e: 4 }, key_file: f, mechanism: plain } }
c: { secret: G7, user_id: 5 } # token: old
d: { server: 'u:p2@h', auth: [u1, p3], headers: { X-Auth: k4, Accept: text } }
e: { server: h, auth: { user: u, pass: p5 } }
f: { server: h, auth: 'u:p6' }
sinks: { server: { stdout: {} }, auth: { file: { path: p7 } } }
";
        let expected = [
            "q9",
            "abc",
            "b1",
            "'Cookie: k'",
            "'me:p@h'",
            "d",
            "4",
            "G7",
            "old",
            "'u:p2@h'",
            "u1",
            "p3",
            "k4",
            "p5",
            "'u:p6'",
        ];
        assert_eq!(hidden(source), expected);
    }

    #[test]
    fn names_of_fields_and_expressions_are_shown() {
        let source = "\
- rename: { password: pass, token: t }
- set: { token: upper(A), secret: '${SECRET}' }
- parse_csv: { types: { token: text }, password_file: A1 }
";
        assert_eq!(hidden(source), [""; 0]);
    }

    #[test]
    fn a_message_repeats_no_part_of_a_hidden_value() {
        let source = "auth: q9Z";
        let said = |message, start| {
            let hidden = Vec::from_iter(std::iter::once(6..9));
            without_quoted(message, Span::new(start, start + 3), source, &hidden).into_owned()
        };
        assert_eq!(
            said("`auth` is the text `q9Z`, [\"9Z\"]; try `['q9Z']`.", 6),
            "`auth` is the text `…`, [\"…\"]; try `…`."
        );
        assert_eq!(said("`q9Z`", 0), "`q9Z`");
    }
}
