//! Handles one request: admission, reading the body, sending its messages, the answer.

use std::future::poll_fn;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema};
use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING, USER_AGENT};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use thalweg_engine::{Error, Received, SourceOutput};
use thalweg_record::{Incomplete, Lease, size_text};

use super::{Payload, Server};
use crate::net::{Cut, Cuts, Format, Plain, Rejected, Respond, Sent};
use crate::web::{Answer, ArrivingBody, Gate, Request, text};
use thalweg_codec::decompress::{Decoder, Format as Compression};

/// How many bytes are reserved before a body arrives. More are reserved only as it arrives: what a client
/// announces may never come.
const STEP: usize = 16 << 10;

/// The header of an answer that has the number of rejected messages.
const REJECTED: HeaderName = HeaderName::from_static("thalweg-rejected");

/// True if requests have a field with this name.
pub(super) fn is_field(name: &str) -> bool {
    matches!(name, "method" | "path" | "query" | "remote" | "user")
        || name
            .strip_prefix("header.")
            .is_some_and(|header| hyper::header::HeaderName::try_from(header).is_ok())
}

/// The messages of a request that are settled.
#[derive(Default)]
struct Accepted {
    messages: usize,
    rejected: usize,
}

impl Accepted {
    /// Waits until all batches of a request are settled. Refuses the request if one of them failed.
    async fn of(batches: Vec<Sent>) -> Result<Self, Refusal> {
        let mut accepted = Self::default();
        let mut waiting = Vec::new();
        for Sent { messages, rejected, settled } in batches {
            match settled {
                Some(settled) => waiting.push((messages, rejected, settled)),
                None => accepted.add(messages, rejected),
            }
        }
        // All are polled at once, so that those that wait for a saved checkpoint share it.
        let is_safe = poll_fn(|context| {
            let mut has_failed = false;
            waiting.retain_mut(|(messages, rejected, settled)| {
                let Poll::Ready(settlement) = Pin::new(settled).poll(context) else { return true };
                has_failed |= !settlement.outcome.is_safe();
                // A transform may have made several messages of one. Messages that were rejected here count
                // as delivered if a sink receives the output `errors`.
                accepted.add(*messages, settlement.rejected.clamp(*rejected, *messages));
                false
            });
            if has_failed || waiting.is_empty() { Poll::Ready(!has_failed) } else { Poll::Pending }
        });
        if is_safe.await {
            return Ok(accepted);
        }
        Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the messages could not be delivered"))
    }

    fn add(&mut self, messages: usize, rejected: usize) {
        self.messages += messages;
        self.rejected += rejected;
    }
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
            Ok(Err(Refusal(status, reason))) => text(status, reason),
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
        let (mut memory, lease) = match self.body(&parts, body, &out).await {
            Ok(read) => read,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut format = WithFields(self.fields(&parts, user, peer));
        if self.config.payload == Payload::Request {
            let head = head(&mut parts, memory.len());
            memory.splice(0..0, head);
        }
        let cuts = self.cuts(lease.freeze(memory));
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

    /// Cuts a body into messages.
    fn cuts(&self, body: Buffer) -> Box<dyn Iterator<Item = Cut> + Send> {
        let charset = self.config.charset;
        let limit = self.config.max_message_bytes;
        match &self.config.framing {
            Some(framing) => Box::new(Cuts::new(body, framing.begin(limit, false).reading(charset), limit)),
            None => {
                let (mark, charset) = charset.after_mark(&body, true).unwrap_or((0, charset));
                let messages = std::iter::once(mark..body.len()).collect();
                Box::new(std::iter::once(Cut { messages, charset, ..Cut::of(body) }))
            }
        }
    }

    /// Reads a body, and decompresses it, within the time limit.
    async fn body(
        &self,
        parts: &Parts,
        body: ArrivingBody,
        out: &SourceOutput,
    ) -> Result<(Vec<u8>, Lease), Refusal> {
        let compression = match parts.headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"" | b"identity") => None,
            Some(b"gzip" | b"x-gzip") => Some(Compression::Gzip),
            Some(b"zstd") => Some(Compression::Zstd),
            Some(_) => {
                let reason = "a body may be compressed with gzip or zstd";
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
            }
        };
        let length = body.size_hint().exact().unwrap_or(0);
        if length > self.config.max_body_bytes.bytes() {
            return Err(self.too_large());
        }
        if length > attainable(out) as u64 {
            return Err(beyond_memory(out));
        }
        let part = out.share().begin_message();
        let read = async {
            let mut growing = Growing::begin(&part, out, 0).await?;
            self.read(body, &mut growing).await?;
            match compression {
                // The compressed body is held until it has been read.
                Some(compression) => self.decompressed(&growing, compression).await,
                None => Ok(growing),
            }
        };
        tokio::select! {
            read = tokio::time::timeout(self.config.read_timeout.duration(), read) => match read {
                Ok(read) => read.map(|read| (read.memory, read.lease)),
                Err(_) => {
                    Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
                }
            },
            () = part.dropped() => {
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "incomplete requests used up the memory"))
            }
        }
    }

    /// Reads a body as the budget permits. When its first bytes have come, memory for all of it is reserved:
    /// bodies that grow bit by bit would wait for each other. Not if it is a large part of the budget.
    async fn read(&self, mut body: ArrivingBody, into: &mut Growing<'_>) -> Result<(), Refusal> {
        let announced = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(usize::MAX);
        let announced = if announced > into.out.share().budget().limit() / 3 { 0 } else { announced };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > self.config.max_body_bytes.as_usize() - into.memory.len() {
                return Err(self.too_large());
            }
            into.reserve(data.len().max(announced.saturating_sub(into.memory.len()))).await?;
            into.memory.extend_from_slice(&data);
        }
        Ok(())
    }

    /// Decompresses a body as the budget permits.
    async fn decompressed<'b>(
        &self,
        body: &Growing<'b>,
        compression: Compression,
    ) -> Result<Growing<'b>, Refusal> {
        let Growing { part, out, .. } = body;
        let memory = out.share().budget().limit();
        let mut decoder = Decoder::new(compression, Cursor::new(&body.memory)).within(memory);
        let mut decoded = Growing::begin(part, out, body.lease.bytes()).await?;
        loop {
            decoded.reserve(STEP).await?;
            let read = decoder.by_ref().take(STEP as u64).read_to_end(&mut decoded.memory);
            let read = read.map_err(|error| {
                Refusal::new(StatusCode::BAD_REQUEST, format!("the body cannot be decompressed: {error}"))
            })?;
            if decoded.memory.len() > self.config.max_body_bytes.as_usize() {
                return Err(self.too_large());
            }
            if read == 0 {
                return Ok(decoded);
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

/// A body that is arriving, in memory that grows with it.
struct Growing<'b> {
    part: &'b Incomplete,
    out: &'b SourceOutput,
    memory: Vec<u8>,
    lease: Lease,
    /// The other memory that the request holds, in bytes.
    beside: usize,
}

impl<'b> Growing<'b> {
    async fn begin(part: &'b Incomplete, out: &'b SourceOutput, beside: usize) -> Result<Self, Refusal> {
        if_attainable(out, beside, STEP)?;
        let lease = out.share().reserve_for(STEP, Some(part)).await;
        part.hold(beside + STEP);
        Ok(Self { part, out, memory: Vec::with_capacity(STEP), lease, beside })
    }

    /// Makes capacity for `more` bytes, at least doubling the memory. Refuses the request if the budget can
    /// never grant them.
    async fn reserve(&mut self, more: usize) -> Result<(), Refusal> {
        let free = self.memory.capacity() - self.memory.len();
        if free >= more {
            return Ok(());
        }
        let (held, least) = (self.beside + self.lease.bytes(), more - free);
        if_attainable(self.out, held, least)?;
        let more = self.out.share().growth(held, least, more.max(self.memory.len()));
        let room = self.out.share().reserve_for(more, Some(self.part)).await;
        // Both leases belong to one share, so the merge always succeeds.
        drop(self.lease.merge(room));
        self.memory.reserve_exact(free + more);
        self.part.hold(self.beside + self.lease.bytes());
        Ok(())
    }
}

/// Returns how many bytes one request can ever hold: what sources may fill, or the first step, which is
/// granted to a source that holds nothing.
fn attainable(out: &SourceOutput) -> usize {
    out.share().budget().ceiling().max(STEP)
}

/// Refuses a request that holds `held` bytes and needs `more` if the budget can never grant them: it would
/// wait for its own memory.
fn if_attainable(out: &SourceOutput, held: usize, more: usize) -> Result<(), Refusal> {
    if held + more > attainable(out) { Err(beyond_memory(out)) } else { Ok(()) }
}

fn beyond_memory(out: &SourceOutput) -> Refusal {
    let reason = format!(
        "a request may hold at most {}, three quarters of `memory`, and a compressed one holds its \
         decompressed body as well; send less in one request, or raise `memory`",
        size_text(attainable(out))
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
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
