//! Uploads in parts in Microsoft's protocol: invisible blocks that belong to a blob, and then a list of the
//! blocks that form it.
//!
//! The store does not know uploads. The name of a block therefore begins with the id of its upload, which we
//! generate. All names at one blob must have the same length. Blocks that no list contains disappear after a
//! week, or when another list is written. Nothing else can remove them without touching the visible object.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use http::{Method, StatusCode};
use opendal::raw::percent_encode_path;

use super::answer::Answer;
use super::put::holds;
use super::remote::Remote;
use super::request::{Asking, ask};
use super::{Begun, Body, Sent, Stored, UploadedPart, Verified, Writing};
use crate::attempt::AttemptError;
use crate::{Store, StoreError};

/// The number of hexadecimal digits of an id. With the number of the part, a name has sixteen bytes, as most
/// clients generate them.
const ID_DIGITS: usize = 10;

/// The header for the checksum that this store supports.
const CHECKSUM: &str = "x-ms-content-crc64";

/// Returns the CRC-32C of the bytes, and the store's checksum in the form of its header. Both are computed in
/// one pass through the memory.
fn sums(body: &Body) -> (u32, String) {
    let (mut crc32c, mut crc64) = (0, Digest::new(CrcAlgorithm::Crc64Nvme));
    for piece in body.pieces().iter().flat_map(|piece| piece.chunks(64 << 10)) {
        crc32c = crc32c::crc32c_append(crc32c, piece);
        crc64.update(piece);
    }
    (crc32c, BASE64_STANDARD.encode(crc64.finalize().to_le_bytes()))
}

/// Returns true if the store confirms this checksum. A different checksum is a temporary error, like a broken
/// connection.
fn is_confirmed(answer: &Answer, sum: &str) -> Result<bool, AttemptError> {
    match answer.header(CHECKSUM) {
        Some(theirs) if theirs != sum => {
            Err(AttemptError::cut("the store received other bytes than were sent".to_owned()))
        }
        theirs => Ok(theirs.is_some()),
    }
}

pub(super) fn begin(path: &str, writing: &Writing) -> Begun {
    let id = format!("{:0ID_DIGITS$x}", fastrand::u64(..1 << (4 * ID_DIGITS)));
    Begun { path: path.to_owned(), id, writing: writing.clone(), has_checksums: false }
}

fn name(begun: &Begun, number: u32) -> String {
    BASE64_STANDARD.encode(format!("{}{number:06}", begun.id))
}

/// True if the store has blocks of the upload.
pub(super) async fn is_known(store: &Store, remote: &Remote, begun: &Begun) -> Result<bool, StoreError> {
    let what = "looking for its blocks";
    let asked = store.asking(&begun.path, what, |_| async move {
        let asking = Asking::new(Method::GET, &begun.path, "comp=blocklist&blocklisttype=uncommitted");
        let answer = ask(store, remote, &asking).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let said = answer.done(&store.name(&begun.path), what)?.said();
        Ok(said.uncommitted_blocks.block.iter().any(|block| {
            BASE64_STANDARD.decode(&block.name).is_ok_and(|name| name.starts_with(begun.id.as_bytes()))
        }))
    });
    Ok(asked.await?.0)
}

pub(super) async fn part(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    number: u32,
    body: Body,
) -> Result<Sent, StoreError> {
    let (crc32c, sum) = sums(&body);
    let (size, tag, body, sum) = (body.len() as u64, &name(begun, number), &body, sum.as_str());
    let what = &format!("sending part {number} of {size} bytes");
    let sending = store.asking(&begun.path, what, |_| async move {
        let query = format!("comp=block&blockid={}", percent_encode_path(tag));
        let asking = Asking::new(Method::PUT, &begun.path, query).body(body.clone());
        let answer = ask(store, remote, &asking.header(CHECKSUM, sum)).await?;
        is_confirmed(&answer.done(&store.name(&begun.path), what)?, sum)
    });
    let (is_verified, was_overloaded) = sending.await?;
    Ok(Sent { part: UploadedPart { number, size, tag: tag.clone(), crc32c, is_verified }, was_overloaded })
}

/// Turns parts, which are in order, into an object.
pub(super) async fn complete(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    parts: &[UploadedPart],
) -> Result<Stored, StoreError> {
    let (what, path) = ("completing its upload", begun.path.as_str());
    let mut list = String::from("<BlockList>");
    for part in parts {
        // `Latest` also finds blocks that are already in a list, so that the request can be repeated.
        list += &format!("<Latest>{}</Latest>", quick_xml::escape::escape(part.tag.as_str()));
    }
    list += "</BlockList>";
    let list = &list;
    let completing = store.asking(path, what, |_| async move {
        let asking = Asking::new(Method::PUT, path, "comp=blocklist").on(&begun.writing);
        let asking = with_type(asking, &begun.writing).header("content-type", "application/xml");
        let answer = ask(store, remote, &asking.body(list.clone())).await?;
        let may_be_done = matches!(answer.status, StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED);
        if may_be_done && let Some(done) = completed(store, remote, begun, parts).await {
            return Ok(done.etag);
        }
        answer.done(&store.name(path), what).map(|answer| answer.etag())
    });
    let (etag, was_overloaded) = completing.await?;
    Ok(Stored { etag, was_overloaded, ..Stored::of(parts) })
}

/// Returns the object if it consists of these parts: then the reply to an earlier attempt was lost.
pub(super) async fn completed(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    parts: &[UploadedPart],
) -> Option<Stored> {
    let asking = Asking::new(Method::GET, &begun.path, "comp=blocklist&blocklisttype=committed");
    let answer = ask(store, remote, &asking).await.ok().filter(|answer| answer.status.is_success())?;
    let names = answer.said().committed_blocks.block;
    let is_ours = names.iter().map(|block| &block.name).eq(parts.iter().map(|part| &part.tag));
    is_ours.then(|| Stored { etag: answer.etag(), ..Stored::of(parts) })
}

/// Writes an object in one request.
pub(super) async fn put(
    store: &Store,
    remote: &Remote,
    path: &str,
    body: Body,
    writing: &Writing,
) -> Result<Stored, StoreError> {
    let (size, name, body) = (body.len() as u64, &store.name(path), &body);
    let (what, (crc32c, sum)) = (&format!("writing {size} bytes"), &sums(body));
    let putting = store.asking(path, what, |is_again| async move {
        let asking = Asking::new(Method::PUT, path, "").body(body.clone()).on(writing);
        let asking = with_type(asking, writing).header("x-ms-blob-type", "BlockBlob").header(CHECKSUM, sum);
        let answer = ask(store, remote, &asking).await?;
        if is_again
            && matches!(answer.status, StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED)
            && let Some(etag) = holds(store, path, size, *crc32c).await
        {
            return Ok((etag, false));
        }
        let answer = answer.done(name, what)?;
        Ok((answer.etag(), is_confirmed(&answer, sum)?))
    });
    let ((etag, is_verified), was_overloaded) = putting.await?;
    let verified = if is_verified { Verified::Whole } else { Verified::No };
    Ok(Stored { etag, size, crc32c: *crc32c, verified, was_overloaded })
}

fn with_type<'a>(asking: Asking<'a>, writing: &Writing) -> Asking<'a> {
    match &writing.content_type {
        Some(content_type) => asking.header("x-ms-blob-content-type", content_type),
        None => asking,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn all_names_of_blocks_have_one_length() {
        let begun = begin("x", &Writing::default());
        let names = [1, 2, 10, 50_000].map(|number| name(&begun, number));
        assert!(names.iter().all(|name| name.len() == 24), "{names:?}");
    }

    #[test]
    fn both_checksums_are_those_of_their_standards() {
        let little_endian = BASE64_STANDARD.encode(0xAE8B_1486_0A79_9888_u64.to_le_bytes());
        assert_eq!(sums(&Bytes::from_static(b"123456789").into()), (0xE306_9283, little_endian));
        let long = Bytes::from(vec![7; 200_000]);
        let pieces = [long.slice(..70_000), Bytes::new(), long.slice(70_000..)];
        assert_eq!(sums(&pieces.into_iter().collect()), sums(&long.clone().into()));
        assert_eq!(sums(&long.clone().into()).0, crc32c::crc32c(&long));
    }
}
