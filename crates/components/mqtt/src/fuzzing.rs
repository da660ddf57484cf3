//! The parsers of this crate, for fuzz targets.

use crate::wire::{Frames, Version, parse};

/// Reads packets from bytes that arrive in pieces. Returns how many there were before the first that no
/// server sends, and whether there was one.
pub fn packets(bytes: &[u8], piece: usize, limit: usize, is_version_5: bool) -> (usize, bool) {
    let version = if is_version_5 { Version::V5 } else { Version::V3 };
    let mut frames = Frames::new(limit);
    let mut count = 0;
    for piece in bytes.chunks(piece.max(1)) {
        frames.buffer().extend_from_slice(piece);
        loop {
            match frames.cut().map(|frame| frame.map(|frame| parse(version, frame))) {
                Ok(Some(Ok(_))) => count += 1,
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => return (count, true),
            }
        }
    }
    (count, false)
}
