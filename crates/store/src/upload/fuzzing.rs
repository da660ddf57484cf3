//! The parser of answers to uploads, for its fuzz target.

use http::{HeaderMap, StatusCode};

use super::answer::Answer;
use crate::AttemptError;
use crate::transport::retry_after;

/// Reads an answer as the parts of an upload do, and returns the error that it means, if it is one.
pub fn upload_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> Option<AttemptError> {
    let answer = Answer {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
        headers: headers.clone(),
        body: String::from_utf8_lossy(body).into_owned(),
        retry_after: retry_after(headers),
    };
    answer.said();
    answer.etag();
    answer.is_not_understood();
    answer.done("name", "writing").err()
}
