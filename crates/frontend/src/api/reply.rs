//! Answers: texts and JSON without secrets, refusals, and streams of lines.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use thalweg_redact::redacted;
use tokio::sync::mpsc;

/// The body of an answer.
pub(super) type Body = Either<Full<Bytes>, Lines>;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const JSON_LINES: &str = "application/x-ndjson";
pub(super) const EVENTS: &str = "text/event-stream";

/// Lines that come one after the other. The sender notices when the client is gone.
pub(super) struct Lines(pub(super) mpsc::Receiver<Bytes>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

pub(super) fn text(status: StatusCode, text: String) -> Response<Body> {
    whole(status, TEXT, text)
}

/// Answers with a text of this type.
pub(super) fn whole(status: StatusCode, of_type: &'static str, text: String) -> Response<Body> {
    answer(status, of_type, Either::Left(Full::from(text)))
}

/// Answers with lines of this type.
pub(super) fn lines(of_type: &'static str, lines: Lines) -> Response<Body> {
    answer(StatusCode::OK, of_type, Either::Right(lines))
}

fn answer(status: StatusCode, of_type: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(of_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Answers with a value. No text in it has a secret.
pub(super) fn json(status: StatusCode, value: Value) -> Response<Body> {
    whole(status, JSON, format!("{}\n", without_secrets(value)))
}

/// Removes secrets from all texts of a value. Names stay: they are those of components and fields.
pub(super) fn without_secrets(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redacted(&text).into_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(without_secrets).collect()),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(name, value)| (name, without_secrets(value))).collect())
        }
        other => other,
    }
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), header: None }
    }

    pub(super) fn bad(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    /// The client has not the token.
    pub(super) fn unauthorized() -> Self {
        let reason = "send the token of the run: `Authorization: Bearer TOKEN`";
        let header = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, reason) }
    }

    /// The path has other methods.
    pub(super) fn method(allowed: &'static str) -> Self {
        let header = Some((ALLOW, HeaderValue::from_static(allowed)));
        Self {
            header,
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("only {allowed} is answered here"))
        }
    }

    pub(super) fn answer(self) -> Response<Body> {
        let mut answer = json(self.status, json!({ "error": self.reason }));
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_answer_has_a_secret() {
        thalweg_redact::keep("planted-in-an-answer", Some("${PLANTED}"));
        let value = json!({ "a": ["planted-in-an-answer", 1], "b": { "c": "x planted-in-an-answer" } });
        let expected = json!({ "a": ["${PLANTED}", 1], "b": { "c": "x ${PLANTED}" } });
        assert_eq!(without_secrets(value), expected);
    }
}
