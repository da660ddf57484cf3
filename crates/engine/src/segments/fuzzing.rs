//! The parsers of segments and blocks, for their fuzz target: with right checksums, which no mutation finds.

use std::fs;
use std::io;
use std::path::Path;

use arrow_buffer::Buffer;
use arrow_schema::ArrowError;

use super::block::Messages;
use super::read::{Next, Segment, list};
use super::{BLOCK_HEAD, BlockHead, FINISHED, HEAD, MAGIC, OPEN, path_of};
use crate::Reading;

/// Decodes the body of a block, and takes its messages in two parts.
///
/// # Errors
/// If it is not the body of a block.
pub fn decode(body: &[u8]) -> Result<Vec<Reading>, ArrowError> {
    let messages = Messages::decode(Buffer::from_slice_ref(body))?;
    let half = messages.rows() / 2;
    let parts = [messages.part(0, half)?, messages.part(half, messages.rows() - half)?];
    Ok(parts.into_iter().map(|(reading, _)| reading).collect())
}

/// The content of a segment. Each line of `bytes` is a block; one that begins with `#` has right checksums.
fn content(bytes: &[u8]) -> Vec<u8> {
    let mut segment = [MAGIC.as_slice(), &[7; HEAD - 16]].concat();
    for block in bytes.split(|byte| *byte == b'\n') {
        if let Some(body) = block.strip_prefix(b"#") {
            let id = u64::from_le_bytes([7; 8]);
            segment.extend(BlockHead::of(body, body.len()).write(id, segment.len() as u64));
            segment.extend(body);
        } else {
            segment.extend(block);
        }
    }
    segment
}

/// Reads a segment of these [blocks](content), which is written to `folder`.
///
/// # Errors
/// If the file cannot be written or read.
///
/// # Panics
/// If it reads beyond the end.
pub fn segment(folder: &Path, bytes: &[u8]) -> io::Result<usize> {
    fs::write(path_of(folder, 1, FINISHED), content(bytes))?;
    let mut segment = Segment::open(folder, 1)?;
    let mut blocks = 0;
    while let Next::Block { bytes, .. } = segment.next()? {
        assert!(bytes + BLOCK_HEAD <= segment_bytes(&segment)?, "a block beyond the end");
        let mut body = vec![0; bytes];
        segment.fill(&mut body)?;
        // Bodies here are no Arrow streams; `decode` has its own inputs.
        let _ = segment.decode(body.into())?;
        blocks += 1;
    }
    Ok(blocks)
}

/// Recovers a segment of these [blocks](content) that a killed process left in `folder`. `cut` bytes are
/// missing at its end.
///
/// # Errors
/// If the file cannot be written or read.
///
/// # Panics
/// If something is left that is no block, or a second recovery would find more to cut.
pub fn recover(folder: &Path, bytes: &[u8], cut: usize) -> io::Result<()> {
    let mut left = content(bytes);
    left.truncate(left.len().saturating_sub(cut));
    fs::write(path_of(folder, 1, OPEN), &left)?;
    assert_eq!(list(folder)?.finished, [1]);
    let finished = path_of(folder, 1, FINISHED);
    let recovered = fs::read(&finished)?;
    assert!(left.starts_with(&recovered), "recovery changes bytes");
    let mut segment = Segment::open(folder, 1)?;
    loop {
        match segment.next()? {
            Next::Block { .. } => drop(segment.skip_to(segment.offset() + 1)?),
            Next::Rubbish { bytes } => panic!("{bytes} bytes are left that are no block"),
            Next::End => break,
        }
    }
    fs::rename(&finished, path_of(folder, 1, OPEN))?;
    list(folder)?;
    assert_eq!(fs::read(&finished)?, recovered, "a second recovery cuts more");
    Ok(())
}

fn segment_bytes(segment: &Segment) -> io::Result<usize> {
    Ok(fs::metadata(segment.path())?.len() as usize)
}
