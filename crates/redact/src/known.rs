//! The secrets of this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;

use crate::address::addresses;
use crate::percent::{percent_decoded, percent_encoded};
use crate::{Found, HIDDEN};

/// Shorter values are not secrets, and would match parts of other words.
pub const SHORTEST: usize = 6;

/// A server may read configurations without end. So many texts are more than those of any configuration.
const MOST: usize = 10_000;

/// The secrets, and what is shown in their place.
static KNOWN: RwLock<BTreeMap<String, Arc<str>>> = RwLock::new(BTreeMap::new());

/// Parts of the names of options and of queries whose values are secrets.
const SECRET_NAMES: [&str; 14] = [
    "bearer",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "authorization",
    "cookie",
    "signature",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
];
/// Last words of such names. They may be parts of other words, such as `bypass`.
const LAST_WORDS: [&str; 3] = ["pass", "pwd", "dsn"];
/// Ends of the names of options that name the place of a secret.
const PLACES: [&str; 2] = ["file", "path"];

/// True if the value of an option or of a query with this name is a secret.
#[must_use]
pub fn is_named_like_a_secret(name: &str) -> bool {
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let ends_so = LAST_WORDS.iter().any(|word| last.eq_ignore_ascii_case(word));
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let is_secret = ends_so
        || ["sas", "sig"].contains(&name.as_str())
        || SECRET_NAMES.iter().any(|part| name.contains(part));
    is_secret && !PLACES.iter().any(|place| name.ends_with(place))
}

/// Registers a secret, also as it is written in JSON, in small letters, and in a query. `shown` takes its
/// place, such as `${NAME}`; `…` if it is `None`. A path is no secret.
pub fn keep(value: &str, shown: Option<&str>) {
    let value = value.trim();
    if ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start)) {
        return;
    }
    insert_forms(value, &shown.unwrap_or(HIDDEN).into());
}

/// Registers a value that is certainly a secret, such as a password. It may look like a path.
pub fn keep_credential(value: &str) {
    insert_forms(value.trim(), &HIDDEN.into());
}

fn insert_forms(value: &str, shown: &Arc<str>) {
    let breaks = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ',' | ';');
    let mut texts = vec![value.to_owned()];
    // A library that parses the value quotes a part of it.
    texts.extend(value.split(breaks).filter(|part| *part != value).map(str::to_owned));
    for text in texts {
        let quoted = format!("{text:?}");
        let forms = [quoted.trim_matches('"').to_owned(), text.to_lowercase(), percent_encoded(&text)];
        insert(text, shown);
        forms.into_iter().for_each(|form| insert(form, shown));
    }
}

/// Registers the user, the password, and those values of the query of an address that are named like secrets.
pub fn keep_address(text: &str) {
    for parts in addresses(text) {
        let user = parts.user.and_then(|range| text.get(range));
        let query = parts.query.and_then(|range| text.get(range)).unwrap_or_default();
        if let Some(user) = user {
            let (name, password) = user.split_once(':').unwrap_or(("", user));
            let (name, decoded) = (percent_decoded(name), percent_decoded(password));
            keep_credential(&STANDARD.encode(format!("{name}:{decoded}")));
            keep_credential(password);
            keep_credential(&decoded);
        }
        for (_, value) in query.split('&').filter_map(|pair| pair.split_once('=')).filter(is_secret) {
            keep_credential(value);
            keep_credential(&percent_decoded(value));
        }
    }
}

fn is_secret((name, _): &(&str, &str)) -> bool {
    is_named_like_a_secret(name)
}

fn insert(value: String, shown: &Arc<str>) {
    if value.len() < SHORTEST || KNOWN.read().contains_key(&value) {
        return;
    }
    let mut known = KNOWN.write();
    if known.len() < MOST {
        known.insert(value, shown.clone());
    }
}

/// Returns the length of the longest registered secret in bytes. A text that is cut keeps this many bytes
/// more until it is [redacted](crate::redacted_start).
#[must_use]
pub fn longest_secret() -> usize {
    KNOWN.read().keys().map(String::len).max().unwrap_or_default()
}

/// Finds the registered secrets in a text. They may overlap.
pub(crate) fn find(text: &str) -> Vec<Found> {
    let known = KNOWN.read();
    let matches = |(value, shown): (&String, &Arc<str>)| {
        let (length, shown) = (value.len(), shown.clone());
        let starts: Vec<usize> = text.match_indices(value.as_str()).map(|(at, _)| at).collect();
        starts.into_iter().map(move |at| Found { range: at..at + length, shown: shown.clone() })
    };
    known.iter().flat_map(matches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redacted;

    #[test]
    fn a_secret_is_replaced_wherever_it_stands_and_however_it_is_written() {
        keep("Hunter2-Öl\"x", Some("${PW}"));
        for text in ["Hunter2-Öl\"x", "hunter2-öl\"x", "Hunter2-Öl\\\"x", "Hunter2-%C3%96l%22x"] {
            assert_eq!(redacted(&format!("a{text}b")), "a${PW}b", "{text}");
        }
        assert_eq!(redacted("no column `Hunter2-Öl`"), "no column `${PW}`");
        keep("short", Some("${SHORT}"));
        keep("/var/lib/place", Some("${PLACE}"));
        assert_eq!(redacted("short /var/lib/place"), "short /var/lib/place");
        keep_credential("/like/a/path+");
        assert_eq!(redacted("key /like/a/path+"), "key …");
    }

    #[test]
    fn the_secrets_of_an_address_are_found_alone() {
        keep_address("https://somebody:p%40sswort@h/in?api_token=qwertz&region=eu-north-9");
        let text = "p@sswort p%40sswort qwertz eu-north-9 c29tZWJvZHk6cEBzc3dvcnQ=";
        assert_eq!(redacted(text), "… … … eu-north-9 …");
        keep_address("https://only-a-token@h/");
        assert_eq!(redacted("only-a-token"), "…");
    }

    #[test]
    fn names_of_secrets_are_recognised() {
        let secret = ["password", "API-Token", "secret_access_key", "x-api-key", "account_key", "sas_token"];
        assert!(secret.iter().all(|name| is_named_like_a_secret(name)));
        assert!(["pass", "DB_PASS", "pwd", "mysql-pwd", "DSN"].into_iter().all(is_named_like_a_secret));
        assert!(!["bypass", "pass_through", "pass_file"].into_iter().any(is_named_like_a_secret));
        let plain = ["key", "keys", "path", "password_file", "credential_path", "region", "sasha", "keep"];
        assert!(!plain.iter().any(|name| is_named_like_a_secret(name)), "{plain:?}");
    }

    #[test]
    fn secrets_that_overlap_are_replaced_as_one() {
        keep("overlapping-one", Some("${ONE}"));
        keep("one-and-another", Some("${TWO}"));
        assert_eq!(redacted("x overlapping-one-and-another y"), "x ${ONE} y");
    }
}
