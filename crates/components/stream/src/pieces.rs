//! Cuts batches into pieces, for transforms whose output can be much larger than their input.
//!
//! Two examples: a short CSV record takes a place in every column of a long header. A large field that
//! thousands of messages share is written as text with each of them. The engine waits for capacity between
//! two pieces: see [`Outputs::hold`](thalweg_engine::Outputs::hold).

use std::collections::VecDeque;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use thalweg_record::Batch;

/// The maximum number of rows in a piece. Each takes memory for itself, however short its texts are: its
/// views, and the reason if it is rejected.
const MOST_ROWS: usize = 1 << 14;

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
        self.current = Some((batch, 0, (self.bytes / row_bytes.max(1)).clamp(1, MOST_ROWS)));
    }

    /// Returns the next piece of batches whose output has their texts, and with each the names of its fields.
    pub fn next_of_records(&mut self) -> Option<Batch> {
        /// The quotes, the colon and the comma of a member.
        const MARKS: usize = 4;
        if let Some(batch) = self.take() {
            let names = batch.fields().schema_ref().fields().iter().map(|field| field.name().len() + MARKS);
            let row_bytes = text_bytes(&batch) / batch.rows().max(1) + names.sum::<usize>();
            self.cut(batch, row_bytes);
        }
        self.next_piece()
    }

    /// Returns the next piece of batches whose output is about as large as their texts.
    pub fn next_of_texts(&mut self) -> Option<Batch> {
        if let Some(batch) = self.take() {
            let row_bytes = text_bytes(&batch) / batch.rows().max(1);
            self.cut(batch, row_bytes);
        }
        self.next_piece()
    }

    /// Returns the next piece of the batch that is being cut.
    pub fn next_piece(&mut self) -> Option<Batch> {
        let (batch, start, most) = self.current.take()?;
        let end = batch.rows().min(start + most);
        if start == 0 && end == batch.rows() {
            return Some(batch);
        }
        // Not a selection, which copies the texts of a few messages out of a large buffer: each piece would
        // have its own copies of a text that all messages share.
        if end == batch.rows() {
            return Some(batch.slice(start, end - start));
        }
        let piece = batch.share().slice(start, end - start);
        self.current = Some((batch, end, most));
        Some(piece)
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
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field};
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
            while let Some(piece) = pieces.next_piece() {
                rows.push(piece.rows());
                texts.extend(testing::payloads(&piece));
            }
            assert_eq!((rows, texts.concat().as_str()), (expected, "abcde"));
            assert!(pieces.is_empty());
        }
    }

    #[test]
    fn records_count_the_names_of_their_fields_and_many_short_rows_are_cut() {
        let name = "n".repeat(100);
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1; 5]));
        let batch = testing::batch(["a", "b", "c", "d", "e"]);
        let batch = batch.set_fields([(Field::new(name, DataType::Int64, true), column)]).unwrap();
        let mut pieces = Pieces::new(2 * (1 + 100 + 4));
        pieces.push(batch);
        let mut rows = Vec::new();
        while let Some(piece) = pieces.next_of_records() {
            rows.push(piece.rows());
        }
        assert_eq!(rows, [2, 2, 1]);
        let mut pieces = Pieces::new(usize::MAX);
        pieces.push(testing::batch((0..MOST_ROWS + 1).map(|_| "")));
        assert_eq!(pieces.next_of_texts().unwrap().rows(), MOST_ROWS);
        assert_eq!(pieces.next_of_texts().unwrap().rows(), 1);
    }
}
