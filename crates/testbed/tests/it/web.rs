//! Tests of the HTTP server over a folder.

use crate::content;
use crate::raw::{Head, Raw};
use tempfile::TempDir;
use thalweg_testbed::WebFiles;

fn served() -> (TempDir, WebFiles) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a b"), content(3 << 20)).unwrap();
    std::fs::write(folder.path().join("empty"), "").unwrap();
    let web = WebFiles::serve(folder.path()).unwrap();
    (folder, web)
}

fn get(web: &WebFiles, target: &str, headers: &str) -> (Head, Vec<u8>) {
    let mut client = Raw::connect(web.address());
    let head = client.ask("GET", target, headers);
    let body = client.body(head.header("content-length").map_or(0, |length| length.parse().unwrap()));
    (head, body)
}

#[test]
fn a_file_comes_whole() {
    let (_folder, web) = served();
    assert_eq!(web.url("a b"), format!("http://{}/a%20b", web.address()));
    let (head, body) = get(&web, "/a%20b", "");
    assert_eq!((head.status, head.header("accept-ranges")), (200, Some("bytes")));
    assert!(body == content(3 << 20));
    let (head, body) = get(&web, "/empty", "Range: bytes=0-\r\n");
    assert_eq!((head.status, body.len(), head.header("content-range")), (416, 0, Some("bytes */0")));
    assert_eq!(get(&web, "/empty", "").0.status, 200);
}

#[test]
fn parts_are_those_that_were_asked_for() {
    let (_folder, web) = served();
    let whole = content(3 << 20);
    let total = whole.len();
    for (range, first, last) in [
        ("0-0", 0, 0),
        ("1000-2500000", 1000, 2_500_000),
        ("100-", 100, total - 1),
        ("-5", total - 5, total - 1),
        ("5-99999999", 5, total - 1),
        ("-99999999", 0, total - 1),
    ] {
        let (head, body) = get(&web, "/a%20b", &format!("Range: bytes={range}\r\n"));
        let said = format!("bytes {first}-{last}/{total}");
        assert_eq!((head.status, head.header("content-range")), (206, Some(said.as_str())), "{range}");
        assert!(body == whole[first..=last], "{range}");
    }
    for range in [format!("{total}-"), "-0".to_owned()] {
        let (head, _) = get(&web, "/a%20b", &format!("Range: bytes={range}\r\n"));
        let said = format!("bytes */{total}");
        assert_eq!((head.status, head.header("content-range")), (416, Some(said.as_str())), "{range}");
    }
    for range in ["bytes=5-1", "bytes=0-1,3-4", "lines=1-2"] {
        assert_eq!(get(&web, "/a%20b", &format!("Range: {range}\r\n")).0.status, 200, "{range}");
    }
}

#[test]
fn conditions_are_heeded() {
    let (folder, web) = served();
    let (head, _) = get(&web, "/a%20b", "");
    let etag = head.header("etag").unwrap().to_owned();
    assert!(head.header("last-modified").unwrap().ends_with(" GMT"));
    let status = |headers: String| get(&web, "/a%20b", &headers).0.status;
    assert_eq!(status(format!("If-None-Match: \"x\", {etag}\r\n")), 304);
    assert_eq!(status(format!("If-Match: {etag}\r\n")), 200);
    assert_eq!(status("If-Match: \"x\"\r\n".to_owned()), 412);
    assert_eq!(status(format!("Range: bytes=0-1\r\nIf-Range: {etag}\r\n")), 206);
    assert_eq!(status("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n".to_owned()), 200);
    std::fs::write(folder.path().join("a b"), "other").unwrap();
    assert_ne!(get(&web, "/a%20b", "").0.header("etag").unwrap(), etag);
}

#[test]
fn a_head_is_that_of_the_answer_without_its_body() {
    let (_folder, web) = served();
    let mut client = Raw::connect(web.address());
    let head = client.ask("HEAD", "/a%20b", "");
    assert_eq!((head.status, head.length()), (200, 3 << 20));
    let head = client.ask("HEAD", "/a%20b", "Range: bytes=0-9\r\nConnection: close\r\n");
    assert_eq!((head.status, head.length()), (206, 10));
    assert!(client.rest().is_empty());
}

#[test]
fn nothing_else_is_served() {
    let (folder, web) = served();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    for target in ["/none", "/inner", "/", "/inner/../empty", "/%2e%2e/etc/passwd", "//etc/passwd", "/%zz"] {
        assert_eq!(get(&web, target, "").0.status, 404, "{target}");
    }
    assert_eq!(Raw::connect(web.address()).ask("POST", "/empty", "").status, 405);
}
