//! Google's store. No test server supports its uploads in parts, so the requests and the replies here follow
//! its manual.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_store::{OnExisting, Retries, Store, StoreError, UploadedPart, Verified, Writing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that sends scripted replies, one after the other, and records the heads of the requests. For an
/// empty reply it stays silent.
struct Scripted {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    async fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let answers: Vec<_> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let noted = heads.clone();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            for answer in answers {
                let (mut client, _) = listener.accept().await.unwrap();
                let head = asked(&mut client).await.unwrap();
                noted.lock().push(head);
                client.write_all(answer.as_bytes()).await.unwrap();
                if answer.is_empty() {
                    silent.push(client);
                }
            }
        });
        Self { url: format!("gs://bucket/?endpoint={endpoint}&skip_signature=true"), heads }
    }

    fn store(&self) -> Store {
        let retries = Retries { attempts: 1, ..Retries::default() };
        Store::with_retries(&self.url, retries).unwrap().0
    }
}

/// Reads one request with its body. Returns its head, or `None` if the client has left.
pub(crate) async fn asked(client: &mut TcpStream) -> Option<String> {
    let mut came = Vec::new();
    loop {
        if client.read_buf(&mut came).await.unwrap() == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&came);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(head.to_owned());
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

fn part(number: u32, bytes: &'static [u8]) -> UploadedPart {
    let size = bytes.len() as u64;
    UploadedPart { number, size, tag: "\"t\"".to_owned(), crc32c: crc32c::crc32c(bytes), is_verified: true }
}

/// The checksums of `hello` and of `helloworld`, in the form of the headers.
const HELLO: &str = "x-goog-hash: crc32c=mnG7TA==\r\n";
const HELLO_WORLD: &str = "x-goog-hash: crc32c=Vsu0gA==,md5=AAAA\r\n";

#[tokio::test]
async fn the_same_requests_are_made_with_googles_checksums() {
    let begun = answer("200 OK", "", "<R><UploadId>id/1</UploadId></R>");
    let sent = answer("200 OK", &format!("etag: \"t\"\r\n{HELLO}"), "");
    let complete = answer("200 OK", HELLO_WORLD, "<R><ETag>\"other\"</ETag></R>");
    let server = Scripted::start(&[&begun, &sent, &complete]).await;
    let store = server.store();
    let writing = Writing { content_type: Some("text/x-test".to_owned()), ..Writing::default() };
    let upload = store.begin("a b", &writing).await.unwrap();
    let sent = upload.part(1, 0, Bytes::from_static(b"hello")).await.unwrap().part;
    assert_eq!(sent, part(1, b"hello"));
    let stored = upload.complete(&[part(2, b"world"), sent]).await.unwrap();
    assert_eq!((stored.verified, stored.size, stored.etag), (Verified::Whole, 10, None));
    let heads = server.heads.lock().clone();
    assert!(heads[0].starts_with("POST /bucket/a%20b?uploads HTTP/1.1"), "{}", heads[0]);
    assert!(heads[0].contains("content-type: text/x-test"), "{}", heads[0]);
    assert!(heads[1].starts_with("PUT /bucket/a%20b?partNumber=1&uploadId=id/1 "), "{}", heads[1]);
    assert!(heads[1].contains("x-goog-hash: crc32c=mnG7TA=="), "{}", heads[1]);
    assert!(heads[2].starts_with("POST /bucket/a%20b?uploadId=id/1 "), "{}", heads[2]);
    assert!(!heads.concat().contains("x-amz"), "{heads:?}");
}

#[tokio::test]
async fn what_was_completed_before_is_known_by_its_checksum() {
    let begun = answer("200 OK", "", "<R><UploadId>1</UploadId></R>");
    let gone = answer("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>");
    let there = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 10\r\n{HELLO_WORLD}\r\n");
    let parts = [part(1, b"hello"), part(2, b"world")];
    let server = Scripted::start(&[&begun, &gone, &there]).await;
    let upload = server.store().begin("a", &Writing::default()).await.unwrap();
    assert_eq!(upload.complete(&parts).await.unwrap().verified, Verified::Whole);
    let other = there.replace("Vsu0gA==", "AAAAAA==");
    let server = Scripted::start(&[&begun, &gone, &other]).await;
    let upload = server.store().begin("a", &Writing::default()).await.unwrap();
    let error = upload.complete(&parts).await.unwrap_err();
    assert!(error.to_string().contains("NoSuchUpload"), "{error}");
}

#[tokio::test]
async fn what_arrived_as_something_else_is_not_stored() {
    let wrong = answer("200 OK", "etag: \"t\"\r\nx-goog-hash: crc32c=AAAAAA==\r\n", "");
    let server = Scripted::start(&[&wrong]).await;
    let error = server.store().put("a", Bytes::from_static(b"hello"), &Writing::default()).await.unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("other bytes than were sent"), "{error}");
}

#[tokio::test]
async fn a_condition_is_about_generations_and_impossible_for_parts() {
    let refused = answer("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>");
    let server = Scripted::start(&[&refused]).await;
    let store = server.store();
    let keep = Writing { on_existing: OnExisting::Keep, ..Writing::default() };
    let error = store.put("a", Bytes::new(), &keep).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(server.heads.lock()[0].contains("x-goog-if-generation-match: 0"));
    let error = store.begin("a", &keep).await.unwrap_err();
    assert!(error.to_string().contains("a condition on an upload in parts is not possible"), "{error}");
}

#[tokio::test]
async fn silence_is_a_reason_to_ask_again() {
    let server = Scripted::start(&["", &answer("200 OK", HELLO, "")]).await;
    let retries = Retries {
        attempts: 2,
        first: Duration::from_millis(1),
        silence: Duration::from_millis(300),
        ..Retries::default()
    };
    let (store, _) = Store::with_retries(&server.url, retries).unwrap();
    let stored = store.put("a", Bytes::from_static(b"hello"), &Writing::default()).await.unwrap();
    assert_eq!((stored.verified, store.counts().retries()), (Verified::Whole, 1));
    assert_eq!(store.counts().written(), 10);
}
