//! Reads the logical types that are more than a number.

use std::fmt::Write as _;

use arrow_array::types::{Decimal128Type, Decimal256Type, DecimalType};
use arrow_buffer::i256;
use chrono::{NaiveDate, NaiveTime};

use super::cursor::{Cursor, Fault};

/// The maximum precision of a decimal that fits into 128 bits.
pub(super) const SMALL_PRECISION: u8 = 38;

/// A decimal: a number in big-endian two's complement, of fixed or variable length, without its scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    /// The length in bytes, if it is fixed.
    pub(super) size: Option<usize>,
    pub(super) precision: u8,
    pub(super) scale: i8,
}

impl Decimal {
    /// True if all values fit into 128 bits.
    pub(super) fn is_small(self) -> bool {
        self.precision <= SMALL_PRECISION
    }

    fn widened<const N: usize>(self, cursor: &mut Cursor<'_>) -> Result<[u8; N], Fault> {
        let bytes = match self.size {
            Some(size) => cursor.take(size)?,
            None => cursor.bytes()?,
        };
        widened(bytes).ok_or(Fault::Decimal)
    }

    /// Reads a value of 128 bits.
    pub(super) fn small(self, cursor: &mut Cursor<'_>) -> Result<i128, Fault> {
        let value = i128::from_be_bytes(self.widened(cursor)?);
        match Decimal128Type::is_valid_decimal_precision(value, self.precision) {
            true => Ok(value),
            false => Err(Fault::Decimal),
        }
    }

    /// Reads a value of 256 bits.
    pub(super) fn large(self, cursor: &mut Cursor<'_>) -> Result<i256, Fault> {
        let value = i256::from_be_bytes(self.widened(cursor)?);
        match Decimal256Type::is_valid_decimal_precision(value, self.precision) {
            true => Ok(value),
            false => Err(Fault::Decimal),
        }
    }

    /// Reads a value as the text of a number.
    pub(super) fn text(self, cursor: &mut Cursor<'_>) -> Result<String, Fault> {
        let Self { precision, scale, .. } = self;
        Ok(match self.is_small() {
            true => Decimal128Type::format_decimal(self.small(cursor)?, precision, scale),
            false => Decimal256Type::format_decimal(self.large(cursor)?, precision, scale),
        })
    }
}

/// Extends a number to `N` bytes. `None` if it does not fit.
fn widened<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let fill = if bytes.first().is_some_and(|first| first & 0x80 != 0) { 0xff } else { 0 };
    let (extension, rest) = bytes.split_at(bytes.len().saturating_sub(N));
    let keeps_sign = extension.is_empty() || rest.first().is_some_and(|first| (first ^ fill) & 0x80 == 0);
    if !keeps_sign || extension.iter().any(|byte| *byte != fill) {
        return None;
    }
    let mut wide = [fill; N];
    wide.get_mut(N - rest.len()..)?.copy_from_slice(rest);
    Some(wide)
}

/// Reads a date, in days since 1970.
pub(super) fn date(cursor: &mut Cursor<'_>) -> Result<(i32, NaiveDate), Fault> {
    let days = cursor.int()?;
    NaiveDate::from_epoch_days(days).map(|date| (days, date)).ok_or(Fault::Date(days))
}

/// Checks a time of day, in this fraction of a second.
pub(super) fn time(value: i64, per_second: i64) -> Result<NaiveTime, Fault> {
    let seconds = u32::try_from(value.div_euclid(per_second)).map_err(|_| Fault::Time(value))?;
    let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let nanos = u32::try_from(nanos).map_err(|_| Fault::Time(value))?;
    NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos).ok_or(Fault::Time(value))
}

/// Reads a UUID of 16 bytes as text.
pub(super) fn uuid(cursor: &mut Cursor<'_>) -> Result<String, Fault> {
    let bytes: [u8; 16] = cursor.array()?;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Reads a duration of months, days and milliseconds as ISO 8601 writes it: `P1M2DT3.004S`.
pub(super) fn duration(cursor: &mut Cursor<'_>) -> Result<String, Fault> {
    let [months, days, millis] = [cursor.array()?, cursor.array()?, cursor.array()?].map(u32::from_le_bytes);
    let mut text = "P".to_owned();
    for (number, unit) in [(months, 'M'), (days, 'D')] {
        if number > 0 {
            // Writing to a text cannot fail.
            let _ = write!(text, "{number}{unit}");
        }
    }
    if millis > 0 || text.len() == 1 {
        let _ = match millis % 1000 {
            0 => write!(text, "T{}S", millis / 1000),
            rest => write!(text, "T{}.{rest:03}S", millis / 1000),
        };
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_the_same_with_any_sign_extension(value: i64, more in 0..40usize) {
            let fill = if value < 0 { 0xff } else { 0 };
            let bytes = [vec![fill; more], value.to_be_bytes().to_vec()].concat();
            prop_assert_eq!(widened(&bytes).map(i128::from_be_bytes), Some(i128::from(value)));
        }

        #[test]
        fn a_number_that_does_not_fit_is_none(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let wide = i128::from_be_bytes(widened(&bytes).unwrap());
            let narrow = widened(&bytes).map(i64::from_be_bytes);
            prop_assert_eq!(narrow, i64::try_from(wide).ok());
        }
    }

    #[test]
    fn durations_are_written_as_iso_8601_writes_them() {
        for (parts, expected) in [
            ([0, 0, 0], "PT0S"),
            ([1, 2, 3_004], "P1M2DT3.004S"),
            ([0, 1, 0], "P1D"),
            ([0, 0, 2_000], "PT2S"),
            ([u32::MAX; 3], "P4294967295M4294967295DT4294967.295S"),
        ] {
            let bytes = parts.map(u32::to_le_bytes).concat();
            assert_eq!(duration(&mut Cursor::new(&bytes)).unwrap(), expected);
        }
    }

    #[test]
    fn a_time_of_day_has_an_end() {
        assert_eq!(time(86_399_999, 1_000).unwrap().to_string(), "23:59:59.999");
        assert_eq!(time(0, 1_000_000).unwrap().to_string(), "00:00:00");
        for value in [-1, 86_400_000, i64::MIN, i64::MAX] {
            assert_eq!(time(value, 1_000), Err(Fault::Time(value)));
        }
    }
}
