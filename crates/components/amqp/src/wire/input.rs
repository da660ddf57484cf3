//! The elements of frames that have a length.

use thalweg_broker::input::Input;

use super::Malformed;

/// The elements of AMQP that have their length before them.
pub(super) trait Elements<'a> {
    /// Takes bytes after their length, which is one byte.
    fn short(&mut self) -> Result<&'a [u8], Malformed>;

    /// Takes a text after its length, which is one byte.
    fn short_text(&mut self) -> Result<String, Malformed>;

    /// Takes bytes after their length, which has four bytes.
    fn long(&mut self) -> Result<&'a [u8], Malformed>;
}

impl<'a> Elements<'a> for Input<'a> {
    fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }

    fn short_text(&mut self) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.short()?).into_owned())
    }

    fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.four_bytes()?;
        self.take(length as usize)
    }
}
