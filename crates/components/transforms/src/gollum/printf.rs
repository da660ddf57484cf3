//! Go's `fmt.Sprintf`, for values that were JSON.

use std::fmt::Write as _;

use serde_json::Value;

use super::go::{exponent, printed, printed_number, quoted};

/// A verb with its flags.
#[derive(Debug, Default)]
struct Verb {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats values. `None` if the text would be longer than `most`.
pub(crate) fn printf(format: &str, values: &[Value], most: usize) -> Option<String> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let (verb, length) = Verb::read(&rest[at + 1..]);
        let after = &rest[at + 1 + length..];
        let Some(letter) = after.chars().next() else {
            out.push_str("%!(NOVERB)");
            rest = "";
            break;
        };
        rest = &after[letter.len_utf8()..];
        if letter == '%' {
            out.push('%');
            continue;
        }
        let length = verb.width.max(verb.precision.unwrap_or(0));
        if length > most {
            return None;
        }
        match values.next() {
            // Width and precision apply to each part of a list or an object.
            Some(value) if parts(value).saturating_mul(length) > most => return None,
            Some(value) => out.push_str(&verb.write(letter, value)),
            None => write!(out, "%!{letter}(MISSING)").ok()?,
        }
        if out.len() > most {
            return None;
        }
    }
    out.push_str(rest);
    let extra: Vec<String> = values.map(|value| format!("{}={}", kind(value), printed(value))).collect();
    if !extra.is_empty() {
        write!(out, "%!(EXTRA {})", extra.join(", ")).ok()?;
    }
    (out.len() <= most).then_some(out)
}

impl Verb {
    /// Reads flags, width and precision. Returns their length as well.
    fn read(text: &str) -> (Self, usize) {
        let mut verb = Self::default();
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'-' => verb.left = true,
                b'+' => verb.plus = true,
                b' ' => verb.space = true,
                b'0' => verb.zero = true,
                b'#' => {}
                _ => break,
            }
            at += 1;
        }
        let number = |at: &mut usize| {
            let start = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            text[start..*at].parse::<usize>().ok()
        };
        verb.width = number(&mut at).unwrap_or(0);
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            verb.precision = Some(number(&mut at).unwrap_or(0));
        }
        (verb, at)
    }

    fn write(&self, letter: char, value: &Value) -> String {
        let text = match (letter, value) {
            ('v', Value::Number(number)) if self.precision.is_some() => self.float('g', number.as_f64()),
            ('v', Value::Number(number)) => self.signed(printed_number(number)),
            ('v', value) => self.cut(printed(value)),
            ('T', value) => kind(value).to_owned(),
            (_, Value::Null) => format!("%!{letter}(<nil>)"),
            (letter, Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|item| self.inner(letter, item)).collect();
                return format!("[{}]", items.join(" "));
            }
            (letter, Value::Object(members)) => {
                let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                let one = |(name, value): (&String, &Value)| {
                    format!(
                        "{}:{}",
                        self.inner(letter, &Value::String(name.clone())),
                        self.inner(letter, value)
                    )
                };
                return format!("map[{}]", sorted.into_iter().map(one).collect::<Vec<_>>().join(" "));
            }
            (letter, value) => match self.scalar(letter, value) {
                Some(text) => text,
                None => return format!("%!{letter}({}={})", kind(value), printed(value)),
            },
        };
        self.padded(text, value.is_number())
    }

    fn inner(&self, letter: char, value: &Value) -> String {
        if value.is_null() { "<nil>".to_owned() } else { self.write(letter, value) }
    }

    /// Returns a single value as this verb writes it, or `None` if it cannot.
    fn scalar(&self, letter: char, value: &Value) -> Option<String> {
        match (letter, value) {
            ('s', Value::String(text)) => Some(self.cut(text.clone())),
            ('q', Value::String(text)) => Some(quoted(&self.cut(text.clone()))),
            ('x', Value::String(text)) => Some(hex(text, "0123456789abcdef")),
            ('X', Value::String(text)) => Some(hex(text, "0123456789ABCDEF")),
            ('t', Value::Bool(value)) => Some(value.to_string()),
            ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Value::Number(number)) => {
                Some(self.float(letter, number.as_f64()))
            }
            (_, Value::Number(number)) => {
                // A whole number in JSON is a float in gollum; here it is written as the number that it is.
                let whole = number.as_i64().or_else(|| {
                    let float = number.as_f64()?;
                    (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
                })?;
                match letter {
                    'd' => Some(self.signed(whole.to_string())),
                    'x' => Some(radix(whole, |size| format!("{size:x}"))),
                    'X' => Some(radix(whole, |size| format!("{size:X}"))),
                    'o' => Some(radix(whole, |size| format!("{size:o}"))),
                    'b' => Some(radix(whole, |size| format!("{size:b}"))),
                    'c' => char::from_u32(u32::try_from(whole).ok()?).map(String::from),
                    'q' => char::from_u32(u32::try_from(whole).ok()?).map(|letter| format!("'{letter}'")),
                    'U' => Some(format!("U+{whole:04X}")),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn float(&self, letter: char, float: Option<f64>) -> String {
        let float = float.unwrap_or_default();
        let text = match letter {
            'f' | 'F' => fixed(float, self.precision.unwrap_or(6)),
            'e' | 'E' => {
                let digits = self.precision.unwrap_or(6);
                let text = format!("{float:.*e}", digits.min(MOST_DIGITS));
                let zeros = "0".repeat(digits.saturating_sub(MOST_DIGITS));
                exponent(&text.replacen('e', &format!("{zeros}e"), 1), 2)
            }
            _ => match self.precision {
                None => super::go::shortest(float),
                // Zeros at the end are not written.
                Some(digits) => significant(float, digits.clamp(1, MOST_DIGITS)),
            },
        };
        let text = if letter.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text };
        self.signed(text)
    }

    fn signed(&self, text: String) -> String {
        match (text.starts_with('-'), self.plus, self.space) {
            (false, true, _) => format!("+{text}"),
            (false, false, true) => format!(" {text}"),
            _ => text,
        }
    }

    fn cut(&self, text: String) -> String {
        match self.precision {
            Some(length) => text.chars().take(length).collect(),
            None => text,
        }
    }

    fn padded(&self, text: String, is_number: bool) -> String {
        let length = text.chars().count();
        if length >= self.width {
            return text;
        }
        let missing = self.width - length;
        if self.left {
            return text + &" ".repeat(missing);
        }
        if !self.zero {
            return " ".repeat(missing) + &text;
        }
        let sign = if is_number && text.starts_with(['-', '+', ' ']) { 1 } else { 0 };
        format!("{}{}{}", &text[..sign], "0".repeat(missing), &text[sign..])
    }
}

/// The most digits of a float that are not zero. Rust's formatting panics if more than 65,535 are asked for.
const MOST_DIGITS: usize = 1100;

/// Returns a number with this many decimal places.
pub(super) fn fixed(float: f64, places: usize) -> String {
    let text = format!("{float:.*}", places.min(MOST_DIGITS));
    if float.is_finite() { text + &"0".repeat(places.saturating_sub(MOST_DIGITS)) } else { text }
}

/// The number of texts that a value is written as.
fn parts(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(parts).sum(),
        Value::Object(members) => members.values().map(|value| 1 + parts(value)).sum(),
        _ => 1,
    }
}

/// `%g` with a precision: the precision is the number of significant digits, without zeros at the end.
fn significant(float: f64, digits: usize) -> String {
    let text = format!("{float:.*e}", digits - 1);
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if power < -4 || power >= i32::try_from(digits).unwrap_or(i32::MAX) {
        return exponent(&format!("{}e{power}", trimmed(mantissa)), 2);
    }
    let decimals = usize::try_from(i32::try_from(digits).unwrap_or(0) - 1 - power).unwrap_or(0);
    trimmed(&format!("{float:.decimals$}"))
}

fn radix(number: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", write(number.unsigned_abs()))
}

fn hex(text: &str, digits: &str) -> String {
    let digits = digits.as_bytes();
    let pair = |byte: u8| [byte >> 4, byte & 15].map(|half| char::from(digits[usize::from(half)]));
    text.bytes().flat_map(pair).collect()
}

/// Returns the name of a value's type in Go.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn any_width_and_precision_is_bounded() {
        let text = |format: &str, value: Value| printf(format, &[value], 1 << 20);
        assert_eq!(text("%.70000f", json!(1.5)).unwrap().len(), 70_002);
        assert_eq!(text("%.70000e", json!(1.5)).unwrap(), format!("1.5{}e+00", "0".repeat(69_999)));
        assert_eq!(text("%.70000g", json!(1.5)).unwrap(), "1.5");
        assert_eq!(text("%1000000000d", json!(1)), None);
        assert_eq!(text("%1000000d", json!([1, 2])), None);
        assert!(
            text("%1000d", json!([[1, 2], {"a": 3}])).is_some_and(|text| (3000..4100).contains(&text.len()))
        );
        assert_eq!(text("%.1000000f", json!([1, [2]])), None);
    }

    #[test]
    fn values_are_formatted_as_by_go() {
        let text = json!("x\"y\n<é&'");
        let list = json!(["p", 2.5, null, {"k": "v"}]);
        for (format, values, expected) in [
            (
                "%q %q",
                vec![text.clone(), list.clone()],
                r#""x\"y\n<é&'" ["p" %!q(float64=2.5) <nil> map["k":"v"]]"#,
            ),
            ("%x %X", vec![json!("é"), json!("hi")], "c3a9 6869"),
            (
                "%5.2f|%-8s|%8s|%05d",
                vec![json!(1.5), json!("ab"), json!("cd"), json!(7)],
                " 1.50|ab      |      cd|00007",
            ),
            (
                "%+v|%T|%T|%T",
                vec![list.clone(), json!(1), list, json!({})],
                "[p 2.5 <nil> map[k:v]]|float64|[]interface {}|map[string]interface {}",
            ),
            (
                "%6.3v|%e|%g|%t|%c|%U",
                vec![json!(1.5), json!(1e6), json!(1e6), json!(true), json!(65), json!(65)],
                "   1.5|1.000000e+06|1e+06|true|A|U+0041",
            ),
            ("%s|%s", vec![json!(true)], "%!s(bool=true)|%!s(MISSING)"),
            ("x%%", vec![json!("a")], "x%%!(EXTRA string=a)"),
            (
                "%08.3f|%+d|% d|%.2s|%z",
                vec![json!(1.5), json!(5), json!(5), text, json!("a")],
                "0001.500|+5| 5|x\"|%!z(string=a)",
            ),
            ("%v %s %", vec![Value::Null, Value::Null], "<nil> %!s(<nil>) %!(NOVERB)"),
        ] {
            assert_eq!(printf(format, &values, 1000).as_deref(), Some(expected), "{format}");
        }
        assert_eq!(printf("%2000d", &[json!(1)], 1000), None);
    }
}
