//! Encodes pixels in each format.

#[cfg(feature = "avif")]
use std::borrow::Cow;
use std::io::Cursor;

use jpeg_encoder::{ColorType as JpegColour, Encoder as JpegEncoder};
use tiff::encoder::colortype::{Gray8, RGB8, RGBA8};
use tiff::encoder::{Compression as TiffCompression, Predictor, Rational, TiffEncoder};
use tiff::tags::{ResolutionUnit, Tag};

use super::pixels::Pixels;
use super::{Conversion, DEFAULT_EFFORT, Format, ImageError, heic};
use crate::metadata::Kept;

/// Returns a file in the requested format. `kept` is used only by formats that write metadata together with
/// the pixels.
pub(super) fn encode(pixels: Pixels, conversion: &Conversion, kept: &Kept) -> Result<Vec<u8>, ImageError> {
    let effort = conversion.effort.unwrap_or(DEFAULT_EFFORT);
    match conversion.to {
        Format::Jpeg => jpeg(pixels, conversion.quality, effort),
        Format::Png => png(&pixels, effort),
        Format::Gif => gif(pixels, effort),
        Format::Webp => webp(pixels, conversion.quality, effort),
        Format::Tiff => tiff(pixels, kept),
        Format::Avif => avif(pixels, conversion.quality, effort, kept),
        Format::Heic => heic::encode(pixels, conversion.quality, kept),
    }
}

fn failed(format: Format, why: impl ToString) -> ImageError {
    ImageError::Unsupported { format, why: format!("it could not be written: {}", why.to_string()) }
}

/// Returns width and height; they were compared with the limits of the format before.
fn side(format: Format, pixels: &Pixels) -> Result<(u16, u16), ImageError> {
    let too_large = |_| ImageError::TooLarge { format, width: pixels.width, height: pixels.height };
    Ok((u16::try_from(pixels.width).map_err(too_large)?, u16::try_from(pixels.height).map_err(too_large)?))
}

fn jpeg(pixels: Pixels, quality: u8, effort: u8) -> Result<Vec<u8>, ImageError> {
    let pixels = pixels.into_opaque();
    let (width, height) = side(Format::Jpeg, &pixels)?;
    let mut file = Vec::with_capacity(pixels.data.len() / 8);
    let mut encoder = JpegEncoder::new(&mut file, quality);
    // Optimised tables need a second pass through the picture, and save up to a fifth. capyfile has them,
    // too.
    encoder.set_optimized_huffman_tables(effort >= 2);
    encoder.set_progressive(effort >= 6);
    let colour = if pixels.has_colour() { JpegColour::Rgb } else { JpegColour::Luma };
    encoder.encode(&pixels.data, width, height, colour).map_err(|error| failed(Format::Jpeg, error))?;
    Ok(file)
}

fn png(pixels: &Pixels, effort: u8) -> Result<Vec<u8>, ImageError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, pixels.width, pixels.height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match pixels.channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_compression(match effort {
        0 => png::Compression::Fastest,
        1..=2 => png::Compression::Fast,
        3..=4 => png::Compression::Balanced,
        _ => png::Compression::High,
    });
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels.data)?;
        writer.finish()
    });
    written.map_err(|error| failed(Format::Png, error))?;
    Ok(file)
}

fn gif(pixels: Pixels, effort: u8) -> Result<Vec<u8>, ImageError> {
    let (width, height) = side(Format::Gif, &pixels)?;
    let mut pixels = pixels.into_colour();
    // The speed of the search for the 256 colours, from 1 (uses all pixels) to 30 (uses one pixel in thirty).
    let speed = [30, 20, 10, 7, 5, 3, 1].get(usize::from(effort)).copied().unwrap_or(10);
    let frame = match pixels.channels {
        3 => gif::Frame::from_rgb_speed(width, height, &pixels.data, speed),
        _ => gif::Frame::from_rgba_speed(width, height, &mut pixels.data, speed),
    };
    let mut file = Vec::new();
    let encoder = gif::Encoder::new(&mut file, width, height, &[]);
    let written = encoder.and_then(|mut encoder| encoder.write_frame(&frame));
    written.map_err(|error| failed(Format::Gif, error))?;
    Ok(file)
}

fn webp(pixels: Pixels, quality: u8, effort: u8) -> Result<Vec<u8>, ImageError> {
    let pixels = pixels.into_colour();
    let layout = if pixels.has_alpha() { webp::PixelLayout::Rgba } else { webp::PixelLayout::Rgb };
    let mut config =
        webp::WebPConfig::new().map_err(|()| failed(Format::Webp, "libwebp has an incompatible version"))?;
    config.quality = quality.into();
    config.method = effort.into();
    let encoder = webp::Encoder::new(&pixels.data, layout, pixels.width, pixels.height);
    let file = encoder.encode_advanced(&config);
    file.map(|file| file.to_vec()).map_err(|error| failed(Format::Webp, format!("{error:?}")))
}

fn tiff(pixels: Pixels, kept: &Kept) -> Result<Vec<u8>, ImageError> {
    // The format has grey with alpha, but the library cannot write it.
    let pixels = if pixels.channels == 2 { pixels.into_colour() } else { pixels };
    let mut file = Cursor::new(Vec::new());
    let written = write_tiff(&mut file, &pixels, kept);
    written.map_err(|error| failed(Format::Tiff, error))?;
    Ok(file.into_inner())
}

fn write_tiff(file: &mut Cursor<Vec<u8>>, pixels: &Pixels, kept: &Kept) -> Result<(), tiff::TiffError> {
    let encoder = TiffEncoder::new(file)?;
    let mut encoder = encoder.with_compression(TiffCompression::Lzw).with_predictor(Predictor::Horizontal);
    macro_rules! write {
        ($colour:ty) => {{
            let mut image = encoder.new_image::<$colour>(pixels.width, pixels.height)?;
            image.resolution(ResolutionUnit::Inch, Rational { n: 72, d: 1 });
            if let Some(icc) = &kept.icc {
                image.encoder().write_tag(Tag::IccProfile, icc.as_slice())?;
            }
            if let Some(xmp) = &kept.xmp {
                image.encoder().write_tag(Tag::Unknown(700), xmp.as_slice())?;
            }
            image.write_data(&pixels.data)
        }};
    }
    match pixels.channels {
        1 => write!(Gray8),
        3 => write!(RGB8),
        _ => write!(RGBA8),
    }
}

#[cfg(not(feature = "avif"))]
fn avif(_: Pixels, _: u8, _: u8, _: &Kept) -> Result<Vec<u8>, ImageError> {
    let why = super::not_written(Format::Avif).unwrap_or_default().to_owned();
    Err(ImageError::Unsupported { format: Format::Avif, why })
}

#[cfg(feature = "avif")]
fn avif(pixels: Pixels, quality: u8, effort: u8, kept: &Kept) -> Result<Vec<u8>, ImageError> {
    let pixels = pixels.into_colour();
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    // The encoder's speeds are 10 (fastest) to 1; below 4, it takes seconds per megapixel.
    let encoder =
        ravif::Encoder::new().with_quality(quality.into()).with_speed(10 - effort).with_num_threads(Some(1));
    let encoder = match &kept.exif {
        Some(exif) => encoder.with_exif(Cow::Borrowed(exif.as_slice())),
        None => encoder,
    };
    let encoded = if pixels.has_alpha() {
        let data: Vec<_> =
            pixels.data.as_chunks().0.iter().map(|[r, g, b, a]| ravif::RGBA8::new(*r, *g, *b, *a)).collect();
        encoder.encode_rgba(ravif::Img::new(&data, width, height))
    } else {
        let data: Vec<_> =
            pixels.data.as_chunks().0.iter().map(|[r, g, b]| ravif::RGB8::new(*r, *g, *b)).collect();
        encoder.encode_rgb(ravif::Img::new(&data, width, height))
    };
    encoded.map(|encoded| encoded.avif_file).map_err(|error| failed(Format::Avif, error))
}
