//! Records of bytes, as Kinesis and Firehose take them: the data in base64, and an answer for each record.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use thalweg_codec::json::write_text;
use thalweg_net::requests::{Answer, Parts, Reading, Request, Service, Verdict};

use crate::api::AwsService;
use crate::refusal::{entry, not_understood, refused};

/// The largest number of records in a request.
pub(super) const MOST_COUNT: usize = 500;

/// The action that takes records.
pub(crate) struct Put {
    service: &'static AwsService,
    action: &'static str,
    /// The text before the records in a body.
    start: Vec<u8>,
}

impl Put {
    /// Returns the action, for a target that has this name in the member of the body.
    pub(crate) fn new(
        service: &'static AwsService,
        action: &'static str,
        member: &'static str,
        name: &str,
    ) -> Self {
        let mut start = Vec::new();
        start.push(b'{');
        write_text(member, &mut start);
        start.push(b':');
        write_text(name, &mut start);
        start.extend_from_slice(b",\"Records\":[");
        Self { service, action, start }
    }
}

/// The answer, as far as it is read.
#[derive(Deserialize)]
struct Taken {
    #[serde(rename = "Records", alias = "RequestResponses")]
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "ErrorCode", default)]
    code: Option<String>,
    #[serde(rename = "ErrorMessage", default)]
    message: Option<String>,
}

impl Service for Put {
    fn body(&self, parts: &Parts) -> Bytes {
        let mut body = Vec::with_capacity(self.start.len() + parts.bytes().len() + parts.len() + 2);
        body.extend_from_slice(&self.start);
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                body.push(b',');
            }
            body.extend_from_slice(part);
        }
        body.extend_from_slice(b"]}");
        body.into()
    }

    fn headers(&self) -> HeaderMap {
        self.service.action(self.action)
    }

    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        if !answer.status.is_success() {
            return refused(request, answer);
        }
        let taken = serde_json::from_slice(&answer.body).ok().filter(|_| answer.is_whole);
        let Some(Taken { records }) = taken else { return not_understood(request) };
        let verdict = |Record { code, message }| match code {
            None => Verdict::Delivered,
            Some(code) => entry(request, &code, &message.unwrap_or_default(), false),
        };
        Reading::Each(records.into_iter().map(verdict).collect())
    }
}

/// Appends bytes in base64.
pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    // A message is in memory, so the number of its digits is one.
    let digits = base64::encoded_len(bytes.len(), true).unwrap_or(0);
    out.resize(start + digits, 0);
    let written = out.get_mut(start..).and_then(|place| STANDARD.encode_slice(bytes, place).ok());
    out.truncate(start + written.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_appended_in_base64() {
        let mut out = b"x".to_vec();
        write_base64(b"", &mut out);
        write_base64(b"a\0b\xff", &mut out);
        assert_eq!(out, b"xYQBi/w==");
    }
}
