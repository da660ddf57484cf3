//! Tests of each fault, between a client that shows every byte and a server of files.

use crate::content;
use crate::raw::Raw;
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_testbed::{Fault, Proxy, Rule, Seen, Times, WebFiles};

const LENGTH: usize = 700_000;

struct Bed {
    proxy: Proxy,
    _web: WebFiles,
    _folder: TempDir,
}

/// Creates a proxy with this fault for the first request, and a file named `a`.
fn wrong(fault: Fault) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), content(LENGTH)).unwrap();
    let web = WebFiles::serve(folder.path()).unwrap();
    let proxy = Proxy::start(web.address()).unwrap();
    proxy.set([Rule::new(fault).times(Times::First(1))]);
    Bed { proxy, _web: web, _folder: folder }
}

impl Bed {
    fn client(&self) -> Raw {
        Raw::connect(self.proxy.address())
    }

    fn first(&self) -> Seen {
        self.proxy.seen().remove(0)
    }

    /// Checks that the connection works like a new one.
    fn serves(&self, client: &mut Raw) {
        let head = client.ask("GET", "/a", "");
        assert_eq!((head.status, head.length()), (200, LENGTH));
        assert!(client.body(LENGTH) == content(LENGTH));
    }
}

fn status(retry_after: Option<u64>) -> Fault {
    Fault::Status { code: 503, retry_after, body: "not now".to_owned() }
}

#[test]
fn without_a_rule_all_passes_as_it_is() {
    let bed = wrong(Fault::Hang);
    bed.proxy.set([]);
    let mut client = bed.client();
    bed.serves(&mut client);
    let head = client.ask("HEAD", "/a?x=1", "");
    assert_eq!((head.status, head.length()), (200, LENGTH));
    bed.serves(&mut client);
    let seen = bed.proxy.seen();
    let names: Vec<_> = seen.iter().map(|seen| (&*seen.method, &*seen.path_and_query)).collect();
    assert_eq!(names, [("GET", "/a"), ("HEAD", "/a?x=1"), ("GET", "/a")]);
    let bytes: Vec<_> = seen.iter().map(|seen| (seen.status, seen.response_bytes)).collect();
    assert_eq!(bytes, [(Some(200), LENGTH as u64), (Some(200), 0), (Some(200), LENGTH as u64)]);
}

#[test]
fn a_delay_holds_back_what_it_is_for_and_nothing_else() {
    let bed = wrong(Fault::Delay(Duration::from_millis(20)));
    bed.serves(&mut bed.client());
    bed.proxy.set([Rule::new(Fault::Delay(Duration::from_secs(3600))).path("slow")]);
    let mut held = bed.client();
    held.send("GET /a?slow HTTP/1.1\r\nHost: somewhere\r\n\r\n");
    bed.serves(&mut bed.client());
    let asked = |seen: &Seen| seen.path_and_query == "/a?slow" && seen.upstream_status.is_some();
    assert!(!bed.proxy.seen().iter().any(asked));
}

#[test]
fn a_status_comes_without_the_upstream() {
    let bed = wrong(status(Some(3)));
    let mut client = bed.client();
    client.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    let head = client.head();
    assert_eq!((head.status, head.header("retry-after")), (503, Some("3")));
    assert_eq!(client.body(head.length()), b"not now");
    let seen = bed.first();
    assert_eq!((seen.status, seen.upstream_status), (Some(503), None));
    assert_eq!((seen.request_bytes, seen.response_bytes), (5, 7));
    bed.serves(&mut client);
}

#[test]
fn a_status_for_a_body_that_waits_ends_the_connection() {
    let bed = wrong(status(None));
    let mut client = bed.client();
    client.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("connection")), (503, Some("close")));
    assert_eq!(client.rest(), b"not now");
}

#[test]
fn a_status_for_a_head_has_no_body() {
    let bed = wrong(status(None));
    let mut client = bed.client();
    assert_eq!(client.ask("HEAD", "/a", "").status, 503);
    bed.serves(&mut client);
}

#[test]
fn a_body_is_cut_off_at_the_byte() {
    for after in [0, 1, 300_000] {
        let bed = wrong(Fault::CutBody { after });
        let mut client = bed.client();
        let head = client.ask("GET", "/a", "");
        assert_eq!((head.status, head.length()), (200, LENGTH));
        assert!(client.rest() == content(LENGTH)[..after as usize]);
        assert_eq!(bed.first().response_bytes, after);
    }
}

#[test]
fn a_request_is_cut_off_at_the_byte() {
    let bed = wrong(Fault::CutRequest { after: 3 });
    let mut client = bed.client();
    client.send("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel");
    assert!(client.rest().is_empty());
    let seen = bed.first();
    assert_eq!((seen.status, seen.request_bytes), (None, 3));
}

#[test]
fn an_answer_may_promise_more_than_comes() {
    let bed = wrong(Fault::WrongLength { by: 10 });
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/a", "").length(), LENGTH + 10);
    assert!(client.rest() == content(LENGTH));
}

#[test]
fn an_answer_may_be_shorter_and_look_right() {
    let bed = wrong(Fault::WrongLength { by: -10 });
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/a", "").length(), LENGTH - 10);
    assert!(client.body(LENGTH - 10) == content(LENGTH)[..LENGTH - 10]);
    bed.serves(&mut client);
}

#[test]
fn an_entity_tag_is_another_one() {
    let bed = wrong(Fault::ChangeEtag("\"other\"".to_owned()));
    let mut client = bed.client();
    let head = client.ask("HEAD", "/a", "");
    assert_eq!(head.header("etag"), Some("\"other\""));
    assert_ne!(client.ask("HEAD", "/a", "").header("etag"), Some("\"other\""));
}

#[test]
fn an_answer_that_is_lost_was_the_upstreams() {
    let bed = wrong(Fault::StatusAfter { code: 500, retry_after: None, body: String::new() });
    let mut client = bed.client();
    let head = client.ask("GET", "/a", "");
    assert_eq!((head.status, head.length()), (500, 0));
    let seen = bed.first();
    assert_eq!((seen.status, seen.upstream_status), (Some(500), Some(200)));
    bed.serves(&mut client);
}

#[test]
fn a_request_that_hangs_is_never_answered() {
    let bed = wrong(Fault::Hang);
    let mut client = bed.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(client.is_silent());
    assert_eq!((bed.first().status, bed.first().upstream_status), (None, None));
    bed.serves(&mut bed.client());
}

#[test]
fn a_slow_body_arrives_whole() {
    let bed = wrong(Fault::Slow { bytes_per_second: 20_000_000 });
    bed.serves(&mut bed.client());
}

#[test]
fn whoever_asks_for_a_server_that_is_gone_is_hung_up_on() {
    let mut bed = wrong(Fault::Hang);
    bed.proxy.set([]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bed.proxy = Proxy::start(gone).unwrap();
    let mut client = bed.client();
    client.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(client.rest().is_empty());
}

#[test]
fn a_proxy_that_is_dropped_takes_no_more() {
    let bed = wrong(Fault::Hang);
    let address = bed.proxy.address();
    drop(bed);
    while TcpStream::connect(address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
