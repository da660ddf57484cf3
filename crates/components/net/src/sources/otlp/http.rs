//! Requests by HTTP: their forms, and their answers.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER as RETRY_AFTER_HEADER};
use hyper::{Response, StatusCode};
use thalweg_codec::otlp::Signal;
use thalweg_codec::otlp::answer::{Form, failure, success};

use super::Server;
use super::request::{Kind, rejected, status_of};
use crate::web::{Accepted, Answer, Gate, Refusal, Request, Wrapping, text};

const BINARY: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Takes a request and returns its answer.
pub(super) async fn answer(server: &Server, request: Request, gate: &Gate, peer: &Arc<str>) -> Answer {
    if let Err(refused) = server.admission.admit(&request).await {
        return *refused;
    }
    let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.path() == request.uri().path()) else {
        return text(
            StatusCode::NOT_FOUND,
            "there is nothing at this path: use /v1/logs, /v1/metrics or /v1/traces",
        );
    };
    let Some(form) = form_of(&request) else {
        let reason = "the `Content-Type` is application/x-protobuf or application/json";
        return text(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason);
    };
    let taken = match Wrapping::of(request.headers()) {
        Ok(wrapping) => {
            let kind = Kind { signal, form, wrapping };
            server.take(kind, request.into_body(), gate, peer).await
        }
        Err(refused) => Err(refused),
    };
    match taken {
        Ok(accepted) => accepted_answer(signal, form, &accepted),
        Err(refusal) => refused_answer(form, &refusal),
    }
}

/// Returns the form that the header of a request names.
fn form_of(request: &Request) -> Option<Form> {
    let value = request.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let media = value.split(';').next().unwrap_or_default().trim();
    match media {
        _ if media.eq_ignore_ascii_case(BINARY) => Some(Form::Binary),
        _ if media.eq_ignore_ascii_case(JSON) => Some(Form::Json),
        _ => None,
    }
}

fn accepted_answer(signal: Signal, form: Form, accepted: &Accepted) -> Answer {
    let body = success(signal, form, accepted.rejected, &rejected(accepted));
    with_body(StatusCode::OK, form, body)
}

fn refused_answer(form: Form, refusal: &Refusal) -> Answer {
    let (code, retry) = status_of(refusal);
    let body = failure(form, code, &refusal.reason, None);
    // Senders drop the records of a request that is refused with any other status than 429, 502, 503 and 504.
    let status = match refusal.status {
        StatusCode::REQUEST_TIMEOUT => StatusCode::SERVICE_UNAVAILABLE,
        status => status,
    };
    let mut answer = with_body(status, form, body);
    if let Some(delay) = retry {
        answer.headers_mut().insert(RETRY_AFTER_HEADER, delay.as_secs().into());
    }
    answer
}

fn with_body(status: StatusCode, form: Form, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let media = match form {
        Form::Binary => BINARY,
        Form::Json => JSON,
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}
