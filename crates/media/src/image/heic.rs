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
use heifer::heifer_isobmff::{BoxIter, HeifFile, ItemId, RawBox};
use heifer::{EncodeOptions, Image, Metadata, Options};

use super::composition::{self, Composition, padded, transparencies};
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

/// The size and form of the primary picture of a HEIF file.
pub(super) struct Shape {
    /// The width in pixels, as displayed.
    pub width: u32,
    /// The height in pixels, as displayed.
    pub height: u32,
    /// The pixels of the largest picture in the file, with padding.
    pub coded: u64,
    /// The pixels of layers that are held at once.
    pub layered: u64,
    /// True if the picture has transparency.
    pub has_alpha: bool,
    /// True if the pixels are not those of HEVC.
    pub needs_program: bool,
}

/// Returns the shape of a picture, or `None` if the container is damaged or has no primary picture.
///
/// # Errors
/// If the picture is composed of others in a way that is not decoded.
pub(super) fn shape(bytes: &[u8], format: Format) -> Result<Option<Shape>, ImageError> {
    let Some(file) = description(bytes) else { return Ok(None) };
    composition::check_references(&file, format)?;
    let needs_program = !is_hevc(&file, file.primary_id);
    // Another program has limits of its own.
    let layered = if needs_program { 0 } else { Composition::of(&file, format)?.layered };
    Ok(sides(&file).map(|(width, height, coded)| Shape {
        width,
        height,
        coded,
        layered,
        has_alpha: !transparencies(&file, file.primary_id).is_empty(),
        needs_program,
    }))
}

/// Reads the description of a file. Only its beginning may be there, and the pixels are not needed.
fn description(bytes: &[u8]) -> Option<HeifFile<'_>> {
    let described = bytes.get(..end_of_boxes(bytes, b"meta")?)?;
    if described.len() > LONGEST {
        return None;
    }
    HeifFile::parse(described).ok()
}

/// Returns the width and height of the primary picture as displayed, and the pixels of the largest picture in
/// the file, with padding.
fn sides(file: &HeifFile<'_>) -> Option<(u32, u32, u64)> {
    let id = file.primary_id;
    let (mut width, mut height) = file.image_size(id).ok()??;
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
    Some((width, height, sizes.map(padded).max()?))
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
    let file = whole(bytes).map_err(|error| wrong(info.format, error))?;
    Composition::of(&file, info.format)?.check_pictures()?;
    drop(file);
    let coded = shape(bytes, info.format)?.map_or(0, |shape| shape.coded);
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

/// Reads a whole file. Of several descriptions, the library takes the last one, but [`shape`] the first.
fn whole(bytes: &[u8]) -> Result<HeifFile<'_>, heifer::Error> {
    let is_description = |found: &RawBox<'_>| &found.header.box_type.0 == b"meta";
    if BoxIter::new(bytes).filter_map(Result::ok).filter(is_description).count() > 1 {
        return Err(heifer::Error::Invalid("it has several descriptions"));
    }
    Ok(HeifFile::parse(bytes)?)
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
    shape(bytes, Format::Heic).ok()??;
    let file = whole(bytes).ok()?;
    let Metadata { mut exif, xmp, icc_profile } = heifer::item_metadata(&file, file.primary_id).ok()?;
    exif.iter_mut().for_each(|exif| exif::reset_orientation(exif));
    Some(Kept { exif, icc: icc_profile, xmp })
}
