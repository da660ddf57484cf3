//! The parsers of this crate, for fuzz targets.

use crate::wire::{Assembler, Event, Frames, Properties, Property};

/// Reads events from bytes that arrive in pieces. Returns how many there were before the first that no server
/// sends, and whether there was one. The properties of messages are read, with the header `k`.
pub fn events(bytes: &[u8], piece: usize, frame: usize, payload: usize) -> (usize, bool) {
    let (mut frames, mut assembler) = (Frames::new(frame), Assembler::new(payload));
    let mut count = 0;
    for piece in bytes.chunks(piece.max(1)) {
        frames.buffer().extend_from_slice(piece);
        loop {
            match assembler.next(&mut frames) {
                Ok(Some(event)) => {
                    if let Event::Delivery(message) = event {
                        let _ = header(&message.properties, "k");
                    }
                    count += 1;
                }
                Ok(None) => break,
                Err(_) => return (count, true),
            }
        }
    }
    (count, false)
}

/// Returns a header of a message with these properties, after all other properties were read.
pub fn header(properties: &[u8], name: &str) -> Option<String> {
    let properties = Properties::of(properties);
    let _ = (properties.text(Property::ClusterId), properties.number(Property::Timestamp));
    properties.header(name)
}
