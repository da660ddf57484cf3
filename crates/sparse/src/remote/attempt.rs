//! One attempt: a request, its reply, and the conclusion from both.

use super::fetch::{Counts, Fetcher};
use super::request::{Ending, Purpose, Request};
use super::{RemoteError, RemoteOptions, costs::Costs};
use crate::{Error, Overlap, Span};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_record::Lease;
use thalweg_store::{AttemptError, Fingerprint, Origin, Receiver, Seen, StoreError, receive};

pub(crate) struct Attempted {
    pub request: Request,
    pub result: Result<(), AttemptError>,
    /// How many bytes from the beginning of the range on are held now.
    pub kept: u64,
}

/// A request that has not ended yet.
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

/// Counts a request that has ended, and reports it to the observer.
pub(crate) fn request_ended(mut request: Request, ending: Ending, counts: &Counts, options: &RemoteOptions) {
    request.ending = ending;
    counts.note(&request);
    if let Some(observer) = &options.observer {
        observer(&request);
    }
}

/// Asks for the length and state of the file, and retries temporary failures.
pub(crate) async fn state(
    origin: &Origin,
    options: &RemoteOptions,
    counts: &Counts,
    costs: &mut Costs,
) -> Result<Fingerprint, RemoteError> {
    let ended = |request, ending| request_ended(request, ending, counts, options);
    // Some origins (for instance a signed URL) refuse to describe a file but allow reading its first byte.
    let mut by_reading = false;
    let mut retries = 0;
    loop {
        let span = Span::new(0, u64::from(by_reading));
        let mut asking = Asking::new(Purpose::State, span, retries);
        let found = thalweg_store::state(origin, by_reading, options.retries.silence, &asking.seen).await;
        let (first, seen) = (asking.note_first(), asking.seen());
        let request = asking.end();
        let error = match found {
            Ok(fingerprint) => {
                costs.note_latency(first);
                ended(request, Ending::Done);
                return Ok(fingerprint);
            }
            Err(error) => error,
        };
        let (why, asked) = match error {
            AttemptError::Temporary { why, asked, .. } => (why, asked),
            AttemptError::Fatal(error) => {
                ended(request, Ending::Failed { why: error.to_string() });
                if by_reading || matches!(error, StoreError::Absent { .. }) || seen.status.is_none() {
                    return Err(error.into());
                }
                by_reading = true;
                continue;
            }
            // Counted as failures, so that no server is asked without end.
            AttemptError::Other(is) => (format!("it is {is} now"), None),
            AttemptError::Ignored | AttemptError::Stale => ("the reply is not its state".to_owned(), None),
        };
        retries += 1;
        match options.retries.pause(retries, asked) {
            Some(pause) => {
                ended(request, Ending::Retried { why, pause });
                tokio::time::sleep(pause).await;
            }
            None => {
                ended(request, Ending::Failed { why: why.clone() });
                let (name, what) = (origin.name().to_owned(), "asking for its state".to_owned());
                return Err(RemoteError::Failed { name, what, attempts: retries, why });
            }
        }
    }
}

impl Fetcher {
    /// Makes one request for `span`. Received bytes are written at once, and their part of the lease is
    /// returned.
    pub(super) async fn attempt(
        &self,
        span: Span,
        generation: u64,
        purpose: Purpose,
        retries: u32,
        mut lease: Option<Lease>,
    ) -> Attempted {
        let mut asking = Asking::new(purpose, span, retries);
        let begun = asking.begun;
        let seen = asking.seen.clone();
        let silence = self.options.retries.silence;
        let length = self.version.read().fingerprint.length;
        let mut taking = Taking {
            fetcher: self,
            span,
            generation,
            asking: &mut asking,
            lease: &mut lease,
            staged: None,
            came: Duration::ZERO,
        };
        let result =
            receive(&self.origin, span.position..span.end(), length, silence, &seen, &mut taking).await;
        let came = taking.came;
        if asking.request.received > 0 {
            self.costs.lock().note_transfer(asking.request.received, begun.elapsed().saturating_sub(came));
        }
        Attempted { kept: asking.kept, request: asking.end(), result }
    }

    /// Checks that the origin is still in the state known so far.
    fn same(&self, now: &Fingerprint) -> Result<(), AttemptError> {
        if self.version.read().fingerprint.agrees(now) {
            Ok(())
        } else {
            Err(AttemptError::Other(now.to_string()))
        }
    }

    fn hold(&self, position: u64, bytes: &[u8], generation: u64) -> Result<(), AttemptError> {
        let version = self.version.read();
        if version.generation != generation {
            return Err(AttemptError::Stale);
        }
        match self.held.write_with(position, bytes, Overlap::Agree) {
            Ok(()) => Ok(()),
            Err(Error::Differs { position, .. }) => Err(AttemptError::Other(format!(
                "the same by tag, length and time, but another byte at {position}"
            ))),
            Err(error) => Err(AttemptError::Fatal(StoreError::Failed {
                name: self.origin.name().to_owned(),
                what: "storing the received bytes".to_owned(),
                attempts: 1,
                why: error.to_string(),
                is_temporary: false,
            })),
        }
    }
}

/// Writes the received bytes of a range where readers find them.
struct Taking<'a> {
    fetcher: &'a Fetcher,
    span: Span,
    generation: u64,
    asking: &'a mut Asking,
    lease: &'a mut Option<Lease>,
    /// The received bytes, if the reply does not tell the state of the file. Readers see none of them before
    /// the state is known.
    staged: Option<Vec<Bytes>>,
    /// The time from the request to the first byte.
    came: Duration,
}

impl Taking<'_> {
    fn hold(&mut self, at: u64, bytes: &[u8]) -> Result<(), AttemptError> {
        self.fetcher.hold(self.span.position + at, bytes, self.generation)?;
        self.asking.kept += bytes.len() as u64;
        Ok(())
    }
}

impl Receiver for Taking<'_> {
    fn head(&mut self, state: Option<Fingerprint>) -> Result<(), AttemptError> {
        self.came = self.asking.note_first();
        self.fetcher.costs.lock().note_latency(self.came);
        match state {
            Some(state) => self.fetcher.same(&state),
            None => {
                self.staged = Some(Vec::new());
                Ok(())
            }
        }
    }

    fn bytes(&mut self, at: u64, bytes: Bytes) -> Result<(), AttemptError> {
        self.asking.request.received += bytes.len() as u64;
        if let Some(staged) = &mut self.staged {
            staged.push(bytes);
            return Ok(());
        }
        self.hold(at, &bytes)?;
        if let Some(lease) = self.lease {
            drop(lease.split(bytes.len()));
        }
        Ok(())
    }

    fn confirmed(&mut self, state: Fingerprint) -> Result<(), AttemptError> {
        self.fetcher.same(&state)?;
        let mut at = 0;
        for bytes in self.staged.take().unwrap_or_default() {
            self.hold(at, &bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
