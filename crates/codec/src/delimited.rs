//! Messages as a stream of bytes, each followed by a delimiter.
//!
//! The lines of a batch usually are in memory just as they must be written, delimiters included. They are
//! written directly from there, because copying every message costs about as much as the write itself. Only
//! separate pieces (short runs after a filter, messages with another delimiter) are gathered in a buffer
//! first: a system call per piece would cost more than the copy.

use std::io::{self, Write};

use arrow_array::{Array, BinaryViewArray};
use thalweg_record::payload_runs;

/// The minimum length, in bytes, of a run that is written directly. Copying a shorter run is cheaper than a
/// system call.
const DIRECT: usize = 16 << 10;
/// The size of the buffer at which it is written, in bytes.
const GATHERED: usize = 256 << 10;

/// Writes messages, each followed by a delimiter. The buffer is kept between batches.
#[derive(Debug, Clone)]
pub struct Delimited {
    delimiter: Vec<u8>,
    gathered: Vec<u8>,
}

impl Delimited {
    /// Creates a writer with this delimiter, which may be empty.
    pub fn new(delimiter: &str) -> Self {
        Self { delimiter: delimiter.as_bytes().to_vec(), gathered: Vec::new() }
    }

    /// Returns the delimiter.
    pub fn delimiter(&self) -> &[u8] {
        &self.delimiter
    }

    /// Returns how many messages from the start of `payload` fit into `room` bytes, delimiters included.
    pub fn fitting(&self, payload: &BinaryViewArray, room: u64) -> usize {
        let mut taken = 0;
        // The low 32 bits of a view are the length.
        let lengths = payload.views().iter().map(|&view| u64::from(view as u32));
        let each = self.delimiter.len() as u64;
        lengths
            .take_while(|length| {
                taken += length + each;
                taken <= room
            })
            .count()
    }

    /// Returns the number of buffered bytes, which [`flush`](Self::flush) writes.
    pub fn waiting(&self) -> usize {
        self.gathered.len()
    }

    /// Writes messages. Some may stay buffered until [`flush`](Self::flush).
    ///
    /// # Errors
    /// The errors of `to`. Some messages may have been written then, and the buffer is empty.
    pub fn write(&mut self, payload: &BinaryViewArray, to: &mut impl Write) -> io::Result<()> {
        let result = match self.delimiter[..] {
            [delimiter] => payload_runs(payload, delimiter).try_for_each(|run| match run {
                Ok(run) => self.bytes(run, to),
                Err(message) => self.message(message, to),
            }),
            _ => (0..payload.len()).try_for_each(|row| self.message(payload.value(row), to)),
        };
        result.inspect_err(|_| self.gathered.clear())
    }

    /// Writes one message. It may stay buffered until [`flush`](Self::flush).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn message(&mut self, message: &[u8], to: &mut impl Write) -> io::Result<()> {
        self.bytes(message, to)?;
        self.gathered.extend_from_slice(&self.delimiter);
        Ok(())
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8], to: &mut impl Write) -> io::Result<()> {
        if bytes.len() >= DIRECT {
            self.flush(to)?;
            return to.write_all(bytes).inspect_err(|_| self.gathered.clear());
        }
        if self.gathered.len() + bytes.len() > GATHERED {
            self.flush(to)?;
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the buffered bytes.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let result = to.write_all(&self.gathered);
        self.gathered.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_record::testing::batch;

    /// Records each call of `write`.
    #[derive(Default)]
    struct Calls(Vec<Vec<u8>>);

    impl Write for Calls {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_lie_together_are_written_in_one_call() {
        let lines: Vec<String> = (0..10_000).map(|n| format!("line number {n} of some length")).collect();
        let mut calls = Calls::default();
        let mut delimited = Delimited::new("\n");
        delimited.write(batch(&lines).payload(), &mut calls).unwrap();
        assert_eq!(delimited.waiting(), 0);
        assert_eq!(calls.0, [(lines.join("\n") + "\n").into_bytes()]);
    }

    proptest! {
        #[test]
        fn every_message_is_followed_by_the_delimiter(
            lengths in prop::collection::vec(prop_oneof![20 => 0..60usize, 1 => 0..40_000usize], 0..40),
            delimiter in "\n|\r\n||,",
            cut in any::<prop::sample::Index>(),
        ) {
            let messages: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(n, &l)| vec![b'a' + (n % 26) as u8; l]).collect();
            let expected: Vec<u8> =
                messages.iter().flat_map(|m| [m.as_slice(), delimiter.as_bytes()].concat()).collect();
            let batch = batch(&messages);
            let cut = cut.index(messages.len() + 1);
            let mut delimited = Delimited::new(&delimiter);
            let mut written = Vec::new();
            delimited.write(&batch.payload().slice(0, cut), &mut written).unwrap();
            delimited.write(&batch.payload().slice(cut, messages.len() - cut), &mut written).unwrap();
            delimited.flush(&mut written).unwrap();
            prop_assert_eq!(written, expected);
        }

        #[test]
        fn what_fits_is_the_longest_beginning_that_does(
            lengths in prop::collection::vec(0..30usize, 0..20),
            room in 0..400u64,
        ) {
            let delimited = Delimited::new("\r\n");
            let batch = batch(lengths.iter().map(|&l| vec![b'x'; l]));
            let fitting = delimited.fitting(batch.payload(), room);
            let size = |count: usize| lengths[..count].iter().map(|l| *l as u64 + 2).sum::<u64>();
            prop_assert!(size(fitting) <= room);
            prop_assert!(fitting == lengths.len() || size(fitting + 1) > room);
        }
    }
}
