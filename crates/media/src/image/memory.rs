//! The memory that a conversion needs.

use super::{Conversion, DEFAULT_EFFORT, Format, ImageInfo, resize};

/// Returns the peak memory of [`convert`](super::convert) in bytes, beside its input. This is an upper bound:
/// about five times the decoded pixels if the size stays, and up to fifteen times for WebP with alpha or at
/// an effort above 2.
///
/// It is the maximum of the steps. Decoding. Resizing: the original, a copy of it if it has transparency, the
/// picture with the new width but the old height, and the result. Rotating, with a copy. Encoding: the
/// encoder's memory per pixel, and the file. The result saturates instead of overflowing.
pub fn memory_needed(info: &ImageInfo, conversion: &Conversion) -> u64 {
    let channels = u64::from(info.channels);
    let bytes = |(width, height): (u32, u32)| {
        u64::from(width).saturating_mul(u64::from(height)).saturating_mul(channels)
    };
    let before = bytes((info.width, info.height));
    let plan = resize::plan(info, conversion);
    let after = bytes(plan.seen);
    let resizing = plan.target.map_or(0, |target| {
        let narrow = bytes((target.width, info.height));
        let weighed = if info.has_alpha { before } else { 0 };
        before.saturating_add(weighed).saturating_add(narrow).saturating_add(after)
    });
    let turning = if conversion.turns() && info.orientation > 1 { after.saturating_mul(2) } else { 0 };
    let pixels = after / channels.max(1);
    let encoding = after.saturating_add(pixels.saturating_mul(beside(info, conversion)));
    // Tables and buffers that even a picture of one pixel needs. The LZW encoder of TIFF takes 16 MiB of
    // them.
    let fixed = if conversion.to == Format::Tiff { 17 << 20 } else { 1 << 20 };
    info.decoded_bytes.max(resizing).max(turning).max(encoding).saturating_add(fixed)
}

/// Returns the bytes per pixel that an encoder uses beside the pixels: its own form of them, and the file,
/// twice if it is combined with metadata. The length of a file depends on the picture, so these values are
/// for noise at the best quality.
fn beside(info: &ImageInfo, conversion: &Conversion) -> u64 {
    match conversion.to {
        Format::Jpeg => 12,
        // Incompressible data is held three times while it is written.
        Format::Png => 4 * u64::from(info.channels),
        Format::Gif => 8,
        // From effort 3, libwebp keeps its results for a second pass. Alpha is encoded as a separate picture.
        Format::Webp => {
            let looks = if conversion.effort.unwrap_or(DEFAULT_EFFORT) > 2 { 30 } else { 14 };
            looks + if info.has_alpha { 24 } else { 0 }
        }
        Format::Tiff => 10,
        Format::Avif => 80,
        // With metadata, the encoder takes 16 bits for each channel.
        Format::Heic => 24,
    }
}
