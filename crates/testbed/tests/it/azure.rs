//! Tests of the Azure blob server. It takes seconds to start, so it is started once.

use crate::{content, is_running, store};
use thalweg_testbed::{Azure, Proxy};

#[tokio::test]
async fn it_stores_blobs_and_leaves_no_process() {
    let azure = Azure::start().unwrap();
    azure.create_container("box").unwrap();
    let error = azure.create_container("box").unwrap_err();
    assert!(error.to_string().contains("409"), "{error}");
    let proxy = Proxy::start(azure.address()).unwrap();
    let through = azure.endpoint().replace(&azure.address().to_string(), &proxy.address().to_string());
    assert!(azure.url_through(&proxy, "box", "a").contains(&through));
    let operator = store::azure(&azure, &azure.endpoint(), "box");
    operator.write("a/b c.bin", content(100_000)).await.unwrap();
    let operator = store::azure(&azure, &through, "box");
    assert_eq!(operator.read("a/b c.bin").await.unwrap().to_vec(), content(100_000));
    let bytes = content(9 << 20);
    operator.write_with("big", bytes.clone()).chunk(4 << 20).concurrent(2).await.unwrap();
    assert_eq!(operator.read("big").await.unwrap().to_vec(), bytes);
    assert!(proxy.seen().iter().all(|seen| seen.status == seen.upstream_status && seen.status.is_some()));
    let id = azure.process_id();
    assert!(is_running(id));
    drop(azure);
    assert!(!is_running(id));
}
