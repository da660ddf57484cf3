//! Computes the output size of a picture, and resizes it.

use fast_image_resize::images::Image;
use fast_image_resize::pixels::{U8, U8x2, U8x3, U8x4};
use fast_image_resize::{PixelTrait, ResizeOptions, Resizer};

use super::pixels::Pixels;
use super::{Conversion, Fit, Format, ImageError, ImageInfo, Resize, orient};

/// The output size of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// The size to resize the stored pixels to, before they are rotated; `None` keeps them.
    pub target: Option<Target>,
    /// Width and height of the result.
    pub seen: (u32, u32),
}

/// A size, and whether to crop or to distort a picture with another aspect ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    is_cut: bool,
}

/// Computes the output size of a picture.
pub(super) fn plan(info: &ImageInfo, conversion: &Conversion) -> Plan {
    let is_turned = conversion.turns() && orient::swaps(info.orientation);
    let turn = |(width, height)| if is_turned { (height, width) } else { (width, height) };
    let before = turn((info.width, info.height));
    let seen = conversion.size.map_or(before, |size| fit(before, size));
    let (width, height) = turn(seen);
    let is_cut = conversion.size.is_some_and(|size| size.fit == Fit::Cover);
    let target = (seen != before).then_some(Target { width, height, is_cut });
    Plan { target, seen }
}

fn fit((width, height): (u32, u32), size: Resize) -> (u32, u32) {
    let least = |asked: Option<u32>, is: u32| match asked {
        Some(asked) if size.enlarge => asked,
        Some(asked) => asked.min(is),
        None => is,
    };
    let all = (least(size.width, width), least(size.height, height));
    match (size.fit, size.width, size.height) {
        (_, None, None) => (width, height),
        (Fit::Fill, _, _) | (Fit::Cover, Some(_), Some(_)) => all,
        (_, asked_width, asked_height) => {
            let ratio = |asked: Option<u32>, is: u32| {
                asked.map_or(f64::INFINITY, |asked| f64::from(asked) / f64::from(is))
            };
            let scale = ratio(asked_width, width).min(ratio(asked_height, height));
            let scale = if size.enlarge { scale } else { scale.min(1.0) };
            // A float that is too large becomes the largest integer, which no format accepts.
            let scaled = |is: u32| ((f64::from(is) * scale).round() as u32).max(1);
            (scaled(width), scaled(height))
        }
    }
}

/// Resizes the picture. Each pixel is a weighted sum of its neighbours (Lanczos, three lobes), in which
/// transparent pixels count less.
pub(super) fn resize(pixels: Pixels, target: Target, format: Format) -> Result<Pixels, ImageError> {
    match pixels.channels {
        1 => typed::<U8>(pixels, target),
        2 => typed::<U8x2>(pixels, target),
        3 => typed::<U8x3>(pixels, target),
        _ => typed::<U8x4>(pixels, target),
    }
    .map_err(|why| ImageError::Damaged { format, why })
}

/// The library can determine the type itself, but then the code of all its thirteen types is compiled in.
fn typed<P: PixelTrait>(pixels: Pixels, target: Target) -> Result<Pixels, String> {
    let kind = P::pixel_type();
    let from = Image::from_vec_u8(pixels.width, pixels.height, pixels.data, kind);
    let from = from.map_err(|error| error.to_string())?;
    let mut to = Image::new(target.width, target.height, kind);
    let options = ResizeOptions::new();
    let options = if target.is_cut { options.fit_into_destination(None) } else { options };
    let (Some(before), Some(mut after)) = (from.typed_image::<P>(), to.typed_image_mut::<P>()) else {
        return Err("its pixels do not fit their type".to_owned());
    };
    Resizer::new().resize_typed(&before, &mut after, &options).map_err(|error| error.to_string())?;
    Ok(Pixels { width: target.width, height: target.height, channels: pixels.channels, data: to.into_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32, fit: Fit, enlarge: bool) -> Resize {
        let some = |side: u32| (side > 0).then_some(side);
        Resize { width: some(width), height: some(height), fit, enlarge }
    }

    #[test]
    fn sizes_are_as_they_are_asked_for() {
        for (asked, is) in [
            (size(500, 0, Fit::Inside, false), (500, 400)),
            (size(500, 500, Fit::Inside, false), (500, 400)),
            (size(2000, 2000, Fit::Inside, false), (1000, 800)),
            (size(2000, 2000, Fit::Inside, true), (2000, 1600)),
            (size(1, 1, Fit::Inside, false), (1, 1)),
            (size(300, 300, Fit::Cover, false), (300, 300)),
            (size(2000, 300, Fit::Cover, false), (1000, 300)),
            (size(2000, 300, Fit::Cover, true), (2000, 300)),
            (size(0, 80, Fit::Cover, false), (100, 80)),
            (size(10, 700, Fit::Fill, false), (10, 700)),
            (size(10, 0, Fit::Fill, false), (10, 800)),
            (size(0, 0, Fit::Inside, true), (1000, 800)),
        ] {
            assert_eq!(fit((1000, 800), asked), is, "{asked:?}");
        }
    }
}
