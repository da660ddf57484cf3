//! Topics, and filters that choose among them.

/// The rule of [`is_topic`], for messages.
pub(crate) const TOPIC_RULE: &str = "a text of at most 65,535 bytes without `+`, `#` and NUL";

/// The longest text of the protocol, in bytes.
pub(crate) const LONGEST: usize = u16::MAX as usize;

/// True if a message can have this topic.
pub(crate) fn is_topic(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.contains(['+', '#', '\0'])
}

/// True if a text is a filter of topics: levels between slashes. `+` stands for one level; `#`, at the end,
/// for all further levels. It may be shared: `$share/GROUP/FILTER`.
pub(crate) fn is_filter(text: &str) -> bool {
    if text.len() > LONGEST || text.contains('\0') {
        return false;
    }
    match text.strip_prefix("$share/") {
        Some(shared) => shared.split_once('/').is_some_and(|(group, filter)| {
            !group.is_empty() && !group.contains(['+', '#']) && has_levels(filter)
        }),
        None => has_levels(text),
    }
}

fn has_levels(filter: &str) -> bool {
    let last = filter.split('/').count();
    let mut levels = filter.split('/').zip(1..);
    !filter.is_empty()
        && levels.all(|(level, number)| match level {
            "+" => true,
            "#" => number == last,
            level => !level.contains(['+', '#']),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_filter_has_its_wildcards_at_their_places() {
        for good in
            ["a", "/", "a//b", "+", "#", "a/+/b", "a/#", "+/+", "$SYS/#", "$share/g/a/+", "$share/g/#"]
        {
            assert!(is_filter(good), "{good}");
        }
        for wrong in
            ["", "a+", "#/a", "a/#/b", "a#", "$share/g", "$share//a", "$share/g/", "$share/+/a", "a\0"]
        {
            assert!(!is_filter(wrong), "{wrong}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(!is_filter(&long) && !is_topic(&long) && is_topic(&long[1..]));
    }

    proptest! {
        #[test]
        fn a_topic_is_a_filter_of_itself(text in "\\PC{0,20}") {
            let is_shared = text.starts_with("$share/");
            prop_assert!(!is_topic(&text) || is_filter(&text) || is_shared);
            prop_assert!(!is_topic(&text) || !text.contains('+'));
        }
    }
}
