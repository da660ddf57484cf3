//! Patterns for names of fields.

/// True if a name matches a pattern. `*` matches any characters.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((head, mut tail)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(head) else { return false };
    while let Some((piece, after)) = tail.split_once('*') {
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
        tail = after;
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::name_matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*_id", "user_id", true),
            ("*_id", "user_ids", false),
            ("s*_x", "status_x", true),
            ("s*_x", "status", false),
            ("a*b*c", "a-b-c", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
