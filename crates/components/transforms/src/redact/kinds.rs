//! The form of personal data: an expression that finds candidates, and a check of each.
//!
//! The expressions are ASCII where the data is: their automata are small. A check cannot be an expression:
//! check digits are arithmetic, and addresses have neighbours that an expression would have to consume.

use std::net::Ipv6Addr;

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

impl Kind {
    /// Returns the expression that finds candidates.
    pub(super) fn pattern(self) -> String {
        match self {
            Self::Email => r"[\w.%+-]+@\w[\w-]*(?:\.\w[\w-]*)+".to_owned(),
            // Other numbers begin otherwise, such as times since 1970.
            Self::Card => r"(?-u:\b[2-6](?:[ -]?[0-9]){12,18}\b)".to_owned(),
            Self::Ip => format!(
                r"(?-u:\b{BYTE}(?:\.{BYTE}){{3}}\b|[0-9A-Fa-f]{{0,4}}(?::[0-9A-Fa-f]{{0,4}}){{2,7}}(?:[0-9]?(?:\.[0-9]{{1,3}}){{3}})?)"
            ),
            Self::Iban => {
                r"(?-u:\b[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?\b)".to_owned()
            }
        }
    }

    /// Returns the length of the data at the beginning of a candidate, in bytes. `None` if there is none.
    /// `before` and `after` are the neighbours of the candidate.
    pub(super) fn length(self, candidate: &[u8], before: Option<u8>, after: &[u8]) -> Option<usize> {
        match self {
            Self::Email => Some(candidate.len()),
            Self::Card => longest(candidate, is_card),
            Self::Ip => is_ip(candidate, before, after).then_some(candidate.len()),
            Self::Iban => longest(candidate, is_iban),
        }
    }
}

/// Returns the length of the longest beginning that `is_right`. It ends with the candidate, or before a
/// blank: a word that follows looks like another group.
fn longest(candidate: &[u8], is_right: fn(&[u8]) -> bool) -> Option<usize> {
    let ends = candidate.iter().enumerate().rev().filter(|(_, byte)| **byte == b' ');
    std::iter::once(candidate.len())
        .chain(ends.map(|(at, _)| at))
        .find(|&end| candidate.get(..end).is_some_and(is_right))
}

/// Computes the check digit of Luhn.
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
    (13..=19).contains(&count) && sum.is_multiple_of(10)
}

/// Computes the remainder of the number that the letters and digits stand for, the first four last.
fn is_iban(text: &[u8]) -> bool {
    let values = || text.iter().filter_map(|byte| char::from(*byte).to_digit(36));
    let remainder = values()
        .skip(4)
        .chain(values().take(4))
        .fold(0, |remainder, value| (remainder * if value < 10 { 10 } else { 100 } + value) % 97);
    (15..=34).contains(&values().count()) && remainder == 1
}

/// A part of a longer name or number is no address. A colon before or after version 4 is that of a port.
fn is_ip(text: &[u8], before: Option<u8>, after: &[u8]) -> bool {
    let is_v6 = text.contains(&b':');
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || is_v6 && byte == b':';
    let is_number_after = matches!(after, [b'.', digit, ..] if digit.is_ascii_digit());
    let is_alone = !before.is_some_and(|byte| is_part(byte) || byte == b'.')
        && !after.first().is_some_and(|byte| is_part(*byte))
        && !is_number_after;
    let is_right_v6 = || {
        let text = std::str::from_utf8(text).ok();
        text.is_some_and(|text| text.len() > 2 && text.parse::<Ipv6Addr>().is_ok())
    };
    is_alone && (!is_v6 || is_right_v6())
}
