//! Origins other than HTTP.

use crate::server::Server;
use crate::{content, quick};
use bytes::Bytes;
use std::process::{Command, Stdio};
use std::time::Duration;
use thalweg_sparse::{Origin, RemoteError, RemoteFile, RemoteOptions};
use thalweg_store::{Store, Writing};
use thalweg_testbed::{Azure, S3};

async fn open(url: &str) -> RemoteFile {
    RemoteFile::open(Origin::from_url(url).unwrap(), quick()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_this_machine() {
    let bytes = content(300_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a b%20c");
    std::fs::write(&path, &bytes).unwrap();
    let urls = [path.display().to_string(), format!("file://{}/a%20b%2520c", folder.path().display())];
    for url in urls {
        let file = open(&url).await;
        assert_eq!(file.read(100_000, 100_000).await.unwrap(), bytes[100_000..200_000]);
        assert_eq!(file.statistics().fetched, 100_000);
    }
    let file = open(&path.display().to_string()).await;
    file.read(0, 10).await.unwrap();
    std::fs::write(&path, vec![0; 300_000]).unwrap();
    let error = file.read(200_000, 10).await.unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
    let none = RemoteFile::open(Origin::from_url("/tmp/there is none of this name").unwrap(), quick()).await;
    assert!(matches!(none, Err(RemoteError::Absent { .. })));
    let path = folder.path().display().to_string();
    let error = RemoteFile::open(Origin::from_url(&path).unwrap(), quick()).await.unwrap_err().to_string();
    assert_eq!(error.replace(&path, "FOLDER"), "`FOLDER`: asking for its state failed: it is a folder");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_operator_will_do() {
    let operator = opendal::Operator::new(opendal::services::Memory::default()).unwrap();
    let bytes = content(200_000);
    operator.write("a/b", bytes.clone()).await.unwrap();
    let file = RemoteFile::open(Origin::new(operator, "a/b", "memory"), quick()).await.unwrap();
    assert_eq!(file.read(50_000, 1000).await.unwrap(), bytes[50_000..51_000]);
}

/// The requests to each kind of store, against a server that accepts every client. (Google's store returns
/// its state as JSON, which this server does not speak: there the state comes with the first byte.)
#[tokio::test(flavor = "multi_thread")]
async fn stores_are_asked_in_their_own_way() {
    let bytes = content(300_000);
    let server = Server::start(bytes.clone());
    let endpoint = format!("http%3A%2F%2F{}", server.address());
    // The key is not a real one: sixteen zero bytes.
    let stores = [
        (
            format!("s3://bucket/a/b.bin?endpoint={endpoint}&access_key_id=x&secret_access_key=y"),
            "/bucket/a/b.bin",
            "AWS4-HMAC-SHA256 ",
        ),
        (
            format!("gs://bucket/a/b.bin?endpoint={endpoint}&token=t"),
            "/storage/v1/b/bucket/o/a%2Fb.bin",
            "Bearer t",
        ),
        (
            format!(
                "az://box/a/b.bin?endpoint={endpoint}&account_name=me&account_key=AAAAAAAAAAAAAAAAAAAAAA%3D%3D"
            ),
            "/box/a/b.bin",
            "SharedKey me:",
        ),
    ];
    for (url, target, authorization) in stores {
        server.forget();
        let origin = Origin::from_url(&url).unwrap();
        let file = RemoteFile::open(origin, quick()).await.unwrap();
        assert_eq!(file.read(100_000, 50_000).await.unwrap(), bytes[100_000..150_000]);
        let hits = server.state.hits.lock().unwrap().clone();
        assert!(hits.iter().all(|hit| hit.target.starts_with(target)), "{hits:?}");
        assert!(
            hits.iter().all(|hit| hit
                .authorization
                .as_deref()
                .is_some_and(|found| found.starts_with(authorization))),
            "{hits:?}"
        );
        assert_eq!(hits.last().unwrap().range, Some((100_000, 149_999)));
    }
}

/// Runs against versitygw if it is installed (`THALWEG_VERSITYGW`, or in the path).
#[tokio::test(flavor = "multi_thread")]
async fn a_real_s3_server() {
    let program = std::env::var("THALWEG_VERSITYGW").unwrap_or_else(|_| "versitygw".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let started = Command::new(&program)
        .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
        .arg(folder.path())
        .envs([("ROOT_ACCESS_KEY", "test"), ("ROOT_SECRET_KEY", "testtest")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut started) = started else {
        println!("skipped: there is no `{program}`");
        return;
    };
    let bytes = content(30_000_000);
    let options = [
        ("endpoint", format!("http://127.0.0.1:{port}")),
        ("region", "us-east-1".to_owned()),
        ("bucket", "bucket".to_owned()),
        ("access_key_id", "test".to_owned()),
        ("secret_access_key", "testtest".to_owned()),
    ];
    std::fs::create_dir(folder.path().join("bucket")).unwrap();
    std::fs::create_dir(folder.path().join("bucket/a")).unwrap();
    std::fs::write(folder.path().join("bucket/a/large.bin"), &bytes).unwrap();
    let query: Vec<String> = options
        .iter()
        .filter(|(name, _)| *name != "bucket")
        .map(|(name, value)| format!("{name}={}", value.replace(':', "%3A").replace('/', "%2F")))
        .collect();
    let url = format!("s3://bucket/a/large.bin?{}", query.join("&"));
    let mut tries = 0;
    let file = loop {
        match RemoteFile::open(Origin::from_url(&url).unwrap(), RemoteOptions::default()).await {
            Ok(file) => break file,
            Err(error) if tries == 50 => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        tries += 1;
    };
    assert_eq!(file.read(20_000_000, 5_000_000).await.unwrap(), bytes[20_000_000..25_000_000]);
    assert_eq!(file.read(29_999_999, 1).await.unwrap(), bytes[29_999_999..]);
    println!("{:?}, {:?}", file.fingerprint(), file.statistics());
    let wrong = url.replace("testtest", "wrong");
    let denied = RemoteFile::open(Origin::from_url(&wrong).unwrap(), quick()).await.unwrap_err();
    assert!(matches!(denied, RemoteError::Denied { .. }), "{denied}");
    started.kill().unwrap();
    started.wait().unwrap();
}

/// Runs against real servers that check credentials.
#[tokio::test(flavor = "multi_thread")]
async fn files_of_real_stores_are_read_in_ranges() {
    let bytes = content(3_000_000);
    let amazon = S3::start().unwrap();
    amazon.create_bucket("bucket").unwrap();
    let by = format!("access_key_id={}&secret_access_key={}", amazon.access_key(), amazon.secret_key());
    let microsoft = Azure::start().unwrap();
    microsoft.create_container("container").unwrap();
    let urls = [
        format!("{}&{by}", amazon.url("bucket", "a/b c.bin")),
        format!("{}&account_key={}", microsoft.url("container", "a/b c.bin"), microsoft.key()),
    ];
    for url in urls {
        let (store, path) = Store::from_url(&url).unwrap();
        store.put(&path, Bytes::from(bytes.clone()), &Writing::default()).await.unwrap();
        let file = open(&url).await;
        assert_eq!(file.length(), 3_000_000);
        assert_eq!(file.read(1_000_000, 70_000).await.unwrap(), bytes[1_000_000..1_070_000]);
        assert_eq!(file.read(2_999_000, 1_000).await.unwrap(), bytes[2_999_000..]);
        assert!(file.statistics().fetched < 200_000, "{url}");
        store.put(&path, Bytes::from(vec![0; 3_000_000]), &Writing::default()).await.unwrap();
        let changed = file.read(2_000_000, 10).await.unwrap_err();
        assert!(matches!(changed, RemoteError::Changed { .. }), "{changed}");
        let wrong = url
            .replace("&secret_access_key=", "&secret_access_key=x")
            .replace("account_key=", "account_key=AAAA");
        let denied = RemoteFile::open(Origin::from_url(&wrong).unwrap(), quick()).await.unwrap_err();
        assert!(matches!(denied, RemoteError::Denied { .. }), "{denied}");
    }
}
