//! The id of an entry of a stream: milliseconds since 1970, and a number among those of that millisecond.

use std::fmt;
use std::str::FromStr;

/// The id of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) milliseconds: u64,
    pub(crate) number: u64,
}

impl Id {
    /// Reads an id from the bytes of a reply.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Returns the id after this one. `None` after the last.
    pub(crate) fn successor(self) -> Option<Self> {
        let same = self.number.checked_add(1).map(|number| Self { number, ..self });
        same.or_else(|| Some(Self { milliseconds: self.milliseconds.checked_add(1)?, number: 0 }))
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // An id without a number is the first of its millisecond.
        let (milliseconds, number) = text.split_once('-').unwrap_or((text, "0"));
        match (milliseconds.parse(), number.parse()) {
            (Ok(milliseconds), Ok(number)) => Ok(Self { milliseconds, number }),
            _ => Err(format!("`{text}` is no id of an entry.")),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.milliseconds, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written_and_the_order_is_that_of_numbers(one: (u64, u64), other: (u64, u64)) {
            let id = |(milliseconds, number)| Id { milliseconds, number };
            prop_assert_eq!(Id::read(id(one).to_string().as_bytes()), Some(id(one)));
            prop_assert_eq!(id(one).cmp(&id(other)), one.cmp(&other));
        }

        #[test]
        fn the_successor_is_the_least_larger_id(
            milliseconds: u64,
            number in prop_oneof![Just(u64::MAX), any::<u64>()],
        ) {
            let id = Id { milliseconds, number };
            let expected = match number {
                u64::MAX => milliseconds.checked_add(1).map(|milliseconds| Id { milliseconds, number: 0 }),
                number => Some(Id { milliseconds, number: number + 1 }),
            };
            prop_assert_eq!(id.successor(), expected);
        }

        #[test]
        fn any_text_is_an_id_or_not(text in "[0-9-]{0,30}|\\PC*") {
            let _ = text.parse::<Id>();
        }
    }
}
