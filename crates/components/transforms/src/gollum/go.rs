//! Values written as Go's standard library writes them: `encoding/json`, and the verb `%v` of `fmt`.
//!
//! A migrated configuration must write the same bytes as before, so the details are Go's: members are sorted
//! by name, `<`, `>` and `&` are escaped, and every number is a 64-bit float.

use serde_json::Value;
use thalweg_codec::json_columns::{members, value_at};

use super::raw::text as decoded;

/// How Go writes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `json.Marshal`.
    Json,
    /// The verb `%v` of `fmt`.
    Print,
}

/// Appends JSON that was checked, as Go writes its value.
pub(super) fn write_raw(json: &str, style: Style, out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = json.as_bytes().get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            b'[' | b']' | b',' => {
                out.push(if byte == b',' && style == Style::Print { b' ' } else { byte });
                at += 1;
            }
            _ => {
                let Some(value) = value_at(json, at) else { return };
                let text = json.get(value.range()).unwrap_or_default();
                match (byte, style) {
                    (b'{', _) => write_object(text, style, out),
                    (b'"', Style::Json) => write_text(&decoded(json, value), out),
                    (b'"', Style::Print) => out.extend_from_slice(decoded(json, value).as_bytes()),
                    (b'n', Style::Print) => out.extend_from_slice(b"<nil>"),
                    (b't' | b'f' | b'n', _) => out.extend_from_slice(text.as_bytes()),
                    (_, Style::Json) => write_float(text, out),
                    (_, Style::Print) => out.extend_from_slice(printed_token(text).as_bytes()),
                }
                at = value.end();
            }
        }
    }
}

/// Appends an object with its members sorted. Of several members of one name, the last counts.
fn write_object(object: &str, style: Style, out: &mut Vec<u8>) {
    let mut found = Vec::new();
    // The object was checked.
    let _ = members(object, |name, value| found.push((decoded(object, name), value.range())));
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (open, between, close): (&[u8], _, _) = match style {
        Style::Json => (b"{", b',', b'}'),
        Style::Print => (b"map[", b' ', b']'),
    };
    out.extend_from_slice(open);
    let start = out.len();
    for (index, (name, range)) in found.iter().enumerate() {
        if found.get(index + 1).is_some_and(|(next, _)| next == name) {
            continue;
        }
        if out.len() > start {
            out.push(between);
        }
        match style {
            Style::Json => write_text(name, out),
            Style::Print => out.extend_from_slice(name.as_bytes()),
        }
        out.push(b':');
        write_raw(object.get(range.clone()).unwrap_or_default(), style, out);
    }
    out.push(close);
}

/// Appends a number of JSON, which Go reads as a float.
fn write_float(token: &str, out: &mut Vec<u8>) {
    /// Whole numbers of this length are the same as floats.
    const EXACT: usize = 15;
    let digits = token.strip_prefix('-').unwrap_or(token);
    if digits.len() <= EXACT && token != "-0" && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        out.extend_from_slice(token.as_bytes());
    } else if let Ok(float) = token.parse::<f64>() {
        let size = float.abs();
        let scientific = size != 0.0 && !(1e-6..1e21).contains(&size);
        let text = if scientific { exponent(&format!("{float:e}"), 1) } else { float.to_string() };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Returns a number of JSON as `%v` writes it: see [`printed_number`].
fn printed_token(token: &str) -> String {
    match token.parse::<i64>() {
        Ok(whole) if token != "-0" => whole.to_string(),
        _ => shortest(token.parse().unwrap_or_default()),
    }
}

/// Appends a text in quotes, escaped as by `json.Marshal`.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    // Chunks without a branch per byte: compilers turn this into vector instructions.
    let is_special = |byte: &u8| (*byte < 0x20) | matches!(*byte, b'"' | b'\\' | b'<' | b'>' | b'&' | 0xe2);
    if !bytes.chunks(32).any(|chunk| chunk.iter().fold(false, |any, byte| any | is_special(byte))) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn written(json: &str, style: Style) -> String {
        let mut out = Vec::new();
        write_raw(json, style, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_is_sorted_and_escaped_as_by_go() {
        let value =
            json!({"b": "<a&b>\u{2028}\u{7f}\u{1}\n\u{8}é", "a": [1, 1.5, null, true], "": {"y": 0, "x": 0}});
        assert_eq!(
            written(&value.to_string(), Style::Json),
            "{\"\":{\"x\":0,\"y\":0},\"a\":[1,1.5,null,true],\"b\":\"\\u003ca\\u0026b\\u003e\\u2028\u{7f}\\u0001\\n\\bé\"}"
        );
    }

    #[test]
    fn numbers_are_floats() {
        let written = |text: &str| written(text, Style::Json);
        assert_eq!(written("12345678901234567890"), "12345678901234567000");
        assert_eq!(written("1e21"), "1e+21");
        assert_eq!(written("1e20"), "100000000000000000000");
        assert_eq!(written("0.000001"), "0.000001");
        assert_eq!(written("0.0000001"), "1e-7");
        assert_eq!(written("-1.50"), "-1.5");
        assert_eq!(written("9007199254740993"), "9007199254740992");
        assert_eq!(written("123456789012345"), "123456789012345");
        assert_eq!(written("-0"), "-0");
        assert_eq!(written("1.0"), "1");
    }

    #[test]
    fn values_are_printed_as_by_fmt() {
        let value = json!({"b": [1, "x", null], "a": true, "c": 1e21, "d": 0.00001});
        assert_eq!(printed(&value), "map[a:true b:[1 x <nil>] c:1e+21 d:1e-05]");
        assert_eq!(written(&value.to_string(), Style::Print), printed(&value));
    }

    #[test]
    fn json_keeps_its_order_but_for_members_of_which_the_last_counts() {
        let json = " { \"b\" : [ 2 , [ ] , { \"z\" : \"<\" } ] , \"a\" : 1 , \"a\" : null } ";
        assert_eq!(written(json, Style::Json), "{\"a\":null,\"b\":[2,[],{\"z\":\"\\u003c\"}]}");
        assert_eq!(written(json, Style::Print), "map[a:<nil> b:[2 [] map[z:<]]]");
    }

    proptest! {
        #[test]
        fn what_is_written_has_the_same_values(
            text in r#"(["{}:,a0 \[\]\\n<-]|"a":|"b\\n":|\[1,|\{"c":){0,16}"#,
        ) {
            let json = format!("{{{text}}}");
            if let Ok(value) = serde_json::from_str::<Value>(&json) {
                let written = written(&json, Style::Json);
                prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
            }
        }
    }
}
