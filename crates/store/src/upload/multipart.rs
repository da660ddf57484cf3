//! Uploads in parts in Amazon's protocol. Google accepts the same requests, signed in its own way.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, StatusCode};
use md5::{Digest, Md5};
use opendal::raw::percent_encode_path;

use super::crc::{found, is_confirmed, is_google, of_all, text, with_crc};
use super::put::holds;
use super::remote::Remote;
use super::request::{Asking, ask};
use super::{Begun, Body, OnExisting, Sent, Stored, UploadedPart, Verified, Writing};
use crate::attempt::AttemptError;
use crate::{Store, StoreError};

fn with_type<'a>(asking: Asking<'a>, writing: &Writing) -> Asking<'a> {
    match &writing.content_type {
        Some(content_type) => asking.header("content-type", content_type),
        None => asking,
    }
}

fn at(begun: &Begun) -> String {
    format!("uploadId={}", percent_encode_path(&begun.id))
}

pub(super) async fn begin(
    store: &Store,
    remote: &Remote,
    path: &str,
    writing: &Writing,
) -> Result<Begun, StoreError> {
    if is_google(store) && writing.on_existing != OnExisting::Replace {
        // Google ignores conditions when it completes an upload.
        return Err(StoreError::Impossible {
            name: store.name(path),
            what: "a condition on an upload in parts",
        });
    }
    let what = "beginning to write it";
    let has_checksums = &AtomicBool::new(!is_google(store));
    let begin = store.asking(path, what, |_| async move {
        loop {
            let mut asking =
                with_type(Asking::new(Method::POST, path, "uploads"), writing).headers(&remote.making);
            if has_checksums.load(Ordering::Relaxed) {
                asking = asking.header("x-amz-checksum-algorithm", "CRC32C");
            }
            let answer = ask(store, remote, &asking).await?;
            if has_checksums.load(Ordering::Relaxed) && answer.is_not_understood() {
                has_checksums.store(false, Ordering::Relaxed);
                continue;
            }
            let answer = answer.done(&store.name(path), what)?;
            return answer.said().upload_id.ok_or_else(|| answer.failure(&store.name(path), what));
        }
    });
    let (id, _) = begin.await?;
    Ok(Begun {
        path: path.to_owned(),
        id,
        writing: writing.clone(),
        has_checksums: has_checksums.load(Ordering::Relaxed),
    })
}

/// True if the store knows the upload.
pub(super) async fn is_known(store: &Store, remote: &Remote, begun: &Begun) -> Result<bool, StoreError> {
    let what = "looking for its upload";
    let asked = store.asking(&begun.path, what, |_| async move {
        let asking = Asking::new(Method::GET, &begun.path, format!("max-parts=1&{}", at(begun)));
        let answer = ask(store, remote, &asking).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        answer.done(&store.name(&begun.path), what).map(|_| true)
    });
    Ok(asked.await?.0)
}

pub(super) async fn discard(store: &Store, remote: &Remote, begun: &Begun) -> Result<(), StoreError> {
    let what = "discarding its upload";
    let asked = store.asking(&begun.path, what, |_| async move {
        let answer = ask(store, remote, &Asking::new(Method::DELETE, &begun.path, at(begun))).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        answer.done(&store.name(&begun.path), what).map(drop)
    });
    asked.await.map(|_| ())
}

pub(super) async fn part(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    number: u32,
    body: Body,
) -> Result<Sent, StoreError> {
    let (crc32c, size) = (body.crc32c(), body.len() as u64);
    let what = &format!("sending part {number} of {size} bytes");
    let (has_checksum, body) = (&AtomicBool::new(begun.has_checksums || is_google(store)), &body);
    let sending = store.asking(&begun.path, what, |_| async move {
        loop {
            let query = format!("partNumber={number}&{}", at(begun));
            let mut asking = Asking::new(Method::PUT, &begun.path, query).body(body.clone());
            if has_checksum.load(Ordering::Relaxed) {
                asking = with_crc(store, asking, crc32c);
            }
            let answer = ask(store, remote, &asking).await?;
            if has_checksum.load(Ordering::Relaxed) && answer.is_not_understood() {
                has_checksum.store(false, Ordering::Relaxed);
                continue;
            }
            let answer = answer.done(&store.name(&begun.path), what)?;
            let is_verified = is_confirmed(store, &answer, crc32c)?;
            let tag =
                answer.etag().ok_or_else(|| AttemptError::cut("the reply has no entity tag".to_owned()))?;
            return Ok(UploadedPart { number, size, tag: tag.clone(), crc32c, is_verified });
        }
    });
    let (part, was_overloaded) = sending.await?;
    Ok(Sent { part, was_overloaded })
}

/// Turns parts, which are in order, into an object.
pub(super) async fn complete(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    parts: &[UploadedPart],
) -> Result<Stored, StoreError> {
    let (what, path) = ("completing its upload", begun.path.as_str());
    let size = size_of(parts);
    let list = &list(parts, begun.has_checksums);
    let failure = |why| {
        let (name, what) = (store.name(path), what.to_owned());
        AttemptError::Fatal(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false })
    };
    let failure = &failure;
    let completing = store.asking(path, what, |_| async move {
        let mut asking = Asking::new(Method::POST, path, at(begun)).header("content-type", "application/xml");
        if !is_google(store) {
            asking = asking.on(&begun.writing).header("x-amz-mp-object-size", &size.to_string());
        }
        let answer = ask(store, remote, &asking.body(list.clone()).storing(size)).await?;
        let said = answer.said();
        // An error may follow a head with status 200.
        if answer.status.is_success() && said.code.is_none() {
            let whole = found(store, &answer).filter(|_| is_google(store));
            return match whole.map(|whole| whole == text(of_all(parts))) {
                Some(false) => Err(failure("the store holds other bytes than were sent".to_owned())),
                whole => Ok((said.etag.or_else(|| answer.etag()), whole.is_some())),
            };
        }
        let may_be_done = matches!(
            answer.status,
            StatusCode::NOT_FOUND | StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT
        );
        if may_be_done && let Some(done) = ours(store, remote, path, parts).await {
            return Ok(done);
        }
        Err(answer.failure(&store.name(path), what))
    });
    let (done, was_overloaded) = completing.await?;
    Ok(stored(store, parts, done, was_overloaded))
}

/// Returns an object that consists of `parts`. `done` is its tag, and true if the store has confirmed the
/// whole object.
fn stored(
    store: &Store,
    parts: &[UploadedPart],
    done: (Option<String>, bool),
    was_overloaded: bool,
) -> Stored {
    let (etag, is_whole) = done;
    let stored = Stored::of(parts);
    let verified = if is_whole { Verified::Whole } else { stored.verified };
    // Google returns another tag here than a lookup of the object does.
    Stored { etag: etag.filter(|_| !is_google(store)), verified, was_overloaded, ..stored }
}

fn size_of(parts: &[UploadedPart]) -> u64 {
    parts.iter().map(|part| part.size).sum()
}

/// Returns the object if it consists of these parts.
pub(super) async fn completed(
    store: &Store,
    remote: &Remote,
    begun: &Begun,
    parts: &[UploadedPart],
) -> Option<Stored> {
    let done = ours(store, remote, &begun.path, parts).await?;
    Some(stored(store, parts, done, false))
}

fn list(parts: &[UploadedPart], has_checksums: bool) -> String {
    let mut list = String::from("<CompleteMultipartUpload>");
    for part in parts {
        let tag = quick_xml::escape::escape(part.tag.as_str());
        list += &format!("<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag>", part.number);
        if has_checksums && part.is_verified {
            list += &format!("<ChecksumCRC32C>{}</ChecksumCRC32C>", text(part.crc32c));
        }
        list += "</Part>";
    }
    list + "</CompleteMultipartUpload>"
}

/// Returns the tag of the object if it consists of these parts, and true if the store has confirmed the whole
/// object. In that case the reply to an earlier attempt was lost.
async fn ours(
    store: &Store,
    remote: &Remote,
    path: &str,
    parts: &[UploadedPart],
) -> Option<(Option<String>, bool)> {
    if is_google(store) {
        let there = ask(store, remote, &Asking::new(Method::HEAD, path, "")).await.ok()?;
        let is_ours = there.status.is_success() && found(store, &there) == Some(text(of_all(parts)).as_str());
        return is_ours.then_some((None, true));
    }
    let found = store.stat(path).await.ok().filter(|found| found.size() == size_of(parts))?;
    let tag = found.state().etag.clone().unwrap_or_default();
    let plain = tag.trim_matches('"');
    let is_ours = match tag_of(parts) {
        Some(expected) => plain.eq_ignore_ascii_case(&expected),
        // Tags of encrypted objects are not checksums, but they end with the number of parts.
        None => plain.ends_with(&format!("-{}", parts.len())),
    };
    is_ours.then_some((Some(tag), false))
}

/// Returns the tag of an object that consists of `parts`: the MD5 of the MD5s of the parts, which are their
/// tags.
fn tag_of(parts: &[UploadedPart]) -> Option<String> {
    let mut all = Md5::new();
    for part in parts {
        let tag = part.tag.trim_matches('"');
        let number = u128::from_str_radix(tag, 16).ok().filter(|_| tag.len() == 32)?;
        all.update(number.to_be_bytes());
    }
    let all = u128::from_be_bytes(all.finalize().into());
    Some(format!("{all:032x}-{}", parts.len()))
}

/// Writes an object in one request.
pub(super) async fn put(
    store: &Store,
    remote: &Remote,
    path: &str,
    body: Body,
    writing: &Writing,
) -> Result<Stored, StoreError> {
    let (crc32c, size) = (body.crc32c(), body.len() as u64);
    let (what, name) = (&format!("writing {size} bytes"), &store.name(path));
    let (has_checksum, body) = (&AtomicBool::new(true), &body);
    let putting = store.asking(path, what, |is_again| async move {
        loop {
            let asking = Asking::new(Method::PUT, path, "").body(body.clone()).headers(&remote.making);
            let mut asking = with_type(asking, writing);
            if !is_google(store) {
                asking = asking.on(writing);
            } else if let Some(generation) = generation(store, path, writing).await? {
                asking = asking.header("x-goog-if-generation-match", &generation);
            }
            if has_checksum.load(Ordering::Relaxed) {
                asking = with_crc(store, asking, crc32c);
            }
            let answer = ask(store, remote, &asking).await?;
            if has_checksum.load(Ordering::Relaxed) && answer.is_not_understood() {
                has_checksum.store(false, Ordering::Relaxed);
                continue;
            }
            if is_again
                && answer.status == StatusCode::PRECONDITION_FAILED
                && let Some(etag) = holds(store, path, size, crc32c).await
            {
                return Ok((etag, false));
            }
            let answer = answer.done(name, what)?;
            return Ok((answer.etag(), is_confirmed(store, &answer, crc32c)?));
        }
    });
    let ((etag, is_verified), was_overloaded) = putting.await?;
    let verified = if is_verified { Verified::Whole } else { Verified::No };
    Ok(Stored { etag: etag.filter(|_| !is_google(store)), size, crc32c, verified, was_overloaded })
}

/// Returns the generation of the object that is to be replaced: Google compares generations, not tags.
async fn generation(store: &Store, path: &str, writing: &Writing) -> Result<Option<String>, AttemptError> {
    let tag = match &writing.on_existing {
        OnExisting::Replace => return Ok(None),
        OnExisting::Keep => return Ok(Some("0".to_owned())),
        OnExisting::ReplaceIf(tag) => tag,
    };
    let name = store.name(path);
    let found = store.origin(path).operator.stat(path).await;
    let found =
        found.map_err(|error| AttemptError::of(&error, &name, "asking for its state", &<_>::default()))?;
    match found.version().filter(|_| found.etag() == Some(tag.as_str())) {
        Some(generation) => Ok(Some(generation.to_owned())),
        None => {
            let why = "it has changed".to_owned();
            Err(AttemptError::Fatal(StoreError::Refused { name, why }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, tag: &str) -> UploadedPart {
        UploadedPart { number, size: 1, tag: tag.to_owned(), crc32c: 0x0102_0304, is_verified: true }
    }

    #[test]
    fn the_tag_of_the_whole_is_computed_of_those_of_the_parts() {
        let (a, b) = ("\"0cc175b9c0f1b6a831c399e269772661\"", "92eb5ffee6ae2fec3ad71c777531578f");
        let parts = [part(1, a), part(2, b)];
        assert_eq!(tag_of(&parts).as_deref(), Some("96e024ba2074fe77e8e965ba43a704be-2"));
        assert_eq!(tag_of(&[part(1, "opaque")]), None);
    }

    #[test]
    fn tags_are_escaped_and_checksums_told_where_the_store_knows_them() {
        assert_eq!(
            list(&[part(7, "\"a&b\"")], true),
            "<CompleteMultipartUpload><Part><PartNumber>7</PartNumber><ETag>&quot;a&amp;b&quot;</ETag>\
             <ChecksumCRC32C>AQIDBA==</ChecksumCRC32C></Part></CompleteMultipartUpload>"
        );
        assert!(!list(&[part(7, "a")], false).contains("CRC32C"));
    }
}
