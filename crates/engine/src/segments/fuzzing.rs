//! The parsers of segments and blocks, for their fuzz target: with right checksums, which no mutation finds.

use std::fs;
use std::io;
use std::path::Path;

use arrow_buffer::Buffer;
use arrow_schema::ArrowError;
use thalweg_record::Batch;

use super::block::{Messages, encode as encode_block};
use super::read::{Next, Segment};
use super::{BLOCK_HEAD, BlockHead, FINISHED, HEAD, MAGIC, path_of};
use crate::Reading;

/// The bytes of a block's body for a batch.
///
/// # Errors
/// If Arrow cannot write the batch.
pub fn encode(batch: &Batch) -> Result<Vec<u8>, ArrowError> {
    let mut body = Vec::new();
    encode_block(batch, &mut body)?;
    Ok(body)
}

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

/// Reads a segment, which is written to `folder`. Each line of `bytes` is a block; one that begins with `#`
/// has right checksums.
///
/// # Errors
/// If the file cannot be written or read.
pub fn segment(folder: &Path, bytes: &[u8]) -> io::Result<usize> {
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
    fs::write(path_of(folder, 1, FINISHED), &segment)?;
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

fn segment_bytes(segment: &Segment) -> io::Result<usize> {
    Ok(fs::metadata(segment.path())?.len() as usize)
}
