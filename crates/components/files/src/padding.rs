//! The number in the names of written files: `{number}`, or `{number:5}` with at least five digits.

use std::ops::Range;

use thalweg_config::FormatError;

/// The maximum number of digits that a number is padded to.
const MOST_DIGITS: usize = 20;

/// Returns the digits that a number is padded to, from what is behind the colon. `place` is that of the text
/// between braces.
///
/// # Errors
/// If it is no number of digits.
pub(crate) fn digits(format: Option<&str>, place: Range<usize>) -> Result<usize, FormatError> {
    let Some(format) = format else { return Ok(1) };
    match format.parse() {
        Ok(digits @ 1..=MOST_DIGITS) => Ok(digits),
        _ => {
            let message = format!("`{format}` is not a number of digits from 1 to {MOST_DIGITS}.");
            Err(FormatError::new(message).at(place).help("`{number:5}` becomes `00001`."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_digit_or_as_many_as_it_says() {
        assert_eq!((digits(None, 0..6), digits(Some("20"), 0..9)), (Ok(1), Ok(20)));
        for wrong in ["", "0", "21", "x"] {
            let error = digits(Some(wrong), 3..9).unwrap_err();
            assert_eq!(error.range, Some(3..9));
        }
    }
}
