//! Reads the headers of a picture, without decoding anything. Only the lists in a HEIF are allocated, which
//! are as long as in the file.

use super::{Format, ImageError, ImageInfo, heic};
use crate::container::{jpeg, png, webp};
use crate::exif::{self, Directory};

/// Reads the size of a picture, and the memory that decoding needs. Only headers are read, and nothing is
/// allocated. A file of a hundred bytes may claim fifty thousand pixels a side, and that is what this
/// returns.
///
/// # Errors
/// If the bytes are not a picture, or the header is damaged.
pub fn probe(bytes: &[u8]) -> Result<ImageInfo, ImageError> {
    let format = Format::of(bytes).ok_or(ImageError::NotAnImage)?;
    let read = match format {
        Format::Jpeg => of_jpeg(bytes),
        Format::Png => of_png(bytes),
        Format::Gif => of_gif(bytes),
        Format::Webp => of_webp(bytes),
        Format::Tiff => of_tiff(bytes),
        Format::Avif | Format::Heic => of_heif(bytes, format)?,
    };
    let damaged = |why: &str| ImageError::Damaged { format, why: why.to_owned() };
    let read = read.ok_or_else(|| damaged("its header is cut off or invalid"))?;
    if read.width == 0 || read.height == 0 {
        return Err(damaged("it has no pixels"));
    }
    let pixels = u64::from(read.width).saturating_mul(read.height.into());
    // Half bytes, since some decoders need half a byte per pixel.
    let decoded_bytes = (pixels.saturating_mul(read.halves.into()) / 2).saturating_add(read.beside);
    Ok(ImageInfo {
        format,
        width: read.width,
        height: read.height,
        decoded_bytes,
        channels: read.channels,
        has_alpha: read.channels.is_multiple_of(2),
        orientation: read.orientation,
        is_animated: read.is_animated,
        needs_program: read.needs_program || format == Format::Avif,
    })
}

/// The memory of a decoder's own tables, in bytes.
const TABLES: u64 = 64 << 10;

/// The memory of the lines that a JPEG decoder holds while it enlarges the colours, in bytes per column.
const PER_COLUMN: u64 = 256;

/// The values in a header.
struct Header {
    width: u32,
    height: u32,
    channels: u8,
    /// Half bytes that decoding needs per pixel.
    halves: u32,
    /// Bytes that decoding needs beside the pixels.
    beside: u64,
    orientation: u8,
    is_animated: bool,
    needs_program: bool,
}

fn of_jpeg(bytes: &[u8]) -> Option<Header> {
    let mut orientation = None;
    for segment in jpeg::segments(bytes)? {
        match segment.marker {
            0xe1 if orientation.is_none() => {
                orientation = segment.payload.strip_prefix(jpeg::EXIF).map(exif::orientation);
            }
            0xc0..=0xcf if !matches!(segment.marker, 0xc4 | 0xc8 | 0xcc) => {
                let [_, h1, h2, w1, w2, components] = *segment.payload.first_chunk()?;
                let channels = if components == 1 { 1 } else { 3 };
                let is_progressive = segment.marker & 3 == 2;
                // A progressive picture is held as a whole, as 16-bit coefficients of all components, before
                // it is converted to pixels.
                let coefficients = if is_progressive { 4 * u32::from(components) } else { 0 };
                return Some(Header {
                    width: u16::from_be_bytes([w1, w2]).into(),
                    height: u16::from_be_bytes([h1, h2]).into(),
                    channels,
                    halves: 2 * u32::from(channels) + coefficients,
                    beside: TABLES + PER_COLUMN * u64::from(u16::from_be_bytes([w1, w2])),
                    orientation: orientation.unwrap_or(1),
                    is_animated: false,
                    needs_program: false,
                });
            }
            jpeg::SCAN | jpeg::END => return None,
            _ => {}
        }
    }
    None
}

fn of_png(bytes: &[u8]) -> Option<Header> {
    // The header is read by its position, not as a chunk: the rest may be cut off.
    let header: &[u8; 13] = bytes.get(12..)?.strip_prefix(b"IHDR")?.first_chunk()?;
    let [w1, w2, w3, w4, h1, h2, h3, h4, _, colour, _, _, _] = *header;
    let (mut orientation, mut beside) = (None, TABLES);
    let (mut is_animated, mut has_transparency, mut has_pixels) = (false, false, false);
    for chunk in png::chunks(bytes)? {
        match &chunk.name {
            b"IDAT" => has_pixels = true,
            // EXIF may also follow the pixels.
            b"eXIf" if orientation.is_none() => orientation = Some(exif::orientation(chunk.payload)),
            b"acTL" if !has_pixels => is_animated = true,
            b"tRNS" if !has_pixels => has_transparency = true,
            b"iCCP" => beside += png::most_inflated(chunk.payload),
            b"iTXt" => beside += png::most_of_xmp(chunk.payload),
            _ => {}
        }
    }
    let channels = match colour {
        0 => 1,
        2 | 3 => 3,
        4 => 2,
        6 => 4,
        _ => return None,
    };
    let channels = if has_transparency && channels % 2 == 1 { channels + 1 } else { channels };
    Some(Header {
        width: u32::from_be_bytes([w1, w2, w3, w4]),
        height: u32::from_be_bytes([h1, h2, h3, h4]),
        channels,
        halves: 2 * u32::from(channels),
        beside,
        orientation: orientation.unwrap_or(1),
        is_animated,
        needs_program: false,
    })
}

fn of_gif(bytes: &[u8]) -> Option<Header> {
    let [w1, w2, h1, h2] = *bytes.get(6..)?.first_chunk()?;
    Some(Header {
        width: u16::from_le_bytes([w1, w2]).into(),
        height: u16::from_le_bytes([h1, h2]).into(),
        channels: 4,
        // A frame smaller than the picture is decoded into a separate buffer.
        halves: 2 * (4 + 4),
        beside: TABLES,
        orientation: 1,
        // A repeating animation says so near the beginning; to find a second frame, the first would have to
        // be parsed.
        is_animated: memchr::memmem::find(bytes.get(..bytes.len().min(2048))?, b"NETSCAPE2.0").is_some(),
        needs_program: false,
    })
}

fn of_webp(bytes: &[u8]) -> Option<Header> {
    let header = webp::header(bytes)?;
    let exif = webp::chunks(bytes)?.find(|chunk| &chunk.name == b"EXIF").map(|chunk| chunk.payload);
    let exif = exif.map(|exif| exif.strip_prefix(jpeg::EXIF).unwrap_or(exif));
    let channels: u8 = if header.has_alpha { 4 } else { 3 };
    // An upper bound: the pixels, and their planes. Lossless pictures and the alpha of others are decoded to
    // four channels first.
    let own = if header.is_lossless { 8 } else { u32::from(header.has_alpha) * 4 + 2 };
    Some(Header {
        width: header.width,
        height: header.height,
        channels,
        halves: 4 * u32::from(channels) + own,
        beside: TABLES,
        orientation: exif.map_or(1, exif::orientation),
        is_animated: header.is_animated,
        needs_program: false,
    })
}

/// Tags of a TIFF that determine its size.
const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const MEANING: u16 = 262;
const SAMPLES: u16 = 277;

/// The tag of XMP. The decoder reads only lower ones, of which it holds all values before any limit applies.
const XMP: u16 = 700;
/// The bytes that the decoder takes for each of these values: as read, and as a number.
const PER_VALUE: u64 = 48;

/// Returns the memory for the values in the directory of a TIFF of `length` bytes, or `None` if a list of
/// them would exceed the file: the decoder would allocate 256 MiB because of its count.
fn values(directory: Directory<'_>, length: usize) -> Option<u64> {
    let counts = directory.entries().filter(|entry| entry.tag < XMP).map(|entry| u64::from(entry.count));
    counts.map(|count| (count <= length as u64).then_some(count * PER_VALUE)).sum()
}

fn of_tiff(bytes: &[u8]) -> Option<Header> {
    let directory = Directory::first(bytes)?;
    let number = |tag: u16| directory.find(tag).and_then(|entry| directory.number(entry, 0));
    let samples = number(SAMPLES).unwrap_or(1);
    let bits = number(BITS).unwrap_or(1);
    // 5: inks, which are converted to RGB; 6: JPEG's colours; 2: RGB; otherwise shades of grey.
    let channels = match (number(MEANING), samples) {
        (Some(5), _) => 3,
        (Some(2 | 6), 4..) => 4,
        (Some(2 | 6), _) => 3,
        (_, 2) => 2,
        _ => 1,
    };
    // The pixels, and their form in the file: one strip may contain all of them.
    let stored = samples.saturating_mul(bits.div_ceil(8)).saturating_mul(2);
    Some(Header {
        width: number(WIDTH)?,
        height: number(HEIGHT)?,
        channels,
        halves: stored.saturating_mul(2).saturating_add(2 * u32::from(channels)),
        beside: TABLES + values(directory, bytes.len())?,
        orientation: exif::orientation(bytes),
        is_animated: false,
        needs_program: false,
    })
}

/// Decoding a HEIC needs this many bytes for each pixel of a tile: its samples, and the state of the decoder.
const PER_CODED: u64 = 12;

/// A layer takes this many bytes for each pixel while layers are put on each other: with alpha, and a copy of
/// it if it is turned.
const PER_LAYERED: u64 = 8;

/// The tables of the decoder, and the lists of the description, which are allocated by the lengths that the
/// file declares.
const HEIF_TABLES: u64 = 4 << 20;

/// Returns the header of a HEIF file: of its primary picture or, if it has none, of the largest one.
fn of_heif(bytes: &[u8], format: Format) -> Result<Option<Header>, ImageError> {
    let is_animated = matches!(bytes.get(8..12), Some(b"avis" | b"msf1" | b"hevc" | b"hevx"));
    let Some(shape) = heic::shape(bytes, format)? else { return Ok(of_largest(bytes, is_animated)) };
    // Pixels are decoded with alpha, and copied if they are turned.
    let beside = shape.coded.saturating_mul(PER_CODED).saturating_add(2 * bytes.len() as u64);
    let beside = beside.saturating_add(shape.layered.saturating_mul(PER_LAYERED));
    Ok(Some(Header {
        width: shape.width,
        height: shape.height,
        channels: if shape.has_alpha { 4 } else { 3 },
        halves: 16,
        beside: HEIF_TABLES.saturating_add(beside),
        orientation: 1,
        is_animated,
        needs_program: shape.needs_program,
    }))
}

/// Returns the size of the largest picture in a HEIF file: its properties are in nested boxes.
fn of_largest(bytes: &[u8], is_animated: bool) -> Option<Header> {
    let meta = boxed(bytes, b"meta")?.get(4..)?;
    let properties = boxed(boxed(meta, b"iprp")?, b"ipco")?;
    let size = |content: &[u8]| {
        let [_, _, _, _, w1, w2, w3, w4, h1, h2, h3, h4] = *content.first_chunk()?;
        Some((u32::from_be_bytes([w1, w2, w3, w4]), u32::from_be_bytes([h1, h2, h3, h4])))
    };
    let sizes = Boxes { rest: properties }
        .filter(|(name, _)| name == b"ispe")
        .filter_map(|(_, content)| size(content));
    let (width, height) = sizes.max_by_key(|(width, height)| u64::from(*width) * u64::from(*height))?;
    let has_alpha = memchr::memmem::find(properties, b":auxid:1").is_some()
        || memchr::memmem::find(properties, b":auxiliary:alpha").is_some();
    let channels: u8 = if has_alpha { 4 } else { 3 };
    let halves = 2 * u32::from(channels) + 6;
    let (beside, orientation) = (HEIF_TABLES, 1);
    Some(Header { width, height, channels, halves, beside, orientation, is_animated, needs_program: true })
}

/// Returns the content of the first box with this name.
fn boxed<'a>(bytes: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    Boxes { rest: bytes }.find(|(found, _)| found == name).map(|(_, content)| content)
}

/// A sequence of boxes.
pub(super) struct Boxes<'a> {
    /// The boxes that were not read.
    pub rest: &'a [u8],
}

impl<'a> Iterator for Boxes<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = u32::from_be_bytes(*self.rest.first_chunk()?) as usize;
        let name = *self.rest.get(4..)?.first_chunk()?;
        let length = if length == 0 { self.rest.len() } else { length };
        let content = self.rest.get(8..length)?;
        self.rest = self.rest.get(length..)?;
        Some((name, content))
    }
}
