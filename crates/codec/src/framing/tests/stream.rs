//! Reads a stream as a source does, from any position.

use arrow_buffer::Buffer;

use super::*;
use crate::charset::Charset;

/// A message or what is rejected: its offset, and its text or the reason.
pub(super) type Event = (u64, Result<String, String>);

/// The events of a stream, and its positions.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) events: Vec<Event>,
    /// Positions, each with the number of events before it.
    pub(super) places: Vec<(usize, StreamPosition)>,
}

impl Stream {
    /// Returns the messages.
    pub(super) fn messages(&self) -> Vec<(u64, &str)> {
        assert_eq!(self.reasons(), [""; 0]);
        self.events.iter().filter_map(|(at, event)| Some((*at, event.as_deref().ok()?))).collect()
    }

    /// Returns the reasons of what is rejected.
    pub(super) fn reasons(&self) -> Vec<&str> {
        self.events.iter().filter_map(|(_, event)| event.as_deref().err()).map(String::as_str).collect()
    }
}

/// Returns options of text.
pub(super) fn options(framing: Framing, charset: &str, limit: u64) -> CutOptions {
    let charset = Charset::try_from(charset.to_owned()).unwrap();
    CutOptions { framing, charset, max_message_bytes: ByteSize(limit) }
}

/// Reads a stream from a position in pieces of this length.
pub(super) fn read(options: &CutOptions, from: StreamPosition, input: &[u8], chunk: usize) -> Stream {
    let mut cutter = options.cutter(from);
    let mut stream = Stream::default();
    let mut buffer = Vec::new();
    let mut rest = &input[usize::try_from(from.offset).unwrap()..];
    loop {
        let (piece, after) = rest.split_at(chunk.min(rest.len()));
        rest = after;
        buffer.extend_from_slice(piece);
        let after = if rest.is_empty() { After::End } else { After::More };
        let bytes = Buffer::from(buffer.as_slice());
        loop {
            let batch = cutter.next_batch(&bytes, after);
            for row in 0..batch.positions.len() {
                stream.places.push((stream.events.len(), batch.before(row)));
                let text = String::from_utf8_lossy(batch.payload.value(row)).into_owned();
                stream.events.push((batch.positions.value(row), Ok(text)));
            }
            stream.places.push((stream.events.len(), batch.next));
            let is_last = batch.is_last;
            if let Some(rejected) = batch.too_long {
                stream.events.push((rejected.position, Err(rejected.reason)));
                stream.places.push((stream.events.len(), cutter.position()));
            }
            if is_last {
                break;
            }
        }
        buffer.drain(..cutter.advance());
        stream.places.push((stream.events.len(), cutter.position()));
        if rest.is_empty() {
            return stream;
        }
    }
}

/// Reads a stream again from all positions that it had. The events after each must be the same.
pub(super) fn check_places(options: &CutOptions, input: &[u8], stream: &Stream, chunk: usize) {
    for (before, place) in &stream.places {
        let saved: StreamPosition = serde_json::from_value(serde_json::to_value(place).unwrap()).unwrap();
        let left = read(options, saved, input, chunk).events;
        assert_eq!(left, stream.events[*before..], "from {saved:?}");
    }
}
