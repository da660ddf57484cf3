//! Messages as a stream of bytes: each followed by a delimiter.
//!
//! A batch of lines usually lies in memory just as it will be written, delimiters included. Then it goes to
//! the system straight from there; a copy of every message would cost about as much as the write itself.
//! Only what stands apart (short runs after a filter, messages of another delimiter) is gathered in a buffer
//! first, since a call to the system for each would cost more than the copy.

use std::io::{self, Write};

use arrow_array::{Array, BinaryViewArray};
use thalweg_record::payload_runs;

/// What is at least this long is written from where it is; copying less is cheaper than a call to the system.
const DIRECT: usize = 16 << 10;
/// The buffer is written when it has this many bytes.
const GATHERED: usize = 256 << 10;

/// Writes messages followed by a delimiter. The buffer is kept between batches.
#[derive(Debug)]
pub struct Delimited {
    delimiter: Vec<u8>,
    gathered: Vec<u8>,
}

impl Delimited {
    /// With this delimiter, which may be empty.
    pub fn new(delimiter: &str) -> Self {
        Self { delimiter: delimiter.as_bytes().to_vec(), gathered: Vec::new() }
    }

    /// What follows each message.
    pub fn delimiter(&self) -> &[u8] {
        &self.delimiter
    }

    /// How many bytes the first messages take that together take at most `room`, and how many they are.
    pub fn fitting(&self, payload: &BinaryViewArray, room: u64) -> usize {
        let mut taken = 0;
        // The low half of a view is the length.
        let lengths = payload.views().iter().map(|&view| u64::from(view as u32));
        let each = self.delimiter.len() as u64;
        lengths
            .take_while(|length| {
                taken += length + each;
                taken <= room
            })
            .count()
    }

    /// How many bytes wait for [`flush`](Self::flush).
    pub fn waiting(&self) -> usize {
        self.gathered.len()
    }

    /// Writes messages; some may wait for [`flush`](Self::flush).
    ///
    /// # Errors
    /// Those of `to`. Then some of it may have been written, and nothing waits any more.
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

    /// Writes one message; it may wait for [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`write`](Self::write).
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

    /// Writes what waits.
    ///
    /// # Errors
    /// As [`write`](Self::write).
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

    /// Counts the calls.
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
