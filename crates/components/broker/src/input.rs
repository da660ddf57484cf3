//! The elements of frames and packets: big-endian numbers and bytes of a length.
//!
//! The parsers of protocols build on it: what has a length before it differs from protocol to protocol.

use std::fmt;

/// Bytes that do not follow a protocol, with what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

const SHORT: Malformed = Malformed("it is shorter than its parts");

/// Bytes that are read from the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// True if all was read.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes the next `N` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Takes a number of one byte.
    ///
    /// # Errors
    /// If there is none.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// Takes a number of two bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn two_bytes(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Takes a number of four bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn four_bytes(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes a number of eight bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn eight_bytes(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_their_highest_byte_and_are_not_read_in_part() {
        let mut input = Input(&[1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7, 9]);
        assert_eq!((input.byte(), input.two_bytes()), (Ok(1), Ok(256)));
        assert_eq!((input.four_bytes(), input.eight_bytes()), (Ok(256), Ok(256)));
        assert_eq!(input.four_bytes(), Err(SHORT));
        assert_eq!((input.take(3), input.take(2)), (Err(SHORT), Ok(&[7, 9][..])));
        assert!(input.is_empty());
    }
}
