//! Messages of a bounded length.
//!
//! Names and patterns of a document can have megabytes, and messages repeat them in backticks. All messages
//! are cut at one place, when they are shown. (Rejected: each message cuts what it repeats. The next one
//! would forget it.)

use std::borrow::Cow;

/// The most of a name or a pattern that a message repeats, in characters.
const NAME: usize = 200;
/// The longest message, in characters.
const MESSAGE: usize = 4000;

/// Returns a message in which each part in backticks has at most 200 characters, and the whole 4,000. `…`
/// stands for what is cut.
///
/// ```
/// let message = format!("`{}` is no option.", "x".repeat(1_000_000));
/// assert_eq!(thalweg_config::shortened(&message), format!("`{}…` is no option.", "x".repeat(200)));
/// ```
pub fn shortened(message: &str) -> Cow<'_, str> {
    if message.len() <= NAME {
        return message.into();
    }
    let mut shown = String::new();
    for (number, part) in message.split('`').enumerate() {
        if number > 0 {
            shown.push('`');
        }
        // Every second part is within backticks.
        shown += &cut(part, if number % 2 == 1 { NAME } else { MESSAGE });
        if shown.len() > 4 * MESSAGE {
            break;
        }
    }
    cut(&shown, MESSAGE).into_owned().into()
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_the_sentence_around_them_stays() {
        let long = "ö".repeat(5000);
        let message = format!("`a` has no option `{long}`. It accepts `b`.");
        assert_eq!(shortened(&message), format!("`a` has no option `{}…`. It accepts `b`.", "ö".repeat(200)));
        let exact = format!("There is no `{}`.", "x".repeat(200));
        assert_eq!(shortened(&exact), exact);
    }

    #[test]
    fn a_long_message_is_cut_whatever_it_has() {
        let names = "`name` → ".repeat(100_000);
        for message in [&names, &"x ".repeat(100_000), &"`".repeat(100_000), &"`a".repeat(50_001)] {
            let shown = shortened(message);
            assert_eq!(shown.chars().count(), 4001, "{shown}");
            assert!(shown.ends_with('…') && message.starts_with(shown.trim_end_matches('…')));
        }
    }
}
