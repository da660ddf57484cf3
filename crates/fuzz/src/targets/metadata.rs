//! Metadata of pictures: removed, the picture is the same and has none left.

use thalweg_media::image::probe;
use thalweg_media::metadata::strip;

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "metadata",
    components: &["strip_metadata"],
    longest: 16 << 10,
    words: &[
        "Exif\0\0",
        "II*\0",
        "MM\0*",
        "ICC_PROFILE\0",
        "http://ns.adobe.com/xap/1.0/\0",
        "VP8X",
        "EXIF",
        "eXIf",
        "iCCP",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let stripped = bounded((1 << 20) + 6 * bytes.len(), || strip(bytes));
    let before = bounded(64 << 10, || probe(bytes));
    let Ok(Some(stripped)) = stripped else { return };
    assert!(stripped.len() <= bytes.len() + 128, "{} bytes became {}", bytes.len(), stripped.len());
    assert!(strip(&stripped).is_ok_and(|again| again.is_none()), "metadata is left");
    if let Ok(before) = before {
        let after = probe(&stripped).expect("the picture can still be read");
        assert_eq!((before.width, before.height), (after.width, after.height), "the size");
        assert_eq!(before.orientation, after.orientation, "the orientation");
    }
}
