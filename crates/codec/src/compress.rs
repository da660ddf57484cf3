//! Compressed files as a sequence of members, each complete in itself.
//!
//! Both formats allow this: a gzip file may hold several members, a zstd file several frames. Readers
//! concatenate their contents. A flush therefore ends a member, and everything before it stays readable
//! whatever happens later.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::Mistake;

/// How files are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

    /// Returns the name of the format in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
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

    /// Returns the memory that an encoder of this format and level takes, in bytes, without the compressed
    /// bytes that were not taken yet. Returns 0 without compression.
    ///
    /// For zstd this is what `ZSTD_estimateCStreamSize` calculates, which the bindings do not offer: the
    /// window, the tables of the match finder, and buffers for a block of 128 KiB. It ranges from 1.5 MiB
    /// (level 1) to 770 MiB (level 22). For gzip it is the one allocation of zlib-rs, which does not depend
    /// on the level. Both include the buffer through which the encoder writes.
    pub fn encoder_memory(self, level: Option<i32>) -> usize {
        match self {
            Compression::None => 0,
            Compression::Gzip => GZIP_STATE + WRITE_BUFFER,
            Compression::Zstd => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL).clamp(1, 22);
                // The range of the level makes the index valid.
                ZSTD_LEVELS.get(level as usize - 1).map_or(0, ZstdLevel::memory) + WRITE_BUFFER
            }
        }
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

/// The bytes of the buffer between an encoder and its output, in both libraries.
const WRITE_BUFFER: usize = 32 << 10;

/// The bytes of zlib-rs's state for a window of 32 KiB: the window twice, previous positions, the table of
/// hashes, pending output, symbols and codes (`DeflateAllocOffsets` in zlib-rs).
const GZIP_STATE: usize = (64 + 64 + 128 + 64 + 48 + 16) << 10;

/// The parameters of a zstd level that decide its memory, as binary logarithms.
struct ZstdLevel {
    window: u8,
    /// The table of chains or of binary trees. `None` where the match finder has none.
    chain: Option<u8>,
    hash: u8,
    /// The bytes of an entry of the hash table: the row-based match finder adds a byte.
    entry: u8,
    /// The memory of the optimal parser, in KiB.
    optimal: u16,
}

impl ZstdLevel {
    /// The largest block, in bytes.
    const BLOCK: usize = 128 << 10;
    /// Codes of sequences, temporary memory and the context itself, in bytes.
    const REST: usize = 48 << 10;

    fn memory(&self) -> usize {
        let window = (1 << self.window) + Self::BLOCK;
        let tables = (usize::from(self.entry) << self.hash) + self.chain.map_or(0, |chain| 4 << chain);
        // A block has at most one sequence of 11 bytes for each 3 bytes, beside its literals and its output.
        let block = 2 * Self::BLOCK + Self::BLOCK / 3 * 11;
        window + tables + block + Self::REST + (usize::from(self.optimal) << 10)
    }
}

const fn zstd_level(window: u8, chain: Option<u8>, hash: u8, entry: u8, optimal: u16) -> ZstdLevel {
    ZstdLevel { window, chain, hash, entry, optimal }
}

/// The levels 1 to 22 for inputs of unknown size (`ZSTD_defaultCParameters` in zstd's `clevels.h`).
const ZSTD_LEVELS: [ZstdLevel; 22] = [
    zstd_level(19, None, 14, 4, 0),
    zstd_level(20, None, 16, 4, 0),
    zstd_level(21, Some(16), 17, 4, 0),
    zstd_level(21, Some(18), 18, 4, 0),
    zstd_level(21, None, 19, 5, 0),
    zstd_level(21, None, 19, 5, 0),
    zstd_level(21, None, 20, 5, 0),
    zstd_level(21, None, 20, 5, 0),
    zstd_level(22, None, 21, 5, 0),
    zstd_level(22, None, 22, 5, 0),
    zstd_level(22, None, 22, 5, 0),
    zstd_level(22, None, 23, 5, 0),
    zstd_level(22, Some(22), 22, 4, 0),
    zstd_level(22, Some(22), 23, 4, 0),
    zstd_level(22, Some(23), 23, 4, 0),
    zstd_level(22, Some(22), 22, 4, 160),
    zstd_level(23, Some(23), 22, 4, 160),
    zstd_level(23, Some(23), 22, 4, 160 + 512),
    zstd_level(23, Some(24), 22, 4, 160 + 512),
    zstd_level(25, Some(25), 23, 4, 160 + 512),
    zstd_level(26, Some(26), 24, 4, 160 + 512),
    zstd_level(27, Some(27), 25, 4, 160 + 512),
];

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

    #[test]
    fn the_memory_of_an_encoder_is_known_before_it_exists() {
        for level in 1..=20 {
            let mut context = zstd::zstd_safe::CCtx::create();
            context.set_parameter(zstd::zstd_safe::CParameter::CompressionLevel(level)).unwrap();
            let mut out = vec![0; 64];
            let mut out = zstd::zstd_safe::OutBuffer::around(&mut out);
            context.compress_stream(&mut out, &mut zstd::zstd_safe::InBuffer::around(b"first")).unwrap();
            let (used, known) =
                (context.sizeof() + WRITE_BUFFER, Compression::Zstd.encoder_memory(Some(level)));
            assert!(used <= known && known <= used + used / 8, "level {level}: {used} of {known}");
        }
        assert_eq!(Compression::Gzip.encoder_memory(Some(9)), 416 << 10);
        assert_eq!(Compression::Zstd.encoder_memory(None), Compression::Zstd.encoder_memory(Some(3)));
        assert_eq!(Compression::None.encoder_memory(None), 0);
    }
}
