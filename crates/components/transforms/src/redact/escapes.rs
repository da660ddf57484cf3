//! The escapes of JSON in texts that are searched as they are.
//!
//! The letter of an escape does not belong to the data behind it: `\nann@example.org` is a line feed and the
//! address of `ann`. The text is therefore searched with other bytes in place of its escapes, as many as each
//! has, so that all positions stay. An escaped letter counts as a letter, and any other character as a blank.
//! `\"` and `\\` stay: quoted mail addresses have them. (Rejected: to decode the text. The data in it would
//! have to be written back with its escapes.)

use memchr::memchr;

/// The length of `\u00e9`, in bytes.
const CODE: usize = 6;

/// Writes the text with other bytes in place of its escapes. Returns false, and writes nothing, if it has
/// none.
pub(super) fn replace(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = text.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += found;
        let escape = text.get(at..).unwrap_or_default();
        let Some(shown) = shown(escape) else {
            // The character after a backslash begins no other escape.
            at += 2;
            continue;
        };
        out.extend_from_slice(text.get(copied..at).unwrap_or_default());
        out.extend_from_slice(shown);
        at += shown.len();
        copied = at;
    }
    if copied == 0 {
        return false;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    true
}

/// Returns the bytes in place of the escape that begins a text.
fn shown(text: &[u8]) -> Option<&'static [u8]> {
    match text.get(1)? {
        b'n' | b'r' | b't' | b'b' | b'f' => Some(b"  "),
        b'u' => {
            let digits = text.get(2..CODE).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            Some(match char::from_u32(code) {
                Some(character) if character.is_ascii_alphanumeric() => b"xxxxxx",
                Some(character) if character.is_alphanumeric() => "ééé".as_bytes(),
                _ => b"      ",
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replaced(text: &str) -> Option<String> {
        let mut out = b"former".to_vec();
        let has_any = replace(text.as_bytes(), &mut out);
        has_any.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn letters_of_escapes_are_no_letters_and_escaped_letters_are() {
        for (text, expected) in [
            (r"a\nb\tc", Some("a  b  c")),
            (r"\\n \\\n", Some(r"\\n \\  ")),
            (r"\u000ab \u0061b \u00E9b", Some("      b xxxxxxb éééb")),
            (r"\ud83d\ude00", Some("            ")),
            (r#"\" \/ \\ \x \u12g4 \u12"#, None),
            (r"\", None),
            ("", None),
        ] {
            assert_eq!(replaced(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn positions_stay(text in r#"(\\|n|u|00e9|"|a|é){0,12}"#) {
            if let Some(replaced) = replaced(&text) {
                prop_assert_eq!(replaced.len(), text.len());
                let changed = text.bytes().zip(replaced.bytes()).filter(|(one, other)| one != other);
                prop_assert!(changed.count() <= text.matches('\\').count() * CODE);
            }
        }
    }
}
