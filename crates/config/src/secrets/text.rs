//! Finds secrets in a text that may not parse: line by line, by the names before them.
//!
//! A parser would be exact, but the text is shown because a parser failed in it. So a value ends late rather
//! than early: a word that is hidden by mistake costs less than a part of a password that is shown.

use std::ops::Range;

use thalweg_redact::is_named_like_a_secret;

use super::hidden::resembles_a_name;
use super::is_plain;

/// Returns the places of what may be a secret in lines of YAML, JSON, or `name = value`.
pub(super) fn in_lines(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut below) = (0, Below::Nothing);
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        if !content.trim().is_empty() {
            let mut scan = Line::new(content, start, &mut found);
            let still = scan.continuation(below);
            if !matches!(still, Below::Value { .. }) || pair(content).is_none() {
                scan.words(0);
            }
            scan.users(0);
            below = if matches!(scan.below, Below::Nothing) { still } else { scan.below };
        }
        start += line.len();
    }
    found
}

/// Returns the places of what may be a secret in the comments of YAML.
pub(super) fn in_comments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\n', '\r']);
        let is_whole = content.trim_start().starts_with('#');
        if let Some(from) = if is_whole { Some(0) } else { content.find(" #") } {
            let mut scan = Line::new(content, start, &mut found);
            scan.words(from);
            scan.users(from);
        }
        start += line.len();
    }
    found
}

/// True for one variable without a default, which is no secret itself.
pub(super) fn is_variable(value: &str) -> bool {
    let inner = value.trim().strip_prefix("${").and_then(|text| text.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['$', '{', '}']) && !inner.contains(":-"))
}

/// The lines below a name of a secret.
#[derive(Debug, Clone, Copy)]
enum Below {
    Nothing,
    /// The rest of a text until this quote.
    Quoted(u8),
    /// Lines of a block of text that are indented further than this.
    Block(usize),
    /// A value, or options with values, that are indented further than this.
    Value {
        column: usize,
        has_begun: bool,
    },
}

/// A line that is searched.
struct Line<'t, 'f> {
    content: &'t str,
    /// The position of the line in the text.
    start: usize,
    /// The length of the indentation.
    indent: usize,
    /// The position of the first word.
    first: usize,
    found: &'f mut Vec<Range<usize>>,
    /// How many brackets are open.
    depth: usize,
    /// Within brackets beyond this depth, all values are secrets.
    auth: Option<usize>,
    below: Below,
}

impl<'t, 'f> Line<'t, 'f> {
    fn new(content: &'t str, start: usize, found: &'f mut Vec<Range<usize>>) -> Self {
        let length_without = |text: &str| content.len() - text.len();
        let indent = length_without(content.trim_start());
        let first = length_without(content.trim_start_matches([' ', '\t', '-', '"', '\'']));
        Self { content, start, indent, first, found, depth: 0, auth: None, below: Below::Nothing }
    }

    fn hide(&mut self, start: usize, end: usize) {
        let hidden = self.content.get(start..end).unwrap_or_default();
        let start = self.start + start + (hidden.len() - hidden.trim_start().len());
        let hidden = hidden.trim();
        if !is_variable(hidden) && !hidden.is_empty() {
            self.found.push(start..start + hidden.len());
        }
    }

    fn rest(&self, from: usize) -> &'t str {
        self.content.get(from..).unwrap_or_default()
    }

    /// Hides the part of the line that continues a value of a line above. Returns what the next lines are.
    fn continuation(&mut self, above: Below) -> Below {
        let content = self.content;
        let indent = self.indent;
        let (column, has_begun) = match above {
            Below::Nothing => return above,
            Below::Quoted(quote) => {
                let end = closing(content, quote);
                self.hide(indent, end.unwrap_or(content.len()));
                return if end.is_some() { Below::Nothing } else { above };
            }
            Below::Block(column) => (column, true),
            Below::Value { column, has_begun } => (column, has_begun),
        };
        let is_item = content.trim_start().starts_with("- ");
        let is_below = indent > column || indent == column && is_item && !has_begun;
        // A line that is indented wrongly, and is no option.
        let is_stray =
            !content.contains(':') && !is_item && !content.trim_start().starts_with(['}', ']', '#']);
        match (above, pair(content)) {
            (Below::Value { .. }, Some(value)) if is_below => self.hide(value, content.len()),
            (Below::Value { has_begun: true, .. }, _) if !is_below => return Below::Nothing,
            _ if is_below || is_stray => self.hide(indent, content.len()),
            _ => return Below::Nothing,
        }
        above
    }

    /// Searches the words of the line, from a position on, for names of secrets.
    fn words(&mut self, from: usize) {
        let mut at = from;
        while let Some(next) = self.rest(at).chars().next() {
            match next {
                '{' | '[' => self.depth += 1,
                '}' | ']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.auth = self.auth.filter(|depth| *depth < self.depth);
                }
                _ => {}
            }
            let rest = self.rest(at);
            let length = rest.find(|c: char| !is_of_name(c)).unwrap_or(rest.len());
            at = match length {
                0 => at + next.len_utf8(),
                _ => match self.value(at, at + length) {
                    Some(after) => after,
                    None => return,
                },
            };
        }
    }

    /// Hides the value of a word, if the word names a secret. Returns the position where the search
    /// continues, or `None` at the end of the line.
    fn value(&mut self, start: usize, end: usize) -> Option<usize> {
        let word = self.content.get(start..end)?;
        let before = self.content.get(..start)?;
        let outer = before.bytes().next_back().filter(|byte| matches!(byte, b'"' | b'\''));
        let rest = self.rest(end);
        // The name itself may have quotes, within a text with escapes too.
        let bare = rest.strip_prefix('\\').unwrap_or(rest);
        let unquoted = outer.and_then(|quote| bare.strip_prefix(char::from(quote)));
        let outer = if unquoted.is_some() { None } else { outer };
        let rest = unquoted.unwrap_or(rest);
        let is_spaced = rest.starts_with(char::is_whitespace);
        let after = rest.trim_start();
        let assigned =
            after.strip_prefix([':', '=', '：']).map(|value| value.trim_start_matches([':', '=', '>']));
        let is_first = start <= self.first;
        let scheme = ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        let Some(value) = assigned.or_else(|| (is_spaced && (is_first || scheme)).then_some(after)) else {
            return Some(end);
        };
        let is_auth = word.eq_ignore_ascii_case("auth");
        let is_named = self.auth.is_some() && !is_plain(word)
            || is_named_like_a_secret(word)
            || is_auth && assigned.is_some()
            || scheme && assigned.is_none()
            || resembles_a_name(word);
        if !is_named {
            return Some(end);
        }
        let value = self.content.len() - value.trim_start().len();
        let quote = usize::from(before.ends_with(['"', '\'']));
        let column = if is_first { start - quote } else { self.indent };
        self.hide_value(value, outer, column)
    }

    /// Hides a value that begins here. Returns the position after it, or `None` at the end of the line.
    fn hide_value(&mut self, start: usize, outer: Option<u8>, column: usize) -> Option<usize> {
        let length = self.content.len();
        let inner = without_properties(self.rest(start));
        let begin = length - inner.len();
        let is_comment = self.rest(self.indent).starts_with('#');
        let mut set_below = |line: &mut Self, below| {
            if !is_comment {
                line.below = below;
            }
        };
        match inner.bytes().next() {
            None | Some(b'#') => {
                self.hide(start, begin);
                set_below(self, Below::Value { column, has_begun: false });
                return Some(begin);
            }
            Some(b'|' | b'>') if is_block(inner) => {
                set_below(self, Below::Block(column));
                return None;
            }
            Some(b'{') => {
                self.hide(start, begin);
                self.auth.get_or_insert(self.depth);
                set_below(self, Below::Value { column, has_begun: true });
                return Some(begin);
            }
            Some(quote @ (b'"' | b'\'')) => return self.hide_quoted(begin + 1, quote, &mut set_below),
            Some(b'\\') if inner.starts_with("\\\"") => {
                let end = inner.get(2..)?.find("\\\"").map(|end| begin + 2 + end);
                self.hide(begin + 2, end.unwrap_or(length));
                return end.map(|end| end + 2);
            }
            _ => {}
        }
        if let Some(quote) = outer {
            return self.hide_quoted(start, quote, &mut set_below);
        }
        if self.depth > 0 && !inner.starts_with('[') {
            let end = begin + flow_end(inner);
            self.hide(start, end);
            return (end < length).then_some(end);
        }
        self.hide(start, length);
        set_below(self, Below::Value { column, has_begun: true });
        None
    }

    /// Hides a text until its quote, or the rest of the line if something follows that quote.
    fn hide_quoted(
        &mut self,
        start: usize,
        quote: u8,
        set_below: &mut impl FnMut(&mut Self, Below),
    ) -> Option<usize> {
        let length = self.content.len();
        let Some(end) = closing(self.rest(start), quote).map(|end| start + end) else {
            self.hide(start, length);
            set_below(self, Below::Quoted(quote));
            return None;
        };
        let tail = self.rest(end + 1).trim_start();
        let is_closed = tail.is_empty() || tail.starts_with([',', '}', ']', '#', '"', '\'', ')']);
        self.hide(start, if is_closed { end } else { length });
        is_closed.then_some(end + 1)
    }

    /// Hides `user:password` before the `@` of a host, with and without a scheme.
    fn users(&mut self, from: usize) {
        let mut start = 0;
        for token in self.content.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')) {
            if let Some(at) = token.rfind('@').filter(|_| start >= from) {
                let begin = token.find("://").map_or(0, |scheme| scheme + 3).min(at);
                if token.get(begin..at).is_some_and(|user| user.contains(':')) {
                    self.hide(start + begin, start + at);
                }
            }
            start += token.len() + 1;
            // Each separator has one byte, or is a blank of Unicode.
            start = self.content.ceil_char_boundary(start);
        }
    }
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}

/// Returns the position of the value, if a line is `name: value`.
fn pair(content: &str) -> Option<usize> {
    let name = content.trim_start_matches([' ', '-', '"', '\'']);
    let (before, after) = name.split_once(':')?;
    let is_name = !before.is_empty() && before.trim_end_matches(['"', '\'', ' ']).chars().all(is_of_name);
    let is_pair = is_name && (after.is_empty() || after.starts_with(char::is_whitespace));
    is_pair.then(|| content.len() - after.trim_start().len())
}

/// Returns the position of the quote that ends a text. Escaped quotes are a part of it.
fn closing(text: &str, quote: u8) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        if byte == b'\\' && quote == b'"' {
            bytes.next();
        } else if byte == quote && (quote == b'"' || bytes.next_if(|(_, next)| *next == quote).is_none()) {
            return Some(at);
        }
    }
    None
}

/// Returns a value without its anchor and tag.
fn without_properties(value: &str) -> &str {
    let mut rest = value;
    while rest.starts_with(['!', '&']) {
        match rest.split_once(char::is_whitespace) {
            Some((_, after)) => rest = after.trim_start(),
            None => break,
        }
    }
    rest
}

/// True for `|` and `>` with which a block of text begins.
fn is_block(value: &str) -> bool {
    let rest = value
        .get(1..)
        .unwrap_or_default()
        .trim_start_matches(|c: char| c.is_ascii_digit() || "+-".contains(c));
    rest.trim_start().is_empty()
        || rest.starts_with(char::is_whitespace) && rest.trim_start().starts_with('#')
}

/// Returns the length of a value between brackets. A comma or a bracket within a word does not end it, as it
/// does in YAML: it is likely a part of a password without quotes.
fn flow_end(value: &str) -> usize {
    /// A longer name of a variable is not looked for: a line may have many values.
    const LONGEST: usize = 256;
    let name = value.strip_prefix("${").unwrap_or_default();
    let variable = name.bytes().take(LONGEST).position(|byte| byte == b'}').map_or(0, |end| end + 3);
    let ends = |at: usize, byte: u8| {
        let after = value.get(at + 1..).unwrap_or_default();
        let next = after.chars().next();
        let is_apart = next.is_none_or(|next| next.is_whitespace() || matches!(next, '"' | '\''));
        match byte {
            b',' => is_apart,
            b'}' | b']' => is_apart || matches!(next, Some(',' | '}' | ']')),
            _ => false,
        }
    };
    value
        .bytes()
        .enumerate()
        .skip(variable)
        .find(|(at, byte)| ends(*at, *byte))
        .map_or(value.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Vec<&str> {
        let mut ranges = in_lines(text);
        ranges.sort_by_key(|range| range.start);
        ranges.into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn values_end_where_their_lines_brackets_and_quotes_do() {
        for (text, expected) in [
            ("password: q9Z", &["q9Z"][..]),
            ("password:q9Z", &["q9Z"]),
            ("password q9Z", &["q9Z"]),
            ("  - api_key = q9Z", &["q9Z"]),
            ("{ user: me, password: q,9Z}x, url: u }", &["q,9Z}x"]),
            ("{\"token\": \"q\\\"9Z\", \"url\":\"u\"}", &["q\\\"9Z"]),
            ("token: 'it''s', x", &["it''s"]),
            ("token: 'it's'", &["it's'"]),
            ("auth: q9Z\nurl: u", &["q9Z"]),
            ("auth: { user: me, baerer: q9Z }, url: u", &["q9Z"]),
            ("- 'Authorization: Bearer q9Z'", &["Bearer q9Z"]),
            ("- Bearer q9Z", &["q9Z"]),
            ("brokers: me:q9Z@h:1,you@i:1", &["me:q9Z@h:1,you"]),
            ("url: http://me:q9/Z@h/in", &["me:q9/Z"]),
            ("url: http://h/in, to: me@h, key_file: f, password: ${A}", &[]),
        ] {
            assert_eq!(hidden(text), expected, "{text}");
        }
    }

    #[test]
    fn the_lines_of_a_value_are_hidden() {
        for (text, expected) in [
            ("a:\n  secret: |\n    q9\n   Z\nb: 1", &["q9", "Z"][..]),
            ("secret:\nq9Z\nurl: u", &["q9Z"]),
            ("secret:\n  q9Z\nurl: u", &["q9Z"]),
            ("tokens:\n- q9\n- Z\nurl: u", &["- q9", "- Z"]),
            ("password: \"q9\n  Z\"\nurl: u", &["q9", "Z"]),
            ("credentials:\n  me: q9\n  you: Z\nurl: u", &["q9", "Z"]),
            ("password: q9\n\nurl: u", &["q9"]),
            ("# password: q9\n  url: u", &["q9"]),
        ] {
            assert_eq!(hidden(text), expected, "{text}");
        }
    }
}
