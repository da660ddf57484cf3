//! The values of `google.protobuf.Timestamp` and `google.protobuf.Duration`.

use super::fault::Fault;

/// The seconds since 1970 of the years 1 to 9999.
const YEARS: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

const PER_SECOND: i64 = 1_000_000_000;

/// Returns a time in microseconds since 1970, rounded down.
pub(super) fn microseconds((seconds, nanoseconds): (i64, i64)) -> Result<i64, Fault> {
    if YEARS.contains(&seconds) && (0..PER_SECOND).contains(&nanoseconds) {
        return Ok(seconds * 1_000_000 + nanoseconds / 1_000);
    }
    Err(Fault::new(format!("is not a time of the years 1 to 9999: {seconds} s and {nanoseconds} ns")))
}

/// Returns a duration in seconds.
pub(super) fn seconds((seconds, nanoseconds): (i64, i64)) -> Result<f64, Fault> {
    // Both have the same sign, unless one is zero.
    let is_valid = nanoseconds.abs() < PER_SECOND && seconds.signum() * nanoseconds.signum() >= 0;
    match is_valid {
        true => Ok(seconds as f64 + nanoseconds as f64 / PER_SECOND as f64),
        false => Err(Fault::new(format!("is not a duration: {seconds} s and {nanoseconds} ns"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds_and_bounds() {
        assert_eq!(microseconds((-1, 999_999_999)).unwrap(), -1);
        assert_eq!(microseconds((253_402_300_799, 0)).unwrap(), 253_402_300_799_000_000);
        for wrong in [(253_402_300_800, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
            assert!(microseconds(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_are_seconds() {
        assert_eq!(seconds((1, 500_000_000)).unwrap(), 1.5);
        assert_eq!(seconds((-1, -500_000_000)).unwrap(), -1.5);
        assert_eq!(seconds((0, -250_000_000)).unwrap(), -0.25);
        assert!(seconds((1, -1)).is_err() && seconds((0, 1_000_000_000)).is_err());
        assert!(seconds((i64::MAX, 0)).is_ok());
    }
}
