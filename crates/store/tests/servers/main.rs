//! Writing, against other projects' servers: versitygw for Amazon's protocol, azurite for Microsoft's; and
//! folders.

#![allow(clippy::unwrap_used)]

mod conforms;
mod faults;
mod google;
mod hostile;
mod webdav;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_store::{Object, Retries, Store, Upload, UploadedPart, Writing};
use thalweg_testbed::{Azure, Proxy, S3};

const MIB: usize = 1 << 20;
const PART: usize = 5 * MIB;

/// A store, and everything that must live as long as it.
struct TestStore {
    store: Store,
    /// The prefix of the keys.
    prefix: String,
    proxy: Option<Proxy>,
    _server: Box<dyn std::any::Any + Send + Sync>,
}

impl TestStore {
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }

    fn s3() -> Self {
        let server = S3::start().unwrap();
        server.create_bucket("bucket").unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        let url = server.url_through(&proxy, "bucket", "");
        let keys = format!("access_key_id={}&secret_access_key={}", server.access_key(), server.secret_key());
        Self::of(&format!("{url}&{keys}"), Some(proxy), server)
    }

    fn azure() -> Self {
        let server = Azure::start().unwrap();
        server.create_container("container").unwrap();
        let proxy = Proxy::start(server.address()).unwrap();
        let url = server.url_through(&proxy, "container", "");
        let key = format!("account_key={}", server.key());
        Self::of(&format!("{url}&{key}"), Some(proxy), server)
    }

    fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("{}/", folder.path().display());
        Self::of(&url, None, folder)
    }

    fn of(url: &str, proxy: Option<Proxy>, server: impl Send + Sync + 'static) -> Self {
        let (store, prefix) = Store::with_retries(url, quick()).unwrap();
        Self { store, prefix, proxy, _server: Box::new(server) }
    }
}

/// The usual retries, with shorter pauses.
fn quick() -> Retries {
    Retries {
        attempts: 4,
        first: Duration::from_millis(10),
        silence: Duration::from_secs(5),
        ..Retries::default()
    }
}

fn content(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8 ^ (at / 65_536) as u8).collect::<Vec<_>>().into()
}

async fn read(object: &Object) -> Vec<u8> {
    let mut into = vec![0; object.size() as usize];
    object.read(0, &mut into).await.unwrap();
    into
}

/// Sends a part in a task of its own, because a future in progress may move between threads.
async fn send(upload: &Upload, number: u32, content: &Bytes) -> UploadedPart {
    let offset = (number as usize - 1) * PART;
    let bytes = content.slice(offset..content.len().min(offset + PART));
    let upload = upload.clone();
    let sending = tokio::spawn(async move { upload.part(number, offset as u64, bytes).await });
    sending.await.unwrap().unwrap().part
}

async fn content_type(place: &TestStore, path: &str) -> Option<String> {
    let operator = place.store.origin(path).looking(&Arc::default(), 0);
    operator.stat(path).await.unwrap().content_type().map(str::to_owned)
}

fn writing(content_type: &str) -> Writing {
    Writing { content_type: Some(content_type.to_owned()), ..Writing::default() }
}
