//! The binary form of `numeric`: four numbers of 16 bits, and digits to the base 10000.
//!
//! The numbers are the count of digits, the weight of the first (its power of 10000), the sign, and the count
//! of decimal digits after the point that are shown. `numeric_send` in PostgreSQL's sources defines it.

const POSITIVE: u16 = 0;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;

/// The largest number of decimal digits, before and after the point together, that is written.
const MOST_DIGITS: usize = 16_000;

/// Reads a number as a multiple of `10^-scale` with at most `precision` digits.
///
/// # Errors
/// If it is none, such as NaN, or the bytes are no number.
pub(crate) fn read(bytes: &[u8], precision: u8, scale: u8) -> Result<i128, &'static str> {
    let mut parts = bytes.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let mut part = || parts.next().ok_or("is cut off");
    let (count, weight, sign, _shown) = (part()?, part()?.cast_signed(), part()?, part()?);
    if !matches!(sign, POSITIVE | NEGATIVE) {
        return Err("is no finite number");
    }
    if bytes.len() != 8 + 2 * usize::from(count) {
        return Err("is cut off");
    }
    let mut number: i128 = 0;
    // The digits that are left out at the end are zeros.
    for digit in parts {
        if digit > 9999 {
            return Err("has a wrong digit");
        }
        let next = number.checked_mul(10_000).and_then(|number| number.checked_add(digit.into()));
        number = next.ok_or("has too many digits")?;
    }
    let power = 4 * (i32::from(weight) + 1 - i32::from(count)) + i32::from(scale);
    let factor = || 10_i128.checked_pow(power.unsigned_abs()).ok_or("has too many digits");
    let number = match power {
        _ if number == 0 => 0,
        0.. => number.checked_mul(factor()?).ok_or("has too many digits")?,
        _ if number % factor()? == 0 => number / factor()?,
        _ => return Err("has too many digits after the point"),
    };
    match 10_i128.checked_pow(precision.into()) {
        Some(end) if number >= end => Err("has too many digits"),
        _ if sign == NEGATIVE => Ok(-number),
        _ => Ok(number),
    }
}

/// Appends the number that a text spells, such as `-12.50` or `1e-7`, with its length before it. Returns
/// false and appends nothing if it spells none, or one with too many digits.
pub(crate) fn write(text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_written = write_or_stop(text.trim_ascii(), out).is_some();
    if !is_written {
        out.truncate(start);
    }
    is_written
}

fn write_or_stop(text: &str, out: &mut Vec<u8>) -> Option<()> {
    if text.eq_ignore_ascii_case("nan") {
        push(&[0, 0, NAN, 0], out);
        return Some(());
    }
    let (sign, text) = match text.as_bytes().first()? {
        b'-' => (NEGATIVE, text.get(1..)?),
        b'+' => (POSITIVE, text.get(1..)?),
        _ => (POSITIVE, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = !(whole.is_empty() && fraction.is_empty())
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    let is_small =
        whole.len() + fraction.len() <= MOST_DIGITS && exponent.unsigned_abs() as usize <= MOST_DIGITS;
    if !is_number || !is_small {
        return None;
    }
    // The point is after this number of digits, which may be before or behind all of them.
    let point = i32::try_from(whole.len()).ok()? + exponent;
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|byte| byte - b'0').collect();
    let shown = (i32::try_from(digits.len()).ok()? - point).max(0);
    let groups = groups(&digits, point);
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let end = groups.iter().rposition(|group| *group != 0).map_or(first, |last| last + 1);
    let weight = if first == end {
        0
    } else {
        point.div_euclid(4) + i32::from(point.rem_euclid(4) > 0) - 1 - first as i32
    };
    let sign = if first == end { POSITIVE } else { sign };
    let weight = i16::try_from(weight).ok()?.cast_unsigned();
    let kept = groups.get(first..end)?;
    let mut parts = vec![u16::try_from(kept.len()).ok()?, weight, sign, u16::try_from(shown).ok()?];
    parts.extend_from_slice(kept);
    push(&parts, out);
    Some(())
}

/// Returns digits to the base 10000, of which none is divided by the point.
fn groups(digits: &[u8], point: i32) -> Vec<u16> {
    // Zeros before the first digit, so that a group ends at the point.
    let before = (4 - point.rem_euclid(4)).rem_euclid(4) as usize;
    let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(digits.iter().copied()).collect();
    let group =
        |digits: &[u8]| (0..4).fold(0, |sum, at| sum * 10 + u16::from(digits.get(at).copied().unwrap_or(0)));
    padded.chunks(4).map(group).collect()
}

fn push(parts: &[u16], out: &mut Vec<u8>) {
    out.extend_from_slice(&(2 * parts.len() as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(&part.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str) -> Option<Vec<u16>> {
        let mut out = Vec::new();
        write(text, &mut out).then(|| {
            assert_eq!(out[..4], (out.len() as u32 - 4).to_be_bytes());
            out[4..].chunks(2).map(|two| u16::from_be_bytes([two[0], two[1]])).collect()
        })
    }

    #[test]
    fn a_number_is_written_as_the_server_writes_it() {
        for (text, parts) in [
            ("0", vec![0, 0, 0, 0]),
            ("-0.00", vec![0, 0, 0, 2]),
            ("1", vec![1, 0, 0, 0, 1]),
            ("10000", vec![1, 1, 0, 0, 1]),
            ("-12345.678", vec![3, 1, 0x4000, 3, 1, 2345, 6780]),
            ("0.0001", vec![1, 0xFFFF, 0, 4, 1]),
            ("1e-7", vec![1, 0xFFFE, 0, 7, 10]),
            ("1.5E+5", vec![1, 1, 0, 0, 15]),
            (".5", vec![1, 0xFFFF, 0, 1, 5000]),
            ("NaN", vec![0, 0, 0xC000, 0]),
        ] {
            assert_eq!(written(text), Some(parts), "{text}");
        }
        // 1.5E+5 is 150000, which is 15 to the base 10000, and no rest.
        for text in ["", "-", ".", "1e", "1e99999", "0x1", "1,5", "--1", "1.2.3", "inf"] {
            assert_eq!(written(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_of_the_type_has_its_reason() {
        let bytes = |parts: &[u16]| parts.iter().flat_map(|part| part.to_be_bytes()).collect::<Vec<u8>>();
        for (parts, reason) in [
            (&[0, 0, 0xC000, 0][..], "is no finite number"),
            (&[1, 0, 0], "is cut off"),
            (&[2, 0, 0, 0, 1], "is cut off"),
            (&[1, 0, 0, 0, 10_000], "has a wrong digit"),
            (&[1, 0, 0, 0, 1000], "has too many digits"),
            (&[1, 0x7FFF, 0, 0, 1], "has too many digits"),
            (&[1, 0xFFFF, 0, 4, 1], "has too many digits after the point"),
        ] {
            assert_eq!(read(&bytes(parts), 5, 2), Err(reason), "{parts:?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number in -10_i128.pow(20)..10_i128.pow(20), scale in 0..12_u8) {
            let digits = format!("{:0width$}", number.unsigned_abs(), width = usize::from(scale) + 1);
            let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
            let text = format!("{}{whole}.{fraction}", if number < 0 { "-" } else { "" });
            let mut out = Vec::new();
            prop_assert!(write(&text, &mut out), "{}", text);
            prop_assert_eq!(read(&out[4..], 38, scale), Ok(number), "{}", text);
        }

        #[test]
        fn no_bytes_and_no_text_break_it(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[-+0-9.eE]{0,12}") {
            let _ = read(&bytes, 10, 3);
            let mut out = Vec::new();
            prop_assert_eq!(write(&text, &mut out), !out.is_empty());
        }
    }
}
