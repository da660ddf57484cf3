//! Tests of a proxy without faults, between a client and a server that both show every byte.

use crate::raw::Raw;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use thalweg_testbed::Proxy;

/// Starts a proxy to a server that runs `serve` on its only connection.
fn before<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (Proxy, Raw, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let served = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let client = Raw::connect(proxy.address());
    (proxy, client, served)
}

/// Checks that the next bytes are `text`.
fn expect(stream: &mut TcpStream, text: &str) {
    let mut came = vec![0; text.len()];
    stream.read_exact(&mut came).unwrap();
    assert_eq!(String::from_utf8(came).unwrap(), text);
}

fn say(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).unwrap();
}

const NOTHING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn a_request_arrives_as_it_was_sent() {
    let request =
        "PUT //a/../b%2f'?x=1&&y HTTP/1.1\r\nhOST: else.where:1\r\nx-a:  b \r\ncontent-LENGTH: 3\r\n\r\nabc";
    let (_proxy, mut client, served) = before(move |mut stream| {
        expect(&mut stream, request);
        say(&mut stream, NOTHING);
    });
    client.send(request);
    assert_eq!(client.head().status, 200);
    served.join().unwrap();
}

#[test]
fn chunks_pass_in_both_directions() {
    let chunks = "3\r\nabc\r\n2;x\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
    let head = "Transfer-Encoding: chunked\r\n\r\n";
    let request = format!("PUT / HTTP/1.1\r\nHost: x\r\n{head}{chunks}");
    let sent = request.clone();
    let (proxy, mut client, served) = before(move |mut stream| {
        for _ in 0..2 {
            expect(&mut stream, &request);
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\n{head}{chunks}"));
        }
    });
    for _ in 0..2 {
        client.send(&sent);
        assert_eq!(client.head().status, 200);
        assert_eq!(client.body(chunks.len()), chunks.as_bytes());
    }
    assert!(proxy.seen().iter().all(|seen| (seen.request_bytes, seen.response_bytes) == (5, 5)));
    served.join().unwrap();
}

#[test]
fn a_client_that_waits_is_told_to_go_on() {
    let head = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let (_proxy, mut client, served) = before(move |mut stream| {
        expect(&mut stream, head);
        say(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n");
        expect(&mut stream, "abc");
        say(&mut stream, NOTHING);
    });
    client.send(head);
    assert_eq!(client.head().status, 100);
    client.send("abc");
    assert_eq!(client.head().status, 200);
    served.join().unwrap();
}

#[test]
fn an_answer_before_the_whole_request_ends_the_connection() {
    let head = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
    let (_proxy, mut client, served) = before(move |mut stream| {
        expect(&mut stream, head);
        say(&mut stream, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        stream
    });
    client.send(head);
    assert_eq!(client.head().status, 403);
    assert_eq!(client.rest(), b"no");
    served.join().unwrap();
}

#[test]
fn a_body_without_a_length_ends_with_the_connection() {
    let (_proxy, mut client, served) = before(|mut stream| {
        expect(&mut stream, "GET / HTTP/1.1\r\n");
        // Unread bytes would reset the connection, which is not the subject of this test.
        expect(&mut stream, "Host: somewhere\r\n\r\n");
        say(&mut stream, "HTTP/1.1 200 OK\r\n\r\nall there is");
    });
    assert_eq!(client.ask("GET", "/", "").status, 200);
    assert_eq!(client.rest(), b"all there is");
    served.join().unwrap();
}

#[test]
fn who_is_hung_up_on_between_requests_sees_it() {
    let (_proxy, mut client, served) = before(|mut stream| {
        expect(&mut stream, "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
        say(&mut stream, NOTHING);
    });
    assert_eq!(client.ask("GET", "/", "").status, 200);
    assert!(client.rest().is_empty());
    served.join().unwrap();
}

#[test]
fn a_client_that_no_longer_waits_is_not_waited_for() {
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let (proxy, mut client, served) = before(move |mut stream| {
        expect(&mut stream, request);
        stream.read(&mut [0]).unwrap()
    });
    client.send(request);
    while proxy.seen().is_empty() {
        std::thread::yield_now();
    }
    drop(client);
    assert_eq!(served.join().unwrap(), 0);
}
