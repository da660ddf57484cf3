use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Request;
use hyper::body::Frame;
use tempfile::TempDir;
use thalweg_record::{Budget, Gate, Opening};

use super::*;

/// A body that arrives in pieces or breaks off.
struct Pieces(VecDeque<Result<Bytes, &'static str>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front().map(|piece| piece.map(Frame::data)))
    }
}

fn pieces(body: &[u8], size: usize) -> Pieces {
    Pieces(body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

fn head(kind: &str, others: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().header("content-type", kind);
    for (name, value) in others {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn limits(max_file_bytes: u64, max_request_bytes: u64, max_files: usize) -> Limits {
    let [max_file_bytes, max_request_bytes] =
        [max_file_bytes, max_request_bytes].map(|bytes| format!("{bytes}B").parse().unwrap());
    Limits { max_file_bytes, max_request_bytes, max_files, patience: Duration::from_secs(30) }
}

struct House {
    folder: TempDir,
    room: Room,
}

impl House {
    fn new(memory: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let temporary = Temporaries::new(Some(folder.path()));
        Self { room: Room { share: Budget::new(memory).share(), temporary, in_memory: true }, folder }
    }

    /// Returns the number of temporary files.
    fn temporaries(&self) -> usize {
        let runs = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        let files = runs.flat_map(|run| std::fs::read_dir(run.path()).unwrap().flatten());
        files.filter(|file| file.file_name() != "lock").count()
    }
}

fn bytes(upload: &Upload) -> Vec<u8> {
    match &upload.content {
        Content::Memory(buffer) => buffer.to_vec(),
        Content::Temporary(temporary) => std::fs::read(temporary.path()).unwrap(),
        other => panic!("{other:?} is not the run's own"),
    }
}

const FORM: &str = "multipart/form-data; boundary=\"x y\"";

fn part(head: &str, body: &[u8]) -> Vec<u8> {
    [b"--x y\r\n", head.as_bytes(), b"\r\n\r\n", body, b"\r\n"].concat()
}

fn file(name: &str, body: &[u8]) -> Vec<u8> {
    part(&format!("Content-Disposition: form-data; name=f; filename=\"{name}\""), body)
}

fn form(parts: &[Vec<u8>]) -> Vec<u8> {
    [&parts.concat()[..], b"--x y--\r\nafter the end"].concat()
}

#[tokio::test]
async fn forms_are_read_in_whatever_pieces_they_come() {
    let tricky = b"\r\n--x\r\n--x yz\r\n--x y_\r\n-\r\r\n--";
    let form = form(&[
        b"before the beginning\r\n".to_vec(),
        file("one.txt", b"one"),
        part("content-DISPOSITION: form-data; name=\"field\"\r\nX: y", b"a value"),
        file("empty", b""),
        file("tricky", tricky),
        part("X: nothing", b""),
    ]);
    let house = House::new(1 << 20);
    for size in (1..40).chain([form.len()]) {
        let (head, limits) = (head(FORM, &[]), limits(100, 10_000, 9));
        let read = read(&head, pieces(&form, size), Accept::Both, limits, &house.room);
        let uploads = read.await.unwrap();
        let files: Vec<_> =
            uploads.files.iter().map(|file| (file.name.to_str().unwrap(), bytes(file))).collect();
        let expected = [("one.txt", b"one".to_vec()), ("empty", Vec::new()), ("tricky", tricky.to_vec())];
        assert_eq!(files, expected, "{size}");
        let fields =
            [("field", "a value"), ("", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(uploads.fields, fields);
    }
}

#[tokio::test]
async fn small_files_stay_in_memory_and_others_are_written_as_they_come() {
    let house = House::new(8 << 20);
    let large = vec![7; SMALL + 1];
    let form = form(&[file("small", &large[..SMALL]), file("large", &large)]);
    let read_all = |room: Room| {
        let body = pieces(&form, 1000);
        async move {
            read(&head(FORM, &[]), body, Accept::Multipart, limits(1 << 20, 1 << 20, 9), &room).await.unwrap()
        }
    };
    let uploads = read_all(house.room.clone()).await;
    let [small, big] = uploads.files.as_slice() else { panic!("{uploads:?}") };
    assert!(matches!(small.content, Content::Memory(_)) && matches!(big.content, Content::Temporary(_)));
    assert_eq!((bytes(small).len(), bytes(big)), (SMALL, large));
    assert_eq!(house.temporaries(), 1);
    drop(uploads);
    assert_eq!((house.temporaries(), house.room.share.held()), (0, 0));
    let uploads = read_all(Room { in_memory: false, ..house.room.clone() }).await;
    assert_eq!((uploads.files.len(), house.temporaries()), (2, 2));
    // Without capacity in the budget, files are written to disk at once.
    let house = House::new(SMALL + 10);
    let uploads = read_all(house.room.clone()).await;
    assert_eq!((uploads.files.len(), house.temporaries()), (2, 2));
}

#[tokio::test]
async fn a_body_is_a_file_too() {
    let house = House::new(1 << 20);
    let of = |head: Parts, accept, body: &'static [u8]| {
        let room = house.room.clone();
        async move { read(&head, pieces(body, 5), accept, limits(100, 100, 1), &room).await.unwrap().files }
    };
    let named = [("content-disposition", "attachment; filename=\"../a.bin\"")];
    let files = of(head("image/png", &named), Accept::Both, b"some bytes").await;
    assert_eq!((files[0].name.to_str(), bytes(&files[0])), (Some("a.bin"), b"some bytes".to_vec()));
    // A form is also taken as one file if `accept` is `body`.
    let files = of(head(FORM, &[]), Accept::Body, b"--x y--").await;
    assert_eq!((files[0].name.to_str(), bytes(&files[0])), (Some(UNNAMED), b"--x y--".to_vec()));
    assert!(of(head("image/png", &[]), Accept::Both, b"").await.is_empty());
    assert_eq!(of(head("image/png", &named), Accept::Both, b"").await.len(), 1);
}

#[tokio::test]
async fn what_is_cut_off_or_too_large_leaves_nothing_behind() {
    let house = House::new(1 << 20);
    let large = vec![7; SMALL * 2];
    let whole = form(&[file("large", &large), file("other", b"x"), file("third", b"")]);
    let most = 1 << 20;
    let refused = |body: Pieces, limits: Limits| {
        let room = house.room.clone();
        async move { read(&head(FORM, &[]), body, Accept::Both, limits, &room).await.unwrap_err() }
    };
    for length in [0, 10, 70, 1000, SMALL + 1000, whole.len() - 25] {
        for breaks in [false, true] {
            let mut body = pieces(&whole[..length], 1000);
            body.0.extend(breaks.then_some(Err("the connection broke")));
            let refusal = refused(body, limits(most, most, 9)).await;
            assert_eq!(refusal.status(), 400, "{length}: {refusal:?}");
        }
    }
    for (limits, limit) in [
        (limits(SMALL as u64 * 2 - 1, most, 9), "max_file_bytes"),
        (limits(most, SMALL as u64 * 2, 9), "max_request_bytes"),
        (limits(most, most, 2), "max_files"),
    ] {
        let refusal = refused(pieces(&whole, 1000), limits).await;
        assert_eq!(refusal.status(), 413);
        assert!(refusal.reason().contains(&format!("`{limit}`")), "{refusal:?}");
    }
    let fields = form(&vec![part("Content-Disposition: form-data; name=a", b""); FIELDS + 1]);
    assert_eq!(refused(pieces(&fields, 1000), limits(most, most, 9)).await.status(), 413);
    let field = form(&[part("Content-Disposition: form-data; name=a", &large)]);
    assert_eq!(refused(pieces(&field, 1000), limits(most, most, 9)).await.status(), 413);
    let endless = part(&"X: y\r\n".repeat(4000), b"");
    assert_eq!(refused(pieces(&endless, 1000), limits(most, most, 9)).await.status(), 400);
    assert_eq!((house.temporaries(), house.room.share.held()), (0, 0));
}

#[tokio::test]
async fn what_is_no_form_is_refused_where_one_is_asked_for() {
    let house = House::new(1 << 20);
    for (kind, encoding, expected) in [
        ("image/png", "identity", 400),
        ("multipart/form-data", "identity", 400),
        ("multipart/form-data; boundary=", "identity", 400),
        ("multipart/mixed; boundary=x", "identity", 400),
        (FORM, "gzip", 415),
    ] {
        let head = head(kind, &[("content-encoding", encoding)]);
        let refused = read(&head, pieces(b"", 1), Accept::Multipart, limits(9, 9, 9), &house.room).await;
        assert_eq!(refused.unwrap_err().status(), expected, "{kind}");
    }
}

/// Never opens.
#[derive(Debug)]
struct Closed;

impl Gate for Closed {
    fn opening(&self) -> Option<Opening<'_>> {
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_memory_too_long_is_told_why() {
    let house = House::new(1 << 20);
    let paused = Room { share: house.room.share.clone().behind(Arc::new(Closed)), ..house.room.clone() };
    let _own = house.room.share.claim(1);
    let _full = house.room.share.budget().claim(1 << 20);
    let form = form(&[file("one.txt", b"one")]);
    for (room, expected) in [(&house.room, FULL), (&paused, PAUSED)] {
        let body = pieces(&form, 100);
        let read = read(&head(FORM, &[]), body, Accept::Both, limits(100, 1000, 9), room).await;
        let refusal = read.unwrap_err();
        assert_eq!((refusal.status(), refusal.reason()), (StatusCode::SERVICE_UNAVAILABLE, expected));
    }
}
