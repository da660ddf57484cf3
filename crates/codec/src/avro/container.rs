//! Object container files: a header with the schema, then blocks of data.
//!
//! A block says how many data and bytes it has, and ends with a marker that the header gives. Blocks may be
//! compressed, each by itself. So reading can resume at any block. This module reads from bytes in memory;
//! the caller reads the file.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use thalweg_config::ByteSize;

use super::cursor::{Cursor, Fault};
use super::schema::Schema;
use crate::columns::shortened;

/// The first bytes of a container.
const MAGIC: &[u8] = b"Obj\x01";

/// The maximum size of a header, in bytes: a schema and small values.
const LONGEST_HEADER: usize = 2 << 20;

/// The number of data that a block may have beyond one for each byte. A datum without fields takes none.
const MOST_EMPTY: u64 = 4096;

/// The least window of zstd data that is accepted, as a binary logarithm, whatever the size of a block.
const LEAST_WINDOW: u32 = 23;

/// The bytes at the end of each block.
type Marker = [u8; 16];

/// The compression of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// None.
    Null,
    /// Deflate without a header, RFC 1951.
    Deflate,
    /// Snappy without frames, followed by a checksum of the data.
    Snappy,
    /// Zstandard, RFC 8878.
    Zstandard,
}

/// The header of a container.
#[derive(Debug)]
pub struct Header {
    /// The schema of all data.
    pub schema: Arc<Schema>,
    /// The compression of the blocks.
    pub codec: Codec,
    marker: Marker,
    /// The size of the header, in bytes.
    pub size: usize,
}

/// A block in the bytes of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The number of data.
    pub count: u64,
    /// The range of the data, which may be compressed.
    pub data: Range<usize>,
    /// The size of the block, in bytes.
    pub size: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`. `None` if it is not complete.
    ///
    /// # Errors
    /// The reason why the file cannot be read, as a sentence without its end.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let compared = MAGIC.len().min(bytes.len());
        if bytes.get(..compared) != MAGIC.get(..compared) {
            return Err(
                "the file is not an Avro container: it does not begin with `Obj` and the byte 1".to_owned()
            );
        }
        match entries(bytes) {
            Ok(entries) => entries.header().map(Some),
            Err(Fault::Ends) if bytes.len() <= LONGEST_HEADER => Ok(None),
            Err(Fault::Ends) => {
                Err(format!("the header of the file is larger than {} MiB", LONGEST_HEADER >> 20))
            }
            Err(fault) => Err(format!("the header of the file is damaged: {fault}")),
        }
    }

    /// Reads the frame of the block at the start of `bytes`. `None` if it is not complete. `limit` is the
    /// maximum size of its data, in bytes.
    ///
    /// # Errors
    /// The reason why the block cannot be read, as a part of a sentence.
    pub fn block(&self, bytes: &[u8], limit: usize) -> Result<Option<Block>, String> {
        let mut cursor = Cursor::new(bytes);
        let (count, size) = match cursor.long().and_then(|count| Ok((count, cursor.long()?))) {
            Ok(found) => found,
            Err(Fault::Ends) => return Ok(None),
            Err(fault) => return Err(fault.to_string()),
        };
        let (Ok(count), Ok(size)) = (u64::try_from(count), usize::try_from(size)) else {
            return Err(format!("it has {count} data in {size} bytes"));
        };
        if size > limit {
            return Err(too_large(limit));
        }
        let start = cursor.at();
        let Ok(marker) = cursor.take(size).and_then(|_| cursor.array::<16>()) else { return Ok(None) };
        if marker != self.marker {
            return Err("the marker of the file does not follow it".to_owned());
        }
        Ok(Some(Block { count, data: start..start + size, size: cursor.at() }))
    }
}

/// Returns the reason for rejecting a block that is too large.
fn too_large(limit: usize) -> String {
    format!("it has more than `max_block_bytes` ({}), or too much for `memory`", ByteSize(limit as u64))
}

/// Checks the number of data of a block against the size of the block, in bytes.
///
/// # Errors
/// The reason why they cannot, as a part of a sentence.
pub fn check_count(count: u64, bytes: usize) -> Result<(), String> {
    match count <= (bytes as u64).saturating_add(MOST_EMPTY) {
        true => Ok(()),
        false => Err(format!("it has {count} data in {bytes} bytes")),
    }
}

/// The entries of a header that matter.
#[derive(Default)]
struct Entries<'a> {
    schema: Option<&'a [u8]>,
    codec: Option<&'a [u8]>,
    marker: Marker,
    size: usize,
}

fn entries(bytes: &[u8]) -> Result<Entries<'_>, Fault> {
    let mut cursor = Cursor::new(bytes);
    let mut entries = Entries::default();
    cursor.take(MAGIC.len())?;
    loop {
        let count = cursor.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            let (name, value) = (cursor.bytes()?, cursor.bytes()?);
            match name {
                b"avro.schema" => entries.schema = Some(value),
                b"avro.codec" => entries.codec = Some(value),
                _ => {}
            }
        }
    }
    entries.marker = cursor.array()?;
    entries.size = cursor.at();
    Ok(entries)
}

impl Entries<'_> {
    fn header(&self) -> Result<Header, String> {
        let codec = match self.codec.unwrap_or(b"null") {
            b"null" => Codec::Null,
            b"deflate" => Codec::Deflate,
            b"snappy" => Codec::Snappy,
            b"zstandard" => Codec::Zstandard,
            other => {
                let name = String::from_utf8_lossy(other);
                return Err(format!(
                    "the blocks of the file are compressed with `{}`, which is not supported: write it with \
                     `deflate`, `snappy` or `zstandard`",
                    shortened(&name)
                ));
            }
        };
        let schema = self.schema.ok_or("the header of the file has no schema")?;
        let schema = std::str::from_utf8(schema).map_err(|error| error.to_string()).and_then(Schema::parse);
        let schema = schema.map_err(|reason| format!("the schema of the file cannot be used: {reason}"))?;
        Ok(Header { schema: Arc::new(schema), codec, marker: self.marker, size: self.size })
    }
}

impl Codec {
    /// Decompresses the data of a block, to at most `limit` bytes. `None` if they are not compressed.
    ///
    /// # Errors
    /// The reason why the block cannot be read, as a part of a sentence.
    pub fn decompress(self, data: &[u8], limit: usize) -> Result<Option<Vec<u8>>, String> {
        match self {
            Self::Null => Ok(None),
            Self::Deflate => all(DeflateDecoder::new(data), limit).map(Some),
            Self::Snappy => snappy(data, limit).map(Some),
            Self::Zstandard => {
                let mut decoder = zstd::Decoder::with_buffer(data).map_err(damaged)?;
                let window = limit.max(1).next_power_of_two().ilog2().clamp(LEAST_WINDOW, 27);
                decoder.window_log_max(window).map_err(damaged)?;
                all(decoder, limit).map(Some)
            }
        }
    }
}

fn damaged(error: impl std::fmt::Display) -> String {
    format!("its data cannot be decompressed: {error}")
}

/// Reads to the end, but no more than `limit` bytes.
fn all(reader: impl Read, limit: usize) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    let read = reader.take(limit as u64 + 1).read_to_end(&mut data);
    read.map_err(damaged)?;
    if data.len() > limit { Err(too_large(limit)) } else { Ok(data) }
}

fn snappy(data: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let (data, sum) = data.split_last_chunk::<4>().ok_or("its data have no checksum")?;
    if snap::raw::decompress_len(data).map_err(damaged)? > limit {
        return Err(too_large(limit));
    }
    let data = snap::raw::Decoder::new().decompress_vec(data).map_err(damaged)?;
    match crc32fast::hash(&data) == u32::from_be_bytes(*sum) {
        true => Ok(data),
        false => Err("its data do not have their checksum".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    /// A header with a marker of `x`.
    fn header(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(entries.len() as u8 * 2);
        for text in entries.iter().flat_map(|(name, value)| [name, value]) {
            bytes.push(text.len() as u8 * 2);
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&[b'x'; 16]);
        bytes
    }

    fn read(codec: &str) -> Result<Header, String> {
        let bytes = header(&[("avro.schema", "\"int\""), ("avro.codec", codec)]);
        Header::parse(&bytes).map(|header| header.unwrap())
    }

    #[test]
    fn a_header_that_is_cut_off_needs_more_bytes() {
        let bytes = header(&[("a", ""), ("avro.schema", "\"int\"")]);
        for end in 0..bytes.len() {
            assert!(Header::parse(&bytes[..end]).unwrap().is_none(), "{end}");
        }
        let header = Header::parse(&[bytes.as_slice(), b"more"].concat()).unwrap().unwrap();
        assert_eq!((header.codec, header.size), (Codec::Null, bytes.len()));
    }

    #[test]
    fn a_header_that_cannot_be_used_says_why() {
        let reason = |bytes: &[u8]| Header::parse(bytes).unwrap_err();
        assert_eq!(
            reason(b"PAR1"),
            "the file is not an Avro container: it does not begin with `Obj` and the byte 1"
        );
        assert_eq!(reason(&header(&[])), "the header of the file has no schema");
        assert_eq!(
            reason(&header(&[("avro.schema", "\"x\"")])),
            "the schema of the file cannot be used: there is no type `x`"
        );
        assert_eq!(
            read("bzip2").unwrap_err(),
            "the blocks of the file are compressed with `bzip2`, which is not supported: write it with \
             `deflate`, `snappy` or `zstandard`"
        );
        let mut long = MAGIC.to_vec();
        long.extend_from_slice(&[0xff; 9]);
        assert_eq!(
            reason(&[&long[..], &[2]].concat()),
            "the header of the file is damaged: a number has more than 64 bits"
        );
        long = [MAGIC, &[2, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f], vec![0; LONGEST_HEADER].as_slice()].concat();
        assert_eq!(reason(&long), "the header of the file is larger than 2 MiB");
    }

    #[test]
    fn a_block_ends_with_the_marker() {
        let header = read("null").unwrap();
        let bytes = [&[4, 6][..], b"abc", &[b'x'; 16], b"rest"].concat();
        let block = Block { count: 2, data: 2..5, size: 21 };
        assert_eq!(header.block(&bytes, 3), Ok(Some(block)));
        for end in 0..21 {
            assert_eq!(header.block(&bytes[..end], 3), Ok(None), "{end}");
        }
        let reason = |bytes: &[u8]| header.block(bytes, 3).unwrap_err();
        assert_eq!(reason(&[4, 8]), "it has more than `max_block_bytes` (3B), or too much for `memory`");
        assert_eq!(reason(&[4, 1]), "it has 2 data in -1 bytes");
        assert_eq!(
            reason(&[&[4, 6][..], b"abc", &[b'y'; 16]].concat()),
            "the marker of the file does not follow it"
        );
        assert!(check_count(4099, 3).is_ok() && check_count(4100, 3).is_err());
    }

    fn packed(codec: Codec, data: &[u8]) -> Vec<u8> {
        match codec {
            Codec::Null => data.to_vec(),
            Codec::Deflate => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Snappy => {
                let mut packed = snap::raw::Encoder::new().compress_vec(data).unwrap();
                packed.extend_from_slice(&crc32fast::hash(data).to_be_bytes());
                packed
            }
            Codec::Zstandard => zstd::encode_all(data, 1).unwrap(),
        }
    }

    const CODECS: [Codec; 3] = [Codec::Deflate, Codec::Snappy, Codec::Zstandard];

    proptest! {
        #[test]
        fn blocks_are_decompressed_up_to_the_limit(data in prop::collection::vec(any::<u8>(), 0..300)) {
            for codec in CODECS {
                let packed = packed(codec, &data);
                prop_assert_eq!(codec.decompress(&packed, data.len()), Ok(Some(data.clone())));
                if let Some(limit) = data.len().checked_sub(1) {
                    let reason = codec.decompress(&packed, limit).unwrap_err();
                    prop_assert!(reason.starts_with("it has more than `max_block_bytes`"), "{}", reason);
                }
            }
            prop_assert_eq!(Codec::Null.decompress(&data, 0), Ok(None));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for codec in CODECS {
                let _ = codec.decompress(&bytes, 1000);
            }
            let _ = Header::parse(&bytes);
            let _ = Header::parse(&[MAGIC, bytes.as_slice()].concat());
            let _ = read("null").unwrap().block(&bytes, 100);
        }
    }

    #[test]
    fn a_changed_byte_of_snappy_is_found() {
        let mut packed = packed(Codec::Snappy, b"some text");
        packed[3] ^= 1;
        assert_eq!(
            Codec::Snappy.decompress(&packed, 100).unwrap_err(),
            "its data do not have their checksum"
        );
        assert_eq!(Codec::Snappy.decompress(b"abc", 100).unwrap_err(), "its data have no checksum");
    }
}
