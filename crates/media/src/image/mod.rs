//! Pictures: their size by their header, and pictures of another format or size made of them.
//!
//! Pixels have 8 bits a channel on the way; what has 16 is rounded. Of what moves, the first picture is taken: who would
//! rather leave it alone asks [`ImageInfo::is_animated`]. A picture is decoded, made smaller, turned, encoded, in this
//! order: what is turned is small by then.
//!
//! # Memory
//!
//! [`probe`] reads headers and allocates nothing. [`memory_needed`] says what [`convert`] will take at its peak, so that a
//! caller can reserve it, or refuse. `convert` decodes no more than the header promised.
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
//! | HEIC | – | – |
//!
//! What is not read here is [`ImageError::Unsupported`] with what to install, and [`external`] runs that.

mod decode;
mod encode;
pub mod external;
mod memory;
mod orient;
mod pixels;
mod probe;
mod resize;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

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
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Jpeg, Self::Png, Self::Gif, Self::Webp, Self::Tiff, Self::Avif, Self::Heic];

    /// The format of a picture by its first bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::from_mime(mime::detect(bytes).mime)
    }

    /// The format that a type is: `image/webp`, or one of its other names.
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

    /// The type, such as `image/webp`.
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

    /// The usual extension, without a dot.
    pub fn extension(self) -> &'static str {
        mime::extension_of(self.mime()).unwrap_or_default()
    }

    /// The longest side that a picture of this format may have.
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

/// Why a picture could not be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// It has the signature of no format of pictures.
    #[error("this is not a picture of a known format; known are JPEG, PNG, GIF, WebP, TIFF, AVIF and HEIC")]
    NotAnImage,
    /// The format, or something in it, is not read or written here.
    #[error("{format}: {why}")]
    Unsupported {
        /// The format.
        format: Format,
        /// What is missing, and what to do.
        why: String,
    },
    /// It is not what its format demands.
    #[error("the {format} is damaged: {why}")]
    Damaged {
        /// The format.
        format: Format,
        /// What is wrong.
        why: String,
    },
    /// The format holds no picture of that size.
    #[error("a {format} has at most {most} pixels a side, and this would be {width} × {height}; say a `width` or `height`", most = .format.longest_side())]
    TooLarge {
        /// The format.
        format: Format,
        /// In pixels.
        width: u32,
        /// In pixels.
        height: u32,
    },
    /// What is asked for makes no sense.
    #[error("`{option}` is {given}; {right}")]
    Option {
        /// Which option.
        option: &'static str,
        /// What it is.
        given: u32,
        /// What it may be.
        right: &'static str,
    },
}

/// What the header of a picture says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// The format.
    pub format: Format,
    /// In pixels, as they are stored: before the orientation is applied.
    pub width: u32,
    /// In pixels, as they are stored.
    pub height: u32,
    /// How many bytes decoding takes: those of the pixels, and what the decoder holds beside them.
    pub decoded_bytes: u64,
    /// How many bytes a decoded pixel has, 1 to 4.
    pub channels: u8,
    /// Whether one may see through it.
    pub has_alpha: bool,
    /// Which way up it is, by EXIF: 1, as it stands, to 8.
    pub orientation: u8,
    /// Whether there are, or may be, several pictures that follow one another.
    pub is_animated: bool,
}

/// What is to become of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// The format to make.
    pub to: Format,
    /// How much is to be seen of the original, 1 to 100, where a format loses something: JPEG, WebP, AVIF.
    pub quality: u8,
    /// How long to look for a smaller file: 0, fastest, to 6, smallest. See [`DEFAULT_EFFORT`].
    pub effort: Option<u8>,
    /// The size to make; none leaves it.
    pub size: Option<Resize>,
    /// Whether to turn the pixels as EXIF says.
    pub rotate: bool,
    /// Whether to leave out EXIF and XMP. The colour profile is kept, since the colours would be others without it, and so
    /// is the orientation if it is not applied. Otherwise all is kept that the format can hold: a GIF nothing, an AVIF
    /// EXIF only, a TIFF no EXIF.
    pub strip: bool,
}

/// The effort that is made if none is said. For WebP it is the method of libwebp: the files of 2 are about a twentieth larger
/// than those of 4, which takes two and a half times as long.
pub const DEFAULT_EFFORT: u8 = 2;

/// The size to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resize {
    /// In pixels, as it is seen: if the picture is turned, after that.
    pub width: Option<u32>,
    /// In pixels.
    pub height: Option<u32>,
    /// What becomes of the proportions.
    pub fit: Fit,
    /// Whether a smaller picture is made larger.
    pub enlarge: bool,
}

/// What becomes of the proportions if width and height are both said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// They are kept, and nothing is longer than said.
    Inside,
    /// They are kept, and what stands out is cut off on both sides.
    Cover,
    /// They become those that are said.
    Fill,
}

/// Makes another picture of one.
///
/// # Errors
/// The picture is damaged, or something of it or of what is to become of it is not supported.
pub fn convert(bytes: &[u8], conversion: &Conversion) -> Result<Vec<u8>, ImageError> {
    check(conversion)?;
    let info = probe(bytes)?;
    // Decoders of strangers' bytes are where the panics of libraries are. One that panics has lost nothing but its picture:
    // all it worked on was made here and is dropped.
    let result = catch_unwind(AssertUnwindSafe(|| run(bytes, &info, conversion)));
    result.unwrap_or_else(|_| {
        let why = "its decoder gave up on it".to_owned();
        Err(ImageError::Damaged { format: info.format, why })
    })
}

fn check(conversion: &Conversion) -> Result<(), ImageError> {
    let wrong = |option, given, right| Err(ImageError::Option { option, given, right });
    if !(1..=100).contains(&conversion.quality) {
        return wrong("quality", conversion.quality.into(), "it is 1 to 100");
    }
    if let Some(effort) = conversion.effort.filter(|effort| *effort > 6) {
        return wrong("effort", effort.into(), "it is 0 to 6");
    }
    match conversion.size {
        Some(Resize { width: Some(0), .. }) => wrong("width", 0, "a picture has a pixel at least"),
        Some(Resize { height: Some(0), .. }) => wrong("height", 0, "a picture has a pixel at least"),
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
    if conversion.rotate {
        pixels = orient::apply(pixels, info.orientation);
    }
    let kept = kept(bytes, info, conversion, pixels.has_colour());
    let encoded = encode::encode(pixels, conversion, &kept)?;
    Ok(embed(conversion.to, encoded, &kept))
}

/// What goes along with the pixels.
fn kept(bytes: &[u8], info: &ImageInfo, conversion: &Conversion, has_colour: bool) -> Kept {
    let mut kept = read(info.format, bytes);
    // A profile is for one kind of colours; that of a CMYK picture says nothing of the RGB it has become.
    let kind: &[u8] = if has_colour || conversion.to == Format::Webp { b"RGB " } else { b"GRAY" };
    kept.icc = kept.icc.filter(|icc| icc.get(16..20) == Some(kind));
    if conversion.strip {
        (kept.exif, kept.xmp) = (None, None);
    }
    if conversion.rotate {
        kept.exif.iter_mut().for_each(|exif| exif::reset_orientation(exif));
    } else if info.orientation != 1 && kept.exif.is_none() {
        kept.exif = Some(exif::minimal(info.orientation));
    }
    kept
}
