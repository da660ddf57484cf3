//! "Did you mean": finds the name that a user probably meant.

/// Returns the candidate that `name` probably meant, if one is similar enough.
///
/// ```
/// use thalweg_config::nearest;
/// assert_eq!(nearest("pth", ["format", "path"]), Some("path"));
/// assert_eq!(nearest("colour", ["format", "path"]), None);
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// The longest name that is compared, in bytes: the edit distance takes quadratic time.
    const LONGEST: usize = 200;
    if name.len() > LONGEST {
        return None;
    }
    let plain = |name: &str| name.to_lowercase().replace(['-', ' ', '.'], "_");
    let wanted = plain(name);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates.into_iter().filter(|candidate| candidate.len() <= LONGEST) {
        let offered = plain(candidate);
        let length = wanted.chars().count().max(offered.chars().count());
        let distance = strsim::osa_distance(&wanted, &offered);
        // One typo per three letters: `pth` matches `path`, but `file` does not match `pipe`.
        if distance > 0 && distance > length.div_ceil(3).min(4) || distance >= length {
            // A truncated or extended name is also similar: `compress` for `compression`.
            let prefix = wanted.len().min(offered.len()) >= 4
                && (wanted.starts_with(&offered) || offered.starts_with(&wanted));
            if !prefix {
                continue;
            }
        }
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let names = ["path", "encode", "compression", "max_size"];
        assert_eq!(nearest("pathh", names), Some("path"));
        assert_eq!(nearest("Path", names), Some("path"));
        assert_eq!(nearest("ecnode", names), Some("encode"));
        assert_eq!(nearest("compress", names), Some("compression"));
        assert_eq!(nearest("max-size", names), Some("max_size"));
        assert_eq!(nearest("x", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest("url", names), None);
        assert_eq!(nearest("a", ["b"]), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), names), None);
    }
}
