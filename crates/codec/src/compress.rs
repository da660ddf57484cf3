//! Compressed files as a sequence of members, each complete in itself.
//!
//! Both formats allow this: a gzip file may hold several members, a zstd file several frames. Readers
//! concatenate their contents. A flush therefore ends a member, and everything before it stays readable
//! whatever happens later.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::Mistake;

/// How files are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// The gzip format.
    Gzip,
    /// The Zstandard format.
    Zstd,
}

impl Compression {
    /// Returns the compression levels of the format.
    pub fn levels(self) -> Option<std::ops::RangeInclusive<i32>> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some(0..=9),
            Compression::Zstd => Some(1..=22),
        }
    }

    /// Returns the suffix of the names of compressed files, such as `.gz`.
    pub fn suffix(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// Starts a member. Returns `None` without compression.
    pub fn begin(self, level: Option<i32>) -> io::Result<Option<Encoder>> {
        Ok(match self {
            Compression::None => None,
            Compression::Gzip => {
                let level = level.and_then(|level| u32::try_from(level).ok());
                let level = level.map_or_else(flate2::Compression::default, flate2::Compression::new);
                Some(Encoder::Gzip(GzEncoder::new(Vec::new(), level)))
            }
            Compression::Zstd => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                Some(Encoder::Zstd(zstd::stream::write::Encoder::new(Vec::new(), level)?))
            }
        })
    }

    /// Returns the length of the part of a compressed file that consists of complete members, in bytes. The
    /// rest is a member that was cut off.
    pub fn complete(self, file: impl Read) -> io::Result<u64> {
        let mut reader = Counting { inner: BufReader::with_capacity(1 << 16, file), count: 0 };
        let mut complete = 0;
        while !reader.fill_buf()?.is_empty() {
            let member = match self {
                Compression::None => return Ok(complete),
                Compression::Gzip => {
                    io::copy(&mut flate2::bufread::GzDecoder::new(&mut reader), &mut io::sink())
                }
                Compression::Zstd => zstd::stream::read::Decoder::with_buffer(&mut reader)
                    .and_then(|decoder| io::copy(&mut decoder.single_frame(), &mut io::sink())),
            };
            match member {
                Ok(_) => complete = reader.count,
                // A part that the system cannot read is not necessarily cut off.
                Err(error) if error.raw_os_error().is_some() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(complete)
    }
}

/// Returns the mistake in the option `compression_level`, if there is one.
pub fn level_mistake(compression: Compression, level: Option<i32>) -> Option<Mistake> {
    match (level, compression.levels()) {
        (Some(_), None) => {
            let message = "There is a `compression_level`, but no `compression`.";
            let mistake = Mistake::new("compression_level", message);
            Some(mistake.help("Set `compression` to `gzip` or `zstd`."))
        }
        (Some(level), Some(levels)) if !levels.contains(&level) => {
            let (least, most) = (levels.start(), levels.end());
            let message = format!("`compression_level` is {level}, but it must be {least} to {most}.");
            Some(Mistake::new("compression_level", message))
        }
        _ => None,
    }
}

/// Compresses one member in memory.
pub enum Encoder {
    /// Writes a gzip member.
    Gzip(GzEncoder<Vec<u8>>),
    /// Writes a zstd frame.
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Moves the bytes that are compressed so far to `out`.
    pub fn take(&mut self, out: &mut Vec<u8>) {
        out.append(match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
        });
    }

    /// Ends the member and moves the rest of its bytes to `out`.
    pub fn end(self, out: &mut Vec<u8>) -> io::Result<()> {
        out.append(&mut match self {
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        });
        Ok(())
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the consumed bytes.
struct Counting<R> {
    inner: R,
    count: u64,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        self.count += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.count += bytes as u64;
        self.inner.consume(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_member_is_not_complete_and_those_before_it_are() {
        for compression in [Compression::Gzip, Compression::Zstd] {
            let mut file = Vec::new();
            let mut ends = vec![0];
            for text in ["one", "two", &"three ".repeat(10_000)] {
                let mut encoder = compression.begin(None).unwrap().unwrap();
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.end(&mut file).unwrap();
                ends.push(file.len());
            }
            for torn in 0..=file.len() {
                let expected = ends.iter().copied().filter(|&end| end <= torn).max().unwrap();
                let found = compression.complete(&file[..torn]).unwrap();
                assert_eq!(found, expected as u64, "{compression:?} torn at {torn}");
            }
        }
    }
}
