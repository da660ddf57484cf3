//! Requests by gRPC: one message each, with an answer of one message.
//!
//! The protocol is described at <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use thalweg_codec::decompress::Format as Compression;
use thalweg_codec::otlp::Signal;
use thalweg_codec::otlp::answer::{Form, failure, success};

use super::Server;
use super::request::{Kind, rejected, status_of};
use crate::web::{Accepted, Gate, Refusal, Request, Wrapping, repeated_header};

const GRPC: &str = "application/grpc";
const GRPC_IN_BINARY: &str = "application/grpc+proto";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED_ENCODINGS: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// How many bytes of a reason a client gets.
const SHOWN: usize = 1024;

/// The body of an answer: a message, and the headers behind it.
#[derive(Debug, Default)]
pub(super) struct Reply {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.message.take() {
            Some(message) => Some(Frame::data(message)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none() && self.trailers.is_none()
    }
}

/// Takes a request and returns its answer.
pub(super) async fn answer(
    server: &Server,
    request: Request,
    gate: &Gate,
    peer: &Arc<str>,
) -> Response<Reply> {
    if let Some(reason) = repeated_header(request.headers()) {
        return refused_answer(&Refusal::new(StatusCode::BAD_REQUEST, reason));
    }
    if !request.headers().get(CONTENT_TYPE).is_some_and(is_grpc) {
        let mut other = Response::new(Reply::default());
        *other.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return other;
    }
    match taken(server, request, gate, peer).await {
        Ok((signal, accepted)) => accepted_answer(signal, &accepted),
        Err(refusal) => refused_answer(&refusal),
    }
}

/// True if messages of this type can be read. gRPC has others, such as `application/grpc-web`.
fn is_grpc(value: &HeaderValue) -> bool {
    let media = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    [GRPC, GRPC_IN_BINARY].iter().any(|known| media.eq_ignore_ascii_case(known))
}

async fn taken(
    server: &Server,
    request: Request,
    gate: &Gate,
    peer: &Arc<str>,
) -> Result<(Signal, Accepted), Refusal> {
    if let Err(refused) = server.admission.admit(&request).await {
        let reason = "name and password are needed, and the method is POST";
        return Err(Refusal::new(refused.status(), reason));
    }
    let path = request.uri().path();
    let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.method() == path) else {
        return Err(Refusal::new(StatusCode::NOT_FOUND, format!("there is no method `{path}`")));
    };
    let wrapping = Wrapping::Message(compression(request.headers())?);
    let kind = Kind { signal, form: Form::Binary, wrapping };
    let accepted = server.take(kind, request.into_body(), gate, peer).await?;
    Ok((signal, accepted))
}

/// Returns the compression that messages may have.
fn compression(headers: &HeaderMap) -> Result<Option<Compression>, Refusal> {
    match headers.get(ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(None),
        Some(b"gzip") => Ok(Some(Compression::Gzip)),
        Some(b"zstd") => Ok(Some(Compression::Zstd)),
        Some(_) => {
            let reason = "a message may be compressed with gzip or zstd";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason))
        }
    }
}

/// Returns an answer with the headers that all have.
fn begun(body: Reply) -> Response<Reply> {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(ACCEPTED_ENCODINGS, HeaderValue::from_static("identity,gzip,zstd"));
    answer
}

fn accepted_answer(signal: Signal, accepted: &Accepted) -> Response<Reply> {
    let answer = success(signal, Form::Binary, accepted.rejected, &rejected(accepted));
    // Not compressed, and its length.
    let mut message = vec![0];
    message.extend_from_slice(&u32::try_from(answer.len()).unwrap_or(0).to_be_bytes());
    message.extend_from_slice(&answer);
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    begun(Reply { message: Some(message.into()), trailers: Some(trailers) })
}

/// Returns the answer to a request that is refused. It has no message, so the status is in its headers.
fn refused_answer(refusal: &Refusal) -> Response<Reply> {
    let (code, retry) = status_of(refusal);
    let mut answer = begun(Reply::default());
    let headers = answer.headers_mut();
    headers.insert(STATUS, HeaderValue::from(code as u32));
    if let Ok(message) = HeaderValue::try_from(encoded(&refusal.reason)) {
        headers.insert(MESSAGE, message);
    }
    // A client sends a request again after this status only if the details say when.
    if retry.is_some() {
        let details = failure(Form::Binary, code, &refusal.reason, retry);
        if let Ok(details) = HeaderValue::try_from(STANDARD_NO_PAD.encode(details)) {
            headers.insert(DETAILS, details);
        }
    }
    answer
}

/// Encodes a reason for the header `grpc-message`: all but printable ASCII, and `%`, as `%` and two digits.
fn encoded(reason: &str) -> String {
    let mut encoded = String::with_capacity(reason.len());
    for &byte in reason.as_bytes().iter().take(SHOWN) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_protocol_buffers() {
        for (media, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto; charset=utf-8", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(&HeaderValue::from_static(media)), expected, "{media}");
        }
    }
}
