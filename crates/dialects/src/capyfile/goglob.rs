//! Translates Go's path patterns into those of the source `files`.
//!
//! Go has `*`, `?`, `[…]` with `^` and `\`, and a backslash that escapes the next character. It has neither
//! `**` nor braces. Those characters are escaped, so that they keep the meaning they have in Go.

/// Returns the translated pattern, or what is wrong with the original.
pub(super) fn translated(pattern: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(pattern.len());
    let mut characters: Characters<'_> = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // Several stars mean the same as one.
            '*' => {
                while characters.next_if_eq(&'*').is_some() {}
                out.push('*');
            }
            '?' => out.push('?'),
            '[' => class(&mut characters, &mut out)?,
            '\\' => {
                let meant = characters.next().ok_or("There is nothing after its last backslash.")?;
                literal(meant, &mut out);
            }
            character => literal(character, &mut out),
        }
    }
    Ok(out)
}

fn literal(character: char, out: &mut String) {
    if matches!(character, '*' | '?' | '[' | '{' | '}' | '\\') {
        out.extend(['[', character, ']']);
    } else {
        out.push(character);
    }
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Translates a class, from after its `[`. Most members are single characters.
fn class(characters: &mut Characters<'_>, out: &mut String) -> Result<(), &'static str> {
    let negated = characters.next_if_eq(&'^').is_some();
    let (mut singles, mut ranges) = (Vec::new(), String::new());
    loop {
        let first = member(characters)?;
        if characters.next_if_eq(&'-').is_some() {
            let last = member(characters)?;
            if first > last {
                return Err("A range within its `[…]` begins after its end.");
            }
            if matches!(first, ']' | '-' | '!' | '^') || matches!(last, ']' | '-') {
                return Err(
                    "A range within its `[…]` begins or ends with a character that cannot be expressed here.",
                );
            }
            ranges.extend([first, '-', last]);
        } else {
            singles.push(first);
        }
        if characters.next_if_eq(&']').is_some() {
            break;
        }
    }
    // A single character needs no class.
    if let ([only], true, false) = (singles.as_slice(), ranges.is_empty(), negated) {
        literal(*only, out);
        return Ok(());
    }
    // In a class, `]` must come first and `-` last to be literal, and `!` and `^` must not come first.
    let chosen = |wanted: fn(char) -> bool| singles.iter().copied().filter(move |single| wanted(*single));
    let mut content: String = chosen(|single| single == ']').collect();
    content.extend(chosen(|single| !matches!(single, ']' | '-' | '!' | '^')));
    content.push_str(&ranges);
    content.extend(chosen(|single| matches!(single, '!' | '^')));
    content.extend(chosen(|single| single == '-').take(1));
    if !negated && content.starts_with(['!', '^']) {
        return Err("Its `[…]` has only characters that would mean a negation at the start.");
    }
    out.push('[');
    if negated {
        out.push('!');
    }
    out.push_str(&content);
    out.push(']');
    Ok(())
}

fn member(characters: &mut Characters<'_>) -> Result<char, &'static str> {
    const UNCLOSED: &str = "It has a `[` without its `]`.";
    match characters.next().ok_or(UNCLOSED)? {
        '\\' => characters.next().ok_or(UNCLOSED),
        ']' => Err("A character is missing in its `[…]`."),
        '-' => Err("Within its `[…]`, a literal `-` needs a backslash before it."),
        character => Ok(character),
    }
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        for (go, ours) in [
            ("/in/*.jpg", "/in/*.jpg"),
            ("/in/**/?.log", "/in/*/?.log"),
            ("***", "*"),
            (r"a\*b\\c", r"a[*]b[\]c"),
            ("{a,b}", "[{]a,b[}]"),
            ("[abc]", "[abc]"),
            ("[^a-z0-9_]", "[!_a-z0-9]"),
            (r"[\]a\-]", "[]a-]"),
            ("[!a]", "[a!]"),
            (r"[\^]x", "^x"),
            ("[*]", "[*]"),
            ("a]b", "a]b"),
            ("ü*", "ü*"),
        ] {
            assert_eq!(translated(go), Ok(ours.to_owned()), "{go}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let unclosed = "It has a `[` without its `]`.";
        let empty = "A character is missing in its `[…]`.";
        let dash = "Within its `[…]`, a literal `-` needs a backslash before it.";
        for (pattern, message) in [
            ("[", unclosed),
            ("[a", unclosed),
            ("[^", unclosed),
            (r"[\", unclosed),
            ("[]", empty),
            ("[]a]", empty),
            ("[a-]", empty),
            ("[-a]", dash),
            ("[z-a]", "A range within its `[…]` begins after its end."),
            ("a\\", "There is nothing after its last backslash."),
            ("[!^]", "Its `[…]` has only characters that would mean a negation at the start."),
            (
                r"[\!-a]",
                "A range within its `[…]` begins or ends with a character that cannot be expressed here.",
            ),
        ] {
            assert_eq!(translated(pattern), Err(message), "{pattern}");
        }
    }
}
