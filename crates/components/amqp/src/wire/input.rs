//! The elements of frames.

use super::Malformed;

const SHORT: Malformed = Malformed("a frame is shorter than its parts");

/// Bytes that are read from the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn two_bytes(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn four_bytes(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn eight_bytes(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes bytes after their length, which is one byte.
    pub(super) fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }

    /// Takes a text after its length, which is one byte.
    pub(super) fn short_text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.short()?).into_owned())
    }

    /// Takes bytes after their length, which has four bytes.
    pub(super) fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.four_bytes()?;
        self.take(usize::try_from(length).map_err(|_| SHORT)?)
    }
}
