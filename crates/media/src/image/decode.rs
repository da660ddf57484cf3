//! Decodes the pixels of each format.
//!
//! All decoders are written in Rust. A bug in a decoder is therefore at most a panic, and a panic only
//! damages the picture. libwebp, which is written in C, encodes our own pixels and never sees foreign bytes.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

use image_webp::WebPDecoder;
use tiff::ColorType as TiffColour;
use tiff::decoder::DecodingResult;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::pixels::Pixels;
use super::{Format, ImageError, ImageInfo, external, heic};
use crate::container;

/// Returns the pixels of a picture, at most as many as its header promised.
pub(super) fn decode(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    let decode = || match info.format {
        Format::Jpeg => jpeg(bytes, info),
        Format::Png => png(bytes, info),
        Format::Gif => gif(bytes, info),
        Format::Webp => webp(bytes, info),
        Format::Tiff => tiff(bytes, info),
        Format::Heic => heic::decode(bytes, info),
        Format::Avif => {
            Err(unsupported(info, format!("this format is not supported; {}", external::INSTALL)))
        }
    };
    let pixels = catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(damaged(info, "the decoder panicked on it")))?;
    let length = u64::from(pixels.width) * u64::from(pixels.height) * u64::from(pixels.channels);
    if pixels.data.len() as u64 != length || (pixels.width, pixels.height) != (info.width, info.height) {
        return Err(damaged(info, "the number of its pixels differs from its header"));
    }
    Ok(pixels)
}

fn damaged(info: &ImageInfo, why: impl ToString) -> ImageError {
    ImageError::Damaged { format: info.format, why: why.to_string() }
}

fn unsupported(info: &ImageInfo, why: impl ToString) -> ImageError {
    ImageError::Unsupported { format: info.format, why: why.to_string() }
}

/// Allocates memory for all pixels, if the machine has that much.
fn room(info: &ImageInfo, channels: u8) -> Result<Vec<u8>, ImageError> {
    let length = u64::from(info.width).saturating_mul(info.height.into()).saturating_mul(channels.into());
    let mut room = Vec::new();
    let length = usize::try_from(length).map_err(|_| damaged(info, "its size exceeds the address space"))?;
    room.try_reserve_exact(length).map_err(|_| damaged(info, "there is not enough memory for it"))?;
    room.resize(length, 0);
    Ok(room)
}

fn jpeg(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    let space = if info.channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    let side = Format::Jpeg.longest_side() as usize;
    let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
    let options = options.set_max_width(side).set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| damaged(info, error))?;
    let declared = decoder.info().map(|declared| (u32::from(declared.width), u32::from(declared.height)));
    let mut data = room(info, info.channels)?;
    if declared != Some((info.width, info.height)) || decoder.output_buffer_size() != Some(data.len()) {
        return Err(damaged(info, "its headers contradict each other"));
    }
    decoder.decode_into(&mut data).map_err(|error| damaged(info, error))?;
    Ok(Pixels { width: info.width, height: info.height, channels: info.channels, data })
}

fn png(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    // Text and profiles are read elsewhere, and could be much larger when decompressed.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|error| damaged(info, error))?;
    let channels = reader.output_color_type().0.samples() as u8;
    let mut data = room(info, channels)?;
    if reader.output_buffer_size() != Some(data.len()) {
        return Err(damaged(info, "its header contradicts itself"));
    }
    reader.next_frame(&mut data).map_err(|error| damaged(info, error))?;
    Ok(Pixels { width: info.width, height: info.height, channels, data })
}

fn gif(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let mut decoder = options.read_info(bytes).map_err(|error| damaged(info, error))?;
    let frame = decoder.next_frame_info().map_err(|error| damaged(info, error))?;
    let frame = frame.ok_or_else(|| damaged(info, "it contains no picture"))?;
    let (left, top, width) = (usize::from(frame.left), usize::from(frame.top), usize::from(frame.width));
    let is_whole = (u32::from(frame.width), u32::from(frame.height)) == (info.width, info.height);
    let mut canvas = room(info, 4)?;
    if is_whole {
        decoder.read_into_buffer(&mut canvas).map_err(|error| damaged(info, error))?;
    } else {
        let mut part = vec![0; decoder.buffer_size()];
        decoder.read_into_buffer(&mut part).map_err(|error| damaged(info, error))?;
        let lines = part.chunks_exact((width * 4).max(1));
        for (line, to) in lines.zip(canvas.chunks_exact_mut(info.width as usize * 4).skip(top)) {
            let to = to.get_mut(left * 4..(left + width) * 4);
            to.ok_or_else(|| damaged(info, "a frame exceeds the size of the picture"))?.copy_from_slice(line);
        }
    }
    Ok(Pixels { width: info.width, height: info.height, channels: 4, data: canvas })
}

fn webp(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    if info.is_animated {
        return Err(unsupported(info, "animated pictures are not supported; leave them unconverted"));
    }
    // The decoder takes one of several pictures, and it may not be the one whose size is known.
    let pictures = container::webp::chunks(bytes).into_iter().flatten();
    if pictures.filter(|chunk| [*b"VP8 ", *b"VP8L"].contains(&chunk.name)).count() != 1 {
        return Err(damaged(info, "it does not contain exactly one picture"));
    }
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| damaged(info, error))?;
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let mut data = room(info, channels)?;
    decoder.read_image(&mut data).map_err(|error| damaged(info, error))?;
    Ok(Pixels { width: info.width, height: info.height, channels, data })
}

fn tiff(bytes: &[u8], info: &ImageInfo) -> Result<Pixels, ImageError> {
    let mut limits = tiff::decoder::Limits::default();
    limits.decoding_buffer_size = usize::try_from(info.decoded_bytes).unwrap_or(usize::MAX);
    limits.intermediate_buffer_size = limits.decoding_buffer_size;
    let decoder = tiff::decoder::Decoder::new(Cursor::new(bytes)).map_err(|error| of_tiff(info, error))?;
    let mut decoder = decoder.with_limits(limits);
    let size = decoder.dimensions().map_err(|error| of_tiff(info, error))?;
    let colour = decoder.colortype().map_err(|error| of_tiff(info, error))?;
    if size != (info.width, info.height) {
        return Err(damaged(info, "its headers contradict each other"));
    }
    let data = match decoder.read_image().map_err(|error| of_tiff(info, error))? {
        DecodingResult::U8(data) => data,
        // The upper byte of each value; the lower one makes no visible difference.
        DecodingResult::U16(data) => data.iter().map(|value| (value >> 8) as u8).collect(),
        _ => {
            return Err(unsupported(
                info,
                "its pixels have neither 8 nor 16 bits per channel; convert it to one of these",
            ));
        }
    };
    let (channels, data) = match colour {
        TiffColour::Gray(1) => (1, bits(&data, info)),
        TiffColour::Gray(8 | 16) => (1, data),
        TiffColour::GrayA(8 | 16) => (2, data),
        TiffColour::RGB(8 | 16) => (3, data),
        TiffColour::RGBA(8 | 16) => (4, data),
        TiffColour::CMYK(8 | 16) => (3, data.as_chunks().0.iter().flat_map(from_cmyk).collect()),
        other => {
            return Err(unsupported(
                info,
                format!("pixels of type `{other:?}` are not supported; convert them to RGB"),
            ));
        }
    };
    Ok(Pixels { width: info.width, height: info.height, channels, data })
}

fn of_tiff(info: &ImageInfo, error: tiff::TiffError) -> ImageError {
    match error {
        tiff::TiffError::UnsupportedError(error) => unsupported(info, error),
        error => damaged(info, error),
    }
}

/// Unpacks pixels of one bit: eight per byte, each row starting at a byte.
fn bits(data: &[u8], info: &ImageInfo) -> Vec<u8> {
    let width = info.width as usize;
    let rows = data.chunks_exact(width.div_ceil(8).max(1));
    let pixels = |row: &[u8]| -> Vec<u8> {
        let pixel =
            |x: usize| row.get(x / 8).map_or(0, |byte| if byte >> (7 - x % 8) & 1 == 1 { 255 } else { 0 });
        (0..width).map(pixel).collect()
    };
    rows.flat_map(pixels).collect()
}

fn from_cmyk([c, m, y, k]: &[u8; 4]) -> [u8; 3] {
    let light = 255 - u32::from(*k);
    [c, m, y].map(|ink| (((255 - u32::from(*ink)) * light + 127) / 255) as u8)
}
