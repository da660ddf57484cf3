//! Secrets within texts of any form: `password=X` of a connection, `Bearer X` of a header, `--password X` of
//! a program, and tokens in the path of a web address.

use thalweg_redact::is_named_like_a_secret;

use super::is_reference;

/// Parts of a path that are shorter are names.
const SHORTEST_TOKEN: usize = 16;

/// Returns the text with `…` in place of each secret that a word announces.
pub(super) fn without_announced(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_address = false;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|c| !is_of_name(c)).unwrap_or(rest.len()));
        if word.is_empty() {
            let mut characters = rest.chars();
            let next = characters.next().unwrap_or_default();
            is_address &= !(next.is_whitespace() || matches!(next, '"' | '\'' | '`'));
            shown.push(next);
            is_address |= shown.ends_with("http://") || shown.ends_with("https://");
            rest = characters.as_str();
            continue;
        }
        rest = after;
        let is_token = is_address && shown.ends_with('/') && resembles_a_token(word);
        shown.push_str(if is_token { "…" } else { word });
        let Some(value) = announced(word, after) else { continue };
        let (between, _) = after.split_at(after.len() - value.len());
        let (secret, after) = value.split_at(end(value, between));
        shown.push_str(between);
        shown.push_str(if secret.is_empty() || is_reference(secret) { secret } else { "…" });
        rest = after;
    }
    shown
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn resembles_a_token(part: &str) -> bool {
    part.len() >= SHORTEST_TOKEN
        && part.bytes().any(|byte| byte.is_ascii_digit())
        && part.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Returns the text from the secret on, if this word and what is behind it announce one.
fn announced<'t>(word: &str, after: &'t str) -> Option<&'t str> {
    let behind = after.trim_start_matches(' ');
    let value = match behind.strip_prefix('=') {
        // A comparison of an expression.
        Some(value) if value.starts_with(['=', '~']) => return None,
        Some(value) => is_named_like_a_secret(word).then_some(value.trim_start_matches(' ')),
        None if behind.len() == after.len() => None,
        None => {
            let is_scheme = ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
            (is_scheme || word.starts_with("--") && is_named_like_a_secret(word)).then_some(behind)
        }
    }?;
    Some(value.trim_start_matches(['\'', '"', '\\']))
}

/// Returns the length of the secret. A quote `before` it ends it too.
fn end(value: &str, before: &str) -> usize {
    let quote = before.chars().next_back().filter(|c| matches!(c, '\'' | '"'));
    let ends = |c: char| match quote {
        Some(quote) => c == quote || c == '\n',
        None => c.is_whitespace() || matches!(c, '"' | '\'' | '`'),
    };
    value.find(ends).unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_word_announces_is_left_out_and_the_rest_stays() {
        for (text, shown) in [
            ("server: host=h password=X1 port=1", "server: host=h password=… port=1"),
            ("'host=h password=''a b'' port=1'", "'host=h password=''…'' port=1'"),
            ("-H 'Authorization: Bearer X2' -v", "-H 'Authorization: Bearer …' -v"),
            ("psql --password X3 -h h", "psql --password … -h h"),
            ("DB_PASS=X4 run", "DB_PASS=… run"),
            ("password=${PW} token == 'a' é", "password=${PW} token == 'a' é"),
            (
                "https://h/services/T0/abcdefgh12345678 x/abcdefgh12345678",
                "https://h/services/T0/… x/abcdefgh12345678",
            ),
            ("password=", "password="),
        ] {
            assert_eq!(without_announced(text), shown);
            assert_eq!(without_announced(shown), shown);
        }
    }
}
