//! Types an unquoted scalar by the core schema of YAML 1.2, in which `yes` and `on` are text.

use crate::Value;

/// Returns the typed value of a plain scalar.
pub(crate) fn typed(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    number(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Returns the number that `text` spells, if it spells one.
pub(crate) fn number(text: &str) -> Option<Value> {
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => {
            return Some(Value::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        ".nan" | ".NaN" | ".NAN" if unsigned.len() == text.len() => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    if unsigned.is_empty() {
        return None;
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(match text.parse() {
            Ok(value) => Value::Integer(value),
            Err(_) => Value::Float(text.parse().ok()?),
        });
    }
    is_decimal(unsigned).then(|| text.parse().ok().map(Value::Float)).flatten()
}

fn radix(digits: &str, radix: u32) -> Option<Value> {
    // `from_str_radix` would accept a sign.
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    Some(match i64::from_str_radix(digits, radix) {
        Ok(value) => Value::Integer(value),
        Err(_) => {
            let value = digits.chars().filter_map(|digit| digit.to_digit(radix));
            Value::Float(value.fold(0.0, |sum, digit| sum * f64::from(radix) + f64::from(digit)))
        }
    })
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_typed_by_the_core_schema() {
        for text in ["", "~", "null", "NULL"] {
            assert_eq!(typed(text), Value::Null, "{text}");
        }
        for text in
            ["yes", "no", "on", "off", "y", "tRue", "1_000", "12:30", "1e", ".", "-", "+", "0x", "0xg", "--1"]
        {
            assert_eq!(typed(text), Value::String(text.into()));
        }
        for (text, value) in [("0", 0), ("-7", -7), ("+7", 7), ("007", 7), ("0x1F", 31), ("0o17", 15)] {
            assert_eq!(typed(text), Value::Integer(value));
        }
        for (text, value) in [("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("-1e3", -1000.0), ("1E-2", 0.01)] {
            assert_eq!(typed(text), Value::Float(value));
        }
        assert_eq!(typed("-.inf"), Value::Float(f64::NEG_INFINITY));
        assert!(matches!(typed(".nan"), Value::Float(value) if value.is_nan()));
        assert_eq!(typed("18446744073709551615"), Value::Float(18_446_744_073_709_551_615.0));
    }
}
