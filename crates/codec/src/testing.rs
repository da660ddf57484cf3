//! Batches with text fields, and streams that arrive in pieces, for tests.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringViewArray};
use thalweg_record::Batch;

use crate::columns::FieldType;
use crate::framing::After;
use crate::stream_framing::StreamCutter;

/// Creates a batch with these payloads and text fields.
///
/// # Panics
/// If a field does not have one value per payload.
pub fn with_text(payloads: &[&str], columns: &[(&str, &[Option<&str>])]) -> Batch {
    let fields = columns.iter().map(|(name, values)| {
        (FieldType::Text.field(name), Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef)
    });
    thalweg_record::testing::batch(payloads).set_fields(fields).expect("a value for each payload")
}

/// The messages of a stream, each with whether it was too long, and the reason why the rest cannot be used.
pub type Messages = (Vec<(Vec<u8>, bool)>, Option<String>);

/// Cuts a stream that arrives in pieces.
///
/// # Panics
/// If the buffer between two pieces has far more than two messages of `limit` bytes.
pub fn cut<'p>(
    mut cutter: StreamCutter,
    limit: usize,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Messages {
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    let mut pieces = pieces.into_iter().peekable();
    loop {
        let piece: &[u8] = pieces.next().unwrap_or_default();
        buffer.extend_from_slice(piece);
        let after = if pieces.peek().is_none() { After::End } else { After::More };
        loop {
            match cutter.next(&buffer, after) {
                Ok(Some(message)) => found.push((buffer[message.range].to_vec(), message.too_long)),
                Ok(None) => break,
                Err(reason) => return (found, Some(reason)),
            }
        }
        buffer.drain(..cutter.advance());
        assert!(buffer.len() <= 2 * limit + 64 + piece.len(), "{} bytes are held", buffer.len());
        if after == After::End {
            return (found, None);
        }
    }
}

/// As [`cut`], with pieces of the same size, and messages as text: `…` follows those that are too long.
///
/// # Panics
/// As [`cut`].
pub fn cut_texts(
    cutter: StreamCutter,
    limit: usize,
    input: &[u8],
    size: usize,
) -> (Vec<String>, Option<String>) {
    let (messages, wrong) = cut(cutter, limit, input.chunks(size.max(1)));
    let text = |(message, too_long): (Vec<u8>, bool)| {
        String::from_utf8_lossy(&message).into_owned() + if too_long { "…" } else { "" }
    };
    (messages.into_iter().map(text).collect(), wrong)
}
