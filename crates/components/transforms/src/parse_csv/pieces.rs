//! Cuts batches into pieces, so that rows times columns stay in proportion to the size of a batch.
//!
//! A short record with few values still takes a place in every column. Short records under a long header
//! would need a thousand times their own size, if a whole batch of them became columns at once. The engine
//! waits for capacity between two pieces: see [`Outputs::hold`](thalweg_engine::Outputs::hold).

use std::collections::VecDeque;

use arrow_schema::ArrowError;
use thalweg_record::Batch;

/// The bytes that a value takes in a column of text.
const VALUE: usize = 16;

/// Batches of which something is still to be parsed.
pub(super) struct Pieces {
    /// The maximum number of values in a piece.
    values: usize,
    waiting: VecDeque<Batch>,
    /// The batch that is being cut, its next row, and the number of rows in a piece.
    current: Option<(Batch, usize, usize)>,
}

impl Pieces {
    /// Cuts pieces whose columns take at most four times `batch_bytes`.
    pub(super) fn new(batch_bytes: usize) -> Self {
        Self { values: 4 * batch_bytes / VALUE, waiting: VecDeque::new(), current: None }
    }

    /// Adds a batch behind those that wait.
    pub(super) fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// True if nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Returns the next batch to [`cut`](Self::cut), if none is being cut.
    pub(super) fn take(&mut self) -> Option<Batch> {
        if self.current.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Sets the batch to cut, of which each row has this number of values.
    pub(super) fn cut(&mut self, batch: Batch, columns: usize) {
        self.current = Some((batch, 0, (self.values / columns.max(1)).max(1)));
    }

    /// Returns the next piece of the batch that is being cut.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, ArrowError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing;

    #[test]
    fn pieces_have_no_more_values_than_fit_and_at_least_one_row() {
        let mut pieces = Pieces::new(64);
        for (columns, expected) in [(1, vec![5]), (8, vec![2, 2, 1]), (100, vec![1; 5]), (0, vec![5])] {
            pieces.push(testing::batch(["a", "b", "c", "d", "e"]));
            let batch = pieces.take().unwrap();
            pieces.cut(batch, columns);
            assert!(pieces.take().is_none());
            let (mut rows, mut texts) = (Vec::new(), Vec::new());
            while let Some(piece) = pieces.next().unwrap() {
                rows.push(piece.rows());
                texts.extend(testing::payloads(&piece));
            }
            assert_eq!((rows, texts.concat().as_str()), (expected, "abcde"));
            assert!(pieces.is_empty());
        }
    }
}
