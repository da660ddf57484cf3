//! The elements of packets that have a length.

use thalweg_broker::input::Input;

use super::Malformed;

/// The elements of MQTT beside plain numbers.
pub(super) trait Elements<'a> {
    /// Takes a number of one to four bytes, seven bits in each, the lowest first.
    fn number(&mut self) -> Result<usize, Malformed>;

    /// Takes bytes after their length.
    fn bytes(&mut self) -> Result<&'a [u8], Malformed>;

    /// Takes a text after its length.
    fn text(&mut self) -> Result<&'a str, Malformed>;
}

impl<'a> Elements<'a> for Input<'a> {
    fn number(&mut self) -> Result<usize, Malformed> {
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

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.two_bytes()?;
        self.take(usize::from(length))
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }
}
