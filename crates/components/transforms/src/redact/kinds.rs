//! The form of personal data: an expression that finds candidates, and a check of each.
//!
//! The expressions are ASCII where the data is: their automata are small. A check cannot be an expression:
//! check digits are arithmetic, and addresses have neighbours that an expression would have to consume.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Mail addresses.
    Email,
    /// Numbers of payment cards, 13 to 19 digits, in groups or not, with the right check digit (ISO/IEC
    /// 7812).
    Card,
    /// IP addresses, versions 4 and 6.
    Ip,
    /// Numbers of bank accounts with the right check digits (ISO 13616).
    Iban,
}

/// Decimal numbers from 0 to 255.
const BYTE: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

/// The part of a mail address before the `@`, in quotes: at most 64 characters, as in RFC 5321.
const QUOTED: &str = r#""(?:[^"\\\r\n]|\\[^\r\n]){1,64}""#;
/// The same without quotes. The sender of bulk mail has the address of the recipient in it:
/// `bounce+ann=example.org`. Without a `+`, what precedes a `=` is a key.
const PLAIN: &str = r"(?:[\w.%+-][\w.%+'-]*\+[\w.%'-]*=)?[\w.%+-][\w.%+'-]*";
const DOMAIN: &str = r"\w[\w-]*(?:\.\w[\w-]*)+";

impl Kind {
    /// Returns the expression that finds candidates.
    pub(super) fn pattern(self) -> String {
        match self {
            Self::Email => format!("(?:{QUOTED}|{PLAIN})(?:@{DOMAIN})+"),
            // Other numbers begin otherwise, such as times since 1970.
            Self::Card => r"(?-u:\b[2-6](?:[ -]?[0-9]){12,18}\b)".to_owned(),
            Self::Ip => format!(
                r"(?-u:\b{BYTE}(?:\.{BYTE}){{3}}\b|[0-9A-Fa-f]{{0,4}}(?::[0-9A-Fa-f]{{0,4}}){{2,8}}(?:[0-9]?(?:\.[0-9]{{1,3}}){{3}})?)"
            ),
            Self::Iban => {
                r"(?-u:\b[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?\b)".to_owned()
            }
        }
    }

    /// Returns the length of the data at the beginning of a candidate, in bytes. `None` if there is none.
    pub(super) fn length(self, text: &[u8], candidate: Range<usize>) -> Option<usize> {
        let (before, found) = (text.get(..candidate.start)?, text.get(candidate.clone())?);
        match self {
            Self::Email => Some(found.len()),
            Self::Card => longest(found, is_card),
            Self::Ip if found.contains(&b':') => v6(before, found, text.get(candidate.start..)?),
            Self::Ip => is_alone(before, text.get(candidate.end..)?).then_some(found.len()),
            Self::Iban => longest(found, is_iban),
        }
    }

    /// Returns data in the spelling that stands for all of its spellings.
    pub(super) fn canonical(self, data: &[u8]) -> Vec<u8> {
        let only = |is_part: fn(&u8) -> bool| data.iter().copied().filter(is_part).collect();
        match self {
            Self::Card => only(u8::is_ascii_digit),
            Self::Iban => only(u8::is_ascii_alphanumeric).to_ascii_uppercase(),
            Self::Email => {
                let at = data.iter().rposition(|byte| *byte == b'@').unwrap_or(data.len());
                let (local, domain) = data.split_at(at);
                [local, String::from_utf8_lossy(domain).to_lowercase().as_bytes()].concat()
            }
            Self::Ip => {
                let address = std::str::from_utf8(data).ok().and_then(|text| text.parse::<IpAddr>().ok());
                address.map_or_else(|| data.to_vec(), |address| address.to_string().into_bytes())
            }
        }
    }
}

/// Returns the length of the longest beginning that `is_right`. It ends with the candidate, or before a blank
/// or dash: a word or number that follows looks like another group. `None` if only what begins at a later
/// group is right, as in `23 4111-1111-1111-1111`. The whole candidate if both are right and overlap: either
/// may be meant.
fn longest(candidate: &[u8], is_right: fn(&[u8]) -> bool) -> Option<usize> {
    if is_right(candidate) {
        return Some(candidate.len());
    }
    let bytes = candidate.iter().enumerate();
    let separators = bytes.filter(|(_, byte)| matches!(byte, b' ' | b'-')).map(|(at, _)| at);
    let begins_later = |at: usize| candidate.get(at + 1..).is_some_and(is_right);
    let end = separators.clone().rev().find(|&end| candidate.get(..end).is_some_and(is_right))?;
    let overlaps = separators.take_while(|at| *at < end).any(begins_later);
    Some(if overlaps { candidate.len() } else { end })
}

/// Computes the check digit of Luhn. The first digit is checked as well, since the text may be a part of a
/// candidate.
fn is_card(text: &[u8]) -> bool {
    let digits = || text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0'));
    let count = digits().count();
    let sum: u32 = digits()
        .enumerate()
        .map(|(at, digit)| match (count - at) % 2 {
            1 => digit,
            _ => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    matches!(text.first(), Some(b'2'..=b'6')) && (13..=19).contains(&count) && sum.is_multiple_of(10)
}

/// Computes the remainder of the number that the letters and digits stand for, the first four last: the
/// country and two digits, which are checked as well, since the text may be a part of a candidate.
fn is_iban(text: &[u8]) -> bool {
    let are_all = |range: Range<usize>, is_part: fn(&u8) -> bool| {
        text.get(range).is_some_and(|part| part.iter().all(is_part))
    };
    if !are_all(0..2, u8::is_ascii_alphabetic) || !are_all(2..4, u8::is_ascii_digit) {
        return false;
    }
    let values = || text.iter().filter_map(|byte| char::from(*byte).to_digit(36));
    let remainder = values()
        .skip(4)
        .chain(values().take(4))
        .fold(0, |remainder, value| (remainder * if value < 10 { 10 } else { 100 } + value) % 97);
    (15..=34).contains(&values().count()) && remainder == 1
}

fn is_part_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True if an address without colons is no part of a longer name or number.
fn is_alone(before: &[u8], after: &[u8]) -> bool {
    !before.last().is_some_and(|byte| is_part_of_name(*byte) || *byte == b'.') && is_end(after)
}

/// True if no name or number continues with a text.
fn is_end(after: &[u8]) -> bool {
    match after {
        [b'.', digit, ..] => !digit.is_ascii_digit(),
        [byte, ..] => !is_part_of_name(*byte),
        [] => true,
    }
}

/// Returns the length of the longest address of version 6 that begins the candidate. `text` is the text from
/// the candidate on.
fn v6(before: &[u8], candidate: &[u8], text: &[u8]) -> Option<usize> {
    let is_address = |end: usize| {
        let (Some(address), Some(after)) = (text.get(..end), text.get(end..)) else { return false };
        let parse = || std::str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok();
        is_end_of_v6(address, after) && parse().is_some()
    };
    // `::` alone says nothing.
    begins_v6(before).then(|| (3..=candidate.len()).rev().find(|&end| is_address(end)))?
}

/// True if an address of version 6 may follow a text. A colon before it is that of a label, `client:`, unless
/// it follows what may be a group of an address.
fn begins_v6(before: &[u8]) -> bool {
    match before {
        [.., b':', b':'] => false,
        [label @ .., b':'] => {
            let word = || label.iter().rev().take_while(|byte| is_part_of_name(**byte)).take(5);
            matches!(word().count(), 0 | 5) || !word().all(u8::is_ascii_hexdigit)
        }
        _ => !before.last().is_some_and(|byte| is_part_of_name(*byte) || *byte == b'.'),
    }
}

/// True if an address of version 6 ends before a text. A colon after it is that of a sentence, or of a port
/// if no group can follow.
fn is_end_of_v6(address: &[u8], after: &[u8]) -> bool {
    match after {
        [b':', digit, ..] if digit.is_ascii_digit() => address.contains(&b'.'),
        [b':', next, ..] => *next != b':' && !is_part_of_name(*next),
        _ => is_end(after),
    }
}
