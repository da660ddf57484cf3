//! Sends the messages that a [`Cutter`] finds in a buffer.
//!
//! A message that exceeds the limit leaves by the `errors` output as a copy of its first bytes. The buffer
//! can then be released.

use std::sync::Arc;

use arrow_array::{Array, UInt64Array};
use arrow_buffer::Buffer;
use thalweg_codec::framing::{After, CutBatch, Cutter, MAX_ROWS, StreamPosition};
use thalweg_config::ByteSize;
use thalweg_engine::{Checkpoint, Error, Reading};
use thalweg_record::ViewBuilder;

use thalweg_engine::SourceOutput;

/// Returns the reason for rejecting a message that exceeds the limit, of which `kept` bytes are kept.
pub fn too_long(limit: ByteSize, kept: usize) -> String {
    format!("is longer than `max_message_bytes` ({limit}), and only its first {kept} bytes are kept")
}

/// Cuts `buffer` into messages and sends them in batches. `checkpoint` returns the checkpoint of a position
/// in the stream.
///
/// # Errors
/// If the messages cannot be sent.
pub async fn send(
    cutter: &mut Cutter,
    buffer: &Buffer,
    after: After,
    path: Option<&Arc<str>>,
    checkpoint: impl Fn(StreamPosition) -> Option<Checkpoint>,
    out: &mut SourceOutput,
) -> Result<(), Error> {
    loop {
        let batch = cutter.next_rows(buffer, after, out.batch_rows().unwrap_or(MAX_ROWS));
        let most = out.left();
        // The run is resumed at the first message that is not sent.
        let unsent = (batch.positions.len() > most).then(|| batch.before(most));
        let CutBatch { payload, positions, next, too_long, is_last, .. } = batch;
        if let Some(next) = unsent {
            if most > 0 {
                let (payload, positions) = (payload.slice(0, most), Some(positions.slice(0, most)));
                out.send(Reading { payload, path: path.cloned(), positions, checkpoint: checkpoint(next) })
                    .await?;
            }
            return Err(out.limit_reached());
        }
        if !positions.is_empty() {
            let path = path.cloned();
            let reading = Reading { payload, path, positions: Some(positions), checkpoint: checkpoint(next) };
            out.send(reading).await?;
        }
        if let Some(message) = too_long {
            let checkpoint = checkpoint(cutter.position());
            reject(&message.bytes, message.position, &message.reason, path, checkpoint, out).await?;
        } else if is_last {
            return Ok(());
        }
    }
}

/// Like [`send`], but rejects the first message, for this reason. Returns false if none has ended.
///
/// # Errors
/// If the messages cannot be sent.
pub async fn reject_first(
    cutter: &mut Cutter,
    buffer: &Buffer,
    after: After,
    reason: &str,
    path: Option<&Arc<str>>,
    out: &mut SourceOutput,
) -> Result<bool, Error> {
    let CutBatch { payload, positions, too_long, is_last, .. } = cutter.next_batch(buffer, after);
    let has_first = !positions.is_empty();
    if has_first {
        reject(payload.value(0), positions.value(0), reason, path, None, out).await?;
    }
    if positions.len() > 1 {
        let (payload, positions) =
            (payload.slice(1, payload.len() - 1), positions.slice(1, positions.len() - 1));
        out.send(Reading { payload, path: path.cloned(), positions: Some(positions), checkpoint: None })
            .await?;
    }
    if let Some(message) = &too_long {
        reject(&message.bytes, message.position, &message.reason, path, None, out).await?;
    } else if is_last {
        return Ok(has_first);
    }
    send(cutter, buffer, after, path, |_| None, out).await?;
    Ok(has_first || too_long.is_some())
}

/// Rejects the starts of messages whose ends cannot be read. `rest` holds the bytes of the last one.
///
/// # Errors
/// If the messages cannot be sent.
pub async fn reject_rest(
    cutter: &mut Cutter,
    rest: &[u8],
    reason: &str,
    path: Option<&Arc<str>>,
    out: &mut SourceOutput,
) -> Result<(), Error> {
    for (begin, text) in cutter.take_unfinished() {
        reject(&text, begin, reason, path, None, out).await?;
    }
    match cutter.incomplete(rest) {
        Some(offset) => reject(rest, offset, reason, path, None, out).await,
        None => Ok(()),
    }
}

async fn reject(
    message: &[u8],
    position: u64,
    reason: &str,
    path: Option<&Arc<str>>,
    checkpoint: Option<Checkpoint>,
    out: &mut SourceOutput,
) -> Result<(), Error> {
    let mut payload = ViewBuilder::over(&[], 1);
    payload.push(message);
    let reading = Reading {
        payload: payload.finish(),
        path: path.cloned(),
        positions: Some(UInt64Array::from(vec![position])),
        checkpoint,
    };
    out.reject(reading, reason).await
}
