//! The HTTP of OTLP: where requests go, and the reason in an answer.
//!
//! The sink `otlp` sends messages as all stores do, with [`requests`](crate::requests). A program that sends
//! what it knows of itself has no messages: a [`Receiver`] sends one request, and its caller decides about
//! the next one.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use thalweg_codec::otlp::Signal;
use thalweg_codec::otlp::answer::{message_of, partial_success};
use thalweg_engine::Error;

use crate::requests::{Answer, Compression, Endpoint, Failure, Request, Verdict};
use crate::tls::TlsClient;

/// The most bytes of an answer that are read.
const MOST_ANSWER: usize = 64 << 10;

/// Returns the headers of requests in the binary form.
pub(crate) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    headers
}

/// Returns the URL for the records of a signal.
pub(crate) fn url_of(base: &Url, signal: Signal) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{}", base.path().trim_end_matches('/'), signal.path()));
    url
}

/// Returns why a request was refused: the message of the status that a receiver sends, or its text.
pub(crate) fn reason(request: &Request, answer: &Answer) -> String {
    let is_binary = answer
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/x-protobuf"));
    match message_of(&answer.body).filter(|_| is_binary) {
        Some(message) => {
            format!("{} answered {}: {}", request.server(), answer.status, request.shown(message))
        }
        None => request.text(answer),
    }
}

/// A receiver of OpenTelemetry.
pub struct Receiver(Request);

impl Receiver {
    /// Prepares requests to a URL, to which the path of the signal is added. `timeout` limits each of them.
    /// No message shows the values of the headers.
    ///
    /// # Errors
    /// A sentence about the URL or the headers.
    pub fn new(url: &str, headers: &BTreeMap<String, String>, timeout: Duration) -> Result<Self, Error> {
        let tls = TlsClient::default();
        let endpoint = Endpoint { url, headers, auth: None, timeout, tls: &tls };
        let request = endpoint.request(
            Method::POST,
            self::headers(),
            Compression::None,
            MOST_ANSWER,
            &OnceLock::new(),
        )?;
        Ok(Self(request))
    }

    /// Returns the receiver, for messages.
    pub fn shown(&self) -> String {
        self.0.server()
    }

    /// Sends a request with records of a signal.
    ///
    /// # Errors
    /// If the receiver did not take it. The failure is temporary if it may take it later. If it has rejected
    /// some of the records, the failure is permanent, and it has the others.
    pub async fn send(&self, signal: Signal, request: Bytes) -> Result<(), Failure> {
        let answer = self.0.send(Some(url_of(&self.0.url, signal)), request).await?;
        match self.0.by_status(&answer) {
            Verdict::Delivered => {
                match partial_success(&answer.body).filter(|partial| partial.rejected > 0) {
                    None => Ok(()),
                    Some(partial) => {
                        let (server, reason) = (self.0.server(), self.0.shown(&partial.reason));
                        let text = format!("{server} rejected {} records: {reason}", partial.rejected);
                        Err(Error::permanent(text).into())
                    }
                }
            }
            Verdict::Again(failure) => Err(failure),
            Verdict::Rejected(_) => Err(Error::permanent(reason(&self.0, &answer)).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::testing::{Fake, Play};
    use thalweg_codec::otlp::answer::{Code, Form, failure, success};

    #[tokio::test]
    async fn a_request_goes_to_the_path_of_its_signal_and_its_failure_says_whether_to_retry() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let some = text(success(Signal::Metrics, Form::Binary, 2, "no"));
        let refused = text(failure(Form::Binary, Code::InvalidArgument, "not SEKRET", None));
        let receiver = Fake::start(move |number, _| match number {
            0 => Play::answer(200, ""),
            1 => Play::answer(200, &some),
            2 => Play::answer(503, "busy"),
            _ => Play::answer(400, &refused).with("content-type", "application/x-protobuf"),
        })
        .await;
        let headers = BTreeMap::from([("X-Key".to_owned(), "SEKRET".to_owned())]);
        let url = format!("http://{}/base/", receiver.address);
        let to = Receiver::new(&url, &headers, Duration::from_secs(60)).unwrap();
        let mut failures = Vec::new();
        for signal in [Signal::Traces, Signal::Metrics, Signal::Metrics, Signal::Metrics] {
            if let Err(failure) = to.send(signal, Bytes::from_static(b"records")).await {
                failures.push((failure.is_temporary(), failure.text().replace(&receiver.address, "HOST")));
            }
        }
        let server = "`http://HOST/base/`";
        assert_eq!(
            failures,
            [
                (false, format!("{server} rejected 2 records: no")),
                (true, format!("{server} answered 503 Service Unavailable: busy")),
                (false, format!("{server} answered 400 Bad Request: not …")),
            ]
        );
        let got = receiver.got();
        assert_eq!(
            (got[0].line.as_str(), got[1].line.as_str()),
            ("POST /base/v1/traces", "POST /base/v1/metrics")
        );
        assert_eq!(
            (got[0].header("x-key"), got[0].header("content-type")),
            ("SEKRET", "application/x-protobuf")
        );
    }

    #[test]
    fn a_url_that_is_none_is_a_mistake_that_does_not_show_it() {
        for url in ["ftp://SEKRET", "http://:SEKRET", ""] {
            let said = Receiver::new(url, &BTreeMap::new(), Duration::from_secs(1)).err().unwrap();
            assert!(!said.full().contains("SEKRET"), "{}", said.full());
        }
    }
}
