//! HEIC: HEVC pictures in the container HEIF.
//!
//! `heifer` reads and writes them. It is written in Rust without `unsafe`, and its licence is permissive.
//! libheif with x265 was rejected (LGPL and GPL), and so were decoders under the AGPL. AVIF has the same
//! container, but no decoder in Rust may be used here: that of `rav1d` aborts the process at a damaged
//! picture, because its functions have C's interface. Such pictures are read by an external program.
//!
//! The container says how a picture is turned and cut, so pixels are upright when they are decoded, and the
//! orientation in EXIF has no effect.

use heifer::heifer_isobmff::boxes::Property;
use heifer::heifer_isobmff::{HeifFile, ItemId};
use heifer::{EncodeOptions, Image, Metadata, Options};

use super::pixels::Pixels;
use super::probe::Boxes;
use super::{Format, ImageError, ImageInfo, external};
use crate::exif;
use crate::metadata::Kept;

/// A picture may be made of pictures that are made of others, up to this depth.
const DEEPEST: usize = 4;

/// The longest description of a picture in bytes. The time to read one grows with the square of its length;
/// that of a picture with 400 tiles is shorter than 32 KiB.
const LONGEST: usize = 256 << 10;

/// HEVC pads a picture to full blocks, at most by this on each side.
const PADDING: u64 = 64;

/// The size and form of the primary picture of a HEIF file.
pub(super) struct Shape {
    /// The width in pixels, as displayed.
    pub width: u32,
    /// The height in pixels, as displayed.
    pub height: u32,
    /// The pixels of the largest picture in the file, with padding.
    pub coded: u64,
    /// True if the picture has transparency.
    pub has_alpha: bool,
    /// True if the pixels are not those of HEVC.
    pub needs_program: bool,
}

/// Returns the shape of a picture, or `None` if the container is damaged or has no primary picture.
pub(super) fn shape(bytes: &[u8]) -> Option<Shape> {
    // Only the beginning of the file may be there, and the pixels are not needed.
    let described = bytes.get(..end_of_boxes(bytes, b"meta")?)?;
    if described.len() > LONGEST {
        return None;
    }
    let file = HeifFile::parse(described).ok()?;
    let id = file.primary_id;
    let (mut width, mut height) = file.image_size(id).ok()??;
    let is_alpha = |item: ItemId| {
        file.item_properties(item).is_ok_and(|mut properties| {
            properties.any(|property| {
                matches!(property, Property::AuxiliaryType(kind) if kind.ends_with(":auxid:1") || kind.ends_with(":auxiliary:alpha"))
            })
        })
    };
    for property in file.item_properties(id).ok()? {
        match property {
            Property::CleanAperture { width: (w, per_w), height: (h, per_h), .. } => {
                width = rounded(*w, *per_w).min(width);
                height = rounded(*h, *per_h).min(height);
            }
            Property::Rotation(quarters) if quarters % 2 == 1 => (width, height) = (height, width),
            _ => {}
        }
    }
    let sizes = file.properties.iter().filter_map(|property| match property {
        Property::ImageSize { width, height } => Some((*width, *height)),
        _ => None,
    });
    let coded = sizes.map(|(w, h)| (u64::from(w) + PADDING).saturating_mul(u64::from(h) + PADDING)).max()?;
    Some(Shape {
        width,
        height,
        coded,
        has_alpha: file.referencing_items(id, b"auxl").into_iter().any(is_alpha),
        needs_program: !is_hevc(&file, id),
    })
}

/// Returns the position after the first box with this name.
fn end_of_boxes(bytes: &[u8], name: &[u8; 4]) -> Option<usize> {
    let mut boxes = Boxes { rest: bytes };
    boxes.find(|(found, _)| found == name)?;
    Some(bytes.len() - boxes.rest.len())
}

fn rounded(number: u32, per: u32) -> u32 {
    (f64::from(number) / f64::from(per.max(1))).round() as u32
}

/// True if a picture, or the first of the pictures that it is made of, is coded with HEVC.
fn is_hevc(file: &HeifFile<'_>, mut id: ItemId) -> bool {
    for _ in 0..DEEPEST {
        let Ok(item) = file.item(id) else { return false };
        if &item.item_type.0 == b"hvc1" {
            return true;
        }
        let Some(first) = file.referenced_items(id, b"dimg").first() else { return false };
        id = *first;
    }
    false
}

/// Decodes the primary picture.
pub(super) fn decode(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    if info.needs_program {
        let why = format!("its pixels are not those of HEVC; {}", external::INSTALL);
        return Err(ImageError::Unsupported { format: info.format, why });
    }
    let coded = shape(bytes).map_or(0, |shape| shape.coded);
    let pixels = u64::from(info.width) * u64::from(info.height);
    // One thread: other pictures occupy the other cores.
    let options = Options { max_threads: 1, max_pixels: coded.max(pixels) };
    let image = heifer::decode_rgba8(bytes, &options).map_err(|error| wrong(info.format, error))?;
    let channels = if info.has_alpha { 4 } else { 3 };
    let mut data = image.data;
    if channels == 3 {
        without_alpha(&mut data);
    }
    Ok(Pixels { width: image.width, height: image.height, channels, data })
}

/// Removes the fourth byte of each pixel.
fn without_alpha(data: &mut Vec<u8>) {
    let count = data.len() / 4;
    for pixel in 0..count {
        data.copy_within(pixel * 4..pixel * 4 + 3, pixel * 3);
    }
    data.truncate(count * 3);
}

fn wrong(format: Format, error: heifer::Error) -> ImageError {
    match error {
        heifer::Error::Unsupported(what) => {
            ImageError::Unsupported { format, why: format!("{what} is not supported; {}", external::INSTALL) }
        }
        other => ImageError::Damaged { format, why: other.to_string() },
    }
}

/// Encodes pixels, with their metadata.
pub(super) fn encode(pixels: Pixels, quality: u8, kept: &Kept) -> Result<Vec<u8>, ImageError> {
    let Pixels { width, height, channels, data } = pixels.into_colour();
    let options = EncodeOptions { quality: as_libvips(quality), max_threads: 1 };
    let encoded = if *kept != Kept::default() {
        let metadata =
            Metadata { exif: kept.exif.clone(), xmp: kept.xmp.clone(), icc_profile: kept.icc.clone() };
        let image =
            Image { width, height, bit_depth: 8, has_alpha: channels == 4, data: wide(&data, channels) };
        drop(data);
        heifer::encode_with_metadata(&image, &metadata, &options)
    } else if channels == 4 {
        heifer::encode_rgba8(width, height, &data, &options)
    } else {
        heifer::encode_rgb8(width, height, &data, &options)
    };
    encoded.map_err(|error| ImageError::Unsupported {
        format: Format::Heic,
        why: format!("it could not be written: {error}"),
    })
}

/// Returns the encoder's quality for a quality of libvips: both then have the same quantiser.
fn as_libvips(quality: u8) -> u8 {
    (30 + u32::from(quality) * 5 / 6).min(100) as u8
}

/// Returns 16 bits for each channel, with alpha.
fn wide(data: &[u8], channels: u8) -> Vec<u16> {
    let pixels = data.chunks_exact(usize::from(channels));
    pixels
        .flat_map(|pixel| [pixel[0], pixel[1], pixel[2], pixel.get(3).copied().unwrap_or(255)])
        .map(u16::from)
        .collect()
}

/// Returns the metadata of the primary picture. Its orientation is 1, since pixels are decoded upright.
pub(crate) fn metadata(bytes: &[u8]) -> Option<Kept> {
    shape(bytes)?;
    let Metadata { mut exif, xmp, icc_profile } = heifer::read_metadata(bytes).ok()?;
    exif.iter_mut().for_each(|exif| exif::reset_orientation(exif));
    Some(Kept { exif, icc: icc_profile, xmp })
}
