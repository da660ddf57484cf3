//! Handles one request: admission, reading the body, sending its messages, the answer.

use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use thalweg_engine::{Error, Received, SourceOutput};
use thalweg_record::{Lease, Outcome};

use super::{Payload, Server};
use crate::net::{Cut, Format, Plain, Respond};
use crate::web::{Answer, Gate, text};
use thalweg_codec::decompress::{Decoder, Format as Compression};

/// How many bytes are reserved at a time for a body of unknown length.
const STEP: usize = 16 << 10;

/// True if requests have a field with this name.
pub(super) fn is_field(name: &str) -> bool {
    matches!(name, "method" | "path" | "query" | "remote" | "user")
        || name
            .strip_prefix("header.")
            .is_some_and(|header| hyper::header::HeaderName::try_from(header).is_ok())
}

/// The answer to a request that is refused.
struct Refusal(StatusCode, String);

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self(status, reason.into())
    }
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
        rejected: &mut Vec<(Range<usize>, String)>,
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
    pub(super) async fn answer(&self, request: Request<Incoming>, gate: &Gate, peer: &Arc<str>) -> Answer {
        let user = match self.admission.admit(&request).await {
            Ok(user) => user,
            Err(refused) => return *refused,
        };
        let Some(out) = gate.output() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        };
        match self.take(request, user, peer, out).await {
            Ok(Ok(status)) => text(status, String::new()),
            Ok(Err(Refusal(status, reason))) => text(status, reason),
            Err(error) => {
                gate.fail(error);
                text(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
            }
        }
    }

    async fn take(
        &self,
        request: Request<Incoming>,
        user: Option<String>,
        peer: &Arc<str>,
        mut out: SourceOutput,
    ) -> Result<Result<StatusCode, Refusal>, Error> {
        let (mut parts, body) = request.into_parts();
        let timeout = self.config.read_timeout.duration();
        let read = tokio::time::timeout(timeout, self.body(&parts, body, &out)).await;
        let (mut memory, lease) = match read {
            Ok(Ok(read)) => read,
            Ok(Err(refused)) => return Ok(Err(refused)),
            Err(_) => {
                return Ok(Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")));
            }
        };
        let mut format = WithFields(self.fields(&parts, user, peer));
        if self.config.payload == Payload::Request {
            let head = head(&mut parts, memory.len());
            memory.splice(0..0, head);
        }
        let whole = 0..memory.len();
        let limit = self.config.max_message_bytes;
        let buffer = lease.freeze(memory);
        let cut = match &self.config.framing {
            Some(framing) => Cut::all(buffer, framing.begin(limit, false), limit),
            None => Cut { buffer, messages: vec![whole], rejected: Vec::new() },
        };
        let mut is_rejected = !cut.rejected.is_empty();
        let is_acked = self.config.respond == Respond::Delivered;
        let mut waiting = Vec::new();
        cut.send(&mut format, peer, is_acked, &mut out, |_, settled| waiting.extend(settled)).await?;
        // Downstream stages end only when all source outputs are dropped. Some settle their batches only
        // then.
        drop(out);
        for settled in waiting {
            let settlement = settled.await;
            match settlement.outcome {
                Outcome::Failed => {
                    let reason = "the messages could not be delivered";
                    return Ok(Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason)));
                }
                Outcome::Rejected => is_rejected = true,
                Outcome::Filtered | Outcome::Delivered => {}
            }
        }
        let status = |number| StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Ok(match is_rejected {
            true => Err(Refusal(
                status(self.config.rejected_status),
                "messages could not be processed".to_owned(),
            )),
            false => Ok(status(self.config.status)),
        })
    }

    /// Reads a body as the budget permits, and decompresses it.
    async fn body(
        &self,
        parts: &Parts,
        mut body: Incoming,
        out: &SourceOutput,
    ) -> Result<(Vec<u8>, Lease), Refusal> {
        let most = self.config.max_body_bytes.as_usize();
        let compression = match parts.headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => None,
            Some(b"gzip" | b"x-gzip") => Some(Compression::Gzip),
            Some(b"zstd") => Some(Compression::Zstd),
            Some(_) => {
                let reason = "a body may be compressed with gzip or zstd";
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
            }
        };
        let known = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if known.is_some_and(|length| length > most) {
            return Err(self.too_large());
        }
        let first = known.unwrap_or(STEP);
        let mut lease = out.reserve(first).await;
        let mut memory = Vec::with_capacity(first);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > most - memory.len() {
                return Err(self.too_large());
            }
            reserve(&mut memory, &mut lease, data.len(), out).await;
            memory.extend_from_slice(&data);
        }
        match compression {
            // The lease is held until the compressed body has been read.
            Some(compression) => self.decompressed(&memory, compression, out).await,
            None => Ok((memory, lease)),
        }
    }

    /// Decompresses a body as the budget permits.
    async fn decompressed(
        &self,
        body: &[u8],
        compression: Compression,
        out: &SourceOutput,
    ) -> Result<(Vec<u8>, Lease), Refusal> {
        let mut decoder = Decoder::new(compression, Cursor::new(body));
        let mut decoded = Vec::new();
        let mut lease = out.reserve(STEP).await;
        loop {
            reserve(&mut decoded, &mut lease, STEP, out).await;
            let read = decoder.by_ref().take(STEP as u64).read_to_end(&mut decoded).map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be decompressed: {error}"))
            })?;
            if decoded.len() > self.config.max_body_bytes.as_usize() {
                return Err(self.too_large());
            }
            if read == 0 {
                return Ok((decoded, lease));
            }
        }
    }

    fn too_large(&self) -> Refusal {
        let reason = format!("a body may have at most {}", self.config.max_body_bytes);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
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

/// Makes capacity for `more` bytes, at least doubling `memory`.
async fn reserve(memory: &mut Vec<u8>, lease: &mut Lease, more: usize, out: &SourceOutput) {
    if memory.capacity() - memory.len() < more {
        let more = more.max(memory.len());
        // Both leases belong to one share, so the merge always succeeds.
        drop(lease.merge(out.reserve(more).await));
        memory.reserve_exact(more);
    }
}

/// Returns the head of a request in its HTTP/1.1 form, for a body of `length` bytes that is neither
/// compressed nor chunked.
fn head(parts: &mut Parts, length: usize) -> Vec<u8> {
    for header in [TRANSFER_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH] {
        parts.headers.remove(header);
    }
    let mut head = format!("{} {} {:?}\r\n", parts.method, parts.uri, parts.version).into_bytes();
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
    head
}
