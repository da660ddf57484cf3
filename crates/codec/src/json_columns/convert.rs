//! Converts JSON tokens to the types of columns.

use super::scan::{Kind, unescape};
use crate::columns::{FieldType, truth};
use crate::timestamps::TimeParser;

/// Decodes a token in quotes.
#[inline]
pub(super) fn text_of<'a>(token: &'a str, escaped: bool, decoded: &'a mut String) -> &'a str {
    let raw = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if escaped { unescape(raw, decoded) } else { raw }
}

/// Returns the text to parse a value from if a type is forced: the text between the quotes, if there are any.
pub(super) fn bare<'a>(kind: Kind, token: &'a str, decoded: &'a mut String) -> &'a str {
    match kind {
        Kind::Text | Kind::EscapedText => text_of(token, kind == Kind::EscapedText, decoded).trim(),
        _ => token,
    }
}

/// True if a value can be converted to the type that the options ask for.
pub(super) fn fits(
    wanted: FieldType,
    kind: Kind,
    token: &str,
    decoded: &mut String,
    times: &mut TimeParser,
) -> bool {
    match wanted {
        FieldType::Text | FieldType::Json => true,
        _ if kind == Kind::Nested => false,
        FieldType::Int => kind == Kind::Int || to_int(bare(kind, token, decoded)).is_some(),
        FieldType::Float => kind != Kind::Bool && to_float(bare(kind, token, decoded)).is_some(),
        FieldType::Bool => truth(bare(kind, token, decoded)).is_some(),
        FieldType::Timestamp => kind != Kind::Bool && to_time(bare(kind, token, decoded), times).is_some(),
    }
}

/// Parses a whole number, also one written `3.0` or `1e3`.
pub(super) fn to_int(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number = text.parse::<f64>().ok()?;
    (number.fract() == 0.0 && number.abs() <= EXACT as f64).then_some(number as i64)
}

/// The largest whole number up to which every whole number is exact as `f64`.
pub(super) const EXACT: u64 = 1 << 53;

pub(super) fn to_float(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// Parses a point in time as microseconds since 1970.
pub(super) fn to_time(text: &str, times: &mut TimeParser) -> Option<i64> {
    // JSON numbers may have an exponent, which `TimeParser` does not read.
    times.parse(text).or_else(|| times.parse(&to_float(text)?.to_string()))
}

/// Parses a whole number of at most 18 digits.
#[inline]
pub(super) fn short_int(token: &[u8]) -> i64 {
    let (negative, digits) = match token {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, token),
    };
    let number = digits.iter().fold(0i64, |number, &digit| number * 10 + i64::from(digit & 15));
    if negative { -number } else { number }
}

/// Parses a number that the JSON grammar allows. With at most 15 digits and no exponent, one division of two
/// exact numbers yields the nearest `f64`. The standard library parses all other numbers.
#[inline]
pub(super) fn float(token: &str) -> f64 {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (negative, digits) = match token.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.len() <= 16 {
        let (mut mantissa, mut fraction, mut plain) = (0u64, None, true);
        for (at, &byte) in digits.iter().enumerate() {
            match byte {
                b'0'..=b'9' => mantissa = mantissa * 10 + u64::from(byte & 15),
                b'.' => fraction = Some(digits.len() - at - 1),
                _ => plain = false,
            }
        }
        if plain && mantissa <= EXACT {
            let number = mantissa as f64 / POWERS[fraction.unwrap_or(0) & 15];
            return if negative { -number } else { number };
        }
    }
    token.parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fast_floats_are_the_nearest(mantissa in any::<u64>(), digits in 1..18u32, point in 0..18usize, negative in any::<bool>()) {
            let mut text = (mantissa % 10u64.pow(digits)).to_string();
            if point > 0 && point < text.len() {
                text.insert(point, '.');
            }
            if negative {
                text.insert(0, '-');
            }
            prop_assert_eq!(float(&text).to_bits(), text.parse::<f64>().unwrap().to_bits());
        }
    }
}
