use proptest::prelude::*;

use super::*;
use crate::container::{jpeg, png, webp};

/// Creates a picture with a gradient and an edge.
fn picture(width: u32, height: u32, channels: u8) -> pixels::Pixels {
    let pixel = |x: u32, y: u32| {
        let grey = ((x * 255 / width) as u8, (y * 255 / height) as u8, if x > y { 200 } else { 20 });
        let alpha = if x + y > width { 255 } else { 100 };
        match channels {
            1 => vec![grey.0],
            2 => vec![grey.0, alpha],
            3 => vec![grey.0, grey.1, grey.2],
            _ => vec![grey.0, grey.1, grey.2, alpha],
        }
    };
    let data = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect();
    pixels::Pixels { width, height, channels, data }
}

/// A conversion to PNG that changes nothing else.
pub(super) const PLAIN: Conversion = Conversion {
    to: Format::Png,
    quality: 90,
    effort: None,
    size: None,
    rotate: true,
    strip: false,
    is_upright: false,
};

const WRITTEN: [Format; 6] =
    [Format::Jpeg, Format::Png, Format::Gif, Format::Webp, Format::Tiff, Format::Heic];

fn file(format: Format, width: u32, height: u32, channels: u8) -> Vec<u8> {
    let conversion = Conversion { to: format, ..PLAIN };
    encode::encode(picture(width, height, channels), &conversion, &Kept::default()).unwrap()
}

fn decoded(bytes: &[u8]) -> pixels::Pixels {
    decode::decode(bytes, &probe(bytes).unwrap()).unwrap()
}

#[test]
fn every_format_becomes_every_other() {
    for from in WRITTEN {
        for channels in 1..=4 {
            let original = file(from, 50, 37, channels);
            let info = probe(&original).unwrap();
            assert_eq!((info.format, info.width, info.height), (from, 50, 37));
            for to in WRITTEN {
                let made = convert(&original, &Conversion { to, ..PLAIN }).unwrap();
                let info = probe(&made).unwrap();
                assert_eq!((info.format, info.width, info.height), (to, 50, 37), "{from} {to} {channels}");
                decoded(&made);
            }
        }
    }
}

#[test]
fn what_loses_nothing_is_the_same_again() {
    for format in [Format::Png, Format::Tiff] {
        for channels in [1, 3, 4] {
            assert_eq!(decoded(&file(format, 33, 21, channels)), picture(33, 21, channels));
        }
    }
    assert_eq!(decoded(&file(Format::Png, 33, 21, 2)), picture(33, 21, 2));
}

#[test]
fn what_loses_something_is_near() {
    for format in [Format::Jpeg, Format::Webp, Format::Gif] {
        let is = decoded(&file(format, 64, 64, 3)).into_opaque();
        let far = is.data.iter().zip(&picture(64, 64, 3).data).filter(|(a, b)| a.abs_diff(**b) > 60).count();
        assert!(far < is.data.len() / 20, "{format}: {far}");
    }
}

#[test]
fn what_one_sees_through_is_white_where_it_cannot_be() {
    let clear = pixels::Pixels { width: 8, height: 8, channels: 4, data: [10, 20, 30, 0].repeat(64) };
    let clear = encode::encode(clear, &PLAIN, &Kept::default()).unwrap();
    let made = convert(&clear, &Conversion { to: Format::Jpeg, ..PLAIN }).unwrap();
    assert!(decoded(&made).data.iter().all(|value| *value > 250));
}

#[test]
fn sizes_are_made() {
    let original = file(Format::Png, 100, 80, 4);
    for (fit, is) in [(Fit::Inside, (38, 30)), (Fit::Cover, (60, 30)), (Fit::Fill, (60, 30))] {
        let size = Some(Resize { width: Some(60), height: Some(30), fit, enlarge: false });
        let info = probe(&convert(&original, &Conversion { size, ..PLAIN }).unwrap()).unwrap();
        assert_eq!((info.width, info.height), is);
    }
}

/// Creates a JPEG with all the metadata that a camera adds.
fn photograph(orientation: u8) -> Vec<u8> {
    let mut icc = vec![7; 70_000];
    icc[16..20].copy_from_slice(b"RGB ");
    let kept =
        Kept { exif: Some(exif::minimal(orientation)), icc: Some(icc), xmp: Some(b"<x:xmpmeta/>".to_vec()) };
    embed(Format::Jpeg, file(Format::Jpeg, 40, 24, 3), &kept)
}

#[test]
fn a_turned_picture_is_turned_and_says_so_no_longer() {
    let original = photograph(6);
    assert_eq!(probe(&original).unwrap().orientation, 6);
    let made = convert(&original, &Conversion { to: Format::Webp, ..PLAIN }).unwrap();
    let info = probe(&made).unwrap();
    assert_eq!((info.width, info.height, info.orientation), (24, 40, 1));
    let size = Some(Resize { width: Some(12), height: None, fit: Fit::Inside, enlarge: false });
    let info = probe(&convert(&original, &Conversion { size, ..PLAIN }).unwrap()).unwrap();
    assert_eq!((info.width, info.height), (12, 20));
    let made =
        convert(&original, &Conversion { to: Format::Webp, rotate: false, strip: true, ..PLAIN }).unwrap();
    let info = probe(&made).unwrap();
    assert_eq!((info.width, info.height, info.orientation), (40, 24, 6));
}

#[test]
fn what_a_picture_tells_goes_along_unless_it_is_to_be_left_out() {
    let original = photograph(1);
    let has = read(Format::Jpeg, &original);
    assert!(has.exif.is_some() && has.icc.is_some() && has.xmp.is_some());
    for to in [Format::Jpeg, Format::Png, Format::Webp] {
        assert_eq!(read(to, &convert(&original, &Conversion { to, ..PLAIN }).unwrap()), has, "{to}");
        let made = convert(&original, &Conversion { to, strip: true, ..PLAIN }).unwrap();
        assert_eq!(read(to, &made), Kept { icc: has.icc.clone(), ..Kept::default() }, "{to}");
    }
    let made = convert(&original, &Conversion { to: Format::Tiff, ..PLAIN }).unwrap();
    assert_eq!(read(Format::Tiff, &made), Kept { exif: None, ..has.clone() });
    let made = convert(&made, &Conversion { to: Format::Webp, ..PLAIN }).unwrap();
    assert_eq!(read(Format::Webp, &made), Kept { exif: None, ..has });
}

#[test]
fn a_profile_of_other_colours_is_left_out() {
    let mut icc = vec![0; 128];
    icc[16..20].copy_from_slice(b"CMYK");
    let original =
        embed(Format::Jpeg, file(Format::Jpeg, 8, 8, 3), &Kept { icc: Some(icc), ..Kept::default() });
    assert_eq!(read(Format::Png, &convert(&original, &PLAIN).unwrap()).icc, None);
}

fn bomb() -> Vec<u8> {
    let mut bytes = png::SIGNATURE.to_vec();
    let header = [&50_000u32.to_be_bytes()[..], &50_000u32.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    bytes.extend(png::chunk(b"IHDR", &[&header]).unwrap());
    bytes.extend(png::chunk(b"IDAT", &[b"\x78\x9c\x03\0\0\0\0\x01"]).unwrap());
    bytes.extend(png::chunk(b"IEND", &[]).unwrap());
    bytes
}

#[test]
fn a_bomb_is_told_by_its_size_alone() {
    let bytes = bomb();
    assert!(bytes.len() < 100);
    let info = probe(&bytes).unwrap();
    assert_eq!((info.width, info.height, info.has_alpha), (50_000, 50_000, true));
    assert_eq!(info.decoded_bytes, 10_000_000_000 + (64 << 10));
    assert!(memory_needed(&info, &Conversion { to: Format::Webp, ..PLAIN }) > info.decoded_bytes);
    let largest = ImageInfo { width: u32::MAX, height: u32::MAX, decoded_bytes: u64::MAX, ..info };
    assert_eq!(memory_needed(&largest, &PLAIN), u64::MAX);
}

#[test]
fn what_no_format_holds_is_told_before_it_is_decoded() {
    let error = convert(&bomb(), &Conversion { to: Format::Webp, ..PLAIN }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a WebP has at most 16383 pixels a side, and this would be 50000 × 50000; set `width` or `height`"
    );
    let size = Some(Resize { width: Some(u32::MAX), height: None, fit: Fit::Inside, enlarge: true });
    for to in WRITTEN {
        let error = convert(&file(Format::Png, 8, 8, 3), &Conversion { to, size, ..PLAIN }).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn options_that_make_no_sense_are_told() {
    let original = file(Format::Png, 8, 8, 3);
    let message = |conversion: Conversion| convert(&original, &conversion).unwrap_err().to_string();
    assert_eq!(message(Conversion { quality: 0, ..PLAIN }), "`quality` is 0; it must be 1 to 100");
    assert_eq!(message(Conversion { effort: Some(7), ..PLAIN }), "`effort` is 7; it must be 0 to 6");
    let size = Some(Resize { width: Some(0), height: None, fit: Fit::Fill, enlarge: false });
    assert_eq!(message(Conversion { size, ..PLAIN }), "`width` is 0; it must be at least 1");
}

/// Creates a HEIF file that consists of a header only.
fn heif(brand: &[u8; 4]) -> Vec<u8> {
    let boxed = |name: &[u8; 4], content: &[u8]| {
        [&(content.len() as u32 + 8).to_be_bytes()[..], name, content].concat()
    };
    let size = [&[0; 4][..], &4032u32.to_be_bytes(), &3024u32.to_be_bytes()].concat();
    let small = [&[0; 4][..], &512u32.to_be_bytes(), &512u32.to_be_bytes()].concat();
    let properties = [boxed(b"ispe", &small), boxed(b"ispe", &size)].concat();
    let meta = [&[0; 4][..], &boxed(b"iprp", &boxed(b"ipco", &properties))].concat();
    [boxed(b"ftyp", &[&brand[..], &[0; 4]].concat()), boxed(b"meta", &meta)].concat()
}

#[test]
fn what_is_not_read_here_says_what_to_install() {
    let info = probe(&heif(b"avif")).unwrap();
    assert_eq!((info.format, info.width, info.height), (Format::Avif, 4032, 3024));
    assert!(info.needs_program);
    let error = convert(&heif(b"avif"), &PLAIN).unwrap_err();
    assert!(error.to_string().contains("install `libheif-examples`"), "{error}");
    assert_eq!(convert(b"text", &PLAIN), Err(ImageError::NotAnImage));
}

#[test]
fn a_moving_webp_is_left_to_others() {
    let header = webp::extended(webp::IS_ANIMATED, 10, 10);
    let bytes = webp::file([(b"VP8X", header.as_slice()), (b"ANIM", &[0; 6])]).unwrap();
    assert!(probe(&bytes).unwrap().is_animated);
    assert!(matches!(convert(&bytes, &PLAIN), Err(ImageError::Unsupported { .. })));
}

#[test]
fn a_part_of_a_gif_is_put_where_it_belongs() {
    let frame = gif::Frame { left: 2, top: 1, ..gif::Frame::from_rgb(2, 2, &[255; 12]) };
    let mut bytes = Vec::new();
    gif::Encoder::new(&mut bytes, 5, 4, &[]).unwrap().write_frame(&frame).unwrap();
    let pixels = decoded(&bytes);
    let seen: Vec<bool> = pixels.data.chunks(4).map(|pixel| pixel[3] > 0).collect();
    let expected: Vec<bool> =
        (0..20).map(|at| (2..4).contains(&(at % 5)) && (1..3).contains(&(at / 5))).collect();
    assert_eq!(seen, expected);
}

#[test]
fn what_is_cut_off_anywhere_is_no_panic() {
    for format in WRITTEN {
        let bytes = embed(format, file(format, 40, 24, 3), &read(Format::Jpeg, &photograph(3)));
        let step = (bytes.len() / 500).max(1);
        for end in (0..bytes.len()).step_by(step) {
            let _ = convert(&bytes[..end], &PLAIN);
        }
        let error = convert(&bytes[..bytes.len() / 2], &PLAIN);
        assert!(
            matches!(error, Err(ImageError::Damaged { .. })) || format == Format::Jpeg,
            "{format}: {error:?}"
        );
    }
}

#[test]
fn a_progressive_picture_is_read_and_takes_more() {
    let conversion = Conversion { to: Format::Jpeg, effort: Some(6), ..PLAIN };
    let bytes = encode::encode(picture(64, 64, 3), &conversion, &Kept::default()).unwrap();
    assert!(jpeg::segments(&bytes).unwrap().any(|segment| segment.marker == 0xc2));
    assert_eq!(probe(&bytes).unwrap().decoded_bytes, 64 * 64 * 9 + 64 * 256 + (64 << 10));
    decoded(&bytes);
}

/// Generates a picture of any format with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let files: Vec<Vec<u8>> = WRITTEN
        .into_iter()
        .flat_map(|format| (1..=4).map(move |channels| file(format, 23, 17, channels)))
        .chain([photograph(6), heif(b"heic"), {
            let conversion = Conversion { to: Format::Jpeg, effort: Some(6), ..PLAIN };
            encode::encode(picture(23, 17, 3), &conversion, &Kept::default()).unwrap()
        }])
        .collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    (prop::sample::select(files), changes, any::<bool>()).prop_map(|(mut bytes, changes, is_header)| {
        let reach = if is_header { bytes.len().min(128) } else { bytes.len() };
        for (at, value) in changes {
            let at = at.index(reach);
            bytes[at] = value;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_is_damaged_is_an_error_or_a_picture(bytes in mutated(), to in prop::sample::select(&WRITTEN)) {
        let size = Some(Resize { width: Some(20), height: Some(20), fit: Fit::Cover, enlarge: false });
        let conversion = Conversion { to, size, ..PLAIN };
        if let Ok(info) = probe(&bytes)
            && memory_needed(&info, &conversion) < 64 << 20
            && let Ok(made) = convert(&bytes, &conversion)
        {
            prop_assert_eq!(probe(&made).unwrap().format, to);
        }
        let _ = crate::metadata::strip(&bytes);
    }
}

#[test]
fn a_list_in_a_tiff_takes_no_more_memory_than_the_file_allows() {
    let file = file(Format::Tiff, 9, 5, 1);
    let entry = (0..file.len()).find(|at| file[*at..].starts_with(&[0x11, 1, 4, 0])).unwrap();
    let mut long = file.clone();
    long[entry + 4..entry + 8].copy_from_slice(&10_000_000u32.to_le_bytes());
    assert!(probe(&file).is_ok());
    assert!(matches!(probe(&long), Err(ImageError::Damaged { .. })));
}

#[test]
fn only_a_text_of_a_png_that_is_decompressed_takes_more_memory() {
    let file = file(Format::Png, 9, 5, 3);
    let header = png::SIGNATURE.len() + png::chunks(&file).unwrap().next().unwrap().whole.len();
    let needed = |text: &[u8]| {
        let chunk = png::chunk(b"iTXt", &[text, &[b'a'; 22_000]]).unwrap();
        let bytes = [&file[..header], &chunk.repeat(12), &file[header..]].concat();
        probe(&bytes).unwrap().decoded_bytes
    };
    let plain = probe(&file).unwrap().decoded_bytes;
    assert_eq!(needed(b"Comment\0\0\0\0\0"), plain);
    assert_eq!(needed(b"Comment\0\x01\0\0\0"), plain);
    assert_eq!(needed(b"XML:com.adobe.xmp\0\0\0\0\0"), plain + 12 * 22_022);
    assert_eq!(needed(b"XML:com.adobe.xmp\0\x01\0\0\0"), plain + 12 * (32 << 20));
}

#[test]
fn a_png_begins_with_its_header() {
    let mut file = file(Format::Png, 9, 5, 1);
    file[12] = b'i';
    assert!(matches!(probe(&file), Err(ImageError::Damaged { .. })));
    assert!(matches!(crate::metadata::strip(&file), Err(ImageError::Damaged { .. })));
}

/// The largest difference of a channel between two pictures of the same form.
fn difference(a: &pixels::Pixels, b: &pixels::Pixels) -> u8 {
    assert_eq!((a.width, a.height, a.channels), (b.width, b.height, b.channels));
    a.data.iter().zip(&b.data).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default()
}

#[test]
fn a_heic_is_the_picture_again_with_its_transparency() {
    let smooth = |channels: u8| {
        let pixel =
            |at: u32| [(at % 600 / 3) as u8, 90, (at / 600 / 3) as u8, if at % 600 < 300 { 255 } else { 9 }];
        let data = (0..600 * 520).flat_map(|at| pixel(at).into_iter().take(channels.into())).collect();
        pixels::Pixels { width: 600, height: 520, channels, data }
    };
    for channels in [3, 4] {
        // Larger than a tile of the encoder, so there are four.
        let conversion = Conversion { to: Format::Heic, quality: 100, ..PLAIN };
        let made = encode::encode(smooth(channels), &conversion, &Kept::default()).unwrap();
        let info = probe(&made).unwrap();
        assert_eq!((info.width, info.height, info.has_alpha), (600, 520, channels == 4));
        assert!(!info.needs_program);
        let largest = difference(&decoded(&made), &smooth(channels));
        assert!(largest < 16, "{channels} {largest}");
    }
}

#[test]
fn a_heic_keeps_metadata_and_is_upright() {
    let original = photograph(6);
    let to_heic = Conversion { to: Format::Heic, rotate: false, ..PLAIN };
    let made = convert(&original, &to_heic).unwrap();
    let (before, after) = (probe(&original).unwrap(), probe(&made).unwrap());
    assert_eq!((after.width, after.height, after.orientation), (before.height, before.width, 1));
    let (was, is) = (read(Format::Jpeg, &original), read(Format::Heic, &made));
    assert_eq!((is.icc, is.xmp), (was.icc, was.xmp));
    assert_eq!(is.exif.map(|exif| exif::orientation(&exif)), Some(1));
    let stripped = convert(&original, &Conversion { strip: true, ..to_heic }).unwrap();
    assert_eq!(read(Format::Heic, &stripped).exif, None);
}

#[test]
fn a_heif_with_other_pixels_needs_a_program() {
    let made = file(Format::Heic, 40, 24, 3);
    let at = memchr::memmem::find(&made, b"hvc1").unwrap();
    let mut other = made.clone();
    other[at..at + 4].copy_from_slice(b"av01");
    assert!(!probe(&made).unwrap().needs_program);
    assert!(probe(&other).unwrap().needs_program);
    let error = convert(&other, &PLAIN).unwrap_err().to_string();
    assert!(error.contains("not those of HEVC") && error.contains("install `libheif-examples`"), "{error}");
}

#[test]
fn the_beginning_of_a_heic_tells_its_size() {
    let made = file(Format::Heic, 600, 520, 3);
    let (whole, head) = (probe(&made).unwrap(), probe(&made[..made.len() / 2]).unwrap());
    assert_eq!((head.width, head.height, head.needs_program), (600, 520, false));
    assert_eq!(head.has_alpha, whole.has_alpha);
}

#[test]
fn what_another_program_turned_is_not_turned_again() {
    let upright = Conversion { is_upright: true, ..PLAIN };
    let made = convert(&photograph(6), &upright).unwrap();
    let info = probe(&made).unwrap();
    assert_eq!((info.width, info.height, info.orientation), (40, 24, 1));
}
