//! Serving HTTP: what sources and servers that answer requests have in common.

mod admission;
mod connection;
mod htpasswd;

pub use admission::{Admission, check};
pub use connection::{ConnectionOptions, converse};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};

/// An answer whose whole body is at hand.
pub type Answer = Response<Full<Bytes>>;

/// An answer of one line of text, or of none if there is nothing to say.
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut text = text.into();
    if !text.is_empty() {
        text.push('\n');
    }
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer
}
