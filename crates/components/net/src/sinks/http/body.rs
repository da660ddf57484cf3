//! Makes the bodies of requests, and sends them.

use arrow_array::{Array, BinaryViewArray};
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use thalweg_record::payload_runs;

use super::raw::RawRequest;
use crate::requests::{Request, Verdict};

/// Joins the messages of a batch into one body.
pub(super) fn joined(payload: &BinaryViewArray, is_array: bool) -> Bytes {
    let bytes: usize = payload.views().iter().map(|&view| view as u32 as usize).sum();
    let mut body = Vec::with_capacity(bytes + payload.len() + 2);
    if is_array {
        body.push(b'[');
        for row in 0..payload.len() {
            if row > 0 {
                body.push(b',');
            }
            body.extend_from_slice(payload.value(row));
        }
        body.push(b']');
        return body.into();
    }
    for run in payload_runs(payload, b'\n') {
        match run {
            Ok(run) => body.extend_from_slice(run),
            Err(message) => {
                body.extend_from_slice(message);
                body.push(b'\n');
            }
        }
    }
    body.into()
}

/// Sends a request with this body.
pub(super) async fn send(request: &Request, body: Bytes) -> Verdict {
    match request.send(None, body).await {
        Ok(answer) => request.by_status(&answer),
        Err(failure) => Verdict::Again(failure),
    }
}

/// Sends a message that is a whole request.
pub(super) async fn send_raw(request: &Request, message: Bytes) -> Verdict {
    let mut raw = match RawRequest::parse(message) {
        Ok(raw) => raw,
        Err(reason) => return Verdict::Rejected(format!("is not a request of HTTP: {reason}")),
    };
    if [AUTHORIZATION, PROXY_AUTHORIZATION].iter().any(|name| request.headers.contains_key(name)) {
        // The message is from someone else, who must not speak in our name.
        raw.headers.remove(AUTHORIZATION);
        raw.headers.remove(PROXY_AUTHORIZATION);
    }
    let mut url = request.url.clone();
    url.set_path(&raw.path);
    url.set_query(raw.query.as_deref());
    let built = request.client.request(raw.method, url).headers(raw.headers).body(raw.body);
    match request.send_built(built).await {
        Ok(answer) => request.by_status(&answer),
        Err(failure) => Verdict::Again(failure),
    }
}
