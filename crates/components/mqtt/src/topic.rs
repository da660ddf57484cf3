//! Topics, and filters that choose among them.

/// The rule of [`is_topic`], for messages.
pub(crate) const TOPIC_RULE: &str = "a text of at most 65,535 bytes without `+`, `#` and control characters";

/// The longest text of the protocol, in bytes.
pub(crate) const LONGEST: usize = u16::MAX as usize;

/// True if every server takes this text. Servers may end the connection of a client that sends control
/// characters, or code points that are no characters, and mosquitto does. A message with them would be sent
/// again for ever.
pub(crate) fn is_text(text: &str) -> bool {
    text.len() <= LONGEST && !text.contains(|c: char| c.is_control() || is_no_character(c))
}

fn is_no_character(c: char) -> bool {
    let code = u32::from(c);
    (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
}

/// True if a message can have this topic.
pub(crate) fn is_topic(text: &str) -> bool {
    !text.is_empty() && is_text(text) && !text.contains(['+', '#'])
}

/// True if a text is a filter of topics: levels between slashes. `+` stands for one level; `#`, at the end,
/// for all further levels. It may be shared: `$share/GROUP/FILTER`.
pub(crate) fn is_filter(text: &str) -> bool {
    if !is_text(text) {
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

    #[test]
    fn a_text_has_no_character_for_which_a_server_may_end_the_connection() {
        for good in ["", "a b", "\u{a0}", "°C", "\u{fffd}", "\u{10000}"] {
            assert!(is_text(good), "{good:?}");
        }
        for wrong in ["\0", "a\tb", "a\n", "\u{7f}", "\u{9f}", "\u{fdd0}", "\u{ffff}", "\u{1fffe}"] {
            assert!(!is_text(wrong) && !is_topic(wrong) && !is_filter(wrong), "{wrong:?}");
        }
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
