//! Headers that decide who may send a request, and where it ends.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, ORIGIN};

/// Those of which a request has one at most.
const ONCE: [HeaderName; 6] =
    [HOST, CONTENT_LENGTH, AUTHORIZATION, CONTENT_TYPE, ORIGIN, HeaderName::from_static("sec-fetch-site")];

/// Returns why a request is refused that has such a header twice. A proxy before this server may have checked
/// the other one.
#[must_use]
pub fn repeated_header(headers: &HeaderMap) -> Option<String> {
    let name = ONCE.into_iter().find(|name| headers.get_all(name).iter().nth(1).is_some())?;
    Some(format!("the header `{name}` is there twice: send it once"))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_header_that_decides_is_there_once() {
        let value = HeaderValue::from_static("a");
        let mut headers = HeaderMap::new();
        for name in ONCE {
            headers.append(name, value.clone());
        }
        for _ in 0..2 {
            headers.append("accept", value.clone());
        }
        assert_eq!(repeated_header(&headers), None);
        for name in ONCE {
            let mut headers = headers.clone();
            headers.append(&name, value.clone());
            let reason = format!("the header `{name}` is there twice: send it once");
            assert_eq!(repeated_header(&headers), Some(reason));
        }
    }
}
