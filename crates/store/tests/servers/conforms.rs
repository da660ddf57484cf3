//! Tests that every store must pass.

use bytes::Bytes;
use thalweg_store::{Begun, OnExisting, StoreError, Verified, Writing};

use crate::{MIB, TestStore, content, content_type, read, send, writing};

/// The checksums that a store confirms, for a whole object and for parts, and which optional features it has.
struct Expected {
    whole: Verified,
    parts: Verified,
    has_types: bool,
    has_tags: bool,
    forgets: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn amazons_protocol_is_spoken() {
    let (whole, parts) = (Verified::Whole, Verified::Parts);
    let expected = Expected { whole, parts, has_types: true, has_tags: true, forgets: true };
    conforms(&TestStore::s3(), &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn microsofts_protocol_is_spoken() {
    // Azurite does not confirm the checksum of a whole object.
    let (whole, parts) = (Verified::No, Verified::Parts);
    let expected = Expected { whole, parts, has_types: true, has_tags: true, forgets: false };
    conforms(&TestStore::azure(), &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_stores_too() {
    let (whole, parts) = (Verified::No, Verified::No);
    let expected = Expected { whole, parts, has_types: false, has_tags: false, forgets: true };
    conforms(&TestStore::folder(), &expected).await;
}

async fn conforms(place: &TestStore, expected: &Expected) {
    puts(place, expected).await;
    strange_keys(place).await;
    parts(place, expected).await;
    resuming(place, expected).await;
    conditions(place, expected).await;
}

async fn puts(place: &TestStore, expected: &Expected) {
    for (key, length) in [("put/empty", 0), ("put/small", 5), ("put/large", 9 * MIB + 1)] {
        let (path, bytes) = (place.key(key), content(length));
        let (store, to, content) = (place.store.clone(), path.clone(), bytes.clone());
        let putting = tokio::spawn(async move { store.put(&to, content, &writing("text/x-test")).await });
        let stored = putting.await.unwrap().unwrap();
        assert_eq!((stored.size, stored.verified), (length as u64, expected.whole), "{key}");
        let found = place.store.stat(&path).await.unwrap();
        assert_eq!(read(&found).await, bytes, "{key}");
        assert_eq!(stored.etag, found.state().etag, "{key}");
        if expected.has_types {
            assert_eq!(content_type(place, &path).await.as_deref(), Some("text/x-test"));
        }
    }
}

async fn strange_keys(place: &TestStore) {
    for key in ["a b", "ä/日本", "a+b", "100%", "%41", "q?r#s&t=u", "it's (1)!*~", "a;b,c:d@e$f", "[x]{y}^`|"]
    {
        let path = place.key(key);
        place.store.put(&path, Bytes::from(key), &Writing::default()).await.unwrap();
        let upload = place.store.begin(&format!("{path} 2"), &Writing::default()).await.unwrap();
        let part = upload.part(1, 0, Bytes::from(key)).await.unwrap().part;
        upload.complete(&[part]).await.unwrap();
        for path in [path.clone(), format!("{path} 2")] {
            let found = place.store.stat(&path).await.unwrap();
            assert_eq!(read(&found).await, key.as_bytes());
            place.store.delete(&path).await.unwrap();
        }
    }
    let mut listing = place.store.list(&place.key(""));
    while let Some(object) = listing.next().await.unwrap() {
        assert!(object.path().starts_with(&place.key("put/")), "{}", object.path());
    }
}

async fn parts(place: &TestStore, expected: &Expected) {
    let (path, content) = (place.key("parts/a b+c%ä"), content(12 * MIB));
    let (store, to) = (place.store.clone(), path.clone());
    let beginning = tokio::spawn(async move { store.begin(&to, &writing("application/x-test")).await });
    let upload = beginning.await.unwrap().unwrap();
    let (third, second, first) =
        tokio::join!(send(&upload, 3, &content), send(&upload, 2, &content), send(&upload, 1, &content));
    assert_eq!(third.size, 2 * MIB as u64);
    assert!(matches!(place.store.stat(&path).await, Err(StoreError::Absent { .. })));
    let gap = upload.complete(&[first.clone(), third.clone()]).await.unwrap_err();
    assert!(gap.to_string().contains("without a gap"), "{gap}");
    let completing = tokio::spawn(async move { upload.complete(&[third, first, second]).await });
    let stored = completing.await.unwrap().unwrap();
    assert_eq!((stored.size, stored.verified), (12 * MIB as u64, expected.parts));
    let found = place.store.stat(&path).await.unwrap();
    assert_eq!(stored.etag, found.state().etag);
    assert_eq!(read(&found).await, content);
    if expected.has_types {
        assert_eq!(content_type(place, &path).await.as_deref(), Some("application/x-test"));
    }
}

async fn resuming(place: &TestStore, expected: &Expected) {
    let (path, content) = (place.key("resumed"), content(12 * MIB));
    let upload = place.store.begin(&path, &Writing::default()).await.unwrap();
    upload.part(2, 5 * MIB as u64, Bytes::from(vec![1; 5 * MIB])).await.unwrap();
    let (first, second) = (send(&upload, 1, &content).await, send(&upload, 2, &content).await);
    let saved = serde_json::to_string(&(upload.begun(), [&first, &second])).unwrap();
    drop(upload);
    let (begun, [first, second]): (Begun, [_; 2]) = serde_json::from_str(&saved).unwrap();
    let (store, saved) = (place.store.clone(), begun.clone());
    let resuming = tokio::spawn(async move { store.resume(&saved).await });
    let upload = resuming.await.unwrap().unwrap().unwrap();
    let third = send(&upload, 3, &content).await;
    let parts = [third, second, first];
    assert!(place.store.completed(&begun, &parts).await.unwrap().is_none());
    let stored = upload.complete(&parts).await.unwrap();
    assert_eq!(place.store.completed(&begun, &parts).await.unwrap(), Some(stored));
    assert_eq!(read(&place.store.stat(&path).await.unwrap()).await, content);
    assert!(place.store.resume(&begun).await.unwrap().is_none());
    place.store.put(&path, content.slice(1..), &Writing::default()).await.unwrap();
    assert!(place.store.completed(&begun, &parts).await.unwrap().is_none());

    let upload = place.store.begin(&place.key("discarded"), &Writing::default()).await.unwrap();
    send(&upload, 1, &content).await;
    for _ in 0..2 {
        place.store.discard(upload.begun()).await.unwrap();
    }
    assert_eq!(place.store.resume(upload.begun()).await.unwrap().is_none(), expected.forgets);
    let absent = place.store.stat(&place.key("discarded")).await;
    assert!(matches!(absent, Err(StoreError::Absent { .. })), "{absent:?}");
}

async fn conditions(place: &TestStore, expected: &Expected) {
    let (path, bytes) = (place.key("conditions"), content(6 * MIB));
    let on = |on_existing| Writing { on_existing, ..Writing::default() };
    let upload = place.store.begin(&path, &on(OnExisting::Keep)).await.unwrap();
    // Before the parts: azurite treats a blob as existing as soon as it has blocks.
    let first = place.store.put(&path, content(3), &on(OnExisting::Keep)).await.unwrap();
    let parts = [send(&upload, 1, &bytes).await, send(&upload, 2, &bytes).await];
    let refused = |error| assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    refused(upload.complete(&parts).await.unwrap_err());
    refused(place.store.put(&path, content(4), &on(OnExisting::Keep)).await.unwrap_err());
    upload.abort().await.unwrap();
    assert_eq!(place.store.stat(&path).await.unwrap().size(), 3);
    if !expected.has_tags {
        return;
    }
    let tag = || OnExisting::ReplaceIf(first.etag.clone().unwrap());
    let upload = place.store.begin(&path, &on(tag())).await.unwrap();
    let parts = [send(&upload, 1, &bytes).await, send(&upload, 2, &bytes).await];
    place.store.put(&path, content(4), &on(tag())).await.unwrap();
    refused(place.store.put(&path, content(5), &on(tag())).await.unwrap_err());
    refused(upload.complete(&parts).await.unwrap_err());
    upload.abort().await.unwrap();
    let now = place.store.stat(&path).await.unwrap().state().etag.clone().unwrap();
    let upload = place.store.begin(&path, &on(OnExisting::ReplaceIf(now))).await.unwrap();
    let parts = [send(&upload, 1, &bytes).await, send(&upload, 2, &bytes).await];
    upload.complete(&parts).await.unwrap();
    assert_eq!(place.store.stat(&path).await.unwrap().size(), 6 * MIB as u64);
}
