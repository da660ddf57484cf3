//! Tests of the S3 server, alone and behind a proxy.

use crate::{content, is_running, store};
use opendal::ErrorKind;
use thalweg_testbed::{Fault, Proxy, Rule, S3, Times};

#[tokio::test]
async fn what_is_written_is_a_file_of_the_folder() {
    let s3 = S3::start().unwrap();
    s3.create_bucket("box").unwrap();
    let operator = store::s3(&s3, &s3.endpoint(), "box", s3.secret_key());
    operator.write("a/b c.bin", content(100_000)).await.unwrap();
    assert_eq!(std::fs::read(s3.folder().join("box/a/b c.bin")).unwrap(), content(100_000));
    let part = operator.read_with("a/b c.bin").range(10..20).await.unwrap();
    assert_eq!(part.to_vec(), content(20)[10..]);
    let again = operator.write_with("a/b c.bin", "x").if_not_exists(true).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::ConditionNotMatch);
    let wrong = store::s3(&s3, &s3.endpoint(), "box", "another secret");
    assert_eq!(wrong.stat("a/b c.bin").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn it_leaves_no_process_and_no_folder() {
    let s3 = S3::start().unwrap();
    let (id, folder) = (s3.process_id(), s3.folder());
    assert!(is_running(id) && folder.is_dir());
    assert_eq!(
        s3.url("box", "a b"),
        format!("s3://box/a%20b?endpoint=http://{}&region=us-east-1", s3.address())
    );
    drop(s3);
    assert!(!is_running(id) && !folder.exists());
}

#[tokio::test]
async fn several_run_beside_one_another() {
    let (one, other) = (S3::start().unwrap(), S3::start().unwrap());
    one.create_bucket("box").unwrap();
    assert_ne!(one.address(), other.address());
    assert!(one.folder().join("box").is_dir() && !other.folder().join("box").exists());
}

#[tokio::test]
async fn signatures_and_parts_pass_through_a_proxy() {
    let s3 = S3::start().unwrap();
    s3.create_bucket("box").unwrap();
    let proxy = Proxy::start(s3.address()).unwrap();
    assert!(s3.url_through(&proxy, "box", "a").contains(&proxy.endpoint()));
    let operator = store::s3(&s3, &proxy.endpoint(), "box", s3.secret_key());
    let bytes = content(20 << 20);
    operator.write_with("big 'one'", bytes.clone()).chunk(8 << 20).concurrent(3).await.unwrap();
    assert_eq!(operator.read("big 'one'").await.unwrap().to_vec(), bytes);
    let seen = proxy.seen();
    let parts: Vec<_> = seen.iter().filter(|seen| seen.path_and_query.contains("partNumber=")).collect();
    assert_eq!(parts.len(), 3);
    assert_eq!(parts.iter().map(|seen| seen.request_bytes).sum::<u64>(), 20 << 20);
    assert_eq!(seen.last().unwrap().response_bytes, 20 << 20);
    proxy.clear();
    assert!(proxy.seen().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_deed_done() {
    let s3 = S3::start().unwrap();
    s3.create_bucket("box").unwrap();
    let proxy = Proxy::start(s3.address()).unwrap();
    let lost = Fault::StatusAfter { code: 503, retry_after: Some(7), body: "lost".to_owned() };
    proxy.set([Rule::new(lost).method("PUT").path("/box/a").times(Times::First(1))]);
    let operator = store::s3(&s3, &proxy.endpoint(), "box", s3.secret_key());
    assert!(operator.write("a", content(1000)).await.unwrap_err().is_temporary());
    assert_eq!(std::fs::read(s3.folder().join("box/a")).unwrap(), content(1000));
    let seen = proxy.seen();
    assert_eq!((seen[0].status, seen[0].upstream_status), (Some(503), Some(200)));
    operator.write("a", content(2000)).await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_cut_off_leaves_nothing() {
    let s3 = S3::start().unwrap();
    s3.create_bucket("box").unwrap();
    let proxy = Proxy::start(s3.address()).unwrap();
    proxy.set([Rule::new(Fault::CutRequest { after: 1 << 20 }).method("PUT").times(Times::Nth(1))]);
    let operator = store::s3(&s3, &proxy.endpoint(), "box", s3.secret_key());
    operator.write("a", content(8 << 20)).await.unwrap_err();
    // The server notices a moment later, and removes what it has.
    let object = s3.folder().join("box/a");
    for _ in 0..1000 {
        if !object.exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!object.exists());
    let seen = proxy.seen();
    assert_eq!((seen[0].status, seen[0].request_bytes), (None, 1 << 20));
    operator.write("a", content(8 << 20)).await.unwrap();
}
