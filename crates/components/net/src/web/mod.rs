//! The HTTP server that sources and other HTTP services share.

mod accepted;
mod admission;
mod arriving;
mod body;
mod connection;
mod gate;
// Public for its fuzz target.
#[doc(hidden)]
pub mod htpasswd;
mod http2;
mod refusal;
mod repeated;

pub use accepted::Accepted;
pub use admission::{Admission, RequestOptions};
pub use arriving::ArrivingBody;
pub use body::{Bodies, Wrapping};
pub use connection::{ConnectionOptions, converse};
pub use gate::{Gate, converse_until_stopped};
pub use http2::converse_by_http2;
pub use refusal::Refusal;
pub use repeated::repeated_header;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Response, StatusCode};

/// A request, whose body may be arriving.
pub type Request = hyper::Request<ArrivingBody>;

/// An answer with its whole body in memory.
pub type Answer = Response<Full<Bytes>>;

/// Returns an answer with one line of text, or with an empty body if the text is empty.
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut text = text.into();
    if !text.is_empty() {
        text.push('\n');
    }
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    answer
}
