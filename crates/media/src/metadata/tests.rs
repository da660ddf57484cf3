use super::*;
use crate::image::{Conversion, convert, probe};

const FORMATS: [Format; 3] = [Format::Jpeg, Format::Png, Format::Webp];

fn plain(format: Format) -> Vec<u8> {
    let mut made = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut made, 16, 8);
    encoder.set_color(::png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&(0..16 * 8 * 3).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    writer.finish().unwrap();
    let conversion = Conversion {
        to: format,
        quality: 90,
        effort: None,
        size: None,
        rotate: false,
        strip: true,
        is_upright: false,
    };
    convert(&made, &conversion).unwrap()
}

fn metadata(orientation: u8) -> Kept {
    Kept {
        exif: Some([exif::minimal(orientation), b"secret place".to_vec()].concat()),
        icc: Some([&[0; 16][..], b"RGB profile"].concat()),
        xmp: Some(b"secret name".to_vec()),
    }
}

/// Returns the parts of a file that contain its pixels.
fn pixels(format: Format, bytes: &[u8]) -> Vec<Vec<u8>> {
    match format {
        Format::Jpeg => jpeg::segments(bytes)
            .unwrap()
            .filter(|segment| !matches!(segment.marker, 0xe0..=0xef | 0xfe))
            .map(|segment| segment.whole.to_vec())
            .collect(),
        Format::Png => png::chunks(bytes)
            .unwrap()
            .filter(|chunk| matches!(&chunk.name, b"IHDR" | b"IDAT" | b"IEND"))
            .map(|chunk| chunk.whole.to_vec())
            .collect(),
        _ => webp::chunks(bytes)
            .unwrap()
            .filter(|chunk| &chunk.name == b"VP8 ")
            .map(|chunk| chunk.payload.to_vec())
            .collect(),
    }
}

#[test]
fn what_tells_nothing_is_left_as_it_is() {
    for format in FORMATS {
        assert_eq!(strip(&plain(format)), Ok(None), "{format}");
    }
}

#[test]
fn only_the_profile_is_left_and_the_pixels_are_the_same() {
    for format in FORMATS {
        let bytes = embed(format, plain(format), &metadata(1));
        let stripped = strip(&bytes).unwrap().unwrap();
        assert_eq!(read(format, &stripped), Kept { icc: metadata(1).icc, ..Kept::default() }, "{format}");
        assert_eq!(pixels(format, &stripped), pixels(format, &bytes), "{format}");
        assert!(memchr::memmem::find(&stripped, b"secret").is_none());
        assert_eq!(strip(&stripped), Ok(None), "{format}");
        probe(&stripped).unwrap();
    }
}

#[test]
fn which_way_up_it_is_stays_and_nothing_else_of_exif() {
    for format in FORMATS {
        let stripped = strip(&embed(format, plain(format), &metadata(8))).unwrap().unwrap();
        assert_eq!(read(format, &stripped).exif, Some(exif::minimal(8)), "{format}");
        assert_eq!(probe(&stripped).unwrap().orientation, 8);
        assert_eq!(strip(&stripped), Ok(None), "{format}");
    }
}

#[test]
fn comments_and_what_stands_behind_the_end_are_removed() {
    let jpeg = plain(Format::Jpeg);
    let with = [&jpeg[..2], &jpeg::segment(0xfe, &[b"secret"]).unwrap(), &jpeg[2..], b"a film"].concat();
    assert_eq!(strip(&with), Ok(Some(jpeg)));
    let png = plain(Format::Png);
    let with =
        [&png[..33], &png::chunk(b"tEXt", &[b"Author\0secret"]).unwrap(), &png[33..], b"behind"].concat();
    assert_eq!(strip(&with), Ok(Some(png)));
}

#[test]
fn a_small_picture_in_the_first_segment_is_removed() {
    let jpeg = plain(Format::Jpeg);
    let first = jpeg::segments(&jpeg).unwrap().next().unwrap();
    assert_eq!(first.marker, 0xe0);
    let small = jpeg::segment(0xe0, &[&first.payload[..12], &[1, 1], b"rgb"]).unwrap();
    let with = [&jpeg[..2], &small, &jpeg[2 + first.whole.len()..]].concat();
    assert_eq!(strip(&with), Ok(Some(jpeg)));
}

#[test]
fn what_is_cut_off_before_its_pixels_is_an_error() {
    for format in FORMATS {
        let bytes = embed(format, plain(format), &metadata(1));
        for end in 0..bytes.len() {
            let _ = strip(&bytes[..end]);
        }
        let error = strip(&bytes[..bytes.len().min(30)]).unwrap_err();
        let expected = format!(
            "the {format} is damaged: it ends before its pixels, or the lengths of its parts are wrong"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn other_formats_are_told_to_go_elsewhere() {
    let error = strip(b"GIF89a\x01\0\x01\0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "GIF: metadata can be removed from JPEG, PNG and WebP only; use `exiftool` for other formats"
    );
    assert_eq!(strip(b"text"), Err(ImageError::NotAnImage));
}
