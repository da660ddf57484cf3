//! The header `Link` (RFC 8288), of which only the link to the next page is wanted.

/// Returns the target of the first link with the relation `next`.
pub fn next(header: &str) -> Option<&str> {
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (target, parameters) = rest.strip_prefix('<')?.split_once('>')?;
        let (is_next, after) = has_next(parameters);
        if is_next {
            return Some(target.trim());
        }
        rest = after;
    }
}

/// Reads the parameters of a link. Returns whether its relation is `next`, and what is behind them.
fn has_next(parameters: &str) -> (bool, &str) {
    let (mut relation, mut rest) = (None, parameters);
    while let Some(parameter) = rest.trim_start().strip_prefix(';') {
        let end = parameter.find(['=', ';', ',']).unwrap_or(parameter.len());
        let (name, after) = parameter.split_at(end);
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after.trim_start()),
            None => ("", after),
        };
        if name.trim().eq_ignore_ascii_case("rel") {
            // The first one counts.
            relation.get_or_insert(value);
        }
        rest = after;
    }
    let mut names = relation.unwrap_or_default().split_ascii_whitespace();
    (names.any(|name| name.eq_ignore_ascii_case("next")), rest)
}

/// Divides a text after the value of a parameter.
fn value(text: &str) -> (&str, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.trim_end(), rest);
    };
    let mut is_escaped = false;
    let end = quoted.find(|character| {
        let ends = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    });
    let (value, rest) = quoted.split_at(end.unwrap_or(quoted.len()));
    (value, rest.strip_prefix('"').unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_found_among_other_links() {
        for (header, expected) in [
            ("<https://a/2>; rel=\"next\"", Some("https://a/2")),
            ("<https://a/1>; rel=prev, <https://a/3?a=b,c>; rel=next", Some("https://a/3?a=b,c")),
            ("<a>; title=\"x, <y>; rel=\\\"next\\\"\"; rel=last ,\t< b > ; REL = \"Last NEXT\"", Some("b")),
            ("<a>; rel=\"prev\"; rel=\"next\"", None),
            ("<a>; nofollow; rel=next", Some("a")),
            ("<a>", None),
            ("", None),
            ("next", None),
            ("<a", None),
            ("<a>; rel=\"next", Some("a")),
            ("<a> junk <b>; rel=next", None),
        ] {
            assert_eq!(next(header), expected, "{header}");
        }
    }
}
