//! Messages that are complete HTTP requests: `raw_request` of the sink `http`.

use bytes::Bytes;
use thalweg_net::sinks::http::raw::RawRequest;

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "raw_request",
    components: &["http"],
    longest: 16 << 10,
    words: &[
        "GET / HTTP/1.1\r\n",
        "Host: a\r\n",
        "Content-Length: 5\r\n",
        "\r\n\r\n",
        "\n\n",
        "http://h/",
        ": ",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let message = Bytes::copy_from_slice(bytes);
    let parsed = bounded((1 << 20) + 100 * bytes.len(), || RawRequest::parse(message.clone()));
    if let Ok(request) = parsed {
        let body = request.body();
        assert!(body.is_empty() || bytes.windows(body.len()).any(|window| window == body), "the body");
        assert!(request.path().starts_with('/'));
    }
}
