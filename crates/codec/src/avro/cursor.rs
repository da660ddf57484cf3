//! Reads the primitive values of Avro's binary encoding.

use std::fmt;

use super::DEEPEST;

/// The reason why a datum cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Ends,
    Varint,
    Int(i64),
    Length(i64),
    NotUtf8,
    Boolean(u8),
    Symbol(i64),
    Branch(i64),
    Decimal,
    Date(i32),
    Time(i64),
    Deep,
    Large,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends => f.write_str("the bytes end within a value"),
            Self::Varint => f.write_str("a number has more than 64 bits"),
            Self::Int(value) => write!(f, "{value} has more than the 32 bits of an `int`"),
            Self::Length(length) => write!(f, "the length {length} is negative"),
            Self::NotUtf8 => f.write_str("a text is not UTF-8"),
            Self::Boolean(value) => write!(f, "a boolean is {value}, not 0 or 1"),
            Self::Symbol(index) => write!(f, "the enum has no symbol {index}"),
            Self::Branch(index) => write!(f, "the union has no branch {index}"),
            Self::Decimal => f.write_str("a decimal has more digits than its precision"),
            Self::Date(days) => write!(f, "the calendar does not have the day {days} since 1970"),
            Self::Time(time) => write!(f, "{time} is not a time of day"),
            Self::Deep => write!(f, "values are nested more than {DEEPEST} deep"),
            Self::Large => f.write_str(
                "nested values are far larger as JSON than their bytes, or too large for `memory`",
            ),
        }
    }
}

/// The bytes of a datum, and the position of the next value.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Ends)?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn boolean(&mut self) -> Result<bool, Fault> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault::Boolean(other)),
        }
    }

    /// Reads a zigzag number in groups of seven bits, the lowest first.
    #[inline]
    pub(super) fn long(&mut self) -> Result<i64, Fault> {
        let mut value: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Fault::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(Fault::Varint)
    }

    #[inline]
    pub(super) fn int(&mut self) -> Result<i32, Fault> {
        let value = self.long()?;
        i32::try_from(value).map_err(|_| Fault::Int(value))
    }

    pub(super) fn float(&mut self) -> Result<f32, Fault> {
        self.array().map(f32::from_le_bytes)
    }

    pub(super) fn double(&mut self) -> Result<f64, Fault> {
        self.array().map(f64::from_le_bytes)
    }

    /// Reads exactly this many bytes.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(Fault::Ends)?;
        self.at += count;
        Ok(taken)
    }

    /// Reads an array of bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.take(N)?.first_chunk().copied().ok_or(Fault::Ends)
    }

    /// Reads a length, and as many bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.long()?;
        self.take(usize::try_from(length).map_err(|_| Fault::Length(length))?)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        simdutf8::basic::from_utf8(self.bytes()?).map_err(|_| Fault::NotUtf8)
    }

    /// Reads the index of a symbol, and returns the symbol.
    pub(super) fn symbol<'s>(&mut self, symbols: &'s [Box<str>]) -> Result<&'s str, Fault> {
        let index = self.long()?;
        let symbol = usize::try_from(index).ok().and_then(|index| symbols.get(index));
        symbol.map(|symbol| &**symbol).ok_or(Fault::Symbol(index))
    }

    /// Reads the index of a branch, and returns the branch.
    pub(super) fn branch(&mut self, branches: &[usize]) -> Result<usize, Fault> {
        let index = self.long()?;
        let branch = usize::try_from(index).ok().and_then(|index| branches.get(index));
        branch.copied().ok_or(Fault::Branch(index))
    }

    /// Reads the number of items in the next block of an array or map. Zero ends the array. A negative number
    /// is followed by the size of the block, which serves readers that skip it.
    pub(super) fn block(&mut self) -> Result<u64, Fault> {
        let count = self.long()?;
        if count < 0 {
            let size = self.long()?;
            usize::try_from(size).map_err(|_| Fault::Length(size))?;
        }
        Ok(count.unsigned_abs())
    }
}
