//! Faults on the connection.

use bytes::Bytes;
use thalweg_store::{OnExisting, StoreError, Verified, Writing};
use thalweg_testbed::{Fault, Rule, Times};

use crate::{MIB, PART, TestStore, content, read, send};

fn lost() -> Fault {
    Fault::StatusAfter { code: 500, retry_after: None, body: String::new() }
}

fn status(code: u16, body: &str) -> Fault {
    Fault::Status { code, retry_after: None, body: body.to_owned() }
}

/// The rules that match a store's requests of each kind.
struct Requests {
    part: fn(Fault) -> Rule,
    complete: fn(Fault) -> Rule,
}

const AMAZON: Requests = Requests {
    part: |fault| Rule::new(fault).method("PUT").path("partNumber="),
    complete: |fault| Rule::new(fault).method("POST").path("uploadId="),
};
const MICROSOFT: Requests = Requests {
    part: |fault| Rule::new(fault).method("PUT").path("comp=block&"),
    complete: |fault| Rule::new(fault).method("PUT").path("comp=blocklist"),
};

#[tokio::test(flavor = "multi_thread")]
async fn amazons_protocol_bears_faults() {
    let place = TestStore::s3();
    bears(&place, &AMAZON).await;
    without_checksums(&place).await;
    an_error_behind_a_good_head(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn microsofts_protocol_bears_faults() {
    bears(&TestStore::azure(), &MICROSOFT).await;
}

async fn bears(place: &TestStore, requests: &Requests) {
    lost_answers(place, requests).await;
    broken_parts(place, requests).await;
    denied(place).await;
}

async fn lost_answers(place: &TestStore, requests: &Requests) {
    let content = content(12 * MIB);
    for (key, on_existing) in [("lost", OnExisting::Replace), ("lost, kept", OnExisting::Keep)] {
        let (path, writing) = (place.key(key), Writing { on_existing, ..Writing::default() });
        let upload = place.store.begin(&path, &writing).await.unwrap();
        let mut parts = Vec::new();
        for number in 1..=3 {
            parts.push(send(&upload, number, &content).await);
        }
        place.proxy().set([(requests.complete)(lost()).times(Times::First(1))]);
        let stored = upload.complete(&parts).await.unwrap();
        place.proxy().set([]);
        let found = place.store.stat(&path).await.unwrap();
        assert_eq!((stored.size, &stored.etag), (found.size(), &found.state().etag));
        assert_eq!(read(&found).await, content);
        // A later run that does not know that the upload was completed.
        let again = upload.complete(&parts).await.unwrap();
        assert_eq!(again.size, stored.size);
    }
    let (path, keep) =
        (place.key("put, lost"), Writing { on_existing: OnExisting::Keep, ..Writing::default() });
    place.proxy().set([Rule::new(lost()).method("PUT").times(Times::First(1))]);
    place.store.put(&path, content.slice(..1000), &keep).await.unwrap();
    place.proxy().set([Rule::new(lost()).method("PUT").times(Times::First(1))]);
    let other = place.store.put(&path, content.slice(1..1001), &keep).await.unwrap_err();
    assert!(matches!(other, StoreError::Refused { .. }), "{other}");
    place.proxy().set([]);
}

async fn broken_parts(place: &TestStore, requests: &Requests) {
    let (path, content) = (place.key("broken"), content(12 * MIB));
    let upload = place.store.begin(&path, &Writing::default()).await.unwrap();
    place.proxy().set([
        (requests.part)(Fault::CutRequest { after: MIB as u64 }).times(Times::Nth(1)),
        (requests.part)(status(503, "")).times(Times::Nth(3)),
        (requests.part)(lost()).times(Times::Nth(5)),
    ]);
    let mut parts = Vec::new();
    for (number, is_overloaded) in [(1, false), (2, true), (3, false)] {
        let offset = (number as usize - 1) * PART;
        let bytes = content.slice(offset..content.len().min(offset + PART));
        let sent = upload.part(number, offset as u64, bytes).await.unwrap();
        assert_eq!(sent.was_overloaded, is_overloaded, "{number}");
        parts.push(sent.part);
    }
    place.proxy().set([]);
    upload.complete(&parts).await.unwrap();
    assert_eq!(read(&place.store.stat(&path).await.unwrap()).await, content);

    place.proxy().set([(requests.part)(status(503, ""))]);
    let error = upload.part(1, 0, Bytes::from_static(b"x")).await.unwrap_err();
    place.proxy().set([]);
    assert!(error.is_temporary() && error.to_string().contains("failed 4 times"), "{error}");
}

async fn denied(place: &TestStore) {
    let body = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
    place.proxy().set([Rule::new(status(403, body))]);
    let error = place.store.put(&place.key("x"), Bytes::new(), &Writing::default()).await.unwrap_err();
    place.proxy().set([]);
    assert!(
        error.to_string().contains("may not be written: the store replied 403 Forbidden: AccessDenied: no")
    );
}

async fn without_checksums(place: &TestStore) {
    let refusing = || status(501, "<Error><Code>NotImplemented</Code></Error>");
    place.proxy().set([
        Rule::new(refusing()).path("?uploads").times(Times::First(1)),
        Rule::new(refusing()).method("PUT").path("/single").times(Times::First(1)),
    ]);
    let path = place.key("unverified");
    let upload = place.store.begin(&path, &Writing::default()).await.unwrap();
    assert!(!upload.begun().has_checksums);
    let part = upload.part(1, 0, content(MIB)).await.unwrap().part;
    assert!(!part.is_verified);
    assert_eq!(upload.complete(&[part]).await.unwrap().verified, Verified::No);
    let stored = place.store.put(&place.key("single"), content(5), &Writing::default()).await.unwrap();
    assert_eq!(stored.verified, Verified::No);
    place.proxy().set([]);
}

async fn an_error_behind_a_good_head(place: &TestStore) {
    let upload = place.store.begin(&place.key("late error"), &Writing::default()).await.unwrap();
    let part = upload.part(1, 0, content(MIB)).await.unwrap().part;
    let late = |code| status(200, &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"));
    place.proxy().set([(AMAZON.complete)(late("InvalidPart"))]);
    let error = upload.complete(std::slice::from_ref(&part)).await.unwrap_err();
    assert!(error.to_string().contains("InvalidPart"), "{error}");
    place.proxy().set([(AMAZON.complete)(late("InternalError")).times(Times::First(1))]);
    upload.complete(&[part]).await.unwrap();
    place.proxy().set([]);
}
