//! Types of files by their first bytes.

use thalweg_media::mime::{HEAD, canonical, detect, extension_of};

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "mime",
    components: &["check_type"],
    longest: 4 << 10,
    words: &["PK\u{3}\u{4}", "ftypheic", "\u{d0}\u{cf}", "<?xml", "<!DOCTYPE html", "RIFF", "WEBP", "%PDF-"],
    run,
};

fn run(bytes: &[u8]) {
    let found = bounded(1 << 20, || detect(bytes));
    let known = canonical(found.mime);
    assert!(
        known.is_some() || found.mime == "application/octet-stream",
        "`{}` is not a known type",
        found.mime
    );
    if let Some(extension) = extension_of(found.mime) {
        assert_eq!(extension, found.extension, "the extension of `{}`", found.mime);
    }
    assert_eq!(detect(bytes.get(..HEAD).unwrap_or(bytes)), found, "the bytes after the head");
}
