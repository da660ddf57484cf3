//! A service: its protocol, its requests with their signatures, and single calls of its actions.
//!
//! Four of the services take JSON with the name of the action in a header; SNS takes a form and answers with
//! XML. A request always goes to the root of the server. Amazon's SDK for Rust was rejected: it is some 60
//! crates, and would bring an HTTP client, credentials and retries of its own beside those that the program
//! has.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue};
use reqwest::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thalweg_engine::Error;
use thalweg_net::requests::{Answer, Failure, Request, Sign, StoreOptions};
use thalweg_store::AmazonSigner;

use crate::refusal::Refusal;

/// The header with the name of an action.
const TARGET: &str = "x-amz-target";

/// How long the search for credentials may take. It asks services that may not exist, one after the other.
const LONGEST_SEARCH: Duration = Duration::from_secs(120);

/// A service of Amazon.
pub(crate) struct AwsService {
    /// Its name in addresses and signatures.
    pub(crate) name: &'static str,
    /// Its name in environment variables.
    pub(crate) variable: &'static str,
    /// The text before the name of an action in the header. Empty if the body has the action.
    target: &'static str,
    content_type: &'static str,
}

const JSON_1_0: &str = "application/x-amz-json-1.0";
const JSON_1_1: &str = "application/x-amz-json-1.1";

pub(crate) const KINESIS: AwsService =
    AwsService { name: "kinesis", variable: "KINESIS", target: "Kinesis_20131202", content_type: JSON_1_1 };
pub(crate) const FIREHOSE: AwsService = AwsService {
    name: "firehose",
    variable: "FIREHOSE",
    target: "Firehose_20150804",
    content_type: JSON_1_1,
};
pub(crate) const LOGS: AwsService =
    AwsService { name: "logs", variable: "CLOUDWATCH_LOGS", target: "Logs_20140328", content_type: JSON_1_1 };
pub(crate) const SQS: AwsService =
    AwsService { name: "sqs", variable: "SQS", target: "AmazonSQS", content_type: JSON_1_0 };
pub(crate) const SNS: AwsService = AwsService {
    name: "sns",
    variable: "SNS",
    target: "",
    content_type: "application/x-www-form-urlencoded; charset=utf-8",
};

impl AwsService {
    /// Returns the headers of the requests for an action.
    pub(crate) fn action(&self, action: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !self.target.is_empty()
            && let Ok(target) = HeaderValue::from_str(&format!("{}.{action}", self.target))
        {
            headers.insert(TARGET, target);
        }
        headers
    }
}

/// The access of a user to a service.
pub(crate) struct Access {
    pub(crate) service: &'static AwsService,
    pub(crate) url: String,
    pub(crate) signer: AmazonSigner,
}

impl Access {
    /// Returns the request that all requests to the service are made of. Of an answer, at most this number of
    /// bytes is read.
    pub(crate) fn request(
        self: &Arc<Self>,
        options: &StoreOptions,
        most_answer: usize,
    ) -> Result<Request, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.service.content_type));
        options.request(headers, most_answer, self.clone())
    }
}

#[async_trait]
impl Sign for Access {
    async fn sign(&self, request: &mut reqwest::Request) -> Result<(), Failure> {
        let unsigned =
            http::Request::builder().method(request.method().clone()).uri(request.url().as_str()).body(());
        let unsigned = unsigned
            .map_err(|error| Error::permanent("the address of the service is no URI").caused_by(error))?;
        let (mut head, ()) = unsigned.into_parts();
        head.headers.clone_from(request.headers());
        let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
        let signing = tokio::time::timeout(LONGEST_SEARCH, self.signer.sign(&mut head, body)).await;
        let Ok(signed) = signing else {
            return Err(Failure::temporary("the search for credentials of Amazon got no answer"));
        };
        signed.map_err(|error| match error.is_temporary {
            true => Failure::temporary(error.to_string()),
            false => Error::permanent(error.to_string()).into(),
        })?;
        // The client adds it itself, in the form for its version of HTTP.
        head.headers.remove(HOST);
        *request.headers_mut() = head.headers;
        Ok(())
    }
}

/// Calls single actions of a service.
pub(crate) struct Api {
    service: &'static AwsService,
    pub(crate) request: Request,
}

/// Why a call has no result.
pub(crate) enum CallError {
    /// There is no whole answer.
    Failed(Error),
    /// The service refuses the call.
    Refused(Refusal),
}

impl CallError {
    /// Returns the failure after which messages are sent again.
    pub(crate) fn failure(self) -> Failure {
        match self {
            Self::Failed(error) => error.into(),
            Self::Refused(refusal) => refusal.failure(),
        }
    }

    /// Returns the error of a component that cannot do something, which the message says.
    pub(crate) fn error(self, message: &str) -> Error {
        match self {
            Self::Failed(error) => error.context(message),
            Self::Refused(refusal) => refusal.error().context(message),
        }
    }
}

impl Api {
    /// Prepares calls. Of an answer, at most this number of bytes is read.
    ///
    /// # Errors
    /// If the URL is none, or TLS cannot be set up.
    pub(crate) fn new(
        access: &Arc<Access>,
        options: &StoreOptions,
        most_answer: usize,
    ) -> Result<Self, Error> {
        Ok(Self { service: access.service, request: access.request(options, most_answer)? })
    }

    /// Calls an action, and returns the answer of a service that did it. The answer may be cut off.
    ///
    /// # Errors
    /// If the service refuses that, or does not answer.
    pub(crate) async fn ask(&self, action: &str, body: Bytes) -> Result<Answer, CallError> {
        ask(&self.request, self.service, action, body).await
    }

    /// Calls an action of a service that speaks JSON.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and if the answer is not whole or not what was asked for.
    pub(crate) async fn call<T: DeserializeOwned>(&self, action: &str, body: &Value) -> Result<T, CallError> {
        read(&self.request, &self.ask(action, body.to_string().into()).await?)
    }
}

/// Calls an action by a request for the service: see [`Api::ask`].
pub(crate) async fn ask(
    request: &Request,
    service: &AwsService,
    action: &str,
    body: Bytes,
) -> Result<Answer, CallError> {
    let sent = request.send_with(service.action(action), None, body).await;
    let answer = sent.map_err(|failure| CallError::Failed(failure.error()))?;
    match answer.status.is_success() {
        true => Ok(answer),
        false => Err(CallError::Refused(Refusal::of(request, &answer))),
    }
}

/// Reads the answer of a service that speaks JSON.
///
/// # Errors
/// If it is not whole or not what was asked for.
pub(crate) fn read<T: DeserializeOwned>(request: &Request, answer: &Answer) -> Result<T, CallError> {
    // Some answers have no body.
    let body: &[u8] = if answer.body.is_empty() { b"{}" } else { &answer.body };
    let read = serde_json::from_slice(body).ok().filter(|_| answer.is_whole);
    read.ok_or_else(|| {
        let text = format!("the answer of {} is cut off, or not understood", request.server());
        CallError::Failed(Error::temporary(text))
    })
}
