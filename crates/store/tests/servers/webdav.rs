//! Tests of reading from wsgidav, a WebDAV server of another project.

use std::fs;

use bytes::Bytes;
use thalweg_store::{Store, StoreError, Writing};
use thalweg_testbed::WebDav;

use crate::{content, quick, read};

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_a_webdav_server_are_listed_and_read() {
    let server = WebDav::start().unwrap();
    let folder = server.folder();
    fs::create_dir_all(folder.join("in/a b/ä")).unwrap();
    fs::create_dir(folder.join("in/empty")).unwrap();
    let large = content(300_000);
    let files = ["in/a b/x%41.txt", "in/a b/ä/日本", "in/large.bin", "other"];
    for file in files {
        fs::write(folder.join(file), &large).unwrap();
    }
    let (store, prefix) = Store::with_retries(&server.url("in/"), quick()).unwrap();
    let mut listing = store.list(&prefix);
    let mut found = Vec::new();
    while let Some(object) = listing.next().await.unwrap() {
        assert_eq!(object.size(), 300_000);
        assert_eq!(read(&object).await, large, "{}", object.path());
        found.push(object.path().to_owned());
    }
    found.sort();
    assert_eq!(found, files[..3]);

    let object = store.stat("in/large.bin").await.unwrap();
    let mut range = vec![0; 1000];
    object.read(250_000, &mut range).await.unwrap();
    assert_eq!(range, large[250_000..251_000]);
    fs::write(folder.join("in/large.bin"), "another").unwrap();
    let changed = object.read(0, &mut range).await.unwrap_err();
    assert!(matches!(changed, StoreError::Changed { .. }), "{changed}");
    let absent = store.stat("in/none").await.unwrap_err();
    assert!(matches!(absent, StoreError::Absent { .. }), "{absent}");
    let refused = store.put("in/new", Bytes::from_static(b"x"), &Writing::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Impossible { .. }), "{refused}");
}
