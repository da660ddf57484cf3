//! A range of a file: `0:1024`, `-65536:`.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::byte_size::ByteSize;
use super::text_type::{read_from_text, text_type};
use crate::FormatError;

pub(crate) const FORMAT: &str = "byte-range";

/// A range of bytes of a file, from one position up to another, counted from 0: `0:1024`.
///
/// Either position may be omitted, and a negative one counts from the end: `-65536:` is the last 64 KiB, or
/// the whole file if it is shorter. Sizes may have units (`1MiB:2MiB`).
///
/// ```
/// use thalweg_config::ByteRange;
/// let range: ByteRange = "-64KiB:".parse().unwrap();
/// assert_eq!(range.within(1 << 20), Some(983_040..1_048_576));
/// assert_eq!(range.to_string(), "-64KiB:");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    from: Endpoint,
    to: Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Begin(u64),
    /// A number of bytes before the end.
    End(u64),
}

impl ByteRange {
    /// Returns the range in a file of `length` bytes; `None` if it is not within the file.
    pub fn within(self, length: u64) -> Option<Range<u64>> {
        let at = |place| match place {
            Endpoint::Begin(at) => at,
            Endpoint::End(before) => length.saturating_sub(before),
        };
        let (from, to) = (at(self.from), at(self.to));
        (from <= to && to <= length).then_some(from..to)
    }
}

impl FromStr for ByteRange {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let Some((from, to)) = text.split_once(':') else {
            return Err(FormatError::new(format!("`{text}` is not a range.")).help(EXAMPLE));
        };
        let place = |text: &str, none| -> Result<Endpoint, FormatError> {
            match (text.trim(), text.trim().strip_prefix('-')) {
                ("", _) => Ok(none),
                (_, Some(before)) => Ok(Endpoint::End(before.parse::<ByteSize>()?.0)),
                (at, None) => Ok(Endpoint::Begin(at.parse::<ByteSize>()?.0)),
            }
        };
        let range = Self { from: place(from, Endpoint::Begin(0))?, to: place(to, Endpoint::End(0))? };
        match (range.from, range.to) {
            (Endpoint::Begin(from), Endpoint::Begin(to)) | (Endpoint::End(to), Endpoint::End(from))
                if from > to =>
            {
                Err(FormatError::new(format!("`{text}` ends before it begins.")).help(EXAMPLE))
            }
            _ => Ok(range),
        }
    }
}

const EXAMPLE: &str = "Write `FROM:TO`, `FROM:`, `:TO` or `-LAST:`, for example `0:1024` or `-64KiB:`.";

impl fmt::Display for ByteRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            Endpoint::Begin(0) => {}
            Endpoint::Begin(at) => write!(formatter, "{}", ByteSize(at))?,
            Endpoint::End(before) => write!(formatter, "-{}", ByteSize(before))?,
        }
        formatter.write_str(":")?;
        match self.to {
            Endpoint::End(0) => Ok(()),
            Endpoint::Begin(at) => write!(formatter, "{}", ByteSize(at)),
            Endpoint::End(before) => write!(formatter, "-{}", ByteSize(before)),
        }
    }
}

text_type!(ByteRange, {
    "type": "string",
    "format": "byte-range",
    "examples": ["0:1024", "-64KiB:"],
});
read_from_text!(ByteRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_the_beginning_or_the_end() {
        let span = |text: &str| text.parse::<ByteRange>().unwrap().within(1000);
        assert_eq!(span("0:100"), Some(0..100));
        assert_eq!(span("-100:"), Some(900..1000));
        assert_eq!(span("-5000:"), Some(0..1000));
        assert_eq!(span("100:-100"), Some(100..900));
        assert_eq!(span("-20:-10"), Some(980..990));
        assert_eq!(span(":"), Some(0..1000));
        assert_eq!(span("1000:"), Some(1000..1000));
        assert_eq!(span("0:1001"), None);
        assert_eq!(span("1KiB:"), None);
    }

    #[test]
    fn what_is_no_range_is_refused_with_the_reason() {
        for (wrong, message) in [
            ("5", "`5` is not a range."),
            ("9:5", "`9:5` ends before it begins."),
            ("-5:-9", "`-5:-9` ends before it begins."),
            ("a:b", "`a` is not a size."),
            ("--5:", "`-5` is negative."),
        ] {
            assert_eq!(wrong.parse::<ByteRange>().unwrap_err().message, message);
        }
    }

    #[test]
    fn what_is_shown_can_be_written() {
        for text in [":", "1KiB:", ":5B", "-64KiB:", "100B:-100B", "-20B:-10B"] {
            let range: ByteRange = text.parse().unwrap();
            assert_eq!(range.to_string(), text);
            assert_eq!(range.to_string().parse::<ByteRange>().unwrap(), range);
        }
    }
}
