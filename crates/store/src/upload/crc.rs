//! The CRC-32C of sent data, in the headers of Amazon and Google.

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

/// Returns a CRC-32C in the form of the headers.
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

/// Returns the CRC-32C that the store has computed.
pub(super) fn found<'a>(store: &Store, answer: &'a Answer) -> Option<&'a str> {
    if !is_google(store) {
        return answer.header("x-amz-checksum-crc32c");
    }
    let all = answer.headers.get_all("x-goog-hash").into_iter().filter_map(|value| value.to_str().ok());
    let mut each = all.flat_map(|values| values.split(','));
    each.find_map(|value| value.trim().strip_prefix("crc32c="))
}

/// Returns true if the store confirms this checksum. A different checksum is a temporary error, like a broken
/// connection.
pub(super) fn is_confirmed(store: &Store, answer: &Answer, crc: u32) -> Result<bool, AttemptError> {
    match found(store, answer) {
        Some(theirs) if theirs != text(crc) => {
            Err(AttemptError::cut("the store received other bytes than were sent".to_owned()))
        }
        theirs => Ok(theirs.is_some()),
    }
}

/// Returns the CRC-32C of an object that consists of these parts, in their order.
pub(super) fn of_all(parts: &[UploadedPart]) -> u32 {
    parts.iter().fold(0, |crc, part| {
        crc32c::crc32c_combine(crc, part.crc32c, usize::try_from(part.size).unwrap_or(usize::MAX))
    })
}
