//! How far a source may be ahead of its acknowledgements, as a part of the run's memory.
//!
//! The payloads of messages on their way are within the budget anyway. These limits are for what is beside
//! them: messages that were read and have no memory yet, and what a source notes of each that is on its way.

use thalweg_config::ByteSize;

/// The size of the messages that are read before they are sent on, between these limits.
const READ: [usize; 2] = [16 << 10, 2 << 20];
/// The part of the memory that these messages take.
const PART_READ: usize = 32;
/// The most bytes that a source asks a server for.
const MOST_FETCHED: usize = 1 << 30;
/// A message may be without an acknowledgement for each of these bytes of the memory.
const BYTES_OF_UNACKNOWLEDGED: usize = 4 << 10;

/// The number of messages that may be without an acknowledgement with little memory.
pub const LEAST_UNACKNOWLEDGED: usize = 1000;

/// Returns the size of the messages that are read before they are sent on, with this much memory.
#[must_use]
pub fn read_bytes(memory: usize) -> usize {
    (memory / PART_READ).clamp(READ[0], READ[1])
}

/// As [`read_bytes`], for a source with the option `fetch_size`.
#[must_use]
pub fn fetch_bytes(fetch_size: Option<ByteSize>, memory: usize) -> usize {
    fetch_size.map_or(read_bytes(memory), |size| size.as_usize().clamp(READ[0], MOST_FETCHED))
}

/// Returns the number of messages that may be without an acknowledgement, with this much memory: at least
/// [`LEAST_UNACKNOWLEDGED`], and no more than `most`, which is larger.
#[must_use]
pub fn unacknowledged(memory: usize, most: usize) -> usize {
    (memory / BYTES_OF_UNACKNOWLEDGED).min(most).max(LEAST_UNACKNOWLEDGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_more_memory_is_further_ahead_up_to_a_limit() {
        let memory = [1 << 10, 64 << 20, 1 << 40];
        assert_eq!(memory.map(read_bytes), [16 << 10, 2 << 20, 2 << 20]);
        assert_eq!(memory.map(|memory| unacknowledged(memory, 50_000)), [1000, 16_384, 50_000]);
        let fetch = |size: &str| fetch_bytes(Some(size.parse().unwrap()), 64 << 20);
        assert_eq!(["1B", "8MiB", "8GiB"].map(fetch), [16 << 10, 8 << 20, 1 << 30]);
        assert_eq!(fetch_bytes(None, 16 << 20), 512 << 10);
    }
}
