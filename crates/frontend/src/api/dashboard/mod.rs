//! The dashboard: a page that shows the run in a browser, by means of the API.
//!
//! Its sources are in the folder `dashboard` of the project. Its built files are in the folder `built`,
//! compressed, so that the program is compiled without Node. They have no data, so no token is needed for
//! them; the page asks for the token, and sends it with each request to `/api/`.
//!
//! Names, reasons and records are bytes of others. The page inserts them as text alone. The policy that is
//! sent with it is the second wall: it allows no script, style or connection but those of this server, no
//! code in attributes, and no insertion of texts as HTML (trusted types) except for the constants of the
//! page's library.
//!
//! See docs/decisions/105-a-dashboard-in-the-program.md.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
    LOCATION,
};
use hyper::{Response, StatusCode};

use super::reply::{self, Body, Refusal};

/// The type of the page.
pub(super) const PAGE: &str = "text/html; charset=utf-8";
/// The path of the page with a slash at its end, as people type it.
pub(super) const WITH_SLASH: &str = "/dashboard/";
/// The policy: the sources of what the page loads, runs and connects to.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types svelte-trusted-html";
/// The hash of the sources and those of the files, as `make dashboard` writes them. It names the content.
const FINGERPRINT: &str = include_str!("built/fingerprint");

/// Headers of every answer.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    // The names of files stay, so a browser asks each time whether its copy is the present one.
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
];

/// A file of the dashboard.
struct Asset {
    /// The last part of its path. The page has none.
    name: &'static str,
    of_type: &'static str,
    /// Its content, compressed with gzip.
    packed: &'static [u8],
}

static ASSETS: [Asset; 4] = [
    Asset { name: "", of_type: PAGE, packed: include_bytes!("built/index.html.gz") },
    Asset {
        name: "app.js",
        of_type: "text/javascript; charset=utf-8",
        packed: include_bytes!("built/app.js.gz"),
    },
    Asset { name: "app.css", of_type: "text/css; charset=utf-8", packed: include_bytes!("built/app.css.gz") },
    Asset { name: "icon.svg", of_type: "image/svg+xml", packed: include_bytes!("built/icon.svg.gz") },
];

/// Answers with the page.
pub(super) fn page(headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    file("", headers)
}

/// Leads from [`WITH_SLASH`] to the page: the addresses of its files and of the API are relative to the path
/// without the slash. So is this one, because a proxy may serve the page below another path.
pub(super) fn without_slash() -> Response<Body> {
    let text = "the dashboard is at /dashboard, without a slash at the end\n".to_owned();
    let mut answer = reply::text(StatusCode::PERMANENT_REDIRECT, text);
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static("../dashboard"));
    answer
}

/// Answers with a file of the page.
pub(super) fn file(name: &str, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the dashboard has no such file"))?;
    let tag = tag();
    if has(headers, &tag) {
        return Ok(answer(asset, &tag, StatusCode::NOT_MODIFIED, Bytes::new()));
    }
    if takes_gzip(headers) {
        let mut answer = answer(asset, &tag, StatusCode::OK, Bytes::from_static(asset.packed));
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Ok(answer);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(asset.packed).read_to_end(&mut unpacked).map_err(|error| {
        let reason = format!("a file of the dashboard cannot be unpacked: {error}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason)
    })?;
    Ok(answer(asset, &tag, StatusCode::OK, Bytes::from(unpacked)))
}

fn answer(asset: &Asset, tag: &str, status: StatusCode, content: Bytes) -> Response<Body> {
    let mut answer = Response::new(Either::Left(Full::new(content)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.of_type));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    answer
}

/// The tag of the content. It is a weak one: the packed and the unpacked file have the same.
fn tag() -> String {
    let hash: String = FINGERPRINT.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    format!("W/\"{hash}\"")
}

/// True if the client has the file with this tag.
fn has(headers: &HeaderMap, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    values(headers, IF_NONE_MATCH).any(|known| known.trim() == "*" || opaque(known) == opaque(tag))
}

/// True if the client accepts gzip.
fn takes_gzip(headers: &HeaderMap) -> bool {
    values(headers, ACCEPT_ENCODING).any(|coding| {
        let (name, parameter) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = parameter.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && quality.is_ok_and(|quality| quality > 0.0)
    })
}

/// The values of a header that is a list.
fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn content(answer: Response<Body>) -> Bytes {
        let Either::Left(content) = answer.into_body() else { panic!("it is a stream") };
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(async { http_body_util::BodyExt::collect(content).await.unwrap().to_bytes() })
    }

    #[test]
    fn a_file_is_sent_packed_or_unpacked() {
        for asset in &ASSETS {
            let packed = file(asset.name, &headers(ACCEPT_ENCODING, "br, gzip;q=0.8")).unwrap();
            assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
            assert_eq!(content(packed), asset.packed);
            for refused in [HeaderMap::new(), headers(ACCEPT_ENCODING, "br, gzip;q=0")] {
                let plain = file(asset.name, &refused).unwrap();
                assert!(plain.headers().get(CONTENT_ENCODING).is_none());
                let mut unpacked = Vec::new();
                GzDecoder::new(asset.packed).read_to_end(&mut unpacked).unwrap();
                assert_eq!(content(plain), unpacked);
            }
        }
    }

    #[test]
    fn a_browser_that_has_the_file_gets_no_content() {
        let tag = page(&HeaderMap::new()).unwrap().headers()[ETAG].to_str().unwrap().to_owned();
        assert_eq!(tag.len(), 20, "{tag}");
        for known in [tag.clone(), format!("\"other\", {tag}"), tag.replace("W/", ""), "*".to_owned()] {
            let answer = page(&headers(IF_NONE_MATCH, &known)).unwrap();
            assert_eq!(answer.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(content(answer), "");
        }
        assert_eq!(page(&headers(IF_NONE_MATCH, "\"other\"")).unwrap().status(), StatusCode::OK);
    }

    #[test]
    fn the_page_loads_only_files_that_are_served_and_has_no_code_of_its_own() {
        let page = content(page(&HeaderMap::new()).unwrap());
        let page = std::str::from_utf8(&page).unwrap();
        let loaded: Vec<_> =
            page.split("=\"./dashboard/").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]).collect();
        assert_eq!(loaded.len(), ASSETS.len() - 1, "{page}");
        assert!(loaded.iter().all(|name| ASSETS.iter().any(|asset| asset.name == *name)), "{page}");
        assert!(page.matches("<script").count() == 1 && page.contains("></script>"), "{page}");
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains(" on"), "{page}");
    }

    #[test]
    fn other_names_are_no_files() {
        for name in ["..", "index.html", "fingerprint", "app.js.gz", "APP.JS"] {
            let refused = file(name, &HeaderMap::new()).err().map(|refusal| refusal.status);
            assert_eq!(refused, Some(StatusCode::NOT_FOUND), "{name}");
        }
    }
}
