//! The chunks of a WebP.

/// Flag of an extended header: there is a colour profile.
pub(crate) const HAS_ICC: u8 = 0x20;
/// Flag: there is EXIF.
pub(crate) const HAS_EXIF: u8 = 0x08;
/// Flag: there is XMP.
pub(crate) const HAS_XMP: u8 = 0x04;
/// Flag: there are transparent pixels.
pub(crate) const HAS_ALPHA: u8 = 0x10;
/// Flag: there are several frames.
pub(crate) const IS_ANIMATED: u8 = 0x02;

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// The type.
    pub name: [u8; 4],
    /// The content.
    pub payload: &'a [u8],
}

/// The chunks of a WebP.
#[derive(Debug, Clone)]
pub(crate) struct Chunks<'a> {
    rest: &'a [u8],
}

/// Iterates over the chunks of a WebP; `None` if the bytes are not a WebP.
pub(crate) fn chunks(bytes: &[u8]) -> Option<Chunks<'_>> {
    let rest = bytes.strip_prefix(b"RIFF")?;
    let length = u32::from_le_bytes(*rest.first_chunk()?) as usize;
    let rest = rest.get(4..)?;
    let rest = rest.get(..length).unwrap_or(rest);
    rest.strip_prefix(b"WEBP").map(|rest| Chunks { rest })
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let name: [u8; 4] = *self.rest.first_chunk()?;
        let length = u32::from_le_bytes(*self.rest.get(4..)?.first_chunk()?) as usize;
        let payload = self.rest.get(8..length.checked_add(8)?)?;
        // A chunk of odd length is padded with a byte.
        self.rest = self.rest.get(8 + length + length % 2..).unwrap_or_default();
        Some(Chunk { name, payload })
    }
}

/// Encodes a file of chunks; `None` if it is too long.
pub(crate) fn file<'a>(chunks: impl IntoIterator<Item = (&'a [u8; 4], &'a [u8])>) -> Option<Vec<u8>> {
    let mut written = b"RIFF\0\0\0\0WEBP".to_vec();
    for (name, payload) in chunks {
        written.extend_from_slice(name);
        written.extend(u32::try_from(payload.len()).ok()?.to_le_bytes());
        written.extend_from_slice(payload);
        written.resize(written.len() + payload.len() % 2, 0);
    }
    let length = u32::try_from(written.len() - 8).ok()?;
    written.get_mut(4..8)?.copy_from_slice(&length.to_le_bytes());
    Some(written)
}

/// Encodes an extended header: flags, and the size of the picture.
pub(crate) fn extended(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let three = |number: u32| number.saturating_sub(1).to_le_bytes().into_iter().take(3);
    [flags, 0, 0, 0].into_iter().chain(three(width)).chain(three(height)).collect()
}

/// The values in the header of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// True if the picture has transparency.
    pub has_alpha: bool,
    /// True if there are several frames.
    pub is_animated: bool,
    /// True if the compression is lossless.
    pub is_lossless: bool,
}

/// Reads the header; `None` if it is damaged.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let mut found: Option<Header> = None;
    let headers = Headers { rest: bytes.get(12..)? };
    for (name, payload) in headers {
        match name {
            b"VP8X" => {
                let flags = *payload.first()?;
                let three = |at: usize| {
                    Some(
                        u32::from_le_bytes([
                            *payload.get(at)?,
                            *payload.get(at + 1)?,
                            *payload.get(at + 2)?,
                            0,
                        ]) + 1,
                    )
                };
                let is_animated = flags & IS_ANIMATED != 0;
                let has_alpha = flags & HAS_ALPHA != 0;
                let header = Header {
                    width: three(4)?,
                    height: three(7)?,
                    has_alpha,
                    is_animated,
                    is_lossless: false,
                };
                if is_animated {
                    return Some(header);
                }
                found = Some(header);
            }
            b"VP8 " => {
                let at = payload.get(6..10).filter(|_| payload.get(3..6) == Some(&[0x9d, 0x01, 0x2a]))?;
                let size = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
                let [a, b, c, d] = *at.first_chunk()?;
                let plain = Header {
                    width: size(a, b),
                    height: size(c, d),
                    has_alpha: false,
                    is_animated: false,
                    is_lossless: false,
                };
                // A decoder reserves memory for the size in this chunk, so both must be the same.
                let is_same = |found: &Header| (found.width, found.height) == (plain.width, plain.height);
                return if found.is_none_or(|found| is_same(&found)) { found.or(Some(plain)) } else { None };
            }
            b"VP8L" => {
                let bits = u32::from_le_bytes(
                    *payload.get(1..).filter(|_| payload.first() == Some(&0x2f))?.first_chunk()?,
                );
                let (width, height) = ((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1);
                let has_alpha = bits >> 28 & 1 == 1 || found.is_some_and(|header| header.has_alpha);
                return Some(Header { width, height, has_alpha, is_animated: false, is_lossless: true });
            }
            _ => {}
        }
    }
    found
}

/// The chunks whose beginning is present: a header is worth reading even if the pixels are cut off.
struct Headers<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.rest.first_chunk()?;
        let length = u32::from_le_bytes(*self.rest.get(4..)?.first_chunk()?) as usize;
        let payload = self.rest.get(8..)?;
        self.rest = payload.get(length + length % 2..).unwrap_or_default();
        Some((name, payload.get(..length).unwrap_or(payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_larger_than_its_file_says_is_damaged() {
        let frame =
            |side: u16| [&[0, 0, 0, 0x9d, 0x01, 0x2a][..], &side.to_le_bytes(), &side.to_le_bytes()].concat();
        let file = |side| file([(b"VP8X", &*extended(0, 8, 8)), (b"VP8 ", &*frame(side))]).unwrap();
        assert_eq!(header(&file(8)).map(|header| header.width), Some(8));
        assert_eq!(header(&file(16_000)), None);
    }

    #[test]
    fn what_is_written_is_walked() {
        let bytes = file([(b"VP8 ", &b"odd"[..]), (b"EXIF", b"even")]).unwrap();
        let found: Vec<_> = chunks(&bytes).unwrap().map(|chunk| (chunk.name, chunk.payload)).collect();
        assert_eq!(found, [(*b"VP8 ", &b"odd"[..]), (*b"EXIF", b"even")]);
    }
}
