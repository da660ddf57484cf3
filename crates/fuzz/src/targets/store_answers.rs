//! Answers of object stores: the pages of listings, and the answers to parts of an upload. An input is a
//! status, the headers up to an empty line, and a body.

use std::sync::{Mutex, PoisonError};

use futures_util::StreamExt;
use opendal::services::{Azblob, Gcs, Http, S3, Webdav};
use opendal::{Buffer, HttpBody, HttpTransport, HttpTransporter, Operator};
use thalweg_store::Origin;
use thalweg_store::fuzzing::upload_answer;

use super::content_range::RUNTIME;
use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "store_answers",
    components: &["objects"],
    longest: 16 << 10,
    words: &[
        "<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents></ListBucketResult>",
        "<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>",
        "<Error><Code>SlowDown</Code><Message>m</Message></Error>",
        "<UploadId>u</UploadId>",
        "<Block><Name>YQ==</Name></Block>",
        "&amp;",
        "<![CDATA[",
        "../",
        "\"items\":[{\"name\":\"a\",\"size\":\"1\"}]",
    ],
    run,
};

/// A kind of store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Service {
    S3,
    Azure,
    Google,
    Web,
    WebDav,
}

impl Service {
    pub(super) const ALL: [Self; 5] = [Self::S3, Self::Azure, Self::Google, Self::Web, Self::WebDav];
}

/// The most entries that are taken from a listing: a server may continue one for ever.
const ENTRIES: usize = 100;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(Service::ALL.len() + 1);
    let Some(service) = Service::ALL.get(choice) else {
        let (status, headers, body) = parts(input.0);
        bounded((2 << 20) + 200 * bytes.len(), || upload_answer(status, &headers, &body));
        return;
    };
    let origin = origin(*service, input.0);
    let operator = origin.looking(&<_>::default(), 0);
    bounded((8 << 20) + 200 * bytes.len(), || {
        RUNTIME.with(|runtime| {
            runtime.block_on(async {
                let Ok(lister) = operator.lister_with("").recursive(true).await else { return };
                let _ = lister.take(ENTRIES).collect::<Vec<_>>().await;
            });
        });
    });
}

/// Returns the status, the headers and the body of an input.
pub(super) fn parts(bytes: &[u8]) -> (u16, http::HeaderMap, Vec<u8>) {
    let mut input = Input(bytes);
    let status = input.text_line().trim().parse().unwrap_or(200);
    let mut headers = http::HeaderMap::new();
    loop {
        let line = input.line();
        let colon = line.iter().position(|byte| *byte == b':');
        let Some((name, value)) = colon.and_then(|colon| line.split_at_checked(colon)) else { break };
        let name = http::HeaderName::from_bytes(name);
        let value = http::HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (status, headers, input.0.to_vec())
}

/// Answers every request with the same bytes, but at most [`ANSWERS`] times.
struct Canned {
    status: u16,
    headers: http::HeaderMap,
    body: Vec<u8>,
    left: Mutex<usize>,
}

/// How often a request is answered.
const ANSWERS: usize = 8;

impl HttpTransport for Canned {
    async fn fetch(&self, _: http::Request<Buffer>) -> opendal::Result<http::Response<HttpBody>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || opendal::Error::new(opendal::ErrorKind::Unexpected, "there are no more answers");
        *left = left.checked_sub(1).ok_or_else(gone)?;
        let mut response = http::Response::builder().status(self.status);
        response.headers_mut().into_iter().for_each(|headers| *headers = self.headers.clone());
        let stream = futures_util::stream::iter([Ok(Buffer::from(self.body.clone()))]);
        let response = response.body(HttpBody::new(stream, Some(self.body.len() as u64)));
        response.map_err(|error| opendal::Error::new(opendal::ErrorKind::Unexpected, error.to_string()))
    }
}

/// Returns an object in a store that answers with an input.
pub(super) fn origin(service: Service, answer: &[u8]) -> Origin {
    let (status, headers, body) = parts(answer);
    let operator = operator(service).expect("a store that is not asked yet");
    let (context, service) = operator.into_parts();
    let canned = Canned { status, headers, body, left: Mutex::new(ANSWERS) };
    let transport = HttpTransporter::new(canned);
    Origin::new(Operator::from_parts(context.with_http_transport(transport), service), "a", "a")
}

fn operator(service: Service) -> opendal::Result<Operator> {
    let address = "http://127.0.0.1:9";
    Ok(match service {
        Service::S3 => {
            let s3 = S3::default().bucket("b").region("r").endpoint(address);
            Operator::new(s3.access_key_id("k").secret_access_key("s").disable_config_load())?
        }
        Service::Azure => {
            let azure = Azblob::default().container("c").endpoint(address);
            Operator::new(azure.account_name("n").account_key("a2V5"))?
        }
        Service::Google => Operator::new(
            Gcs::default().bucket("b").endpoint(address).skip_signature().disable_config_load(),
        )?,
        Service::Web => Operator::new(Http::default().endpoint(address))?,
        Service::WebDav => Operator::new(Webdav::default().endpoint(address))?,
    })
}
