//! One attempt: a request, its reply, and what that means.

use super::fetch::{Counts, Fetcher, patient};
use super::request::{Ending, Purpose, Request};
use super::transport::Seen;
use super::{Fingerprint, Origin, RemoteError, RemoteOptions, costs::Costs};
use crate::{Error, Overlap, Span};
use bytes::Bytes;
use futures_util::StreamExt;
use opendal::{ErrorKind, Operator};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_record::Lease;

pub(crate) struct Attempted {
    pub request: Request,
    pub result: Result<(), Trouble>,
    /// How many bytes from the beginning of the range on are held now.
    pub kept: u64,
}

/// Why an attempt did not bring all that was asked for.
pub(crate) enum Trouble {
    /// It may go better later.
    Temporary {
        why: String,
        /// How long the origin asks us to wait.
        asked: Option<Duration>,
        /// The origin has too much to do.
        overloaded: bool,
    },
    /// The origin is in another state now: this one.
    Other(String),
    /// The whole file was given where a part was asked for.
    Ignored,
    /// The file has begun anew in the meantime.
    Stale,
    /// Trying again makes no sense.
    Fatal(RemoteError),
}

impl Trouble {
    fn cut(why: String) -> Self {
        Trouble::Temporary { why, asked: None, overloaded: false }
    }

    /// What an error of OpenDAL means, beside what was seen of the reply.
    fn of(error: &opendal::Error, origin: &Origin, what: &str, seen: &Seen) -> Self {
        let name = || origin.name().to_owned();
        let why = said(error, seen);
        let overloaded = matches!(seen.status, Some(429 | 503)) || error.kind() == ErrorKind::RateLimited;
        let passing = matches!(seen.status, Some(408 | 425 | 429 | 500 | 502 | 503 | 504));
        if overloaded || passing || error.is_temporary() {
            return Trouble::Temporary { why, asked: seen.retry_after, overloaded };
        }
        Trouble::Fatal(match error.kind() {
            ErrorKind::NotFound => RemoteError::Absent { name: name() },
            ErrorKind::PermissionDenied => RemoteError::Denied { name: name(), why },
            _ if matches!(seen.status, Some(401 | 403)) => RemoteError::Denied { name: name(), why },
            _ => RemoteError::Failed { name: name(), what: what.to_owned(), attempts: 1, why },
        })
    }
}

/// What went wrong, in a line: the status says more than OpenDAL's message, which has the whole reply in it.
fn said(error: &opendal::Error, seen: &Seen) -> String {
    if let Some(status) = seen.status.filter(|status| *status >= 300) {
        let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        return format!("the origin replied {status} {}", reason.unwrap_or_default()).trim_end().to_owned();
    }
    let mut text = error.message().to_owned();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// A request in the making.
struct Asking {
    request: Request,
    begun: Instant,
    seen: Arc<Mutex<Seen>>,
    kept: u64,
}

impl Asking {
    fn new(purpose: Purpose, span: Span, retries: u32) -> Self {
        let request = Request {
            purpose,
            span,
            retries,
            status: None,
            received: 0,
            first: None,
            took: Duration::ZERO,
            ending: Ending::Done,
        };
        Self { request, begun: Instant::now(), seen: Arc::default(), kept: 0 }
    }

    fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    fn note_first(&mut self) -> Duration {
        *self.request.first.get_or_insert_with(|| self.begun.elapsed())
    }

    fn end(mut self) -> Request {
        self.request.took = self.begun.elapsed();
        self.request.status = self.seen.lock().status;
        self.request
    }
}

/// Asks for the length and state of the file, trying again as often as makes sense.
pub(crate) async fn state(
    origin: &Origin,
    options: &RemoteOptions,
    counts: &Counts,
    costs: &mut Costs,
) -> Result<Fingerprint, RemoteError> {
    let told = |mut request: Request, ending: Ending| {
        request.ending = ending;
        counts.note(&request);
        if let Some(observer) = &options.observer {
            observer(&request);
        }
    };
    // Some origins (a signed URL, say) refuse to tell about a file what they would tell with its first byte.
    let mut by_reading = false;
    let mut retries = 0;
    loop {
        let span = Span::new(0, u64::from(by_reading));
        let mut asking = Asking::new(Purpose::State, span, retries);
        let operator = origin.looking(&asking.seen);
        let work = async {
            if by_reading {
                first_byte(&operator, origin, &asking.seen).await
            } else {
                stat(&operator, origin).await
            }
        };
        let found = patient(options.retries.silence, work).await;
        let (first, seen) = (asking.note_first(), asking.seen());
        let request = asking.end();
        let trouble = match found {
            Some(Ok(fingerprint)) => {
                costs.note_latency(first);
                told(request, Ending::Done);
                return Ok(fingerprint);
            }
            Some(Err(error)) => Trouble::of(&error, origin, "asking for its state", &seen),
            None => Trouble::cut(silent(options.retries.silence)),
        };
        let (why, asked) = match trouble {
            Trouble::Temporary { why, asked, .. } => (why, asked),
            Trouble::Fatal(error) => {
                told(request, Ending::Failed { why: error.to_string() });
                if by_reading || matches!(error, RemoteError::Absent { .. }) || seen.status.is_none() {
                    return Err(error);
                }
                by_reading = true;
                continue;
            }
            Trouble::Other(_) | Trouble::Ignored | Trouble::Stale => continue,
        };
        retries += 1;
        match options.retries.pause(retries, asked) {
            Some(pause) => {
                told(request, Ending::Again { why, pause });
                tokio::time::sleep(pause).await;
            }
            None => {
                told(request, Ending::Failed { why: why.clone() });
                let (name, what) = (origin.name().to_owned(), "asking for its state".to_owned());
                return Err(RemoteError::Failed { name, what, attempts: retries, why });
            }
        }
    }
}

async fn stat(operator: &Operator, origin: &Origin) -> opendal::Result<Fingerprint> {
    let metadata = operator.stat(origin.path()).await?;
    if metadata.is_dir() {
        return Err(opendal::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    Ok(Fingerprint::new(metadata.content_length(), &metadata))
}

async fn first_byte(
    operator: &Operator,
    origin: &Origin,
    seen: &Mutex<Seen>,
) -> opendal::Result<Fingerprint> {
    let reader = operator.reader(origin.path()).await?;
    let read = reader.read(0..1).await;
    let seen = seen.lock().clone();
    match (read, reader.metadata(), seen.length) {
        (Ok(_), Some(metadata), Some(length)) => Ok(Fingerprint::new(length, metadata)),
        // The whole file: its head has said what it is, and the rest is not waited for.
        (Err(_), _, Some(length)) if seen.ignored_range => {
            Ok(Fingerprint { length, etag: None, modified: None })
        }
        (Err(error), ..) => Err(error),
        (Ok(_), ..) => {
            Err(opendal::Error::new(ErrorKind::Unexpected, "the origin does not say how long it is"))
        }
    }
}

fn silent(silence: Duration) -> String {
    format!("nothing came for {:.1} s", silence.as_secs_f64())
}

impl Fetcher {
    /// One request for `span`. What comes is written at once, and its part of the lease given back.
    pub(super) async fn attempt(
        &self,
        span: Span,
        generation: u64,
        purpose: Purpose,
        retries: u32,
        mut lease: Option<Lease>,
    ) -> Attempted {
        let mut asking = Asking::new(purpose, span, retries);
        let operator = self.origin.looking(&asking.seen);
        let result = self.receive(&operator, span, generation, &mut asking, &mut lease).await;
        Attempted { kept: asking.kept, request: asking.end(), result }
    }

    async fn receive(
        &self,
        operator: &Operator,
        span: Span,
        generation: u64,
        asking: &mut Asking,
        lease: &mut Option<Lease>,
    ) -> Result<(), Trouble> {
        let silence = self.options.retries.silence;
        let what = format!("reading {span}");
        let trouble = |error: &opendal::Error, asking: &Asking| {
            let seen = asking.seen();
            match seen.status {
                _ if seen.ignored_range => Trouble::Ignored,
                // The head was right, so what went wrong with the rest may go better the next time.
                Some(200 | 206) => Trouble::cut(said(error, &seen)),
                _ => Trouble::of(error, &self.origin, &what, &seen),
            }
        };
        let reader = match operator.reader(self.origin.path()).await {
            Ok(reader) => reader,
            Err(error) => return Err(trouble(&error, asking)),
        };
        let mut stream = match reader.clone().into_stream(span.position..span.end()).await {
            Ok(stream) => stream,
            Err(error) => return Err(trouble(&error, asking)),
        };
        // Without anything about the state in the reply, it is asked for afterwards, and nothing is shown before.
        let mut staged: Option<Vec<Bytes>> = None;
        let mut came = Duration::ZERO;
        loop {
            let next = patient(silence, stream.next()).await;
            let first = asking.request.first.is_none();
            let buffer = match next {
                None => return Err(Trouble::cut(silent(silence))),
                Some(None) => break,
                Some(Some(Err(error))) => {
                    let seen = asking.seen();
                    // A range beyond the end: the file is shorter than it was.
                    if let (Some(416), Some(length)) = (seen.status, seen.length) {
                        self.same(&Fingerprint { length, etag: None, modified: None })?;
                    }
                    return Err(trouble(&error, asking));
                }
                Some(Some(Ok(buffer))) => buffer,
            };
            if first {
                came = asking.note_first();
                self.costs.lock().note_latency(came);
                let seen = asking.seen();
                match reader.metadata() {
                    Some(metadata) => {
                        let length = seen.length.unwrap_or_else(|| match seen.status {
                            // A part of a file of unknown length.
                            Some(_) => self.version.read().fingerprint.length,
                            None => metadata.content_length(),
                        });
                        self.same(&Fingerprint::new(length, metadata))?;
                    }
                    None => staged = Some(Vec::new()),
                }
            }
            for bytes in buffer {
                let left = (span.length - asking.request.received) as usize;
                let bytes = bytes.slice(..bytes.len().min(left));
                let position = span.position + asking.request.received;
                asking.request.received += bytes.len() as u64;
                match &mut staged {
                    Some(staged) => staged.push(bytes),
                    None => {
                        self.hold(position, &bytes, generation)?;
                        asking.kept += bytes.len() as u64;
                        if let Some(lease) = lease {
                            drop(lease.split(bytes.len()));
                        }
                    }
                }
            }
        }
        let received = asking.request.received;
        self.costs.lock().note_transfer(received, asking.begun.elapsed().saturating_sub(came));
        if let Some(staged) = staged {
            let metadata = match operator.stat(self.origin.path()).await {
                Ok(metadata) => metadata,
                Err(error) => return Err(trouble(&error, asking)),
            };
            self.same(&Fingerprint::new(metadata.content_length(), &metadata))?;
            let mut position = span.position;
            for bytes in staged {
                self.hold(position, &bytes, generation)?;
                position += bytes.len() as u64;
                asking.kept += bytes.len() as u64;
            }
        }
        if received < span.length {
            return Err(Trouble::cut(format!("{received} bytes came of {}", span.length)));
        }
        Ok(())
    }

    /// Whether the origin is as it was.
    fn same(&self, now: &Fingerprint) -> Result<(), Trouble> {
        if self.version.read().fingerprint.agrees(now) {
            Ok(())
        } else {
            Err(Trouble::Other(now.to_string()))
        }
    }

    fn hold(&self, position: u64, bytes: &[u8], generation: u64) -> Result<(), Trouble> {
        let version = self.version.read();
        if version.generation != generation {
            return Err(Trouble::Stale);
        }
        match self.held.write_with(position, bytes, Overlap::Agree) {
            Ok(()) => Ok(()),
            Err(Error::Differs { position, .. }) => {
                Err(Trouble::Other(format!("the same by that, with another byte at {position}")))
            }
            Err(error) => Err(Trouble::Fatal(RemoteError::Failed {
                name: self.origin.name().to_owned(),
                what: "keeping what came".to_owned(),
                attempts: 1,
                why: error.to_string(),
            })),
        }
    }
}
