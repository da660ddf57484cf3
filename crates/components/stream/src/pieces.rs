//! Cuts batches into pieces, for transforms whose output can be much larger than their input.
//!
//! Two examples: a short CSV record takes a place in every column of a long header. A large field that
//! thousands of messages share is written as text with each of them. The engine waits for capacity between
//! two pieces: see [`Outputs::hold`](thalweg_engine::Outputs::hold).

use std::collections::VecDeque;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::ArrowError;
use thalweg_record::Batch;

/// Batches of which something is still to be processed.
pub struct Pieces {
    /// The maximum size of the output of a piece, in bytes.
    bytes: usize,
    waiting: VecDeque<Batch>,
    /// The batch that is being cut, its next row, and the number of rows in a piece.
    current: Option<(Batch, usize, usize)>,
}

impl Pieces {
    /// Cuts pieces whose output takes at most `bytes`, or of one row.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, waiting: VecDeque::new(), current: None }
    }

    /// Adds a batch behind those that wait.
    pub fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Returns the next batch to [`cut`](Self::cut), if none is being cut.
    pub fn take(&mut self) -> Option<Batch> {
        if self.current.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Sets the batch to cut, of which each row gives about `row_bytes` of output.
    pub fn cut(&mut self, batch: Batch, row_bytes: usize) {
        self.current = Some((batch, 0, (self.bytes / row_bytes.max(1)).max(1)));
    }

    /// Returns the next piece of batches whose output is about as large as their texts.
    ///
    /// # Errors
    /// As [`next_piece`](Self::next_piece).
    pub fn next_of_texts(&mut self) -> Result<Option<Batch>, ArrowError> {
        if let Some(batch) = self.take() {
            let row_bytes = text_bytes(&batch) / batch.rows().max(1);
            self.cut(batch, row_bytes);
        }
        self.next_piece()
    }

    /// Returns the next piece of the batch that is being cut.
    ///
    /// # Errors
    /// If Arrow cannot select its rows.
    pub fn next_piece(&mut self) -> Result<Option<Batch>, ArrowError> {
        let Some((batch, start, most)) = self.current.take() else { return Ok(None) };
        let end = batch.rows().min(start + most);
        if start == 0 && end == batch.rows() {
            return Ok(Some(batch));
        }
        let rows: Vec<u32> = (start as u32..end as u32).collect();
        if end == batch.rows() {
            return batch.select(&rows);
        }
        let piece = batch.share().select(&rows)?;
        self.current = Some((batch, end, most));
        Ok(piece)
    }
}

/// Returns the size of all texts in the messages, in bytes.
fn text_bytes(batch: &Batch) -> usize {
    let sum = |lengths: &mut dyn Iterator<Item = u32>| lengths.map(|length| length as usize).sum::<usize>();
    let of_column = |column: &ArrayRef| match column.as_string_view_opt() {
        Some(texts) => sum(&mut texts.lengths()),
        None => column.as_binary_view_opt().map_or(0, |bytes| sum(&mut bytes.lengths())),
    };
    sum(&mut batch.payload().lengths()) + batch.fields().columns().iter().map(of_column).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    #[test]
    fn pieces_are_no_larger_than_wanted_and_have_at_least_one_row() {
        let mut pieces = Pieces::new(256);
        for (row_bytes, expected) in [(16, vec![5]), (128, vec![2, 2, 1]), (1600, vec![1; 5]), (0, vec![5])] {
            pieces.push(testing::batch(["a", "b", "c", "d", "e"]));
            let batch = pieces.take().unwrap();
            pieces.cut(batch, row_bytes);
            assert!(pieces.take().is_none());
            let (mut rows, mut texts) = (Vec::new(), Vec::new());
            while let Some(piece) = pieces.next_piece().unwrap() {
                rows.push(piece.rows());
                texts.extend(testing::payloads(&piece));
            }
            assert_eq!((rows, texts.concat().as_str()), (expected, "abcde"));
            assert!(pieces.is_empty());
        }
    }
}
