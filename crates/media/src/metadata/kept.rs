//! The metadata that is copied from one format to another.

use crate::container::{jpeg, png, webp};
use crate::exif::Directory;
use crate::image::{self, Format};

/// The metadata of a picture, without the wrapping of its format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// EXIF: how and where the picture was taken, and its orientation.
    pub exif: Option<Vec<u8>>,
    /// The colour profile.
    pub icc: Option<Vec<u8>>,
    /// XMP: what programs wrote about the picture.
    pub xmp: Option<Vec<u8>>,
}

/// The TIFF tags of this metadata.
const TIFF_XMP: u16 = 700;
const TIFF_ICC: u16 = 34675;

/// Returns the metadata of a picture. For a TIFF, whose own directory is its EXIF, only the profile and XMP;
/// for a GIF nothing.
pub(crate) fn read(format: Format, bytes: &[u8]) -> Kept {
    let kept = match format {
        Format::Jpeg => read_jpeg(bytes),
        Format::Png => read_png(bytes),
        Format::Webp => read_webp(bytes),
        Format::Tiff => read_tiff(bytes),
        Format::Heic => image::heic_metadata(bytes),
        Format::Gif | Format::Avif => None,
    };
    kept.unwrap_or_default()
}

fn read_jpeg(bytes: &[u8]) -> Option<Kept> {
    let mut kept = Kept::default();
    let mut parts: Vec<(u8, &[u8])> = Vec::new();
    for segment in jpeg::segments(bytes)?.take_while(|segment| segment.marker != jpeg::SCAN) {
        match segment.marker {
            0xe1 if kept.exif.is_none() && segment.payload.starts_with(jpeg::EXIF) => {
                kept.exif = segment.payload.strip_prefix(jpeg::EXIF).map(<[u8]>::to_vec);
            }
            0xe1 if kept.xmp.is_none() && segment.payload.starts_with(jpeg::XMP) => {
                kept.xmp = segment.payload.strip_prefix(jpeg::XMP).map(<[u8]>::to_vec);
            }
            0xe2 => {
                if let Some([number, _, part @ ..]) = segment.payload.strip_prefix(jpeg::ICC) {
                    parts.push((*number, part));
                }
            }
            _ => {}
        }
    }
    parts.sort_by_key(|(number, _)| *number);
    let icc: Vec<u8> = parts.iter().flat_map(|(_, part)| part.iter().copied()).collect();
    kept.icc = (!icc.is_empty()).then_some(icc);
    Some(kept)
}

fn read_png(bytes: &[u8]) -> Option<Kept> {
    let mut kept = Kept::default();
    for chunk in png::chunks(bytes)? {
        match &chunk.name {
            b"eXIf" => kept.exif = Some(chunk.payload.to_vec()),
            b"iCCP" => kept.icc = png::profile(chunk.payload),
            b"iTXt" => kept.xmp = kept.xmp.or_else(|| png::xmp(chunk.payload)),
            _ => {}
        }
    }
    Some(kept)
}

fn read_webp(bytes: &[u8]) -> Option<Kept> {
    let mut kept = Kept::default();
    for chunk in webp::chunks(bytes)? {
        match &chunk.name {
            b"EXIF" => {
                kept.exif = Some(chunk.payload.strip_prefix(jpeg::EXIF).unwrap_or(chunk.payload).to_vec())
            }
            b"ICCP" => kept.icc = Some(chunk.payload.to_vec()),
            b"XMP " => kept.xmp = Some(chunk.payload.to_vec()),
            _ => {}
        }
    }
    Some(kept)
}

fn read_tiff(bytes: &[u8]) -> Option<Kept> {
    let directory = Directory::first(bytes)?;
    let value = |tag| directory.find(tag).and_then(|entry| directory.bytes(entry)).map(<[u8]>::to_vec);
    Some(Kept { exif: None, icc: value(TIFF_ICC), xmp: value(TIFF_XMP) })
}

/// Adds metadata to an encoded picture. Metadata that the format cannot hold, or not in that length, is
/// omitted: all of it for GIF; for JPEG, EXIF or XMP longer than a segment (64 KiB). A JPEG profile may have
/// many segments.
pub(crate) fn embed(format: Format, bytes: Vec<u8>, kept: &Kept) -> Vec<u8> {
    if *kept == Kept::default() {
        return bytes;
    }
    let written = match format {
        Format::Jpeg => embed_jpeg(&bytes, kept),
        Format::Png => embed_png(&bytes, kept),
        Format::Webp => embed_webp(&bytes, kept),
        // TIFF and HEIC get their metadata while they are written, since they contain the positions of all
        // parts.
        Format::Tiff | Format::Gif | Format::Avif | Format::Heic => None,
    };
    written.unwrap_or(bytes)
}

fn embed_jpeg(bytes: &[u8], kept: &Kept) -> Option<Vec<u8>> {
    // After the first segment if that is JFIF, which must be first.
    let first = jpeg::segments(bytes)?.next().filter(|segment| segment.marker == 0xe0);
    let (before, behind) = bytes.split_at_checked(2 + first.map_or(0, |segment| segment.whole.len()))?;
    let exif = kept.exif.as_ref().and_then(|exif| jpeg::segment(0xe1, &[jpeg::EXIF, exif]));
    let xmp = kept.xmp.as_ref().and_then(|xmp| jpeg::segment(0xe1, &[jpeg::XMP, xmp]));
    let icc = kept.icc.as_ref().and_then(|icc| jpeg::profile(icc));
    let added: Vec<u8> = [exif, xmp, icc].into_iter().flatten().flatten().collect();
    Some([before, &added, behind].concat())
}

fn embed_png(bytes: &[u8], kept: &Kept) -> Option<Vec<u8>> {
    let header = png::chunks(bytes)?.next()?;
    let (before, behind) = bytes.split_at_checked(png::SIGNATURE.len() + header.whole.len())?;
    let exif = kept.exif.as_ref().and_then(|exif| png::chunk(b"eXIf", &[exif]));
    let xmp = kept.xmp.as_ref().and_then(|xmp| png::xmp_chunk(xmp));
    let icc = kept.icc.as_ref().and_then(|icc| png::profile_chunk(icc));
    let added: Vec<u8> = [icc, exif, xmp].into_iter().flatten().flatten().collect();
    Some([before, &added, behind].concat())
}

fn embed_webp(bytes: &[u8], kept: &Kept) -> Option<Vec<u8>> {
    let header = webp::header(bytes)?;
    let chunks: Vec<_> = webp::chunks(bytes)?.filter(|chunk| &chunk.name != b"VP8X").collect();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(header.has_alpha, webp::HAS_ALPHA)
        | flag(kept.icc.is_some(), webp::HAS_ICC)
        | flag(kept.exif.is_some(), webp::HAS_EXIF)
        | flag(kept.xmp.is_some(), webp::HAS_XMP);
    let extended = webp::extended(flags, header.width, header.height);
    let first = std::iter::once((b"VP8X", extended.as_slice()));
    let icc = kept.icc.iter().map(|icc| (b"ICCP", icc.as_slice()));
    let pixels = chunks.iter().map(|chunk| (&chunk.name, chunk.payload));
    let exif = kept.exif.iter().map(|exif| (b"EXIF", exif.as_slice()));
    let xmp = kept.xmp.iter().map(|xmp| (b"XMP ", xmp.as_slice()));
    webp::file(first.chain(icc).chain(pixels).chain(exif).chain(xmp))
}
