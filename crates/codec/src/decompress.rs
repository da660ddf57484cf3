//! Reads compressed bytes: gzip and zstd, of one or several members.
//!
//! A [`Decoder`] reads all members (`cat a.gz b.gz` is a gzip file, and `pzstd` writes one frame per piece of
//! its input). From damaged data it returns all bytes that can be decoded. Then it fails with a [`Damage`]
//! that names the offset in the compressed data at which the data is cut off or corrupt. Errors of the
//! underlying reader are passed on unchanged. A decoder cannot be used after an error.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The size of one read of compressed data, in bytes.
const READ_BYTES: usize = 128 << 10;

/// The largest window of zstd data, and the least that is always accepted, as binary logarithms: the format
/// asks every reader to support 8 MiB.
const WINDOWS: std::ops::RangeInclusive<u32> = 23..=27;

/// The beginning of the library's error for a larger window.
const TOO_LARGE: &str = "Frame requires too much memory";

/// How the input is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Detected from the first bytes.
    #[default]
    Auto,
    /// Not compressed.
    None,
    /// gzip (`.gz`).
    Gzip,
    /// Zstandard (`.zst`).
    Zstd,
}

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// gzip, RFC 1952.
    Gzip,
    /// Zstandard, RFC 8878.
    Zstd,
}

impl Compression {
    /// Returns the format of data with these first bytes. `Some(None)` means that the data is not compressed,
    /// `None` that more bytes are needed to decide.
    pub fn of(self, first: &[u8]) -> Option<Option<Format>> {
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
        /// The magic number of a skippable frame, with which some writers begin. Its first byte is 0x50 to
        /// 0x5f.
        const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
        match self {
            Compression::None => return Some(None),
            Compression::Gzip => return Some(Some(Format::Gzip)),
            Compression::Zstd => return Some(Some(Format::Zstd)),
            Compression::Auto => {}
        }
        let begins = |magic: &[u8], first: &[u8]| {
            let compared = magic.len().min(first.len());
            (magic[..compared] == first[..compared]).then_some(compared == magic.len())
        };
        let skippable = match first.split_first() {
            Some((0x50..=0x5f, rest)) => begins(&SKIPPABLE, rest),
            Some(_) => None,
            None => Some(false),
        };
        match (begins(&GZIP, first), begins(&ZSTD, first).or(skippable)) {
            (Some(true), _) => Some(Some(Format::Gzip)),
            (_, Some(true)) => Some(Some(Format::Zstd)),
            (None, None) => Some(None),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Gzip => "gzip",
            Format::Zstd => "zstd",
        })
    }
}

/// The error of compressed data that cannot be read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    format: Format,
    at: u64,
    kind: DamageKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DamageKind {
    Truncated,
    /// With the reason.
    Corrupt(String),
    /// The data is valid, but reading it takes more memory than this binary logarithm of bytes.
    Window(u32),
}

impl Damage {
    /// Returns the damage that an error of a [`Decoder`] reports. `None` if the error comes from the
    /// underlying reader.
    pub fn of(error: &io::Error) -> Option<&Damage> {
        error.get_ref()?.downcast_ref()
    }

    /// True if the data is cut off, and valid up to there.
    pub fn is_truncation(&self) -> bool {
        self.kind == DamageKind::Truncated
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, at, kind } = self;
        match kind {
            DamageKind::Truncated => {
                write!(f, "its {format} data is truncated: it ends at byte {at}, in the middle")
            }
            DamageKind::Corrupt(reason) => {
                write!(f, "its {format} data is corrupt near byte {at}: {reason}")
            }
            DamageKind::Window(most) => {
                let most = 1_u64 << most >> 20;
                write!(
                    f,
                    "its {format} data takes a window of more than {most} MiB, which is too much for `memory`: half of \
                     it is the limit"
                )
            }
        }
    }
}

impl std::error::Error for Damage {}

/// Counts the consumed bytes, and remembers whether the underlying reader failed.
struct Input<R> {
    inner: BufReader<R>,
    consumed: u64,
    has_failed: bool,
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Input<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.inner.buffer().is_empty() {
            match self.inner.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.has_failed = true;
                    return Err(error);
                }
            }
        }
        Ok(self.inner.buffer())
    }

    fn consume(&mut self, bytes: usize) {
        self.inner.consume(bytes);
        self.consumed += bytes as u64;
    }
}

enum Stage<R: Read> {
    /// Before the first gzip member, and after each member.
    Between(Input<R>),
    Gzip(Box<GzDecoder<Input<R>>>),
    /// All frames: the zstd decoder reads them as one.
    Zstd(Box<zstd::Decoder<'static, Input<R>>>),
    Over(u64),
}

/// Reads compressed data and returns the decompressed bytes.
pub struct Decoder<R: Read> {
    format: Format,
    stage: Stage<R>,
    members: u64,
    /// The binary logarithm of the largest window.
    window: u32,
}

impl<R: Read> Decoder<R> {
    /// Starts at the beginning of data of this format. Empty input is valid and decompresses to nothing.
    pub fn new(format: Format, reader: R) -> Self {
        let inner = BufReader::with_capacity(READ_BYTES, reader);
        let input = Input { inner, consumed: 0, has_failed: false };
        Self { format, stage: Stage::Between(input), members: 0, window: *WINDOWS.end() }
    }

    /// Refuses zstd data whose window takes more than half of `memory` bytes.
    #[must_use]
    pub fn within(mut self, memory: usize) -> Self {
        self.window = (memory / 2).max(1).ilog2().clamp(*WINDOWS.start(), *WINDOWS.end());
        self
    }

    /// Returns the number of compressed bytes consumed so far.
    pub fn consumed(&self) -> u64 {
        self.input().map_or_else(|at| at, |input| input.consumed)
    }

    fn input(&self) -> Result<&Input<R>, u64> {
        match &self.stage {
            Stage::Between(input) => Ok(input),
            Stage::Gzip(decoder) => Ok(decoder.get_ref()),
            Stage::Zstd(decoder) => Ok(decoder.get_ref()),
            Stage::Over(at) => Err(*at),
        }
    }

    fn damage(&self, kind: DamageKind) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, Damage { format: self.format, at: self.consumed(), kind })
    }

    fn explain(&self, error: io::Error) -> io::Error {
        if self.input().is_ok_and(|input| input.has_failed) {
            return error;
        }
        match error.kind() {
            ErrorKind::UnexpectedEof => self.damage(DamageKind::Truncated),
            _ => match error.to_string() {
                reason if reason.starts_with(TOO_LARGE) => self.damage(DamageKind::Window(self.window)),
                reason => self.damage(DamageKind::Corrupt(reason)),
            },
        }
    }

    /// Starts the next member, if there is one.
    fn begin(&mut self) -> io::Result<()> {
        let at = self.consumed();
        let Stage::Between(mut input) = std::mem::replace(&mut self.stage, Stage::Over(at)) else {
            return Ok(());
        };
        if self.members > 0 {
            skip_padding(&mut input)?;
        }
        let next = input.fill_buf()?;
        if next.is_empty() {
            self.stage = Stage::Over(input.consumed);
            return Ok(());
        }
        if self.format == Format::Gzip && next.first() != Some(&0x1f) {
            self.stage = Stage::Over(input.consumed);
            let what = if self.members == 0 {
                "it does not begin as gzip data does"
            } else {
                "the bytes after the last valid member are not gzip data"
            };
            return Err(self.damage(DamageKind::Corrupt(what.to_owned())));
        }
        self.members += 1;
        self.stage = match self.format {
            Format::Gzip => Stage::Gzip(Box::new(GzDecoder::new(input))),
            Format::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(self.window)?;
                Stage::Zstd(Box::new(decoder))
            }
        };
        Ok(())
    }
}

/// Skips NULs between members. Tapes and some archivers pad the last block with them, and gzip itself ignores
/// them.
fn skip_padding<R: Read>(input: &mut Input<R>) -> io::Result<()> {
    loop {
        let held = input.fill_buf()?;
        let nuls = held.iter().take_while(|&&byte| byte == 0).count();
        let ends = nuls == 0 || nuls < held.len();
        input.consume(nuls);
        if ends {
            return Ok(());
        }
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.stage {
                Stage::Over(_) => return Ok(0),
                Stage::Between(_) => {
                    self.begin()?;
                    continue;
                }
                Stage::Gzip(decoder) => decoder.read(into),
                Stage::Zstd(decoder) => decoder.read(into),
            };
            match read {
                Ok(0) => {
                    let at = self.consumed();
                    self.stage = match std::mem::replace(&mut self.stage, Stage::Over(at)) {
                        Stage::Gzip(decoder) => Stage::Between(decoder.into_inner()),
                        _ => Stage::Over(at),
                    };
                }
                Ok(read) => return Ok(read),
                Err(error) => {
                    let error = self.explain(error);
                    self.stage = Stage::Over(self.consumed());
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn a_window_that_takes_most_of_the_memory_is_refused_with_the_figure() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(25).unwrap();
        encoder.write_all(&text).unwrap();
        let packed = encoder.finish().unwrap();
        let read = |memory: usize| {
            let mut decoded = Vec::new();
            let mut decoder = Decoder::new(Format::Zstd, &*packed).within(memory);
            decoder.read_to_end(&mut decoded).map(|_| decoded).map_err(|error| error.to_string())
        };
        assert_eq!(read(64 << 20), Ok(text));
        let refused = "its zstd data takes a window of more than 16 MiB, which is too much for `memory`: half of it is \
                       the limit";
        assert_eq!(read(63 << 20), Err(refused.to_owned()));
        assert!(read(1).unwrap_err().contains("more than 8 MiB"));
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn pack(format: Format, bytes: &[u8]) -> Vec<u8> {
        match format {
            Format::Gzip => gzip(bytes),
            Format::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    /// Returns the bytes that can be decoded, and the error at the end.
    fn read(format: Format, packed: &[u8]) -> (Vec<u8>, Option<io::Error>) {
        let mut decoder = Decoder::new(format, packed);
        let mut bytes = Vec::new();
        let error = decoder.read_to_end(&mut bytes).err();
        (bytes, error)
    }

    proptest! {
        #[test]
        fn members_one_after_the_other_are_read_as_one(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..5),
            is_gzip: bool,
        ) {
            let format = if is_gzip { Format::Gzip } else { Format::Zstd };
            let packed: Vec<u8> = parts.iter().flat_map(|part| pack(format, part)).collect();
            let (bytes, error) = read(format, &packed);
            prop_assert!(error.is_none(), "{error:?}");
            prop_assert_eq!(bytes, parts.concat());
            if !packed.is_empty() {
                prop_assert_eq!(Compression::Auto.of(&packed), Some(Some(format)));
            }
        }

        #[test]
        fn data_cut_anywhere_gives_what_it_can_and_says_where_it_ends(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..3),
            is_gzip: bool,
            cut: prop::sample::Index,
        ) {
            let format = if is_gzip { Format::Gzip } else { Format::Zstd };
            let members: Vec<Vec<u8>> = parts.iter().map(|part| pack(format, part)).collect();
            let mut whole = Vec::new();
            let mut ends = vec![0];
            for member in &members {
                whole.extend_from_slice(member);
                ends.push(whole.len());
            }
            let cut = cut.index(whole.len());
            let (bytes, error) = read(format, &whole[..cut]);
            let all = parts.concat();
            prop_assert!(all.starts_with(&bytes));
            let sound = ends.iter().rposition(|&end| end <= cut).unwrap();
            prop_assert!(bytes.len() >= parts[..sound].concat().len());
            if ends.contains(&cut) {
                prop_assert!(error.is_none(), "{error:?}");
            } else {
                let error = error.unwrap();
                let damage = Damage::of(&error).unwrap();
                prop_assert!(damage.is_truncation(), "{damage}");
                prop_assert_eq!(damage.at, cut as u64);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), is_gzip: bool) {
            let format = if is_gzip { Format::Gzip } else { Format::Zstd };
            let mut packed = pack(format, b"sound");
            packed.extend(&bytes);
            let _ = read(format, &packed);
            let _ = read(format, &bytes);
            let _ = Compression::Auto.of(&bytes);
        }
    }

    #[test]
    fn a_changed_byte_is_corruption() {
        for format in [Format::Gzip, Format::Zstd] {
            let mut packed = pack(format, &b"some text that is long enough ".repeat(20));
            let middle = packed.len() / 2;
            packed[middle] ^= 0xff;
            packed.extend(pack(format, b"more"));
            if let (_, Some(error)) = read(format, &packed) {
                assert!(!Damage::of(&error).unwrap().is_truncation(), "{error}");
            } else {
                // Zstandard frames have no checksum unless asked for.
                assert_eq!(format, Format::Zstd);
            }
        }
    }

    #[test]
    fn nuls_after_the_last_gzip_member_are_padding_and_anything_else_is_not() {
        let mut packed = gzip(b"text");
        packed.extend([0; 512]);
        assert_eq!(read(Format::Gzip, &packed).0, b"text");
        packed.extend(b"rubbish");
        let (bytes, error) = read(Format::Gzip, &packed);
        assert_eq!(bytes, b"text");
        assert!(
            error.unwrap().to_string().contains("the bytes after the last valid member are not gzip data")
        );
    }

    #[test]
    fn too_few_bytes_leave_it_open_what_they_are() {
        assert_eq!(Compression::Auto.of(b""), None);
        assert_eq!(Compression::Auto.of(&[0x1f]), None);
        assert_eq!(Compression::Auto.of(&[0x28, 0xb5]), None);
        assert_eq!(Compression::Auto.of(b"P*M"), None);
        assert_eq!(Compression::Auto.of(b"P*M\x18"), Some(Some(Format::Zstd)));
        assert_eq!(Compression::Auto.of(b"Pa"), Some(None));
        assert_eq!(Compression::Auto.of(b"text"), Some(None));
        assert_eq!(Compression::None.of(&[0x1f, 0x8b]), Some(None));
    }
}
