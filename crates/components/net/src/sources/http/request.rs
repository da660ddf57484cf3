//! Handles one request: admission, reading the body, sending its messages, the answer.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use thalweg_engine::{Error, Received, SourceOutput};

use super::{Payload, Server};
use crate::net::{Cut, Format, Plain, Rejected, Respond, cuts_of};
use crate::web::{Accepted, Answer, Bodies, Gate, Refusal, Request, Wrapping, text};

/// The header of an answer that has the number of rejected messages.
const REJECTED: HeaderName = HeaderName::from_static("thalweg-rejected");

/// True if requests have a field with this name.
pub(super) fn is_field(name: &str) -> bool {
    matches!(name, "method" | "path" | "query" | "remote" | "user")
        || name
            .strip_prefix("header.")
            .is_some_and(|header| hyper::header::HeaderName::try_from(header).is_ok())
}

/// Adds the same field values to all messages of a request.
#[derive(Clone)]
struct WithFields(Vec<(String, Option<String>)>);

impl Format for WithFields {
    fn received(
        &mut self,
        cut: &Cut,
        rows: Range<usize>,
        peer: &Arc<str>,
        rejected: &mut Vec<Rejected>,
    ) -> Option<Received> {
        let mut received = Plain.received(cut, rows, peer, rejected)?;
        if self.0.is_empty() {
            return Some(received);
        }
        let rows = received.reading.payload.len();
        let fields = self.0.iter().map(|(name, _)| Field::new(name, DataType::Utf8View, true));
        let columns = self.0.iter().map(|(_, value)| -> ArrayRef {
            Arc::new(StringViewArray::from_iter(std::iter::repeat_n(value.as_deref(), rows)))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        received.fields = RecordBatch::try_new_with_options(schema, columns.collect(), &options).ok();
        Some(received)
    }
}

impl Server {
    /// Sends the messages of a request and returns the answer.
    pub(super) async fn answer(&self, request: Request, gate: &Gate, peer: &Arc<str>) -> Answer {
        let user = match self.admission.admit(&request).await {
            Ok(user) => user,
            Err(refused) => return *refused,
        };
        let Some(out) = gate.output() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        };
        match self.take(request, user, peer, out).await {
            Ok(Ok(settled)) => self.settled(settled),
            Ok(Err(Refusal { status, reason })) => text(status, reason),
            Err(error) => {
                gate.fail(error);
                text(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
            }
        }
    }

    /// Returns the answer to a request whose messages are all settled.
    fn settled(&self, Accepted { messages, rejected }: Accepted) -> Answer {
        let status = |number| StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if rejected == 0 {
            return text(status(self.config.status), String::new());
        }
        let number = self.config.rejected_status.unwrap_or(self.config.status);
        let mut answer = text(status(number), format!("{rejected} of {messages} messages were rejected"));
        answer.headers_mut().insert(REJECTED, rejected.into());
        answer
    }

    async fn take(
        &self,
        request: Request,
        user: Option<String>,
        peer: &Arc<str>,
        mut out: SourceOutput,
    ) -> Result<Result<Accepted, Refusal>, Error> {
        let (mut parts, body) = request.into_parts();
        let bodies = Bodies {
            most: self.config.max_body_bytes,
            read_timeout: self.config.read_timeout.duration(),
            memory_timeout: None,
        };
        let wrapping = Wrapping::of(&parts.headers);
        let read = match wrapping {
            Ok(wrapping) => bodies.read(body, wrapping, &out).await,
            Err(refused) => Err(refused),
        };
        let (mut memory, lease) = match read {
            Ok(read) => read,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut format = WithFields(self.fields(&parts, user, peer));
        if self.config.payload == Payload::Request {
            let head = head(&mut parts, memory.len());
            memory.splice(0..0, head);
        }
        let (charset, limit) = (self.config.charset, self.config.max_message_bytes);
        let cuts = cuts_of(lease.freeze(memory), self.config.framing.as_ref(), charset, limit);
        let is_acked = self.config.respond == Respond::Delivered;
        let mut batches = Vec::new();
        for cut in cuts {
            cut.send(&mut format, peer, is_acked, &mut out, |sent| batches.push(sent)).await?;
        }
        // Downstream stages end only when all source outputs are dropped. Some settle their batches only
        // then.
        drop(out);
        Ok(Accepted::of(batches).await)
    }

    fn fields(&self, parts: &Parts, user: Option<String>, peer: &str) -> Vec<(String, Option<String>)> {
        let value = |name: &str| match name {
            "method" => Some(parts.method.to_string()),
            "path" => Some(parts.uri.path().to_owned()),
            "query" => parts.uri.query().map(str::to_owned),
            "remote" => Some(peer.to_owned()),
            "user" => user.clone(),
            _ => {
                let header = parts.headers.get(name.strip_prefix("header.")?)?;
                Some(String::from_utf8_lossy(header.as_bytes()).into_owned())
            }
        };
        self.config.fields.iter().map(|name| (name.clone(), value(name))).collect()
    }
}

/// Returns the head of a request in its HTTP/1.1 form, for a body of `length` bytes that is neither
/// compressed nor chunked. Headers have their usual spelling, in a fixed order: the host, the client, the
/// length, and the others by name.
fn head(parts: &mut Parts, length: usize) -> Vec<u8> {
    for header in [TRANSFER_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH] {
        parts.headers.remove(header);
    }
    let mut head = format!("{} {} {:?}\r\n", parts.method, parts.uri, parts.version).into_bytes();
    let first = [HOST, USER_AGENT];
    let mut add = |name: &HeaderName, value: &[u8]| {
        head.extend_from_slice(spelled(name.as_str()).as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    for name in &first {
        parts.headers.get_all(name).iter().for_each(|value| add(name, value.as_bytes()));
    }
    if length > 0 || [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method) {
        add(&CONTENT_LENGTH, length.to_string().as_bytes());
    }
    let mut others: Vec<_> = parts.headers.iter().filter(|(name, _)| !first.contains(name)).collect();
    others.sort_by_key(|(name, _)| name.as_str());
    others.into_iter().for_each(|(name, value)| add(name, value.as_bytes()));
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns a header's name with capitals after hyphens: `Content-Type`.
fn spelled(name: &str) -> String {
    let mut starts = true;
    let spell = |letter: char| {
        let letter = if starts { letter.to_ascii_uppercase() } else { letter };
        starts = letter == '-';
        letter
    };
    name.chars().map(spell).collect()
}
