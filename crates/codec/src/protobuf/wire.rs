//! The wire format: tags, values, and the extent of groups.

use super::DEEPEST;
use super::fault::Fault;

/// The greatest number of a field.
const GREATEST: u64 = (1 << 29) - 1;

/// The maximum number of bytes of an integer of variable length.
const LONGEST_VARINT: usize = 10;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const BEGIN_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// How the values of a type are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Fixed32,
    Bytes,
}

/// A value as it is written: a number, or its range in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raw {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes {
        start: u32,
        end: u32,
    },
    /// The range of the fields of a group.
    Group {
        start: u32,
        end: u32,
    },
}

impl Raw {
    /// Returns the name of the wire type, as it is used in a sentence.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Varint(_) => "an integer of variable length",
            Self::Fixed64(_) => "a number of 8 bytes",
            Self::Fixed32(_) => "a number of 4 bytes",
            Self::Bytes { .. } => "bytes with a length",
            Self::Group { .. } => "a group",
        }
    }

    /// Returns the bytes of a value that is a range of the message, and nothing for a number.
    pub(crate) fn bytes(self, message: &[u8]) -> &[u8] {
        match self {
            Self::Bytes { start, end } | Self::Group { start, end } => {
                message.get(start as usize..end as usize).unwrap_or_default()
            }
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32(_) => &[],
        }
    }
}

/// Reads the fields of a message one after the other. A message has less than 4 GiB.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the bytes that are not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns the number and the value of the next field, or `None` at the end of the message.
    #[inline]
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Raw)>, Fault> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let begin = self.at;
        let (number, wire) = self.tag()?;
        let raw = match wire {
            VARINT => Raw::Varint(self.varint()?),
            BYTES => self.sized()?,
            BEGIN_GROUP => self.group(number)?,
            other => self.rare(other, begin)?,
        };
        Ok(Some((number, raw)))
    }

    /// Returns the next value of a list without tags, or `None` at the end.
    #[inline]
    pub(crate) fn packed(&mut self, wire: Wire) -> Result<Option<Raw>, Fault> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let raw = match wire {
            Wire::Varint => Raw::Varint(self.varint()?),
            Wire::Fixed64 => Raw::Fixed64(u64::from_le_bytes(self.fixed()?)),
            Wire::Fixed32 => Raw::Fixed32(u32::from_le_bytes(self.fixed()?)),
            Wire::Bytes => self.sized()?,
        };
        Ok(Some(raw))
    }

    /// Reads an integer of variable length.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        let rest = self.rest();
        let mut value = 0;
        for (number, &byte) in rest.iter().take(LONGEST_VARINT).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * number);
            if byte < 0x80 {
                self.at += number + 1;
                return Ok(value);
            }
        }
        match rest.len() {
            0..LONGEST_VARINT => Err(self.cut_off()),
            _ => Err(Fault::new(format!("has an integer of more than 10 bytes at its byte {}", self.at))),
        }
    }

    #[inline]
    fn tag(&mut self) -> Result<(u32, u8), Fault> {
        let begin = self.at;
        let tag = self.varint()?;
        match tag >> 3 {
            number @ 1..=GREATEST => Ok((number as u32, (tag & 7) as u8)),
            _ => Err(Fault::new(format!("has an invalid field number at its byte {begin}"))),
        }
    }

    fn fixed<const SIZE: usize>(&mut self) -> Result<[u8; SIZE], Fault> {
        match self.rest().first_chunk() {
            Some(bytes) => {
                self.at += SIZE;
                Ok(*bytes)
            }
            None => Err(self.cut_off()),
        }
    }

    #[inline]
    fn sized(&mut self) -> Result<Raw, Fault> {
        let length = self.varint()?;
        let start = self.at;
        match usize::try_from(length) {
            Ok(length) if length <= self.bytes.len() - start => {
                self.at += length;
                Ok(Raw::Bytes { start: start as u32, end: self.at as u32 })
            }
            _ => Err(self.cut_off()),
        }
    }

    /// Reads a value of a wire type that is less usual, or none. `begin` is the position of its tag.
    fn rare(&mut self, wire: u8, begin: usize) -> Result<Raw, Fault> {
        match wire {
            FIXED64 => Ok(Raw::Fixed64(u64::from_le_bytes(self.fixed()?))),
            FIXED32 => Ok(Raw::Fixed32(u32::from_le_bytes(self.fixed()?))),
            END_GROUP => {
                Err(Fault::new(format!("ends a group at its byte {begin} that does not begin there")))
            }
            other => Err(Fault::new(format!("has the unknown wire type {other} at its byte {begin}"))),
        }
    }

    /// Finds the end of a group, whose first tag was read.
    fn group(&mut self, number: u32) -> Result<Raw, Fault> {
        let start = self.at as u32;
        let mut open = vec![number];
        loop {
            let begin = self.at;
            let (number, wire) = self.tag()?;
            match wire {
                VARINT => _ = self.varint()?,
                BYTES => _ = self.sized()?,
                BEGIN_GROUP if open.len() == DEEPEST => return Err(Fault::too_deep()),
                BEGIN_GROUP => open.push(number),
                END_GROUP if open.last() == Some(&number) => {
                    open.pop();
                    if open.is_empty() {
                        return Ok(Raw::Group { start, end: begin as u32 });
                    }
                }
                other => _ = self.rare(other, begin)?,
            }
        }
    }

    fn cut_off(&self) -> Fault {
        Fault::new(format!("is cut off at its byte {}", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u32, Raw)>, String> {
        let mut reader = Reader::new(bytes);
        let mut found = Vec::new();
        while let Some(field) = reader.field().map_err(|fault| fault.to_string())? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn values_of_each_wire_type_are_found() {
        assert_eq!(read(b"\x08\x96\x01"), Ok(vec![(1, Raw::Varint(150))]));
        assert_eq!(
            read(b"\x0d\x01\0\0\0\x11\x02\0\0\0\0\0\0\0\x1a\x01a"),
            Ok(vec![(1, Raw::Fixed32(1)), (2, Raw::Fixed64(2)), (3, Raw::Bytes { start: 16, end: 17 })])
        );
        let most = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(read(most), Ok(vec![(1, Raw::Varint(u64::MAX))]));
        assert_eq!(read(b""), Ok(vec![]));
    }

    #[test]
    fn a_group_ends_where_its_own_number_does() {
        let group = b"\x0b\x13\x08\x01\x14\x12\x02\x0c\x0c\x0c\x10\x07";
        assert_eq!(read(group), Ok(vec![(1, Raw::Group { start: 1, end: 9 }), (2, Raw::Varint(7))]));
        assert_eq!(
            read(b"\x0b\x14"),
            Err("it ends a group at its byte 1 that does not begin there".to_owned())
        );
        assert_eq!(read(b"\x0b\x08\x01"), Err("it is cut off at its byte 3".to_owned()));
        assert_eq!(read(&[0x0b; 100]), Err("it is cut off at its byte 100".to_owned()));
        assert_eq!(read(&[0x0b; 101]), Err("it is nested deeper than 100 levels".to_owned()));
    }

    #[test]
    fn what_is_no_field_says_where() {
        for (bytes, reason) in [
            (&b"\x08"[..], "it is cut off at its byte 1"),
            (b"\x08\x80", "it is cut off at its byte 1"),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "it has an integer of more than 10 bytes at its byte 1",
            ),
            (b"\x12\x02a", "it is cut off at its byte 2"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "it is cut off at its byte 11"),
            (b"\x0d\0\0\0", "it is cut off at its byte 1"),
            (b"\x00\x01", "it has an invalid field number at its byte 0"),
            (b"\x80\x80\x80\x80\x10\x01", "it has an invalid field number at its byte 0"),
            (b"\x0e", "it has the unknown wire type 6 at its byte 0"),
            (b"\x0c", "it ends a group at its byte 0 that does not begin there"),
        ] {
            assert_eq!(read(bytes), Err(reason.to_owned()));
        }
    }
}
