//! The connection, and the messages of the events that it brings.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::ArrayRef;
use async_trait::async_trait;
use reqwest::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use thalweg_codec::columns::FieldType;
use thalweg_engine::{Checkpoint, Error, Reading, Received, Source, SourceOutput};
use thalweg_record::{Lease, TextBuilder};
use thalweg_redact::without_secrets;
use thalweg_stream::whole::{self, Whole};
use tokio::time::Instant;

use super::event_stream::EventStream;
use super::{Part, SseSource};
use crate::net::until;
use crate::requests::{Compression, Failure, Request, Verdict};

/// The bytes of the stream that are read into events at once. Even if all events in them are empty, they take
/// little memory.
const AT_ONCE: usize = 16 << 10;

/// The limits of the pause before the source connects again. A server that closes each connection at once
/// must not be asked without end.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_mins(5)];

/// How far the pause grows while connections bring no events. Those that lasted longer than this do not
/// count: some servers end each connection after a time.
const GROWN: Duration = Duration::from_secs(10);

/// The number of such connections in a row that is logged.
const NOTED: u32 = 10;

/// How many bytes are read of an answer that is no stream.
const MOST_REFUSAL: usize = 64 << 10;

/// The header with the id of the last event.
const LAST_EVENT_ID: &str = "last-event-id";

/// The source. It is prepared by its first run, since that reads files.
pub(super) struct Client {
    config: SseSource,
    listening: Option<Listening>,
}

impl Client {
    pub(super) fn new(config: SseSource) -> Self {
        Self { config, listening: None }
    }
}

#[async_trait]
impl Source for Client {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if self.listening.is_none() {
            self.listening = Some(Listening::new(&self.config, out)?);
        }
        match &mut self.listening {
            Some(listening) => listening.run(out).await,
            None => Ok(()),
        }
    }
}

struct Listening {
    config: SseSource,
    request: Request,
    /// The URL without secrets: `meta.path` of the messages, and the partition.
    path: Arc<str>,
    parts: Vec<(String, Part)>,
    stream: EventStream,
    /// Memory that the stream holds.
    held: Option<Lease>,
    /// When the last event came, or the source began. Moved by waits for memory.
    last_event: Instant,
    /// True if the connection has brought an event.
    has_events: bool,
    /// The number of connections in a row that ended soon and without an event.
    fruitless: u32,
}

/// Why a stream is not read any more.
enum End {
    /// The source ends.
    Source,
    /// The connection has ended, for this reason.
    Connection(String),
}

/// The events of some bytes.
#[derive(Default)]
struct Events {
    /// The data of all events.
    data: Vec<u8>,
    all: Vec<Heard>,
}

/// An event.
struct Heard {
    data: Range<usize>,
    name: Box<str>,
    id: Arc<str>,
    /// The reason to reject it.
    refused: Option<String>,
}

impl Listening {
    fn new(config: &SseSource, out: &SourceOutput) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let (client, endpoint) = (OnceLock::new(), config.endpoint());
        let request = endpoint.request(Method::GET, headers, Compression::None, MOST_REFUSAL, &client)?;
        let path: Arc<str> = without_secrets(request.url.as_str()).into();
        let saved = out.saved(&path);
        let last_id = saved.as_ref().and_then(Value::as_str).unwrap_or_default();
        Ok(Self {
            stream: EventStream::new(config.max_message_bytes.as_usize(), last_id),
            config: config.clone(),
            request,
            path,
            parts: config.parts(),
            held: None,
            last_event: Instant::now(),
            has_events: false,
            fruitless: 0,
        })
    }

    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        loop {
            let connected = tokio::select! {
                biased;
                () = out.stopping() => return Ok(()),
                connected = self.connect() => connected,
                () = until(self.end()) => return Ok(()),
            };
            let begun = Instant::now();
            let end = match connected {
                Ok(Some(response)) => self.listen(response, out).await?,
                Ok(None) => return Ok(()),
                Err(failure) => {
                    let pause = failure.delay().unwrap_or_else(|| self.pause());
                    if failure.is_temporary() && self.is_over_after(pause, out).await {
                        return Ok(());
                    }
                    return Err(failure.error());
                }
            };
            let End::Connection(reason) = end else { return Ok(()) };
            tracing::debug!("`{}`: {reason}; it is connected again", out.name());
            self.stream.restart();
            self.count(begun.elapsed(), out);
            if self.is_over_after(grown(self.pause(), self.fruitless), out).await {
                return Ok(());
            }
        }
    }

    /// Counts a connection that has ended and lasted for this time.
    fn count(&mut self, span: Duration, out: &SourceOutput) {
        let is_fruitless = !std::mem::take(&mut self.has_events) && span < GROWN;
        self.fruitless = if is_fruitless { self.fruitless.saturating_add(1) } else { 0 };
        if self.fruitless == NOTED {
            let (name, server) = (out.name(), self.request.server());
            tracing::warn!("`{name}`: {server} has ended {NOTED} connections in a row without an event");
        }
    }

    /// Waits. Returns true if the source is to end.
    async fn is_over_after(&self, pause: Duration, out: &SourceOutput) -> bool {
        let left = self.end().map(|end| end.saturating_duration_since(Instant::now()));
        let is_last = left.is_some_and(|left| left <= pause);
        out.sleep(left.map_or(pause, |left| left.min(pause))).await || is_last
    }

    /// Returns when the source ends if no event comes.
    fn end(&self) -> Option<Instant> {
        Some(self.last_event + self.config.end_after_idle?.duration())
    }

    fn pause(&self) -> Duration {
        pause(&self.stream, self.config.retry_delay.duration())
    }

    /// Connects. Returns None if the server says that there is no stream any more.
    async fn connect(&self) -> Result<Option<Response>, Failure> {
        // The time of the client is that of the whole answer, which has no end.
        let mut built = self.request.client.get(self.request.url.clone()).timeout(Duration::MAX);
        let last_id = self.stream.last_id();
        // A saved id may be no value of a header.
        if !last_id.is_empty()
            && let Ok(value) = HeaderValue::from_bytes(last_id.as_bytes())
        {
            built = built.header(LAST_EVENT_ID, value);
        }
        let (server, limit) = (self.request.server(), self.config.timeout.duration());
        let late = |_| Failure::overloaded(format!("{server} did not answer in time"));
        let response = tokio::time::timeout(limit, self.request.open(built)).await.map_err(late)??;
        let refused = |text: String| Failure::from(Error::permanent(text));
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NO_CONTENT => return Ok(None),
            _ => {
                let answer =
                    tokio::time::timeout(limit, self.request.answer(response)).await.map_err(late)?;
                return Err(match self.request.by_status(&answer) {
                    Verdict::Again(failure) => failure,
                    _ => refused(self.request.text(&answer)),
                });
            }
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let kind = header(CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("text/event-stream") {
            return Err(refused(format!(
                "{server} answers with `{}`, not with events",
                self.request.shown(kind.as_bytes())
            )));
        }
        if header(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(refused(format!("the events of {server} are compressed, which was not asked for")));
        }
        Ok(Some(response))
    }

    /// Reads a stream to its end.
    ///
    /// # Errors
    /// If nothing can be sent any more.
    async fn listen(&mut self, mut response: Response, out: &mut SourceOutput) -> Result<End, Error> {
        let idle = self.config.idle_timeout.duration();
        loop {
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = out.stopping() => return Ok(End::Source),
                memory = out.reserve(AT_ONCE) => drop(memory),
            }
            // Events that have come meanwhile were not read.
            self.last_event += begun.elapsed();
            let read = tokio::select! {
                biased;
                () = out.stopping() => return Ok(End::Source),
                read = tokio::time::timeout(idle, response.chunk()) => read,
                () = until(self.end()) => return Ok(End::Source),
            };
            let chunk = match read {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok(End::Connection("the server ended the stream".to_owned())),
                Ok(Err(error)) => {
                    return Ok(End::Connection(format!("the connection broke: {}", error.without_url())));
                }
                Err(_) => return Ok(End::Connection("nothing came for `idle_timeout`".to_owned())),
            };
            for part in chunk.chunks(AT_ONCE) {
                self.take(part, out).await?;
            }
        }
    }

    /// Reads bytes of the stream, and sends the events that end in them.
    async fn take(&mut self, bytes: &[u8], out: &mut SourceOutput) -> Result<(), Error> {
        let (mut events, limit) = (Events::default(), Whole::new(self.config.max_message_bytes));
        let before = self.stream.last_id().clone();
        self.stream.push(bytes, |event| {
            let start = events.data.len();
            events.data.extend_from_slice(event.data);
            let data = start..events.data.len();
            let refused = limit.refused(event.size);
            events.all.push(Heard { data, name: event.name.into(), id: event.id.clone(), refused });
        });
        self.held = Some(out.claim(self.stream.held() + events.data.len()));
        if events.all.is_empty() {
            // An id may come without data.
            if *self.stream.last_id() != before {
                out.checkpoint(self.checkpoint(self.stream.last_id()));
            }
            return Ok(());
        }
        self.has_events = true;
        let mut rest = events.all.as_slice();
        while let Some(first) = rest.first() {
            let is_refused = first.refused.is_some();
            let same = rest.iter().take_while(|event| event.refused.is_some() == is_refused).count();
            let (some, others) = rest.split_at(same.min(out.next_rows()));
            self.send(some, &events.data, out).await?;
            rest = others;
        }
        self.held = Some(out.claim(self.stream.held()));
        self.last_event = Instant::now();
        Ok(())
    }

    /// Sends events that are all good, or all rejected.
    async fn send(&self, events: &[Heard], data: &[u8], out: &mut SourceOutput) -> Result<(), Error> {
        let Some(last) = events.last() else { return Ok(()) };
        let texts: Vec<&[u8]> =
            events.iter().map(|event| data.get(event.data.clone()).unwrap_or_default()).collect();
        let payload = Whole::new(self.config.max_message_bytes).payload(&texts, out).await;
        let checkpoint = Some(self.checkpoint(&last.id));
        let reading = Reading { payload, path: Some(self.path.clone()), positions: None, checkpoint };
        let columns =
            self.parts.iter().map(|(name, part)| (FieldType::Text.field(name), column(*part, events)));
        let received = Received { reading, fields: whole::fields(columns, events.len())? };
        match events.iter().map(|event| event.refused.clone()).collect::<Option<Vec<String>>>() {
            Some(reasons) => out.reject_each(received, reasons).await,
            None => out.send(received).await,
        }
    }

    /// Returns the checkpoint behind an event with this id. Without an id, it only keeps the order.
    fn checkpoint(&self, id: &str) -> Checkpoint {
        Checkpoint { partition: self.path.clone(), offset: Value::from(id) }
    }
}

/// Returns the pause before the source connects again: that of the server, or the default.
pub(super) fn pause(stream: &EventStream, default: Duration) -> Duration {
    stream.retry().unwrap_or(default).clamp(PAUSES[0], PAUSES[1])
}

/// Returns the pause after a number of connections in a row that brought nothing: it doubles.
pub(super) fn grown(pause: Duration, fruitless: u32) -> Duration {
    pause.saturating_mul(1 << fruitless.saturating_sub(1).min(10)).min(pause.max(GROWN))
}

/// Returns a part of each event.
fn column(part: Part, events: &[Heard]) -> ArrayRef {
    let mut texts = TextBuilder::over(&[], events.len());
    let mut before: Option<&str> = None;
    for event in events {
        let text = match part {
            Part::Event => &*event.name,
            Part::Id => &*event.id,
        };
        // All events may have one id, which may be long.
        match before == Some(text) {
            true => texts.push_again(),
            false => texts.push(text),
        }
        before = Some(text);
    }
    Arc::new(texts.finish())
}
