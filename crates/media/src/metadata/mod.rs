//! Removes the metadata of a picture.
//!
//! Nothing is decoded: the remaining parts are copied byte by byte, so the pixels are exactly the same. Two
//! things are kept since they change how the picture is displayed: the colour profile, and the orientation if
//! it is not 1, as EXIF without any other value.

mod kept;

use crate::container::{jpeg, png, webp};
use crate::exif;
use crate::image::{Format, ImageError};

pub(crate) use kept::{Kept, embed, read};

/// Returns the picture without metadata: without EXIF and its thumbnail, XMP, IPTC, comments and texts, the
/// time of the last change, and any bytes after the end. Returns `None` if there is nothing to remove.
///
/// The colour profile is kept, and EXIF with the orientation if that is not 1.
///
/// # Errors
/// If the file is not a JPEG, PNG or WebP, or its parts cannot be separated.
pub fn strip(bytes: &[u8]) -> Result<Option<Vec<u8>>, ImageError> {
    let (format, stripped) = match Format::of(bytes) {
        Some(Format::Jpeg) => (Format::Jpeg, strip_jpeg(bytes)),
        Some(Format::Png) => (Format::Png, strip_png(bytes)),
        Some(Format::Webp) => (Format::Webp, strip_webp(bytes)),
        Some(format) => {
            let why =
                "metadata can be removed from JPEG, PNG and WebP only; use `exiftool` for other formats"
                    .to_owned();
            return Err(ImageError::Unsupported { format, why });
        }
        None => return Err(ImageError::NotAnImage),
    };
    let damaged = || ImageError::Damaged {
        format,
        why: "it ends before its pixels, or the lengths of its parts are wrong".to_owned(),
    };
    let stripped = stripped.ok_or_else(damaged)?;
    Ok((stripped != bytes).then_some(stripped))
}

/// Returns the EXIF to keep, if any: only the orientation, if it is not 1.
fn stays(exif: &[u8]) -> Option<Vec<u8>> {
    Some(exif::orientation(exif)).filter(|orientation| *orientation != 1).map(exif::minimal)
}

fn strip_jpeg(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(bytes.len());
    kept.extend(b"\xff\xd8");
    let exif = jpeg::segments(bytes)?
        .take_while(|segment| segment.marker != jpeg::SCAN)
        .find_map(|segment| segment.payload.strip_prefix(jpeg::EXIF).filter(|_| segment.marker == 0xe1));
    let mut exif = exif.and_then(stays);
    let mut has_pixels = false;
    for segment in jpeg::segments(bytes)? {
        let is_jfif = segment.marker == 0xe0 && segment.payload.starts_with(b"JFIF\0");
        // JFIF must stay first; added segments follow it.
        if !is_jfif && let Some(exif) = exif.take() {
            kept.extend(jpeg::segment(0xe1, &[jpeg::EXIF, &exif])?);
        }
        match segment.marker {
            // A thumbnail may follow the fields of the segment.
            0xe0 if is_jfif && segment.payload.len() > 14 => {
                kept.extend(jpeg::segment(0xe0, &[segment.payload.get(..12)?, &[0, 0]])?);
            }
            0xe0 if is_jfif => kept.extend_from_slice(segment.whole),
            0xe2 if segment.payload.starts_with(jpeg::ICC) => kept.extend_from_slice(segment.whole),
            // Without it, the colours of pictures written by Adobe programs are unknown.
            0xee if segment.payload.starts_with(b"Adobe") => kept.extend_from_slice(segment.whole),
            0xe0..=0xef | 0xfe => {}
            marker => {
                has_pixels |= marker == jpeg::SCAN;
                kept.extend_from_slice(segment.whole);
            }
        }
    }
    has_pixels.then_some(kept)
}

/// The optional chunks of a PNG that affect how its pixels are displayed.
const SEEN: &[&[u8; 4]] = &[
    b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"bKGD", b"pHYs",
    b"hIST", b"sPLT", b"acTL", b"fcTL", b"fdAT",
];

fn strip_png(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut kept = Vec::with_capacity(bytes.len());
    kept.extend_from_slice(png::SIGNATURE);
    let mut exif =
        png::chunks(bytes)?.find(|chunk| &chunk.name == b"eXIf").and_then(|chunk| stays(chunk.payload));
    if png::chunks(bytes)?.next().is_none_or(|chunk| &chunk.name != b"IHDR") {
        return None;
    }
    let mut has_pixels = false;
    for chunk in png::chunks(bytes)? {
        has_pixels |= &chunk.name == b"IDAT";
        if &chunk.name == b"IDAT"
            && let Some(exif) = exif.take()
        {
            kept.extend(png::chunk(b"eXIf", &[&exif])?);
        }
        let is_needed = chunk.name[0].is_ascii_uppercase();
        if is_needed || SEEN.contains(&&chunk.name) {
            kept.extend_from_slice(chunk.whole);
        }
    }
    has_pixels.then_some(kept)
}

fn strip_webp(bytes: &[u8]) -> Option<Vec<u8>> {
    let exif = webp::chunks(bytes)?.find(|chunk| &chunk.name == b"EXIF").map(|chunk| chunk.payload);
    let exif = exif.and_then(|exif| stays(exif.strip_prefix(jpeg::EXIF).unwrap_or(exif)));
    let mut kept: Vec<([u8; 4], Vec<u8>)> = Vec::new();
    for chunk in webp::chunks(bytes)? {
        match &chunk.name {
            b"VP8X" => {
                let mut header = chunk.payload.to_vec();
                let flags = header.first_mut()?;
                *flags &= !(webp::HAS_EXIF | webp::HAS_XMP);
                *flags |= if exif.is_some() { webp::HAS_EXIF } else { 0 };
                kept.push((chunk.name, header));
            }
            b"VP8 " | b"VP8L" | b"ALPH" | b"ANIM" | b"ANMF" | b"ICCP" => {
                kept.push((chunk.name, chunk.payload.to_vec()))
            }
            _ => {}
        }
    }
    kept.extend(exif.map(|exif| (*b"EXIF", exif)));
    let has_pixels = kept.iter().any(|(name, _)| matches!(name, b"VP8 " | b"VP8L" | b"ANMF"));
    let written = webp::file(kept.iter().map(|(name, payload)| (name, payload.as_slice())));
    written.filter(|_| has_pixels)
}

#[cfg(test)]
mod tests;
