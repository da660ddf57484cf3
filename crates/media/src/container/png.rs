//! The chunks of a PNG.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// The first bytes of a PNG.
pub(crate) const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// The keyword of a text chunk that contains XMP.
const XMP: &[u8] = b"XML:com.adobe.xmp\0";
/// The maximum size of a profile or XMP in bytes; larger ones are ignored.
const MAX_PROFILE: u64 = 16 << 20;

/// Returns the most memory that decompressing a profile or text takes, in bytes. Deflate has at most 1032
/// bytes for one, and a growing list has room for twice its content.
pub(crate) fn most_inflated(payload: &[u8]) -> u64 {
    (payload.len() as u64 * 1032).min(MAX_PROFILE) * 2
}

/// Returns the most memory that reading the XMP in an `iTXt` chunk takes, in bytes. Other texts are not read.
pub(crate) fn most_of_xmp(payload: &[u8]) -> u64 {
    match payload.strip_prefix(XMP) {
        Some([1, ..]) => most_inflated(payload),
        Some(_) => payload.len() as u64,
        None => 0,
    }
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// The type.
    pub name: [u8; 4],
    /// The content.
    pub payload: &'a [u8],
    /// The whole chunk, with length, type and checksum.
    pub whole: &'a [u8],
}

/// The chunks of a PNG, up to its end.
#[derive(Debug, Clone)]
pub(crate) struct Chunks<'a> {
    rest: &'a [u8],
}

/// Iterates over the chunks of a PNG; `None` if the bytes are not a PNG.
pub(crate) fn chunks(bytes: &[u8]) -> Option<Chunks<'_>> {
    bytes.strip_prefix(SIGNATURE).map(|rest| Chunks { rest })
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32::from_be_bytes(*self.rest.first_chunk()?) as usize;
        let name: [u8; 4] = *self.rest.get(4..)?.first_chunk()?;
        let (whole, rest) = self.rest.split_at_checked(length.checked_add(12)?)?;
        self.rest = if &name == b"IEND" { &[] } else { rest };
        Some(Chunk { name, payload: whole.get(8..8 + length)?, whole })
    }
}

/// Encodes a chunk; `None` if it is too long.
pub(crate) fn chunk(name: &[u8; 4], parts: &[&[u8]]) -> Option<Vec<u8>> {
    let length = u32::try_from(parts.iter().map(|part| part.len()).sum::<usize>()).ok()?;
    let mut written = length.to_be_bytes().to_vec();
    written.extend_from_slice(name);
    parts.iter().for_each(|part| written.extend_from_slice(part));
    let sum = crc32fast::hash(written.get(4..)?);
    written.extend(sum.to_be_bytes());
    Some(written)
}

/// Returns the colour profile in an `iCCP` chunk.
pub(crate) fn profile(payload: &[u8]) -> Option<Vec<u8>> {
    let name = memchr::memchr(0, payload)?;
    // The byte after the name is the compression method; there is only one.
    inflate(payload.get(name + 2..)?)
}

/// Encodes a colour profile as a chunk.
pub(crate) fn profile_chunk(icc: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(icc).ok()?;
    chunk(b"iCCP", &[b"icc\0\0", &encoder.finish().ok()?])
}

/// Returns the XMP in an `iTXt` chunk; `None` if it is another text.
pub(crate) fn xmp(payload: &[u8]) -> Option<Vec<u8>> {
    let (is_compressed, rest) = match payload.strip_prefix(XMP)? {
        [flag, _, rest @ ..] => (*flag == 1, rest),
        _ => return None,
    };
    let mut rest = rest;
    // The language and the translated keyword.
    for _ in 0..2 {
        rest = rest.get(memchr::memchr(0, rest)? + 1..)?;
    }
    if is_compressed { inflate(rest) } else { Some(rest.to_vec()) }
}

/// Encodes XMP as a chunk.
pub(crate) fn xmp_chunk(xmp: &[u8]) -> Option<Vec<u8>> {
    chunk(b"iTXt", &[XMP, b"\0\0\0\0", xmp])
}

fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut inflated = Vec::new();
    let length = ZlibDecoder::new(bytes).take(MAX_PROFILE + 1).read_to_end(&mut inflated).ok()?;
    (length as u64 <= MAX_PROFILE).then_some(inflated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_walked() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(chunk(b"IHDR", &[b"header"]).unwrap());
        bytes.extend(profile_chunk(b"a profile").unwrap());
        bytes.extend(xmp_chunk(b"<x/>").unwrap());
        bytes.extend(chunk(b"IEND", &[]).unwrap());
        bytes.extend(b"behind the end");
        let found: Vec<_> = chunks(&bytes).unwrap().collect();
        assert_eq!(found.len(), 4);
        assert_eq!(profile(found[1].payload).unwrap(), b"a profile");
        assert_eq!(xmp(found[2].payload).unwrap(), b"<x/>");
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_walk() {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(b"\xff\xff\xff\xffIDATx");
        assert_eq!(chunks(&bytes).unwrap().count(), 0);
    }

    #[test]
    fn a_profile_that_would_be_too_large_is_left_out() {
        let written = profile_chunk(&vec![0; MAX_PROFILE as usize + 1]).unwrap();
        assert_eq!(profile(&written[8..written.len() - 4]), None);
    }
}
