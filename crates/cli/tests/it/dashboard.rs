//! The files of the dashboard, as a browser gets them. `make dashboard-test` tests the page itself.

use std::io::{Read, Write};

use crate::api::{Running, configuration};
use crate::common::House;

/// Asks for a path with these headers. Returns the head of the answer in lower case, and its body.
fn ask(running: &Running, path: &str, headers: &str) -> (String, Vec<u8>) {
    let address = &running.address;
    let mut stream = running.connect();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).to_lowercase(), answer[end + 4..].to_vec())
}

#[test]
fn a_browser_gets_the_dashboard_with_its_policy_and_only_once() {
    let house = House::with(&[("c.yaml", &configuration())]);
    let running = Running::start(&house, &[]);
    let (head, page) = ask(&running, "/dashboard", "");
    let page = String::from_utf8(page).unwrap();
    assert!(head.starts_with("http/1.1 200") && page.contains("./dashboard/app.js"), "{head}{page}");
    let policy = head.lines().find(|line| line.starts_with("content-security-policy:")).unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    // No page of another site may show this one and lead clicks to it.
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    for (path, of_type) in [
        ("/dashboard", "text/html"),
        ("/dashboard/app.js", "text/javascript"),
        ("/dashboard/app.css", "text/css"),
        ("/dashboard/icon.svg", "image/svg+xml"),
    ] {
        let (head, packed) = ask(&running, path, "Accept-Encoding: gzip, br\r\n");
        assert!(head.contains(&format!("content-type: {of_type}")), "{head}");
        assert!(head.contains("content-encoding: gzip") && packed.starts_with(&[0x1f, 0x8b]), "{head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(head.contains("referrer-policy: no-referrer"), "{head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: w/")).unwrap();
        let (head, body) = ask(&running, path, &format!("If-None-Match: W/{tag}\r\n"));
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    }
    assert!(ask(&running, "/dashboard/other.js", "").0.starts_with("http/1.1 404"));
}

#[test]
fn the_page_needs_no_token_and_its_data_do() {
    let house = House::with(&[("c.yaml", &configuration()), ("token", "correct-horse-battery")]);
    let running = Running::start(&house, &["--api-token-file", "token"]);
    assert!(ask(&running, "/dashboard", "").0.starts_with("http/1.1 200"));
    assert!(ask(&running, "/api/v1/stats", "").0.starts_with("http/1.1 401"));
}
