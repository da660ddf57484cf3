//! The CRC-32C of what is sent, as Amazon and Google want to be told it and say it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::UploadedPart;
use super::answer::Answer;
use super::request::Asking;
use crate::Store;
use crate::attempt::AttemptError;
use crate::url::Kind;

pub(super) fn is_google(store: &Store) -> bool {
    matches!(store.kind(), Kind::Gcs(_))
}

/// A CRC-32C as headers have it.
pub(super) fn text(crc: u32) -> String {
    BASE64_STANDARD.encode(crc.to_be_bytes())
}

pub(super) fn with_crc<'a>(store: &Store, asking: Asking<'a>, crc: u32) -> Asking<'a> {
    if is_google(store) {
        asking.header("x-goog-hash", &format!("crc32c={}", text(crc)))
    } else {
        asking.header("x-amz-checksum-crc32c", &text(crc))
    }
}

/// The CRC-32C that the store has found.
pub(super) fn found<'a>(store: &Store, answer: &'a Answer) -> Option<&'a str> {
    if !is_google(store) {
        return answer.header("x-amz-checksum-crc32c");
    }
    let all = answer.headers.get_all("x-goog-hash").into_iter().filter_map(|value| value.to_str().ok());
    let mut each = all.flat_map(|values| values.split(','));
    each.find_map(|value| value.trim().strip_prefix("crc32c="))
}

/// Whether the store says that it has found this checksum. That it found another is as if it had broken off.
pub(super) fn is_confirmed(store: &Store, answer: &Answer, crc: u32) -> Result<bool, AttemptError> {
    match found(store, answer) {
        Some(theirs) if theirs != text(crc) => {
            Err(AttemptError::cut("what the store got is not what was sent".to_owned()))
        }
        theirs => Ok(theirs.is_some()),
    }
}

/// The CRC-32C of an object of these parts, in their order.
pub(super) fn of_all(parts: &[UploadedPart]) -> u32 {
    parts.iter().fold(0, |crc, part| {
        crc32c::crc32c_combine(crc, part.crc32c, usize::try_from(part.size).unwrap_or(usize::MAX))
    })
}
