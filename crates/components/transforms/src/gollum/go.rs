//! Values written as Go's standard library writes them: `encoding/json`, and the verb `%v` of `fmt`.
//!
//! A migrated configuration must write the same bytes as before, so the details are Go's: members are sorted
//! by name, `<`, `>` and `&` are escaped, and every number is a 64-bit float.

use serde_json::Value;

/// Appends a value as `json.Marshal` writes it.
pub(super) fn write_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            write_members(sorted.into_iter(), out);
        }
    }
}

/// Appends an object whose members are sorted already.
pub(super) fn write_members<'a>(members: impl Iterator<Item = (&'a String, &'a Value)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(name, out);
        out.push(b':');
        write_json(value, out);
    }
    out.push(b'}');
}

/// Appends a text in quotes, escaped as by `json.Marshal`.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        // U+2028 and U+2029 are E2 80 A8 and E2 80 A9: the last of the three bytes is replaced.
        let line_end = byte & 0xfe == 0xa8 && bytes[..at].ends_with(b"\xe2\x80");
        let plain = byte >= 0x20 && !matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&');
        if plain && !line_end {
            continue;
        }
        let start = if line_end { at - 2 } else { at };
        out.extend_from_slice(&bytes[done..start]);
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0xa8 | 0xa9 => out.extend_from_slice(if byte == 0xa8 { b"\\u2028" } else { b"\\u2029" }),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        done = at + 1;
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}

fn write_number(number: &serde_json::Number, out: &mut Vec<u8>) {
    /// Whole numbers up to this size are the same as floats.
    const EXACT: u64 = 1 << 53;
    if let Some(whole) = number.as_i64().filter(|whole| whole.unsigned_abs() <= EXACT) {
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    } else if let Some(float) = number.as_f64() {
        let size = float.abs();
        let scientific = size != 0.0 && !(1e-6..1e21).contains(&size);
        let text = if scientific { exponent(&format!("{float:e}"), 1) } else { float.to_string() };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Gives the exponent of a number in scientific notation a sign, and at least this many digits.
pub(super) fn exponent(text: &str, digits: usize) -> String {
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    format!("{mantissa}e{sign}{power:0>digits$}")
}

/// Returns a value as `fmt.Sprintf("%v")` writes it.
pub(crate) fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => printed_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            let members: Vec<String> =
                sorted.into_iter().map(|(name, value)| format!("{name}:{}", printed(value))).collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// Returns a number as `%v` writes it. Whole numbers are written in full; gollum, which has floats only, used
/// an exponent from a million on.
pub(super) fn printed_number(number: &serde_json::Number) -> String {
    match number.as_i64() {
        Some(whole) => whole.to_string(),
        None => shortest(number.as_f64().unwrap_or_default()),
    }
}

/// Returns a float as `%g` writes it, with as few digits as possible: with an exponent from a million on, and
/// below 10^-4.
pub(super) fn shortest(float: f64) -> String {
    let size = float.abs();
    let scientific = size != 0.0 && !(1e-4..1e6).contains(&size);
    if scientific { exponent(&format!("{float:e}"), 2) } else { float.to_string() }
}

/// Returns a text in quotes, escaped as `%q` does.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            hidden if hidden < ' ' || hidden == '\u{7f}' => {
                out.push_str(&format!("\\x{:02x}", u32::from(hidden)));
            }
            // `escape_debug` escapes what has no glyph, as Go does.
            other if !other.is_ascii() && other.escape_debug().count() > 1 => {
                let code = u32::from(other);
                out.push_str(&if code > 0xffff {
                    format!("\\U{code:08x}")
                } else {
                    format!("\\u{code:04x}")
                });
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Returns the text of a value for patterns and lists: texts, booleans, and numbers without an exponent.
/// `None` for other values.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.as_f64().unwrap_or_default().to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(value: &Value) -> String {
        let mut out = Vec::new();
        write_json(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_is_sorted_and_escaped_as_by_go() {
        let value =
            json!({"b": "<a&b>\u{2028}\u{7f}\u{1}\n\u{8}é", "a": [1, 1.5, null, true], "": {"y": 0, "x": 0}});
        assert_eq!(
            written(&value),
            "{\"\":{\"x\":0,\"y\":0},\"a\":[1,1.5,null,true],\"b\":\"\\u003ca\\u0026b\\u003e\\u2028\u{7f}\\u0001\\n\\bé\"}"
        );
    }

    #[test]
    fn numbers_are_floats() {
        let written = |text: &str| written(&serde_json::from_str(text).unwrap());
        assert_eq!(written("12345678901234567890"), "12345678901234567000");
        assert_eq!(written("1e21"), "1e+21");
        assert_eq!(written("1e20"), "100000000000000000000");
        assert_eq!(written("0.000001"), "0.000001");
        assert_eq!(written("0.0000001"), "1e-7");
        assert_eq!(written("-1.50"), "-1.5");
        assert_eq!(written("9007199254740993"), "9007199254740992");
    }

    #[test]
    fn values_are_printed_as_by_fmt() {
        let value = json!({"b": [1, "x", null], "a": true, "c": 1e21, "d": 0.00001});
        assert_eq!(printed(&value), "map[a:true b:[1 x <nil>] c:1e+21 d:1e-05]");
    }
}
