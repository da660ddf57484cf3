//! Hides personal data in texts.
//!
//! `kinds` says what personal data looks like, `search` finds it, and `own` what matches patterns of the
//! user. `escapes` keeps the escapes of JSON apart from it.

mod escapes;
mod kinds;
mod own;
mod search;
#[cfg(test)]
mod tests;

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::columns::FieldType;
use thalweg_codec::target::{Edit, Editor, Target};
use thalweg_config::{List, Pattern};
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, PAYLOAD};

use self::kinds::Kind;
use self::search::{Found, LARGEST, Search};
use crate::pseudonym::{self, Pseudonyms};

/// The number of digits of a pseudonym in a text.
const DIGITS: usize = 16;

/// Hides personal data: mail addresses, card numbers, IP addresses, bank accounts, and what matches patterns
/// of your own.
///
/// Card numbers and bank accounts count only if their check digits are right. Of what overlaps, the first is
/// hidden. A number of which two parts that overlap may be meant is hidden as a whole. A long message whose
/// search for a `pattern` would take quadratic time leaves by the `errors` output. Numbers that are fields of
/// their own and no texts stay as they are; `cast` them first.
///
/// A text may be JSON that is not parsed. An escape such as `\n` or `\u000a` is no part of the data after it:
/// `\nann@example.org` becomes `\n***`. This holds for any text with a backslash before one of these letters.
/// A `pattern` of your own sees the text as it is, with its escapes.
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
    /// 16 digits of an HMAC-SHA-256 stand for the data: the same ones for the same data. Spellings of a card,
    /// an account, an IP address or the domain of a mail address are the same data.
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
        if Search::new(&self.find, &self.pattern).is_err() {
            let most = LARGEST >> 20;
            let message =
                format!("The patterns are too large: compiled, they take more than {most} MiB together.");
            let mistake = Mistake::new("pattern", message);
            mistakes
                .push(mistake.help("Repetitions with large counts, such as `\\w{200}`, make them large."));
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
            .map_err(|error| Error::permanent("the patterns are too large").caused_by(error))?;
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
                Ok(if redact(search, cover, value, buffer)? { Edit::Written } else { Edit::Piece(value) })
            })?;
        }
        out.send(rest);
        Ok(())
    }
}

/// Writes the text without the data. Returns false, and writes nothing, if there is no data in it.
///
/// # Errors
/// The reason for rejecting the message.
fn redact(search: &mut Search, cover: &Cover, text: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
    if !search.begin(text)? {
        return Ok(false);
    }
    let mut copied = 0;
    while let Some(found) = search.next(text)? {
        out.extend_from_slice(text.get(copied..found.start).unwrap_or_default());
        cover.write(text, found, out);
        copied = found.end;
    }
    if copied == 0 {
        return Ok(false);
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    Ok(true)
}

/// The text in place of data.
enum Cover {
    Text { with: Vec<u8>, keep_last: usize },
    Pseudonym(Pseudonyms),
}

impl Cover {
    fn write(&self, text: &[u8], found: Found, out: &mut Vec<u8>) {
        let data = text.get(found.start..found.end).unwrap_or_default();
        match self {
            Self::Text { with, keep_last } => {
                out.extend_from_slice(with);
                write_last(data, *keep_last, out);
            }
            Self::Pseudonym(pseudonyms) => {
                let start = out.len();
                match found.kind {
                    Some(kind) => pseudonyms.write(&kind.canonical(data), out),
                    None => pseudonyms.write(data, out),
                }
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
