//! Pictures: reading their size from the header, and converting them to another format or size.
//!
//! Pixels have 8 bits per channel during a conversion; 16 bits are rounded. Only the first frame of an
//! animation is converted; [`ImageInfo::is_animated`] tells a caller to skip it instead. A picture is
//! decoded, resized, rotated and encoded, in this order: it is usually smaller when it is rotated.
//!
//! # Memory
//!
//! [`probe`] reads headers and allocates nothing. [`memory_needed`] returns the peak memory of [`convert`],
//! so that a caller can reserve it or reject the picture. `convert` decodes no more than the header promised.
//!
//! # Formats
//!
//! | | read | written |
//! |---|---|---|
//! | JPEG | baseline, progressive, grey, CMYK | baseline; progressive from effort 6 |
//! | PNG | all | grey or RGB, with or without alpha |
//! | GIF | first picture | 256 colours |
//! | WebP | still pictures | lossy |
//! | TIFF | grey, RGB, CMYK; 1, 8 and 16 bits; JPEG, LZW, deflate | LZW |
//! | AVIF | – | with the feature `avif` |
//! | HEIC | HEVC of 8 to 12 bits, tiles, alpha | 8 bits |
//!
//! AVIF is [`ImageError::Unsupported`] with advice on what to install; [`external`] returns the command for
//! it. [`ImageInfo::needs_program`] tells so beforehand.

mod composition;
mod decode;
mod encode;
pub mod external;
mod heic;
mod memory;
mod orient;
mod pixels;
mod probe;
mod resize;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use heic::metadata as heic_metadata;
pub use memory::memory_needed;
pub use probe::probe;

use crate::metadata::{Kept, embed, read};
use crate::{exif, mime};

/// A format of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
    /// TIFF.
    Tiff,
    /// AVIF.
    Avif,
    /// HEIC, and HEIF in general.
    Heic,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Jpeg, Self::Png, Self::Gif, Self::Webp, Self::Tiff, Self::Avif, Self::Heic];

    /// Detects the format of a picture by its first bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::from_mime(mime::detect(bytes).mime)
    }

    /// Returns the format of a MIME type or one of its aliases: `image/webp`.
    pub fn from_mime(name: &str) -> Option<Self> {
        match mime::canonical(name)?.name {
            "image/jpeg" => Some(Self::Jpeg),
            "image/png" | "image/vnd.mozilla.apng" => Some(Self::Png),
            "image/gif" => Some(Self::Gif),
            "image/webp" => Some(Self::Webp),
            "image/tiff" => Some(Self::Tiff),
            "image/avif" => Some(Self::Avif),
            "image/heic" | "image/heif" | "image/heic-sequence" | "image/heif-sequence" => Some(Self::Heic),
            _ => None,
        }
    }

    /// Returns the MIME type, such as `image/webp`.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Tiff => "image/tiff",
            Self::Avif => "image/avif",
            Self::Heic => "image/heic",
        }
    }

    /// Returns the usual extension, without a dot.
    pub fn extension(self) -> &'static str {
        mime::extension_of(self.mime()).unwrap_or_default()
    }

    /// Returns the longest side that a picture of this format may have, in pixels.
    pub fn longest_side(self) -> u32 {
        match self {
            Self::Webp => 16_383,
            Self::Jpeg | Self::Gif | Self::Avif | Self::Heic => 65_535,
            Self::Png | Self::Tiff => i32::MAX as u32,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::Gif => "GIF",
            Self::Webp => "WebP",
            Self::Tiff => "TIFF",
            Self::Avif => "AVIF",
            Self::Heic => "HEIC",
        })
    }
}

/// Why a picture could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The file has the signature of no known picture format.
    #[error("this is not a picture of a known format; known are JPEG, PNG, GIF, WebP, TIFF, AVIF and HEIC")]
    NotAnImage,
    /// The format, or a feature that the picture uses, cannot be read or written.
    #[error("{format}: {why}")]
    Unsupported {
        /// The format.
        format: Format,
        /// The missing feature, and what to do.
        why: String,
    },
    /// The file violates its format.
    #[error("the {format} is damaged: {why}")]
    Damaged {
        /// The format.
        format: Format,
        /// The defect.
        why: String,
    },
    /// The format cannot contain a picture of that size.
    #[error("a {format} has at most {most} pixels a side, and this would be {width} × {height}; set `width` or `height`", most = .format.longest_side())]
    TooLarge {
        /// The format.
        format: Format,
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
    /// An option is out of range.
    #[error("`{option}` is {given}; {right}")]
    Option {
        /// The name of the option.
        option: &'static str,
        /// Its value.
        given: u32,
        /// Its permitted range.
        right: &'static str,
    },
}

/// The values in the header of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// The format.
    pub format: Format,
    /// The stored width in pixels: before the orientation is applied.
    pub width: u32,
    /// The stored height in pixels.
    pub height: u32,
    /// The bytes of memory that decoding needs: the pixels, and the decoder's own buffers.
    pub decoded_bytes: u64,
    /// The bytes per decoded pixel, 1 to 4.
    pub channels: u8,
    /// True if the picture may have transparency.
    pub has_alpha: bool,
    /// The orientation by EXIF, 1 (not rotated) to 8.
    pub orientation: u8,
    /// True if there are, or may be, several frames.
    pub is_animated: bool,
    /// True if only another program can read it: an AVIF, or a HEIF whose pixels are not those of HEVC.
    pub needs_program: bool,
}

/// The options of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The output format.
    pub to: Format,
    /// The quality of lossy formats (JPEG, WebP, AVIF, HEIC), 1 to 100.
    pub quality: u8,
    /// How hard to search for a smaller file: 0 (fastest) to 6 (smallest). See [`DEFAULT_EFFORT`].
    pub effort: Option<u8>,
    /// The output size; `None` keeps the size.
    pub size: Option<Resize>,
    /// True to rotate the pixels as EXIF says.
    pub rotate: bool,
    /// True to remove EXIF and XMP. The colour profile is kept, since the colours would change without it.
    /// The orientation is kept if it is not applied. If false, all metadata is kept that the format can hold:
    /// nothing in a GIF, only EXIF in an AVIF, no EXIF in a TIFF.
    pub strip: bool,
    /// True if the pixels are upright whatever EXIF says: another program turned them, and kept the EXIF.
    pub is_upright: bool,
}

impl Conversion {
    /// True if the pixels are rotated. Readers of HEIC ignore the orientation in EXIF, so such a picture is
    /// always upright.
    fn turns(&self) -> bool {
        self.rotate || self.to == Format::Heic
    }
}

/// The effort if none is set. For WebP it is the method of libwebp: files of method 2 are about a twentieth
/// larger than those of method 4, which takes two and a half times as long.
pub const DEFAULT_EFFORT: u8 = 2;

/// The output size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// The width in pixels, after a rotation.
    pub width: Option<u32>,
    /// The height in pixels, after a rotation.
    pub height: Option<u32>,
    /// How to treat the aspect ratio.
    pub fit: Fit,
    /// True to enlarge a smaller picture.
    pub enlarge: bool,
}

/// How to treat the aspect ratio if both width and height are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Keep the ratio; no side exceeds the given one.
    Inside,
    /// Keep the ratio; crop the excess on both sides.
    Cover,
    /// Change the ratio to the given sides.
    Fill,
}

/// Says what to do about a format that this build cannot write, or returns `None` if it can.
pub fn not_written(format: Format) -> Option<&'static str> {
    let lacks = format == Format::Avif && cfg!(not(feature = "avif"));
    lacks.then_some("this program was built without it; build it with the feature `avif`, or use `webp`")
}

/// Converts a picture.
///
/// # Errors
/// If the picture is damaged, or the conversion is not supported.
pub fn convert(bytes: &[u8], conversion: &Conversion) -> Result<Vec<u8>, ImageError> {
    check(conversion)?;
    let mut info = probe(bytes)?;
    if conversion.is_upright {
        info.orientation = 1;
    }
    // Decoders of untrusted bytes are where libraries panic. A panic loses only this picture: all the data
    // that the decoder used was created here and is dropped.
    let result = catch_unwind(AssertUnwindSafe(|| run(bytes, &info, conversion)));
    result.unwrap_or_else(|_| {
        let why = "its decoder panicked".to_owned();
        Err(ImageError::Damaged { format: info.format, why })
    })
}

fn check(conversion: &Conversion) -> Result<(), ImageError> {
    let wrong = |option, given, right| Err(ImageError::Option { option, given, right });
    if !(1..=100).contains(&conversion.quality) {
        return wrong("quality", conversion.quality.into(), "it must be 1 to 100");
    }
    if let Some(effort) = conversion.effort.filter(|effort| *effort > 6) {
        return wrong("effort", effort.into(), "it must be 0 to 6");
    }
    match conversion.size {
        Some(Resize { width: Some(0), .. }) => wrong("width", 0, "it must be at least 1"),
        Some(Resize { height: Some(0), .. }) => wrong("height", 0, "it must be at least 1"),
        _ => Ok(()),
    }
}

fn run(bytes: &[u8], info: &ImageInfo, conversion: &Conversion) -> Result<Vec<u8>, ImageError> {
    let plan = resize::plan(info, conversion);
    let longest = conversion.to.longest_side();
    let (width, height) = plan.seen;
    if width > longest || height > longest {
        return Err(ImageError::TooLarge { format: conversion.to, width, height });
    }
    let mut pixels = decode::decode(bytes, info)?;
    if let Some(target) = plan.target {
        pixels = resize::resize(pixels, target, info.format)?;
    }
    if conversion.turns() {
        pixels = orient::apply(pixels, info.orientation);
    }
    let kept = kept(bytes, info, conversion, pixels.has_colour());
    let encoded = encode::encode(pixels, conversion, &kept)?;
    Ok(embed(conversion.to, encoded, &kept))
}

/// Returns the metadata to write with the pixels.
fn kept(bytes: &[u8], info: &ImageInfo, conversion: &Conversion, has_colour: bool) -> Kept {
    let mut kept = read(info.format, bytes);
    // A profile applies to one colour space: that of a CMYK picture is wrong for the RGB that it was
    // converted to.
    let kind: &[u8] = if has_colour || conversion.to == Format::Webp { b"RGB " } else { b"GRAY" };
    kept.icc = kept.icc.filter(|icc| icc.get(16..20) == Some(kind));
    if conversion.strip {
        (kept.exif, kept.xmp) = (None, None);
    }
    if conversion.turns() || conversion.is_upright {
        kept.exif.iter_mut().for_each(|exif| exif::reset_orientation(exif));
    } else if info.orientation != 1 && kept.exif.is_none() {
        kept.exif = Some(exif::minimal(info.orientation));
    }
    kept
}
