//! A number of bytes: `256MiB`.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::text_type::text_type;
use crate::{FormatError, nearest};

pub(crate) const FORMAT: &str = "byte-size";

/// The units, from the largest, as `Display` writes them.
const UNITS: [(&str, u64); 11] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes, written `256MiB`, `64 KiB`, `1.5GB` or `4096`.
///
/// `KiB`, `MiB`, `GiB`, `TiB`, `PiB` and `EiB` are powers of 1024. Powers of 1000 are `kB`, `MB`, `GB` and
/// `TB`. A plain number is bytes. Case does not matter. A single letter (`10k`) is rejected because it is
/// ambiguous: it can mean 10,000 or 10,240.
///
/// ```
/// use thalweg_config::ByteSize;
/// let size: ByteSize = "64 KiB".parse().unwrap();
/// assert_eq!(size.bytes(), 65_536);
/// assert_eq!(size.to_string(), "64KiB");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns a size of `count` × 1024 bytes.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns a size of `count` × 1024 × 1024 bytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns a size of `count` × 1024 × 1024 × 1024 bytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes, at most `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> Self {
        size.0
    }
}

/// Uses the largest unit that divides the size exactly, so the text parses back to the same size.
impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.into_iter().find(|(_, bytes)| self.0 > 0 && self.0.is_multiple_of(*bytes));
        let (unit, bytes) = exact.unwrap_or(("B", 1));
        write!(formatter, "{}{unit}", self.0 / bytes)
    }
}

impl FromStr for ByteSize {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let trimmed = text.trim();
        let digits = trimmed
            .find(|character: char| !matches!(character, '0'..='9' | '.' | '_'))
            .unwrap_or(trimmed.len());
        let (number, rest) = trimmed.split_at(digits);
        if trimmed.starts_with('-') {
            return Err(FormatError::new(format!("`{text}` is negative.")).help(EXAMPLE));
        }
        if number.is_empty() {
            return Err(FormatError::new(format!("`{text}` is not a size.")).help(EXAMPLE));
        }
        let unit = rest.trim();
        let factor = factor(number, unit).map_err(|error| {
            let start = text.find(trimmed).unwrap_or(0) + digits + (rest.len() - rest.trim_start().len());
            error.at(start..start + unit.len())
        })?;
        let too_large = || {
            FormatError::new(format!(
                "`{text}` is more than the largest size, which is 16 EiB less one byte."
            ))
        };
        let plain: String = number.chars().filter(|&character| character != '_').collect();
        let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
        let malformed = || FormatError::new(format!("`{number}` is not a number.")).help(EXAMPLE);
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(malformed());
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_large())? };
        // Twelve digits of a fraction are exact in 128 bits. Users need no more.
        let fraction: String = fraction.chars().take(12).collect();
        let numerator: u128 =
            if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| malformed())? };
        let denominator = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
        let bytes = u128::from(whole) * u128::from(factor) + numerator * u128::from(factor) / denominator;
        u64::try_from(bytes).map(Self).map_err(|_| too_large())
    }
}

const EXAMPLE: &str = "Write a number and a unit, for example `256MiB`.";

/// Returns the number of bytes in a unit.
fn factor(number: &str, unit: &str) -> Result<u64, FormatError> {
    let lower = unit.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "byte" | "bytes") {
        return Ok(1);
    }
    if let Some((_, bytes)) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        return Ok(bytes);
    }
    let decimal = UNITS.into_iter().find(|(name, _)| name.len() == 2 && name[..1].eq_ignore_ascii_case(unit));
    let binary = UNITS.into_iter().find(|(name, _)| name.len() == 3 && name[..1].eq_ignore_ascii_case(unit));
    if let (Some((decimal, _)), Some((binary, bytes))) = (decimal, binary) {
        let times = bytes.trailing_zeros() / 10;
        let power = if times == 1 { String::new() } else { format!("^{times}") };
        return Err(FormatError::new(format!("The unit `{unit}` can be read in two ways.")).help(format!(
            "Write `{number}{binary}` (times 1024{power}) or `{number}{decimal}` (times 1000{power})."
        )));
    }
    let error = FormatError::new(format!("`{unit}` is not a unit of size."));
    // A unit may be spelt out (`megs`, `gigabytes`): then its first letters say more than the edit distance.
    let named = nearest(unit, UNITS.map(|(name, _)| name)).or_else(|| {
        let words = [
            ("kilo", "KiB"),
            ("kibi", "KiB"),
            ("meg", "MiB"),
            ("meb", "MiB"),
            ("gi", "GiB"),
            ("ter", "TiB"),
            ("teb", "TiB"),
            ("pe", "PiB"),
        ];
        words.into_iter().find(|(word, _)| lower.starts_with(word)).map(|(_, unit)| unit)
    });
    Err(match named {
        Some(unit) => error.help(format!("Did you mean `{number}{unit}`?")),
        None => error.help(
            "The units are `B`, `KiB`, `MiB`, `GiB`, `TiB` (by 1024) and `kB`, `MB`, `GB`, `TB` (by 1000).",
        ),
    })
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Size;

        impl Visitor<'_> for Size {
            type Value = ByteSize;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a size such as `256MiB`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("A size cannot be negative."))
            }
        }

        deserializer.deserialize_any(Size)
    }
}

text_type!(ByteSize, {
    "type": ["string", "integer"],
    "format": FORMAT,
    "minimum": 0,
    "description": "A size: a number and a unit (`KiB`, `MiB`, `GiB` by 1024; `kB`, `MB`, `GB` by 1000), \
                    or a number of bytes.",
    "examples": ["256MiB"],
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(text: &str) -> u64 {
        text.parse::<ByteSize>().unwrap().0
    }

    fn refused(text: &str) -> String {
        text.parse::<ByteSize>().unwrap_err().to_string()
    }

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        assert_eq!(size("256MiB"), 256 << 20);
        assert_eq!(size("64 KiB"), 64 << 10);
        assert_eq!(size("1GB"), 1_000_000_000);
        assert_eq!(size("1.5kib"), 1536);
        assert_eq!(size("10kb"), 10_000);
        assert_eq!(size("1_000"), 1000);
        assert_eq!(size(" 7 bytes "), 7);
        assert_eq!(size("18446744073709551615"), u64::MAX);
        assert_eq!(size(".5MiB"), 512 << 10);
    }

    #[test]
    fn a_wrong_unit_is_answered_with_the_one_meant() {
        assert_eq!(refused("256MBi"), "`MBi` is not a unit of size. Did you mean `256MiB`?");
        assert_eq!(refused("10 megs"), "`megs` is not a unit of size. Did you mean `10MiB`?");
        assert_eq!(refused("2 gigabytes"), "`gigabytes` is not a unit of size. Did you mean `2GiB`?");
        assert_eq!(
            refused("10 parsec"),
            "`parsec` is not a unit of size. The units are `B`, `KiB`, `MiB`, `GiB`, `TiB` (by 1024) \
             and `kB`, `MB`, `GB`, `TB` (by 1000)."
        );
        assert_eq!("10 parsec".parse::<ByteSize>().unwrap_err().range, Some(3..9));
    }

    #[test]
    fn a_unit_that_can_be_read_in_two_ways_is_refused() {
        assert_eq!(
            refused("10k"),
            "The unit `k` can be read in two ways. Write `10KiB` (times 1024) or `10kB` (times 1000)."
        );
        assert_eq!(
            refused("4G"),
            "The unit `G` can be read in two ways. Write `4GiB` (times 1024^3) or `4GB` (times 1000^3)."
        );
    }

    #[test]
    fn what_is_no_size_or_too_large_is_refused() {
        for (text, message) in [
            ("", "`` is not a size."),
            ("x", "`x` is not a size."),
            ("MiB", "`MiB` is not a size."),
            ("-5", "`-5` is negative."),
            (".", "`.` is not a number."),
            ("1.2.3", "`1.2.3` is not a number."),
            ("_", "`_` is not a number."),
            ("1e9", "`e9` is not a unit of size."),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap_err().message, message);
        }
        for text in ["16EiB", "18446744073709551616", "99999999999TiB"] {
            let message = format!("`{text}` is more than the largest size, which is 16 EiB less one byte.");
            assert_eq!(refused(text), message);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(bytes: u64, shift in 0u32..64) {
            let size = ByteSize(bytes >> shift);
            prop_assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", number in "[0-9._]{0,40}", unit in "[a-zA-Zé ]{0,4}") {
            let _ = text.parse::<ByteSize>();
            let size = number + &unit;
            if let Err(error) = size.parse::<ByteSize>() && let Some(range) = error.range {
                prop_assert!(size.get(range).is_some());
            }
        }
    }
}
