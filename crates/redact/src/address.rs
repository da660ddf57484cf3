//! Addresses, and the parts of them that may be secret.

use std::ops::Range;

use crate::{HIDDEN, is_named_like_a_secret, is_stand_in};

/// Between the scheme of an address and the rest.
const AFTER_SCHEME: &str = "://";

/// Returns a URL without its user, its password and its query, any of which may be secret. `?…` replaces the
/// query.
///
/// ```
/// use thalweg_redact::without_secrets;
/// assert_eq!(without_secrets("https://me:password@host/path?token=abc"), "https://host/path?…");
/// ```
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let plain = url.split_once('?').map_or_else(|| url.to_owned(), |(plain, _)| format!("{plain}?{HIDDEN}"));
    let Some((scheme, rest)) = plain.split_once(AFTER_SCHEME) else { return plain };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}{AFTER_SCHEME}{}", &rest[at + 1..]),
        None => plain,
    }
}

/// Returns a URL with a variable in place of each secret, as a configuration writes it: each `$` of the URL
/// is doubled. `None` if the URL has no secret. In the query of a web address every value may be a secret;
/// the options of a store are secrets by their names.
///
/// ```
/// use thalweg_redact::with_variables;
/// let shown = with_variables("s3://b/k?region=eu&secret_access_key=x");
/// assert_eq!(shown.as_deref(), Some("s3://b/k?region=eu&secret_access_key=${SECRET_ACCESS_KEY}"));
/// ```
#[must_use]
pub fn with_variables(url: &str) -> Option<String> {
    let url = &url.replace('$', "$$");
    let (place, query) = match url.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (url.as_str(), None),
    };
    let mut shown = place.to_owned();
    let mut has_secrets = false;
    if let Some(user) = addresses(place).next().and_then(|parts| parts.user) {
        shown.replace_range(user, "${USER}:${PASSWORD}");
        has_secrets = true;
    }
    let is_web = place.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let pairs = query.into_iter().flat_map(|query| query.split('&')).map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_web || is_named_like_a_secret(name) => {
            has_secrets = true;
            format!("{name}=${{{}}}", variable(name))
        }
        _ => pair.to_owned(),
    });
    for (number, pair) in pairs.enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        shown += &pair;
    }
    has_secrets.then_some(shown)
}

/// The name of a variable for an option.
fn variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// The parts of an address, as positions in its text.
pub(crate) struct Parts {
    /// The user and the password, without the `@`.
    pub(crate) user: Option<Range<usize>>,
    /// The text behind the question mark.
    pub(crate) query: Option<Range<usize>>,
}

/// Finds the user, password and query of every address in a text. A part that is masked already is left as it
/// is: a mark under the line would otherwise no longer be below its place.
pub(crate) fn find(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    addresses(text)
        .flat_map(|parts| parts.user.into_iter().chain(parts.query))
        .filter(|part| !text.get(part.clone()).unwrap_or_default().chars().all(is_stand_in))
}

/// Finds the addresses in a text.
pub(crate) fn addresses(text: &str) -> impl Iterator<Item = Parts> + '_ {
    text.match_indices(AFTER_SCHEME).filter_map(|(at, _)| {
        let has_scheme = text.get(..at)?.ends_with(|last: char| last.is_ascii_alphanumeric());
        has_scheme.then(|| parts(text, at + AFTER_SCHEME.len())).flatten()
    })
}

/// The parts of the address whose authority begins here. A pattern such as `https://(?<host>.*)` is none.
fn parts(text: &str, begin: usize) -> Option<Parts> {
    let rest = text.get(begin..)?;
    // A password may have quotes and brackets, which otherwise follow an address.
    let authority = rest.get(..rest.find(ends_authority).unwrap_or(rest.len()))?;
    let user = authority.rfind('@').map(|at| begin..begin + at);
    let host = user.as_ref().map_or(begin, |user| user.end);
    let rest = text.get(host..)?;
    let rest = rest.get(..rest.find(ends_address).unwrap_or(rest.len()))?;
    if authority.is_empty() || rest.is_empty() {
        return None;
    }
    let query = rest.find('?').map(|at| host + at + 1..host + rest.len());
    Some(Parts { user, query })
}

/// True for characters that neither a user nor a password has.
fn ends_authority(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '`' | '<' | '>' | '/' | '?' | '#' | '\\' | '…')
}

/// True for characters that follow an address in a text.
fn ends_address(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '|' | '\\' | '…')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{masked, redacted};

    #[test]
    fn user_password_and_query_are_left_out_and_the_rest_stays() {
        for (url, shown) in [
            ("https://u:p@h/p@q?r=s", "https://h/p@q?…"),
            ("https://me:secret@host?token=abc", "https://host?…"),
            ("https://host/a@b", "https://host/a@b"),
            ("https://host#a@b", "https://host#a@b"),
            ("me:secret", "me:secret"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn a_shown_configuration_has_variables_in_place_of_secrets() {
        for (url, shown) in [
            ("https://me:pw@host/a?t=1&u", Some("https://${USER}:${PASSWORD}@host/a?t=${T}&u")),
            ("az://c/k?sig=abc&account=b", Some("az://c/k?sig=${SIG}&account=b")),
            ("az://c/${k}$?sig=abc", Some("az://c/$${k}$$?sig=${SIG}")),
            ("az://c/$k?account=b", None),
            ("folder/*.csv", None),
        ] {
            assert_eq!(with_variables(url).as_deref(), shown);
        }
    }

    #[test]
    fn addresses_in_a_text_lose_their_secrets() {
        for (text, shown) in [
            ("cannot send to `http://me:pw@host/in?t=1`: no", "cannot send to `http://…@host/in?…`: no"),
            ("http://host/in (s3://b/k?a=b)", "http://host/in (s3://b/k?…)"),
            ("the pattern 'https?://(?<host>[^?]+)'", "the pattern 'https?://(?<host>[^?]+)'"),
            ("://x?y http://", "://x?y http://"),
            ("at `http://me:p'w(1)|x@host/in`", "at `http://…@host/in`"),
            ("(see http://host), or 'a@b'", "(see http://host), or 'a@b'"),
        ] {
            assert_eq!(redacted(text), shown);
            assert_eq!(redacted(&redacted(text)), shown);
        }
        assert_eq!(masked("a: http://me:pw@host/?é b", &[]), "a: http://*****@host/?· b");
    }

    #[test]
    fn a_masked_address_keeps_its_length_when_its_text_is_redacted() {
        for text in ["url: \"s3://b/x?token=abc&n=é€😀\", wrong: 1", "at http://me:p€@host/a?t=1 b"] {
            let masked = masked(text, &[]);
            assert_eq!(masked.chars().count(), text.chars().count(), "{masked}");
            assert_eq!(redacted(&masked), masked);
        }
        assert_eq!(redacted("http://h/?*a* b"), "http://h/?… b");
    }
}
