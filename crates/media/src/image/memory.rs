//! What a conversion takes.

use super::{Conversion, DEFAULT_EFFORT, Format, ImageInfo, resize};

/// The bytes that [`convert`](super::convert) takes at its peak, beside those it is given: an upper bound, about five
/// times the decoded pixels where the size stays, and for what WebP makes of alpha or at an effort above 2, up to fifteen.
///
/// That is the largest of the steps: decoding; changing the size, with the original, a copy of it where one can see through
/// it, what is narrower but not yet lower, and the result; turning, with a copy; encoding, with what the encoder holds of
/// each pixel and the file. Saturates rather than overflows.
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
    let turning = if conversion.rotate && info.orientation > 1 { after.saturating_mul(2) } else { 0 };
    let pixels = after / channels.max(1);
    let encoding = after.saturating_add(pixels.saturating_mul(beside(info, conversion)));
    // Tables and buffers, which even a picture of one pixel takes.
    let fixed = 1 << 20;
    info.decoded_bytes.max(resizing).max(turning).max(encoding).saturating_add(fixed)
}

/// The bytes that an encoder holds for each pixel beside it: its own form of the pixels, and the file, twice where it is put
/// together with metadata. How long a file gets depends on the picture, so these are for noise at the best quality.
fn beside(info: &ImageInfo, conversion: &Conversion) -> u64 {
    match conversion.to {
        Format::Jpeg => 12,
        // What cannot be compressed is held three times over while it is written.
        Format::Png => 4 * u64::from(info.channels),
        Format::Gif => 8,
        // From effort 3, libwebp keeps all it found for a second look; what one sees through is a picture of its own.
        Format::Webp => {
            let looks = if conversion.effort.unwrap_or(DEFAULT_EFFORT) > 2 { 30 } else { 14 };
            looks + if info.has_alpha { 24 } else { 0 }
        }
        Format::Tiff => 10,
        Format::Avif | Format::Heic => 80,
    }
}
