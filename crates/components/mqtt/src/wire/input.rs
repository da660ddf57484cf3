//! The elements of packets.

use super::Malformed;

const SHORT: Malformed = Malformed("a packet is shorter than its parts");

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

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
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

    /// Takes a number of one to four bytes, seven bits in each, the lowest first.
    pub(super) fn number(&mut self) -> Result<usize, Malformed> {
        let mut number = 0;
        for place in 0..4 {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed("a length has more than four bytes"))
    }

    /// Takes bytes after their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.two_bytes()?;
        self.take(usize::from(length))
    }

    /// Takes a text after its length.
    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }
}
