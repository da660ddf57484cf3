//! Removes secrets from texts that are shown, logged, stored or served.
//!
//! There is one rule. A text that leaves the process, other than as data, passes through [`redacted`]. It
//! replaces
//!
//! - every secret of the configuration that was registered with [`keep`]: the values of variables and files
//!   that were substituted, and the values of options that are named like secrets;
//! - the user, the password and the query of every address.
//!
//! Parts that keep a secret in a text of their own, such as a library that quotes an expression, cannot be
//! found by looking at types. So the secrets are known to the process as a whole, and texts are searched for
//! them. Types that hide their value when they are printed were rejected: most secrets are parts of other
//! texts (an address, an expression, a header), and libraries know no such types.
//!
//! A secret that is shorter than [`SHORTEST`] is not searched for, because ordinary words would match.
//!
//! A server may repeat a request in its answer, and a message may have any name and value, with control
//! characters of their choice. Such a text passes through [`foreign`] before it becomes a part of another,
//! and all that is written to a terminal through [`for_terminal`].
//!
//! See docs/decisions/076-secrets-are-removed-where-texts-leave.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod address;
mod compared;
mod foreign;
mod known;
mod percent;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

pub use address::{with_variables, without_secrets};
pub use compared::is_same_secret;
pub use foreign::{for_terminal, foreign, in_place, is_unseen, visible_json};
pub use known::{SHORTEST, is_named_like_a_secret, keep, keep_address, keep_credential, longest_secret};
pub use percent::{percent_decoded, percent_encoded};

/// Replaces what must not be shown.
pub(crate) const HIDDEN: &str = "…";

/// Returns the text with every secret replaced: by the name of its variable, or by `…`.
#[must_use]
pub fn redacted(text: &str) -> Cow<'_, str> {
    redacted_start(text, text.len())
}

/// Returns the first `length` bytes of the text with every secret replaced. A secret that begins there is
/// replaced as a whole. A text that was cut before may end in a part of a secret, which is not found.
///
/// ```
/// thalweg_redact::keep("hunter2-and-more", Some("${PW}"));
/// assert_eq!(thalweg_redact::redacted_start("pw hunter2-and-more.", 7), "pw ${PW}");
/// ```
#[must_use]
pub fn redacted_start(text: &str, length: usize) -> Cow<'_, str> {
    let found = found(text);
    let (mut plain, mut from) = (String::new(), 0);
    for Found { range, shown } in found.into_iter().take_while(|found| found.range.start < length) {
        plain.push_str(text.get(from..range.start).unwrap_or_default());
        plain.push_str(&shown);
        from = range.end;
    }
    let end = text.floor_char_boundary(length).max(from);
    let rest = text.get(from..end).unwrap_or_default();
    if from == 0 {
        return rest.into();
    }
    plain.push_str(rest);
    plain.into()
}

/// The longest address in which a secret is found at a cut, in bytes.
const ADDRESS_BYTES: usize = 4 << 10;

/// Returns the number of bytes beyond a cut of a text that are needed to find each secret that crosses it. A
/// password in an address is found by the `@` behind it.
#[must_use]
pub fn longest_secret_or_address() -> usize {
    longest_secret().max(ADDRESS_BYTES)
}

/// Returns the first characters of a text that is quoted in another one. A part of a secret at the cut would
/// not be found later, so a text that is cut loses its secrets here. A text that is whole keeps them until it
/// leaves the process: it may be compared with others before.
///
/// ```
/// thalweg_redact::keep("hunter4-and-more", Some("${PW}"));
/// assert_eq!(thalweg_redact::beginning("pw hunter4-and-more.", 7), "pw ${PW}");
/// assert_eq!(thalweg_redact::beginning("pw hunter4-and-more.", 20), "pw hunter4-and-more.");
/// ```
#[must_use]
pub fn beginning(text: &str, characters: usize) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(characters) else { return text.into() };
    let end = text.floor_char_boundary(cut.saturating_add(longest_secret_or_address()));
    redacted_start(text.get(..end).unwrap_or_default(), cut)
}

/// Returns the last `length` bytes of the text with every secret replaced. A secret that ends there is
/// replaced as a whole.
///
/// ```
/// thalweg_redact::keep("hunter3-and-more", Some("${PW}"));
/// assert_eq!(thalweg_redact::redacted_end("pw hunter3-and-more.", 5), "${PW}.");
/// ```
#[must_use]
pub fn redacted_end(text: &str, length: usize) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(length));
    let (mut plain, mut from) = (String::new(), start);
    for Found { range, shown } in found(text).into_iter().filter(|found| found.range.end > start) {
        plain.push_str(text.get(from..range.start).unwrap_or_default());
        plain.push_str(&shown);
        from = range.end;
    }
    plain.push_str(text.get(from..).unwrap_or_default());
    plain
}

/// Returns the text with another character of the same length in place of each one of a secret, and of the
/// ranges `also`. Positions in it stay valid, in bytes and in characters, and so do its lines.
///
/// ```
/// assert_eq!(thalweg_redact::masked("pin: 42é\n", &[5..9]), "pin: **·\n");
/// ```
#[must_use]
pub fn masked<'t>(text: &'t str, also: &[Range<usize>]) -> Cow<'t, str> {
    let mut ranges: Vec<Range<usize>> = found(text).into_iter().map(|found| found.range).collect();
    ranges.extend_from_slice(also);
    if ranges.is_empty() {
        return text.into();
    }
    ranges.sort_by_key(|range| range.start);
    let mut masked = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        let start = range.start.max(from);
        masked.push_str(text.get(from..start).unwrap_or_default());
        masked.extend(text.get(start..range.end).unwrap_or_default().chars().map(stand_in));
        from = range.end.max(start);
    }
    masked.push_str(text.get(from..).unwrap_or_default());
    masked.into()
}

/// The character of the same length in bytes that stands for a character of a secret.
fn stand_in(character: char) -> char {
    match character.len_utf8() {
        _ if matches!(character, '\n' | '\r') => character,
        1 => '*',
        2 => '·',
        3 => '•',
        _ => '\u{1f6c7}',
    }
}

/// True for a character that stands for one of a secret.
pub(crate) fn is_stand_in(character: char) -> bool {
    matches!(character, '*' | '·' | '•' | '\u{1f6c7}')
}

/// A secret in a text.
struct Found {
    range: Range<usize>,
    shown: Arc<str>,
}

/// Finds the secrets of a text, in their order and without overlaps. Of two that overlap, the longer counts.
fn found(text: &str) -> Vec<Found> {
    let mut found = known::find(text);
    found.extend(address::find(text).map(|range| Found { range, shown: HIDDEN.into() }));
    found.sort_by_key(|found| (found.range.start, usize::MAX - found.range.len()));
    let mut apart: Vec<Found> = Vec::with_capacity(found.len());
    for next in found {
        match apart.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
            }
            _ => apart.push(next),
        }
    }
    apart
}
