//! Requests with files: forms, their boundaries and names, and plain bodies. A body gives the same result in
//! pieces.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::StreamBody;
use hyper::body::Frame;
use thalweg_config::ByteSize;
use thalweg_engine::Temporaries;
use thalweg_net::upload::{Accept, Limits, Room, Uploads, read, read_fields};
use thalweg_record::{Budget, Content};
use tokio::runtime::{Builder, Runtime};

use crate::Target;
use crate::input::{Input, pieces};
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "multipart",
    components: &["http_upload"],
    longest: 16 << 10,
    words: &[
        "--b\r\n",
        "\r\n--b--",
        "Content-Disposition: form-data; name=\"a\"; filename=\"b.png\"\r\n\r\n",
        "filename*=UTF-8''%e2%82%ac",
        "boundary=b",
        "../",
        "\\\"",
    ],
    run,
};

/// The largest file, request and number of files.
const MAX_FILE: usize = 4 << 10;
const MAX_REQUEST: usize = 12 << 10;
const MAX_FILES: usize = 5;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    static TEMPORARIES: Temporaries = Temporaries::new(None);
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let accept = [Accept::Both, Accept::Multipart, Accept::Body][input.choice(3)];
    let seed = input.choice(256);
    let (kind, disposition) = (input.line(), input.line());
    let Some(head) = head(kind, disposition) else { return };
    let whole = bounded(4 << 20, || received(&head, &[input.0], accept));
    assert_eq!(received(&head, &pieces(input.0, seed), accept), whole, "the body in pieces");
}

fn head(kind: &[u8], disposition: &[u8]) -> Option<Parts> {
    let request = http::Request::builder()
        .header("content-type", kind)
        .header("content-disposition", disposition)
        .body(());
    Some(request.ok()?.into_parts().0)
}

/// The contents of a request: files by name, and fields. The reason of a refusal may depend on the pieces, if
/// a request is both malformed and too large.
#[derive(Debug, PartialEq)]
enum Received {
    Files(Vec<(Vec<u8>, Vec<u8>)>, Vec<(String, String)>),
    Refused,
}

fn received(head: &Parts, pieces: &[&[u8]], accept: Accept) -> Received {
    let limits = Limits {
        max_file_bytes: ByteSize(MAX_FILE as u64),
        max_request_bytes: ByteSize(MAX_REQUEST as u64),
        max_files: MAX_FILES,
        patience: Duration::from_secs(30),
    };
    let budget = Budget::new(8 << 20);
    let temporary = TEMPORARIES.with(Clone::clone);
    let room = Room { share: budget.share(), temporary, in_memory: true };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let _ = read_fields(head, body(pieces), limits).await;
            match read(head, body(pieces), accept, limits, &room).await {
                Ok(uploads) => files(uploads),
                Err(_) => Received::Refused,
            }
        })
    })
}

fn body(pieces: &[&[u8]]) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Unpin {
    let frames: Vec<_> = pieces.iter().map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    StreamBody::new(futures_util::stream::iter(frames))
}

fn files(uploads: Uploads) -> Received {
    let files = uploads.files.iter().map(|file| {
        use std::os::unix::ffi::OsStrExt;
        let name = file.name.as_bytes().to_vec();
        assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0), "the name {name:?}");
        assert!(name != b"." && name != b"..", "the name {name:?}");
        let content = match &file.content {
            Content::Memory(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        assert!(file.size <= MAX_FILE as u64, "a file of {} bytes", file.size);
        (name, content)
    });
    let files: Vec<_> = files.collect();
    assert!(files.len() <= MAX_FILES);
    Received::Files(files, uploads.fields)
}
