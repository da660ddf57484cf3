use std::fs;

use super::*;
use thalweg_engine::testing::{apply_to_file, context, file_at, file_of, messages, options, refused};
use thalweg_media::image::{self, Resize};
use thalweg_record::Problem;

const DOT: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// A picture of this type and size.
fn picture(to: Format, width: u32, height: u32) -> Vec<u8> {
    let fit = image::Fit::Fill;
    let size = Some(Resize { width: Some(width), height: Some(height), fit, enlarge: true });
    let conversion =
        Conversion { to, quality: 80, effort: None, size, rotate: true, strip: false, is_upright: false };
    image::convert(DOT, &conversion).unwrap()
}

fn content(file: &File) -> Vec<u8> {
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut open(file).unwrap(), &mut content).unwrap();
    content
}

async fn rejected(yaml: &str, name: &str, content: &[u8]) -> String {
    let problem: Problem =
        apply_to_file::<ConvertImage>(yaml, &mut file_of(name, content)).await.unwrap_err();
    assert_eq!(problem.code, Some(FAILED));
    problem.reason
}

#[tokio::test]
async fn it_has_its_type_its_name_and_its_size_and_its_temporary_file_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a photo.jpg");
    fs::write(&path, picture(Format::Jpeg, 60, 40)).unwrap();
    for (to, format, name) in [
        ("webp", Format::Webp, "a photo.webp"),
        ("image/png", Format::Png, "a photo.png"),
        ("tif", Format::Tiff, "a photo.tiff"),
        ("GIF", Format::Gif, "a photo.gif"),
        ("heic", Format::Heic, "a photo.heic"),
    ] {
        let mut file = file_at(&path);
        let yaml = format!("{{ to: {to}, quality: low, width: 30 }}");
        assert_eq!(apply_to_file::<ConvertImage>(&yaml, &mut file).await, Ok(Disposition::Continue));
        let made = image::probe(&content(&file)).unwrap();
        assert_eq!((made.format, made.width, made.height), (format, 30, 20));
        assert_eq!(Path::new(file.name()).with_extension(""), Path::new("a photo"));
        assert!(file.name() == name || format == Format::Tiff, "{}", file.name().display());
        assert_eq!(file.mime().map(|mime| &**mime), Some(format.mime()));
        assert_eq!(file.size(), content(&file).len() as u64);
        let made = file.path().unwrap().to_owned();
        assert!(made != path);
        drop(file);
        assert!(!made.exists() && path.exists());
    }
}

#[tokio::test]
async fn what_is_of_the_type_already_is_left_alone_unless_something_is_asked_of_it() {
    let jpeg = picture(Format::Jpeg, 60, 40);
    for (yaml, is_same) in [
        ("{ to: jpg }", true),
        ("{ to: jpeg, same: encode, quality: 10 }", false),
        ("{ to: jpeg, height: 20 }", false),
    ] {
        let mut file = file_of("photo.JPE", &jpeg);
        assert_eq!(apply_to_file::<ConvertImage>(yaml, &mut file).await, Ok(Disposition::Continue));
        assert_eq!(content(&file) == jpeg, is_same, "{yaml}");
        assert_eq!(file.name(), "photo.JPE");
    }
}

#[tokio::test]
async fn a_picture_that_the_budget_can_never_hold_is_rejected_before_it_is_read() {
    let mut png = picture(Format::Png, 2, 2);
    png[16..24].copy_from_slice(&[0, 0, 0xc3, 0x50, 0, 0, 0xc3, 0x50]);
    let reason = rejected("{ to: gif }", "x.png", &png).await;
    assert_eq!(
        reason,
        "the picture has 50000 × 50000 pixels: converting it needs 28GiB of memory, but the budget is 256MiB; raise it with `--memory`"
    );
    let huge = "{ to: png, width: 60000, height: 60000, fit: fill, enlarge: true }";
    assert_eq!(
        rejected(huge, "x.gif", DOT).await,
        "the picture has 1 × 1 pixels: converting it needs 68GiB of memory, but the budget is 256MiB; raise it with `--memory`"
    );
}

#[tokio::test]
async fn a_header_behind_much_else_is_found_and_paid_for() {
    let jpeg = picture(Format::Jpeg, 60, 40);
    let mut late = jpeg[..2].to_vec();
    for _ in 0..3 {
        late.extend([0xff, 0xe5, 0xea, 0x62]);
        late.extend(vec![0; 0xea60]);
    }
    late.extend(&jpeg[2..]);
    let context = context();
    let mut transform = options::<ConvertImage>("{ to: png }").build(&context).unwrap();
    let mut file = file_of("x.jpg", &late);
    transform.apply(&mut file).await.unwrap();
    assert!(context.memory.budget().peak() > 60 * 40 * 3 + late.len());
    assert_eq!((context.memory.held(), file.name().to_str()), (0, Some("x.png")));
}

#[tokio::test]
async fn what_is_no_picture_or_damaged_is_rejected_and_stays_as_it_is() {
    assert_eq!(
        rejected("{ to: webp }", "x.jpg", b"text").await,
        "the file is not a picture of a supported type: it is `text/plain; charset=utf-8`"
    );
    let jpeg = picture(Format::Jpeg, 60, 40);
    assert_eq!(
        rejected("{ to: webp }", "x.jpg", &jpeg[..30]).await,
        "the JPEG is damaged: its header is cut off or invalid"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    fs::write(&path, &jpeg).unwrap();
    let mut file = file_at(&path);
    fs::remove_file(&path).unwrap();
    let problem = apply_to_file::<ConvertImage>("{ to: webp }", &mut file).await.unwrap_err();
    assert_eq!((problem.code, file.path()), (Some("FILE_CAN_NOT_BE_OPENED"), Some(&*path)));
}

#[test]
fn only_what_ends_a_name_is_replaced() {
    let names = [
        ("photo.jpg", "photo.webp"),
        ("photo", "photo.webp"),
        ("below.d/photo.TIFF", "below.d/photo.webp"),
        ("holiday 2024.05", "holiday 2024.05.webp"),
        ("Dr. Who", "Dr. Who.webp"),
        (".hidden", ".hidden.webp"),
        ("photo.WEBP", "photo.WEBP"),
    ];
    for (name, expected) in names {
        assert_eq!(renamed(OsStr::new(name), Format::Webp), expected);
    }
}

#[test]
fn mistakes_say_what_would_be_right() {
    assert_eq!(
        refused::<ConvertImage>("{ to: wepb }"),
        "`wepb` is not a type of picture. Did you mean `webp`?"
    );
    assert_eq!(
        refused::<ConvertImage>("{ to: text/plain }"),
        "`text/plain` is not a type of picture. There are: jpeg, png, webp, gif, tiff, avif, heic."
    );
    assert_eq!(
        refused::<ConvertImage>("{ to: webp, quality: great }"),
        "`quality` cannot be `great`. It can be `best`, `high`, `medium` or `low`."
    );
    let count = |yaml: &str| messages(options::<ConvertImage>(yaml).check());
    assert_eq!(
        count("{ to: webp, quality: 0, effort: 7, width: 0, fit: cover }"),
        [
            "`quality` is 0, but it must be 1 to 100.",
            "`effort` is 7, but it must be 0 to 6.",
            "`width` must be at least 1 pixel.",
            "`fit` has an effect only with both `width` and `height`.",
        ]
    );
    assert_eq!(count("{ to: image/jpg, quality: 75, effort: 6, width: 1, height: 1, fit: cover }"), [""; 0]);
}
