//! Sends one request and interprets its answer.

use std::io::Write;

use arrow_array::{Array, BinaryViewArray};
use bytes::Bytes;
use flate2::write::GzEncoder;
use reqwest::header::{AUTHORIZATION, HeaderMap, PROXY_AUTHORIZATION};
use reqwest::{Client, Method, Response, StatusCode, Url};
use thalweg_engine::{Error, ErrorKind};
use thalweg_record::payload_runs;
use thalweg_redact::{foreign, without_secrets};

use super::Compression;
use super::raw::RawRequest;

/// How many bytes of an answer are shown in messages.
const SHOWN: usize = 300;

/// A secret of fewer bytes is hidden only where it is a word of its own: it is a part of many other words.
const SHORT: usize = 4;

/// How many bytes of an answer are read, so that its connection can be reused.
const READ: usize = 64 << 10;

/// The state that all requests share.
pub(super) struct Request {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) compression: Compression,
    pub(super) is_raw: bool,
    /// Texts that messages must not contain, the longest first.
    pub(super) secrets: Vec<String>,
}

/// The result of a request.
pub(super) enum Verdict {
    Delivered,
    /// It can never be delivered, for this reason.
    Rejected(String),
    /// It should be retried.
    Again(Error),
}

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

/// True if the error was caused by too many requests at once.
pub(super) fn is_overload(error: &Error) -> bool {
    error.kind() == ErrorKind::Overloaded
}

/// Returns the error of the two that tells the engine more.
pub(super) fn failure(one: Option<Error>, other: Error) -> Error {
    match one {
        Some(one) if one.kind() == ErrorKind::Permanent || is_overload(&one) => one,
        _ => other,
    }
}

impl Request {
    /// Sends a request with this body.
    pub(super) async fn send(&self, body: Bytes) -> Verdict {
        let built = match self.is_raw {
            true => match RawRequest::parse(body) {
                Ok(mut raw) => {
                    if [AUTHORIZATION, PROXY_AUTHORIZATION].iter().any(|name| self.headers.contains_key(name))
                    {
                        // The message is from someone else, who must not speak in our name.
                        raw.headers.remove(AUTHORIZATION);
                        raw.headers.remove(PROXY_AUTHORIZATION);
                    }
                    let mut url = self.url.clone();
                    url.set_path(&raw.path);
                    url.set_query(raw.query.as_deref());
                    self.client.request(raw.method, url).headers(raw.headers).body(raw.body)
                }
                Err(reason) => return Verdict::Rejected(format!("is not a request of HTTP: {reason}")),
            },
            false => {
                let body = match self.compression {
                    Compression::None => body,
                    Compression::Gzip => match gzip(&body) {
                        Ok(body) => body,
                        Err(error) => {
                            let error = Error::permanent("a body cannot be compressed").caused_by(error);
                            return Verdict::Again(error);
                        }
                    },
                };
                self.client.request(self.method.clone(), self.url.clone()).body(body)
            }
        };
        match built.headers(self.headers.clone()).send().await {
            Ok(response) => self.verdict(response).await,
            Err(error) => Verdict::Again(self.failed(error)),
        }
    }

    async fn verdict(&self, mut response: Response) -> Verdict {
        let status = response.status();
        let mut answer = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            answer.extend_from_slice(&chunk);
            if answer.len() > READ {
                break;
            }
        }
        if status.is_success() {
            return Verdict::Delivered;
        }
        let shown = self.shown(&answer);
        let colon = if shown.is_empty() { "" } else { ": " };
        let text = format!("`{}` answered {status}{colon}{shown}", without_secrets(self.url.as_str()));
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Verdict::Again(Error::overloaded(text))
            }
            StatusCode::REQUEST_TIMEOUT => Verdict::Again(Error::temporary(text)),
            _ if status.is_server_error() => Verdict::Again(Error::temporary(text)),
            _ => Verdict::Rejected(text),
        }
    }

    /// Returns the beginning of an answer, without secrets.
    fn shown(&self, answer: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(answer).trim().to_owned();
        for secret in &self.secrets {
            text = hidden(&text, secret);
        }
        text.truncate(text.floor_char_boundary(SHOWN));
        foreign(&text).into_owned()
    }

    fn failed(&self, error: reqwest::Error) -> Error {
        let text = format!("cannot send to `{}`", without_secrets(self.url.as_str()));
        // The text already contains the URL.
        let error = error.without_url();
        match (error.is_timeout(), error.is_builder()) {
            (_, true) => Error::permanent(text).caused_by(error),
            (true, _) => Error::overloaded(text).caused_by(error),
            _ => Error::temporary(text).caused_by(error),
        }
    }
}

/// Returns the text with `…` in place of a secret.
fn hidden(text: &str, secret: &str) -> String {
    if secret.len() >= SHORT {
        return text.replace(secret, "…");
    }
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let begins_word = is_letter(secret.chars().next());
    let ends_word = is_letter(secret.chars().next_back());
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(secret) {
        let after = at + secret.len();
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let next = text.get(after..).and_then(|rest| rest.chars().next());
        let is_within_word = (begins_word && is_letter(before)) || (ends_word && is_letter(next));
        if !is_within_word {
            shown.push_str(text.get(from..at).unwrap_or_default());
            shown.push('…');
            from = after;
        }
    }
    shown.push_str(text.get(from..).unwrap_or_default());
    shown
}

fn gzip(body: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    encoder.write_all(body)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_secret_is_hidden_where_it_is_a_word() {
        for (text, secret, expected) in [
            ("the key abcd, xabcdx", "abcd", "the key …, x…x"),
            ("the key `a1`: a1b, ba1, (a1) a1", "a1", "the key `…`: a1b, ba1, (…) …"),
            ("é is no e", "e", "é is no …"),
            ("éé: é", "é", "éé: …"),
            ("x-1 and -1x", "-1", "x… and -1x"),
            ("a1", "a1", "…"),
            ("", "a1", ""),
        ] {
            assert_eq!(hidden(text, secret), expected);
        }
    }
}
