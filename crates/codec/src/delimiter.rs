//! Finds delimiters in a text and splits it.

use memchr::memmem::Finder;
use memchr::{memchr, memmem};

/// The bytes between two parts of a text.
#[derive(Debug, Clone)]
pub struct Delimiter {
    finder: Finder<'static>,
    /// The delimiter, if it is a single byte, which is found faster.
    byte: Option<u8>,
}

impl Delimiter {
    /// Creates a delimiter. An empty one is never found.
    pub fn new(text: &str) -> Self {
        let byte = match text.as_bytes() {
            [byte] => Some(*byte),
            _ => None,
        };
        Self { finder: Finder::new(text.as_bytes()).into_owned(), byte }
    }

    /// True if the delimiter has no bytes.
    pub fn is_empty(&self) -> bool {
        self.finder.needle().is_empty()
    }

    /// Returns the length of the delimiter, in bytes.
    pub fn len(&self) -> usize {
        self.finder.needle().len()
    }

    /// Returns the offset of the first occurrence, in bytes.
    #[inline]
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        match self.byte {
            Some(byte) => memchr(byte, bytes),
            None if self.is_empty() => None,
            None => self.finder.find(bytes),
        }
    }

    /// Returns the offset of the last occurrence, in bytes.
    pub fn rfind(&self, bytes: &[u8]) -> Option<usize> {
        memmem::rfind(bytes, self.finder.needle()).filter(|_| !self.is_empty())
    }

    /// Returns the parts of a text. A text without the delimiter is one part.
    pub fn parts<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = Some(bytes);
        std::iter::from_fn(move || {
            let bytes = rest?;
            let found = self.find(bytes);
            rest = found.and_then(|at| bytes.get(at + self.len()..));
            Some(found.and_then(|at| bytes.get(..at)).unwrap_or(bytes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_as_the_standard_library_splits(text in "[ab,|]{0,20}", delimiter in "[,|]{1,2}|ab") {
            let cutter = Delimiter::new(&delimiter);
            let parts: Vec<&[u8]> = cutter.parts(text.as_bytes()).collect();
            prop_assert_eq!(parts, text.split(&delimiter).map(str::as_bytes).collect::<Vec<_>>());
            prop_assert_eq!(cutter.rfind(text.as_bytes()), text.rfind(&delimiter));
        }
    }
}
