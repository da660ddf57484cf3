//! Hides personal data in texts.
//!
//! One automaton looks for all expressions in a single pass, and a text without a candidate stays where it
//! is. Only in others is each kind searched for by itself. A candidate that fails its check is searched again
//! from its second byte, since another may begin inside it. Such candidates have a bounded length, so this
//! stays linear. With all kinds in one automaton it would not: a long run of characters that may begin a mail
//! address would be read again for each candidate of a card in it.

mod kinds;
#[cfg(test)]
mod tests;

use std::fmt;

use regex_automata::Input;
use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};
use thalweg_config::{List, Pattern};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD};

use self::kinds::Kind;
use crate::pseudonym::{self, Pseudonyms};

/// The number of digits of a pseudonym in a text.
const DIGITS: usize = 16;

/// Hides personal data: mail addresses, card numbers, IP addresses, bank accounts, and what matches patterns
/// of your own.
///
/// Card numbers and bank accounts count only if their check digits are right. Of what overlaps, the first is
/// hidden. Numbers that are fields of their own and no texts stay as they are; `cast` them first.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redact {
    /// The fields in which data is hidden. The default is the payload. A message without one of them keeps
    /// the others.
    #[serde(default)]
    fields: List<String>,
    /// The kinds of data to hide: `email`, `card`, `ip`, `iban`.
    #[serde(default)]
    find: List<Kind>,
    /// Regular expressions whose matches are hidden as well.
    #[serde(default)]
    pattern: List<Pattern>,
    /// The text in place of the data. The default is `***`.
    #[serde(default = "stars")]
    with: String,
    /// The number of characters at the end of the data that stay, after the text `with`: `***1111` of a card
    /// with `keep_last: 4`. Blanks and dashes do not count and are left out. Data that is not more than twice
    /// as long is hidden as a whole. The default is 0.
    #[serde(default)]
    keep_last: usize,
    /// The secret of pseudonyms, at least 8 bytes, from a variable or a file. In place of `with`, the first
    /// 16 digits of an HMAC-SHA-256 stand for the data: the same ones for the same data.
    secret: Option<String>,
}

fn stars() -> String {
    "***".to_owned()
}

/// The secret is not shown.
impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Redact");
        shown.field("fields", &self.fields).field("find", &self.find).finish_non_exhaustive()
    }
}

impl Component for Redact {
    const NAME: &'static str = "redact";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ["card 4111-1111-1111-1111 of ann@example.org", "from 192.0.2.1"] } }
pipelines:
  main:
    from: service
    transforms:
      - redact: { find: card, keep_last: 4 }
      - redact: { find: [email, ip] }
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = pseudonym::check(self.secret.as_deref()).into_iter().collect();
        if self.find.is_empty() && self.pattern.is_empty() {
            let mistake = Mistake::new("find", "Nothing is to be hidden.");
            mistakes.push(mistake.help("Write for example `find: [email, card]`, or a `pattern`."));
        }
        if self.secret.is_some() && self.keep_last > 0 {
            let mistake = Mistake::new("keep_last", "`keep_last` has no effect with a `secret`.");
            mistakes.push(mistake.help("Remove one of the two."));
        }
        mistakes
    }
}

impl Redact {
    fn names(&self) -> Vec<String> {
        if self.fields.is_empty() { vec![PAYLOAD.to_owned()] } else { self.fields.to_vec() }
    }
}

impl TransformConfig for Redact {
    fn fields(&self) -> Vec<String> {
        self.names()
    }

    fn fields_after(&self, before: KnownFields) -> KnownFields {
        self.names().iter().fold(before, |known, name| known.with(name, None))
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Transform>, Error> {
        let search = Search::new(&self.find, &self.pattern)
            .map_err(|error| Error::permanent("the patterns are too large together").caused_by(error))?;
        let editors = self.names().iter().map(|name| Target::field(name).editor(FieldType::Text)).collect();
        let cover = match &self.secret {
            Some(secret) => Cover::Pseudonym(Pseudonyms::new(secret)),
            None => Cover::Text { with: self.with.clone().into_bytes(), keep_last: self.keep_last },
        };
        Ok(Box::new(Redactor { editors, search, cover }))
    }
}

struct Redactor {
    editors: Vec<Editor>,
    search: Search,
    cover: Cover,
}

impl Transform for Redactor {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let Self { editors, search, cover } = self;
        let mut rest = Some(batch);
        for editor in editors {
            let Some(batch) = rest.take() else { return Ok(()) };
            rest = editor.edited(batch, out, |value, buffer| {
                Ok(if redact(search, cover, value, buffer) { Edit::Written } else { Edit::Piece(value) })
            })?;
        }
        out.send(rest);
        Ok(())
    }
}

/// Writes the text without the data. Returns false, and writes nothing, if there is no data in it.
fn redact(search: &mut Search, cover: &Cover, text: &[u8], out: &mut Vec<u8>) -> bool {
    if !search.begin(text) {
        return false;
    }
    let mut copied = 0;
    while let Some((start, end)) = search.next(text) {
        out.extend_from_slice(text.get(copied..start).unwrap_or_default());
        cover.write(text.get(start..end).unwrap_or_default(), out);
        copied = end;
    }
    if copied == 0 {
        return false;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    true
}

/// Finds the data in texts.
struct Search {
    any: Automaton,
    finders: Vec<Finder>,
}

impl Search {
    fn new(kinds: &[Kind], own: &[Pattern]) -> Result<Self, Box<BuildError>> {
        let own: Vec<String> = own.iter().map(|pattern| pattern.regex().as_str().to_owned()).collect();
        let all: Vec<String> = kinds.iter().map(|kind| kind.pattern()).chain(own.clone()).collect();
        let mut finders = Vec::new();
        for &kind in kinds {
            finders.push(Finder {
                automaton: Automaton::new(&[kind.pattern()])?,
                kind: Some(kind),
                next: None,
            });
        }
        if !own.is_empty() {
            finders.push(Finder { automaton: Automaton::new(&own)?, kind: None, next: None });
        }
        Ok(Self { any: Automaton::new(&all)?, finders })
    }

    /// Begins with a text. Returns false if there is no candidate in it.
    fn begin(&mut self, text: &[u8]) -> bool {
        if self.any.find(text, 0, true).is_none() {
            return false;
        }
        self.finders.iter_mut().for_each(|finder| finder.seek(text, 0));
        true
    }

    /// Returns the range of the next data.
    fn next(&mut self, text: &[u8]) -> Option<(usize, usize)> {
        let all = self.finders.iter().filter_map(|finder| finder.next);
        let (start, end) = all.min_by_key(|(start, _)| *start)?;
        for finder in &mut self.finders {
            if finder.next.is_some_and(|(start, _)| start < end) {
                finder.seek(text, end);
            }
        }
        Some((start, end))
    }
}

/// Expressions of which any may match.
struct Automaton {
    regex: Regex,
    cache: Cache,
}

impl Automaton {
    fn new(patterns: &[String]) -> Result<Self, Box<BuildError>> {
        let regex = Regex::builder()
            .configure(Config::new().utf8_empty(false).which_captures(WhichCaptures::Implicit))
            .syntax(syntax::Config::new().utf8(false))
            .build_many(patterns)?;
        Ok(Self { cache: regex.create_cache(), regex })
    }

    fn find(&mut self, text: &[u8], from: usize, is_any: bool) -> Option<(usize, usize)> {
        let input = Input::new(text).range(from..).earliest(is_any);
        self.regex.search_with(&mut self.cache, &input).map(|found| (found.start(), found.end()))
    }
}

/// Finds the data of one kind, or that of the user's patterns.
struct Finder {
    automaton: Automaton,
    kind: Option<Kind>,
    /// The range of the next data.
    next: Option<(usize, usize)>,
}

impl Finder {
    /// Finds the first data at or after an index. Empty matches are no data.
    fn seek(&mut self, text: &[u8], mut from: usize) {
        self.next = None;
        while from <= text.len() {
            let Some((start, end)) = self.automaton.find(text, from, false) else { return };
            match self.length(text, start, end) {
                Some(length) if length > 0 => {
                    self.next = Some((start, start + length));
                    return;
                }
                _ => from = start + 1,
            }
        }
    }

    fn length(&self, text: &[u8], start: usize, end: usize) -> Option<usize> {
        match self.kind {
            None => Some(end - start),
            Some(kind) => {
                let before = start.checked_sub(1).and_then(|at| text.get(at)).copied();
                kind.length(text.get(start..end)?, before, text.get(end..)?)
            }
        }
    }
}

/// The text in place of data.
enum Cover {
    Text { with: Vec<u8>, keep_last: usize },
    Pseudonym(Pseudonyms),
}

impl Cover {
    fn write(&self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Text { with, keep_last } => {
                out.extend_from_slice(with);
                write_last(data, *keep_last, out);
            }
            Self::Pseudonym(pseudonyms) => {
                let start = out.len();
                pseudonyms.write(data, out);
                out.truncate(start + DIGITS);
            }
        }
    }
}

/// Writes the last characters of data without blanks and dashes, if they are less than half of it.
fn write_last(data: &[u8], count: usize, out: &mut Vec<u8>) {
    let separates = |byte: &u8| matches!(byte, b' ' | b'-');
    let begins = |byte: &u8| byte & 0xc0 != 0x80 && !separates(byte);
    let characters = data.iter().filter(|byte| begins(byte)).count();
    if characters > count.saturating_mul(2) {
        let mut starts = data.iter().enumerate().filter(|(_, byte)| begins(byte)).map(|(at, _)| at);
        let start = starts.nth(characters - count).unwrap_or(data.len());
        out.extend(data.iter().skip(start).filter(|byte| !separates(byte)));
    }
}
