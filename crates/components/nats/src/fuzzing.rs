//! The parser of this crate, for fuzz targets.

use crate::wire::{Decoder, Operation, status};

/// Reads what a server sends from bytes that arrive in pieces. At most `limit` bytes of a payload are kept.
/// Returns how many operations there were before the first that no server sends, and whether there was one.
pub fn operations(bytes: &[u8], piece: usize, limit: usize) -> (usize, bool) {
    let mut decoder = Decoder::new(limit);
    let mut count = 0;
    for piece in bytes.chunks(piece.max(1)) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.decode() {
                Ok(Some(Operation::Message(_, message))) => {
                    count += 1;
                    // A value is read when it is asked for.
                    let found = message.headers.get("A").map_or(0, |value| value.len());
                    let is_about_others = message.status() == Some(status::NO_RESPONDERS);
                    count += usize::from(found > 1) + usize::from(is_about_others);
                }
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                Err(_) => return (count, true),
            }
        }
    }
    (count, false)
}
