//! The segments of a JPEG.

/// The first bytes of EXIF in a segment.
pub(crate) const EXIF: &[u8] = b"Exif\0\0";
/// The first bytes of XMP in a segment.
pub(crate) const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
/// The first bytes of a part of a colour profile. The number of the part and the number of parts follow.
pub(crate) const ICC: &[u8] = b"ICC_PROFILE\0";

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    /// The type: the second byte of the marker.
    pub marker: u8,
    /// The content after the length; empty for segments without a length.
    pub payload: &'a [u8],
    /// The whole segment: its marker and, after the header of a scan, the pixels.
    pub whole: &'a [u8],
}

/// The marker of the header of a scan, which pixels follow.
pub(crate) const SCAN: u8 = 0xda;
/// The marker of the end.
pub(crate) const END: u8 = 0xd9;

/// The segments of a JPEG after its first marker. Bytes after the end are ignored.
#[derive(Debug, Clone)]
pub(crate) struct Segments<'a> {
    rest: &'a [u8],
}

/// Iterates over the segments of a JPEG; `None` if the bytes are not a JPEG.
pub(crate) fn segments(bytes: &[u8]) -> Option<Segments<'_>> {
    bytes.strip_prefix(b"\xff\xd8").map(|rest| Segments { rest })
}

impl<'a> Segments<'a> {
    fn take(&mut self, marker: u8, payload: &'a [u8], length: usize) -> Option<Segment<'a>> {
        let (whole, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Segment { marker, payload, whole })
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        // Bytes before a marker have no meaning, and any number of 0xff bytes may precede a marker.
        let begin = memchr::memchr(0xff, self.rest)?;
        self.rest = self.rest.get(begin..)?;
        let fill = self.rest.iter().skip(1).take_while(|byte| **byte == 0xff).count();
        self.rest = self.rest.get(fill..)?;
        let marker = *self.rest.get(1)?;
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            return self.take(marker, &[], 2);
        }
        if marker == END {
            let last = self.take(marker, &[], 2);
            self.rest = &[];
            return last;
        }
        let length = usize::from(u16::from_be_bytes(*self.rest.get(2..)?.first_chunk()?));
        let payload = self.rest.get(4..2 + length)?;
        let end = 2 + length;
        let end = if marker == SCAN { end + pixels(self.rest.get(end..)?) } else { end };
        self.take(marker, payload, end)
    }
}

/// Returns the number of bytes of pixels before the next marker.
fn pixels(bytes: &[u8]) -> usize {
    memchr::memchr_iter(0xff, bytes)
        .find(|at| !matches!(bytes.get(at + 1), Some(0 | 0xd0..=0xd7 | 0xff) | None))
        .unwrap_or(bytes.len())
}

/// Encodes a segment; `None` if it is too long.
pub(crate) fn segment(marker: u8, parts: &[&[u8]]) -> Option<Vec<u8>> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let size = u16::try_from(length + 2).ok()?;
    let mut written = vec![0xff, marker];
    written.extend(size.to_be_bytes());
    parts.iter().for_each(|part| written.extend_from_slice(part));
    Some(written)
}

/// Encodes a colour profile as segments; `None` if it needs more than 255 of them.
pub(crate) fn profile(icc: &[u8]) -> Option<Vec<u8>> {
    let parts = icc.chunks(65_519);
    let count = u8::try_from(parts.len()).ok()?;
    let written =
        (1..=count).zip(parts).filter_map(|(number, part)| segment(0xe2, &[ICC, &[number, count], part]));
    Some(written.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_belong_to_their_scan() {
        let bytes = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xda\0\x03xPI\xff\0X\xff\xd1LS\xff\xd9behind";
        let found: Vec<_> = segments(bytes).unwrap().collect();
        let markers: Vec<u8> = found.iter().map(|segment| segment.marker).collect();
        assert_eq!(markers, [0xe0, SCAN, END]);
        assert_eq!(found[0].payload, b"ab");
        assert_eq!(found[1].whole, b"\xff\xda\0\x03xPI\xff\0X\xff\xd1LS");
    }

    #[test]
    fn what_is_cut_off_ends_the_walk() {
        let bytes = b"\xff\xd8\xff\xe0\0\x04ab\xff\xe1\xff\xff1234";
        assert_eq!(segments(bytes).unwrap().count(), 1);
        assert_eq!(segments(b"\xff\xd8\xff\xe1\0\0").unwrap().count(), 0);
    }
}
