//! The answer to a request that is refused.

use hyper::StatusCode;

/// A status, and the reason.
#[derive(Debug)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// The reason, for the client.
    pub reason: String,
}

impl Refusal {
    /// Refuses a request.
    pub fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}
