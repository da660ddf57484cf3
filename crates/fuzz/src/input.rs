//! Takes the parts of an input: options first, then the bytes to parse.
//!
//! Seeds are readable: an option is a digit or a line of text. Any other byte is an option too.

/// The rest of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Takes a byte as one of `count` choices: `0` is the first.
    pub fn choice(&mut self, count: usize) -> usize {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(byte.wrapping_sub(b'0')) % count
    }

    /// Takes a line, without its end.
    pub fn line(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n').unwrap_or(self.0.len());
        let (line, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        line
    }

    /// Takes a line as text. Invalid bytes are replaced.
    pub fn text_line(&mut self) -> String {
        String::from_utf8_lossy(self.line()).into_owned()
    }

    /// Returns the rest as text, up to the first invalid byte.
    pub fn text(self) -> &'a str {
        self.0.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    /// Returns the lines of the rest.
    pub fn lines(self) -> Vec<&'a [u8]> {
        self.0.split(|byte| *byte == b'\n').collect()
    }
}

/// Cuts `bytes` into pieces whose lengths follow from `seed`: 1 to 7 bytes, or now and then many.
pub fn pieces(bytes: &[u8], seed: usize) -> Vec<&[u8]> {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let (mut rest, mut pieces) = (bytes, Vec::new());
    while !rest.is_empty() {
        let length = if random.u8(..8) == 0 { random.usize(1..=300) } else { random.usize(1..=7) };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_from_the_front() {
        let mut input = Input(b"2a line\nrest\nof it");
        assert_eq!((input.choice(5), input.text_line().as_str()), (2, "a line"));
        assert_eq!(input.lines(), [b"rest".as_slice(), b"of it"]);
        assert_eq!(Input(b"").choice(3), 0);
        assert_eq!(pieces(b"abcdefghijklmnop", 1).concat(), b"abcdefghijklmnop");
    }
}
