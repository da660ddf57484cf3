//! The answers to requests: what was rejected, and why a request failed.

use std::time::Duration;

use super::Signal;
use super::write::{begin, bytes_field, bytes_if_any, end, varint_field};
use crate::json::write_text;
use crate::protobuf::wire::{Raw, Reader};

/// The numbers of the fields of an answer: what was rejected in part, its number, and the reason.
const PARTIAL_SUCCESS: u32 = 1;
const REJECTED: u32 = 1;
const MESSAGE: u32 = 2;

/// The numbers of the fields of a status (`google.rpc.Status`).
const CODE: u32 = 1;
const DETAILS: u32 = 3;

/// The type of the detail that tells a client when to send a request again.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The form of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The binary form of Protocol Buffers.
    Binary,
    /// JSON.
    Json,
}

/// Why a request failed: the number of the status in gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is not valid.
    InvalidArgument = 3,
    /// Users without the right password.
    Unauthenticated = 16,
    /// The server has too much to do, or the request is too large.
    ResourceExhausted = 8,
    /// There is no such service.
    Unimplemented = 12,
    /// The request should be sent again.
    Unavailable = 14,
    /// The rest of the request did not come in time.
    DeadlineExceeded = 4,
}

/// Returns the answer to a request of which this number of records was rejected.
pub fn success(signal: Signal, form: Form, rejected: usize, reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match form {
        Form::Json if rejected == 0 => out.extend_from_slice(b"{}"),
        Form::Json => {
            let name = match signal {
                Signal::Logs => "rejectedLogRecords",
                Signal::Metrics => "rejectedDataPoints",
                Signal::Traces => "rejectedSpans",
            };
            out.extend_from_slice(format!("{{\"partialSuccess\":{{\"{name}\":\"{rejected}\"").as_bytes());
            out.extend_from_slice(b",\"errorMessage\":");
            write_text(reason, &mut out);
            out.extend_from_slice(b"}}");
        }
        Form::Binary if rejected == 0 => {}
        Form::Binary => {
            let start = begin(PARTIAL_SUCCESS, &mut out);
            varint_field(REJECTED, rejected as u64, &mut out);
            bytes_if_any(MESSAGE, reason.as_bytes(), &mut out);
            end(start, &mut out);
        }
    }
    out
}

/// Returns the status of a request that failed. `retry` is when the client may send it again.
pub fn failure(form: Form, code: Code, reason: &str, retry: Option<Duration>) -> Vec<u8> {
    let mut out = Vec::new();
    match form {
        Form::Json => {
            out.extend_from_slice(format!("{{\"code\":{},\"message\":", code as u32).as_bytes());
            write_text(reason, &mut out);
            out.push(b'}');
        }
        Form::Binary => {
            varint_field(CODE, code as u64, &mut out);
            bytes_if_any(MESSAGE, reason.as_bytes(), &mut out);
            if let Some(delay) = retry {
                let detail = begin(DETAILS, &mut out);
                bytes_field(1, RETRY_INFO.as_bytes(), &mut out);
                let info = begin(2, &mut out);
                let duration = begin(1, &mut out);
                varint_field(1, delay.as_secs(), &mut out);
                end(duration, &mut out);
                end(info, &mut out);
                end(detail, &mut out);
            }
        }
    }
    out
}

/// The part of an accepted request that a server rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialSuccess {
    /// The number of records. With 0, the reason is a warning.
    pub rejected: u64,
    /// The reason.
    pub reason: Vec<u8>,
}

/// Reads the answer to a request. None if all records were accepted, or if the answer is none.
pub fn partial_success(answer: &[u8]) -> Option<PartialSuccess> {
    let mut found = None;
    let mut reader = Reader::new(answer);
    while let Some((number, raw)) = reader.field().ok()? {
        if number == PARTIAL_SUCCESS && matches!(raw, Raw::Bytes { .. }) {
            found = Some(raw.bytes(answer));
        }
    }
    let partial = found?;
    let mut read = PartialSuccess { rejected: 0, reason: Vec::new() };
    let mut reader = Reader::new(partial);
    while let Some((number, raw)) = reader.field().ok()? {
        match (number, raw) {
            // A number below 0 is none.
            (REJECTED, Raw::Varint(count)) => read.rejected = u64::try_from(count as i64).unwrap_or(0),
            (MESSAGE, Raw::Bytes { .. }) => read.reason = raw.bytes(partial).to_vec(),
            _ => {}
        }
    }
    (read.rejected > 0 || !read.reason.is_empty()).then_some(read)
}

/// Reads the message of a status.
pub fn message_of(status: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    let mut reader = Reader::new(status);
    while let Some((number, raw)) = reader.field().ok()? {
        if number == MESSAGE && matches!(raw, Raw::Bytes { .. }) {
            found = Some(raw.bytes(status));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rejected_is_written_and_read() {
        let binary = |rejected, reason| success(Signal::Logs, Form::Binary, rejected, reason);
        assert_eq!(binary(0, ""), b"");
        assert_eq!(binary(2, "no"), b"\x0a\x06\x08\x02\x12\x02no");
        let read = PartialSuccess { rejected: 2, reason: b"no".to_vec() };
        assert_eq!(partial_success(&binary(2, "no")), Some(read));
        for none in [&b""[..], b"\x0a\x00", b"\x0a\x02\x08\x00", b"\x0a\x09", b"{}"] {
            assert_eq!(partial_success(none), None, "{none:?}");
        }
        let json = success(Signal::Traces, Form::Json, 2, "\"no\"");
        assert_eq!(json, br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"\"no\""}}"#);
        assert_eq!(success(Signal::Logs, Form::Json, 0, ""), b"{}");
    }

    #[test]
    fn a_failure_has_its_code_and_the_time_to_wait() {
        let json = failure(Form::Json, Code::InvalidArgument, "no", None);
        assert_eq!(json, br#"{"code":3,"message":"no"}"#);
        let binary = failure(Form::Binary, Code::ResourceExhausted, "full", Some(Duration::from_secs(5)));
        assert_eq!(message_of(&binary), Some(&b"full"[..]));
        assert!(binary.starts_with(b"\x08\x08\x12\x04full\x1a"));
        assert!(binary.ends_with(b"google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x05"));
    }
}
