//! The orientation of a picture, the only EXIF value that changes how it is displayed.
//!
//! EXIF is a TIFF file without pixels, so the same code reads the directory of a TIFF picture. Offsets in
//! untrusted files may have any value: each is checked, and may point nowhere.

/// The tag of the orientation.
const ORIENTATION: u16 = 0x0112;

/// An entry in a directory of a TIFF structure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The tag.
    pub tag: u16,
    /// The type of the values.
    pub kind: u16,
    /// The number of values.
    pub count: u32,
    /// The position where the values begin.
    pub at: usize,
}

/// A TIFF structure, of which only the first directory is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Directory<'a> {
    bytes: &'a [u8],
    is_little: bool,
    begin: usize,
    count: usize,
}

impl<'a> Directory<'a> {
    /// Returns the first directory, or `None` if this is not such a structure. BigTIFF is not supported.
    pub fn first(bytes: &'a [u8]) -> Option<Self> {
        let is_little = match bytes.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        let mut directory = Self { bytes, is_little, begin: 0, count: 0 };
        let at = directory.u32(4)? as usize;
        directory.count = usize::from(directory.u16(at)?);
        directory.begin = at.checked_add(2)?;
        Some(directory)
    }

    /// Returns the entries in file order, up to the first one that is cut off.
    pub fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        (0..self.count).map_while(move |number| {
            let at = self.begin.checked_add(number * 12)?;
            let (tag, kind, count) = (self.u16(at)?, self.u16(at + 2)?, self.u32(at + 4)?);
            let size = u64::from(count) * width(kind);
            let at = if size <= 4 { at + 8 } else { self.u32(at + 8)? as usize };
            Some(Entry { tag, kind, count, at })
        })
    }

    /// Returns the entry of a tag.
    pub fn find(self, tag: u16) -> Option<Entry> {
        self.entries().find(|entry| entry.tag == tag)
    }

    /// Returns one of the integers of an entry.
    pub fn number(self, entry: Entry, index: u32) -> Option<u32> {
        let at = entry.at.checked_add(index as usize * width(entry.kind) as usize)?;
        match entry.kind {
            _ if index >= entry.count => None,
            1 => self.bytes.get(at).copied().map(u32::from),
            3 => self.u16(at).map(u32::from),
            4 => self.u32(at),
            _ => None,
        }
    }

    /// Returns the bytes of an entry's values.
    pub fn bytes(self, entry: Entry) -> Option<&'a [u8]> {
        let length = usize::try_from(u64::from(entry.count) * width(entry.kind)).ok()?;
        self.bytes.get(entry.at..entry.at.checked_add(length)?)
    }

    fn u16(self, at: usize) -> Option<u16> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn u32(self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }
}

/// Returns the bytes per value of a type.
fn width(kind: u16) -> u64 {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 => 8,
        _ => 1,
    }
}

/// Returns the orientation of a picture, 1 to 8. A missing or invalid value counts as 1: not rotated.
pub(crate) fn orientation(exif: &[u8]) -> u8 {
    let read = |directory: Directory<'_>| directory.number(directory.find(ORIENTATION)?, 0);
    let found = Directory::first(exif).and_then(read).and_then(|number| u8::try_from(number).ok());
    found.filter(|number| (1..=8).contains(number)).unwrap_or(1)
}

/// Sets the orientation to 1, if there is one.
pub(crate) fn reset_orientation(exif: &mut [u8]) {
    let Some(directory) = Directory::first(exif) else { return };
    let Some(entry) = directory.find(ORIENTATION).filter(|entry| entry.kind == 3) else { return };
    let one = if directory.is_little { [1, 0] } else { [0, 1] };
    if let Some(place) = exif.get_mut(entry.at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = one;
    }
}

/// Returns EXIF that contains only the orientation.
pub(crate) fn minimal(orientation: u8) -> Vec<u8> {
    let mut exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    exif
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for number in 1..=8 {
            assert_eq!(orientation(&minimal(number)), number);
        }
    }

    #[test]
    fn a_number_that_means_nothing_is_as_it_stands() {
        for wrong in [0, 9, 255] {
            assert_eq!(orientation(&minimal(wrong)), 1);
        }
        assert_eq!(orientation(b"II*\0\xff\xff\xff\xff"), 1);
    }

    #[test]
    fn resetting_leaves_all_else_as_it_is() {
        let mut exif = minimal(6);
        reset_orientation(&mut exif);
        assert_eq!(exif, minimal(1));
        let mut little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0\0\0\0\0".to_vec();
        assert_eq!(orientation(&little), 8);
        reset_orientation(&mut little);
        assert_eq!(orientation(&little), 1);
    }
}
