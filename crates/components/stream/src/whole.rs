//! Messages that a source receives whole, as those of brokers: none is cut from a stream.
//!
//! They are copied into memory of the budget: a client receives many messages in one piece of memory, which
//! lives as long as the last of them.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema};
use thalweg_codec::framing::KEPT;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, SourceOutput};
use thalweg_record::ViewBuilder;

/// Makes payloads of messages, the largest of which have this size.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    limit: usize,
}

impl Whole {
    /// Accepts messages of at most this size.
    pub fn new(limit: ByteSize) -> Self {
        Self { limit: limit.as_usize() }
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes. A message that is too
    /// large is alone.
    pub fn batch<'a>(self, payloads: impl Iterator<Item = &'a [u8]>, bytes: usize) -> usize {
        let mut sum = 0;
        let fits = |payload: &&[u8]| {
            sum += payload.len();
            sum <= bytes && payload.len() <= self.limit
        };
        payloads.take_while(fits).count().max(1)
    }

    /// Returns the reason to reject a batch: its only message is too large.
    pub fn rejected(self, first: &[u8]) -> Option<String> {
        self.refused(first.len())
    }

    /// Returns the reason to reject a message of this size, of which maybe only the beginning is there.
    pub fn refused(self, size: usize) -> Option<String> {
        let limit = self.limit;
        (size > limit)
            .then(|| format!("the message has {size} bytes, more than `max_message_bytes` ({limit})"))
    }

    /// Waits for memory, and returns the payloads of a batch in it: of a message that is too large, the
    /// beginning.
    pub async fn payload(self, messages: &[&[u8]], out: &SourceOutput) -> BinaryViewArray {
        let kept = |message: &[u8]| match message.len() > self.limit {
            true => message.len().min(KEPT),
            false => message.len(),
        };
        let bytes = messages.iter().map(|&message| kept(message)).sum::<usize>();
        let mut arena = out.arena(bytes.max(1)).await;
        let mut filled = 0;
        for &message in messages {
            let end = filled + kept(message);
            if let (Some(place), Some(part)) = (arena.get_mut(filled..end), message.get(..kept(message))) {
                place.copy_from_slice(part);
            }
            filled = end;
        }
        let mut payload = ViewBuilder::over(&[arena.freeze()], messages.len());
        let mut start = 0;
        for &message in messages {
            payload.push_range(0, start, kept(message));
            start += kept(message);
        }
        payload.finish()
    }
}

/// Returns the columns with parts of messages. None if there are no columns.
///
/// # Errors
/// If the columns do not fit together.
pub fn fields(
    columns: impl Iterator<Item = (Field, ArrayRef)>,
    rows: usize,
) -> Result<Option<RecordBatch>, Error> {
    let (described, columns): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
    if described.is_empty() {
        return Ok(None);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(Some(RecordBatch::try_new_with_options(Arc::new(Schema::new(described)), columns, &options)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_before_its_size_and_around_a_message_that_is_too_large() {
        let whole = Whole::new("10".parse().unwrap());
        let all = ["four", "four", "four", "more than ten", "two"].map(str::as_bytes);
        let batch = |from: usize, bytes| whole.batch(all[from..].iter().copied(), bytes);
        assert_eq!((batch(0, 8), batch(0, 1), batch(0, 1000), batch(3, 1000)), (2, 1, 3, 1));
        assert_eq!(whole.rejected(all[0]), None);
        let reason = "the message has 13 bytes, more than `max_message_bytes` (10)".to_owned();
        assert_eq!(whole.rejected(all[3]), Some(reason));
    }
}
