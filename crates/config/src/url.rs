//! URLs in messages.

/// Returns a URL without its user, its password and its query, any of which may be secret. `?…` replaces the
/// query.
///
/// ```
/// use thalweg_config::without_secrets;
/// assert_eq!(without_secrets("https://me:password@host/path?token=abc"), "https://host/path?…");
/// ```
#[must_use]
pub fn without_secrets(url: &str) -> String {
    let plain = url.split_once('?').map_or_else(|| url.to_owned(), |(plain, _)| format!("{plain}?…"));
    let Some((scheme, rest)) = plain.split_once("://") else { return plain };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
