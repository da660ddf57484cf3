//! Servers that want a listing never to end, or to lead elsewhere.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_store::{Entry, Listing, Retries, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that answers every listing with the result of a function of the requested path.
struct Hostile {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

/// The body of an answer, and whether it continues without end.
type Body = (String, bool);

impl Hostile {
    async fn start(answer: fn(&str) -> Body) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let noted = requests.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(client, answer, noted.clone()));
            }
        });
        Self { address, requests }
    }

    /// Begins a listing without retries.
    fn listing(&self, url: &str) -> Listing {
        let url = url.replace("SERVER", &self.address);
        let retries = Retries { attempts: 1, ..Retries::default() };
        let (store, prefix) = Store::with_retries(&url, retries).unwrap();
        store.list(&prefix)
    }

    /// Lists everything. Returns the objects, the names that were refused, and the error.
    async fn list(&self, url: &str) -> (Vec<String>, Vec<String>, Option<String>) {
        let (mut listing, mut objects, mut refused) = (self.listing(url), Vec::new(), Vec::new());
        loop {
            match listing.next_entry().await {
                Ok(Some(Entry::Object(object))) => objects.push(object.path().to_owned()),
                Ok(Some(Entry::Unreadable { name, why })) => refused.push(format!("{name}: {why}")),
                Ok(Some(Entry::LinkOut { .. })) => unreachable!(),
                Ok(None) => return (objects, refused, None),
                Err(error) => return (objects, refused, Some(error.to_string())),
            }
        }
    }

    fn requests(&self) -> usize {
        self.requests.lock().len()
    }
}

async fn serve(mut client: TcpStream, answer: fn(&str) -> Body, requests: Arc<Mutex<Vec<String>>>) {
    let Some(head) = crate::google::asked(&mut client).await else { return };
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let status = if head.starts_with("PROPFIND") { "207 Multi-Status" } else { "200 OK" };
    let (body, is_endless) = answer(&path);
    requests.lock().push(path);
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n");
    let mut sent = client.write_all((head + &body).as_bytes()).await;
    let more = vec![b'z'; 1 << 20];
    while is_endless && sent.is_ok() {
        sent = client.write_all(&more).await;
    }
}

/// A folder of a WebDAV server with these paths. A path that ends in a slash is a folder.
fn folder(paths: &[&str]) -> Body {
    let entries = paths.iter().map(|path| {
        let kind = if path.ends_with('/') { "<D:collection/>" } else { "" };
        format!(
            "<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:getcontentlength>2</D:getcontentlength>\
             <D:getlastmodified>Mon, 01 Jan 2024 00:00:00 GMT</D:getlastmodified><D:resourcetype>{kind}\
             </D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    });
    (format!("<D:multistatus xmlns:D=\"DAV:\">{}</D:multistatus>", entries.collect::<String>()), false)
}

/// A page of Amazon's listing.
fn page(keys: &[&str], next: Option<&str>) -> Body {
    let objects = keys.iter().map(|key| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
             <ETag>\"x\"</ETag><Size>2</Size></Contents>"
        )
    });
    let next = next.map_or("<IsTruncated>false</IsTruncated>".to_owned(), |token| {
        format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>")
    });
    (format!("<ListBucketResult>{}{next}</ListBucketResult>", objects.collect::<String>()), false)
}

const AMAZON: &str = "s3://b/d/?endpoint=http://SERVER&region=x&skip_signature=true";
const GOOGLE: &str = "gs://b/d/?endpoint=http://SERVER&skip_signature=true";
const MICROSOFT: &str = "az://b/d/?endpoint=http://SERVER&account_name=me&skip_signature=true";
const WEBDAV: &str = "webdav://SERVER/d/";

#[tokio::test]
async fn an_answer_without_end_is_an_error_with_its_bound() {
    for (url, most) in [(AMAZON, 8), (GOOGLE, 8), (MICROSOFT, 8), (WEBDAV, 32)] {
        let server = Hostile::start(|_| ("<a>".to_owned(), true)).await;
        let (_, _, error) = server.list(url).await;
        let expected = format!("the answer is longer than {most} MiB, the most that is read");
        assert!(error.as_ref().is_some_and(|error| error.contains(&expected)), "{url}: {error:?}");
        assert_eq!(server.requests(), 1);
    }
}

#[tokio::test]
async fn a_page_that_was_sent_before_is_an_error() {
    let amazon: fn(&str) -> Body = |_| page(&["d/f"], Some("same"));
    let google: fn(&str) -> Body = |_| ("{\"nextPageToken\": \"same\", \"items\": []}".to_owned(), false);
    let microsoft: fn(&str) -> Body = |_| {
        ("<EnumerationResults><Blobs/><NextMarker>same</NextMarker></EnumerationResults>".to_owned(), false)
    };
    for (url, answer) in [(AMAZON, amazon), (GOOGLE, google), (MICROSOFT, microsoft)] {
        let server = Hostile::start(answer).await;
        let (_, _, error) = server.list(url).await;
        let expected = "the store names a page of the listing as the next one that it has sent before";
        assert!(error.as_ref().is_some_and(|error| error.contains(expected)), "{url}: {error:?}");
        assert_eq!(server.requests(), 2);
    }
}

/// Each page names another one, and all are empty.
#[tokio::test]
async fn pages_without_names_end_with_an_error_but_some_of_them_do_not() {
    fn number(path: &str) -> Option<u64> {
        path.split(['?', '&']).find_map(|part| part.strip_prefix("continuation-token=")?.parse().ok())
    }
    let endless: fn(&str) -> Body = |path| {
        let next = number(path).unwrap_or_default() + 1;
        page(if next == 900 { &["d/f"] } else { &[] }, Some(&next.to_string()))
    };
    let server = Hostile::start(endless).await;
    let (objects, _, error) = server.list(AMAZON).await;
    let expected = "the store has sent 1000 pages of the listing in a row without a name";
    assert!(error.as_ref().is_some_and(|error| error.contains(expected)), "{error:?}");
    assert_eq!((objects, server.requests()), (vec!["d/f".to_owned()], 1900));
}

/// The second page of Amazon's listing begins with names of the first one, and has one in another order.
#[tokio::test]
async fn a_name_that_a_listing_repeats_is_returned_once() {
    let amazon: fn(&str) -> Body = |path| match path.contains("continuation-token=") {
        false => page(&["d/a", "d/c", "d/c", "d/d"], Some("more")),
        true => page(&["d/c", "d/d", "d/b", "d/e"], None),
    };
    let webdav: fn(&str) -> Body = |path| match path {
        "/d/" => folder(&["/d/", "/d/f", "/d/s/", "/d/a", "/d/f", "/d/a"]),
        _ => folder(&["/d/s/", "/d/s/f", "/d/s/f"]),
    };
    for (url, answer, expected) in
        [(AMAZON, amazon, "d/a d/c d/d d/b d/e"), (WEBDAV, webdav, "d/f d/a d/s/f")]
    {
        let server = Hostile::start(answer).await;
        let (mut listing, mut found) = (server.listing(url), Vec::new());
        while let Some(object) = listing.next().await.unwrap() {
            found.push(object.path().to_owned());
        }
        assert_eq!((found.join(" ").as_str(), listing.repeated()), (expected, 3));
    }
}

#[tokio::test]
async fn an_object_outside_of_the_prefix_is_refused() {
    let server = Hostile::start(|_| page(&["d/a", "other/evil", "d", "d/b"], None)).await;
    let (objects, refused, error) = server.list(AMAZON).await;
    assert_eq!((objects.join(" "), error), ("d/a d/b".to_owned(), None));
    let why = "the store lists it below `s3://b/d/`, where it is not";
    assert_eq!(refused, [format!("s3://b/other/evil: {why}"), format!("s3://b/d: {why}")]);
}

#[tokio::test]
async fn a_name_or_header_that_is_too_long_is_an_error() {
    let server = Hostile::start(|_| page(&[&format!("d/{}", "x".repeat(70_000))], None)).await;
    let (_, _, error) = server.list(AMAZON).await;
    let expected = "the answer cannot be used: a name in it is too long";
    assert!(error.as_ref().is_some_and(|error| error.contains(expected)), "{error:?}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            crate::google::asked(&mut client).await.unwrap();
            let tag = "x".repeat(70_000);
            let head = format!(
                "HTTP/1.1 200 OK\r\netag: \"{tag}\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
        }
    });
    let retries = Retries { attempts: 1, ..Retries::default() };
    let (store, path) = Store::with_retries(&format!("http://{address}/x"), retries).unwrap();
    let error = store.stat(&path).await.unwrap_err().to_string();
    assert!(error.contains("the header `etag` is longer than 16 KiB, the most that is read"), "{error}");
}

#[tokio::test]
async fn a_folder_that_contains_itself_is_listed_once() {
    let server = Hostile::start(|path| match path {
        "/d/" => folder(&["/d/", "/d/x/../", "/d/./", "/d//", "/", "/e/", "/d/f", "/d/s/", "/d/s/"]),
        "/d/s/" => folder(&["/d/s/", "/d/", "/d/s/g", "/d/f"]),
        _ => unreachable!("{path}"),
    })
    .await;
    let (objects, refused, error) = server.list(WEBDAV).await;
    assert_eq!((objects.join(" "), refused.len(), error), ("d/f d/s/g".to_owned(), 7, None));
    let why = "the server lists it in `d/`, where no entry can have this path";
    assert!(refused[0].ends_with(&format!("/d/x/../: {why}")), "{}", refused[0]);
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn folders_that_nest_without_end_are_listed_to_a_depth() {
    let server = Hostile::start(|path| folder(&[path, &format!("{path}f"), &format!("{path}sub/")])).await;
    let (objects, refused, error) = server.list(WEBDAV).await;
    assert_eq!((objects.len(), error, server.requests()), (129, None, 129));
    assert_eq!(refused.len(), 1);
    assert!(refused[0].ends_with("/sub/: more than 128 folders are in each other"), "{}", refused[0]);
}

#[tokio::test]
async fn a_part_of_an_object_ends_where_the_request_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let length = client.read(&mut head).await.unwrap();
                let head =
                    "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-3/4\r\nconnection: close\r\n\r\n";
                let mut sent = client.write_all(head.as_bytes()).await;
                while length > 0 && sent.is_ok() {
                    sent = client.write_all(&[b'z'; 65_536]).await;
                }
            });
        }
    });
    let (store, path) = Store::from_url(&format!("http://{address}/x")).unwrap();
    let object = thalweg_store::Object::new(
        store,
        path,
        thalweg_store::Fingerprint { length: 4, etag: None, modified: None },
    );
    assert_eq!(crate::read(&object).await, b"zzzz");
}
