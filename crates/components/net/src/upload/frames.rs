//! Reads a body in pieces, within limits.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use thalweg_config::ByteSize;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Limits, Refusal, too_large};

/// How many bytes of a refused body are still read, and for how long, so that the client reads the answer. If
/// a connection is closed with unread data, the answer may be lost.
const DRAINED: u64 = 16 << 20;
const DRAINING: Duration = Duration::from_secs(2);

/// The least number of bytes per second that a body must arrive with on average, after `patience`.
const LEAST_RATE: u64 = 1 << 10;

/// The pieces of a body.
pub(super) struct Frames<B> {
    body: B,
    taken: u64,
    most: ByteSize,
    patience: Duration,
    /// When the body was first waited for.
    begun: Option<Instant>,
}

impl<B> Frames<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    pub(super) fn new(body: B, limits: Limits) -> Self {
        Self { body, taken: 0, most: limits.max_request, patience: limits.patience, begun: None }
    }

    /// Refuses a body whose declared length exceeds the limit.
    pub(super) fn check_length(&self) -> Result<(), Refusal> {
        self.check(self.body.size_hint().lower())
    }

    fn check(&self, length: u64) -> Result<(), Refusal> {
        match length > self.most.bytes() {
            true => Err(too_large("a request", self.most).by("max_request")),
            false => Ok(()),
        }
    }

    /// Returns the next piece, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let end = self.end();
            let Ok(frame) = timeout_at(end, self.body.frame()).await else {
                return Err(Refusal::Late);
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| Refusal::Malformed(format!("the body cannot be read: {error}")))?;
            // Frames without data are trailers.
            let Ok(data) = frame.into_data() else { continue };
            self.taken += data.len() as u64;
            self.check(self.taken)?;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Returns when the next piece must be there. A pause is too long after `patience`, and so are many short
    /// ones: a client that sends a byte now and then would hold its memory for ever.
    fn end(&mut self) -> Instant {
        let now = Instant::now();
        let begun = *self.begun.get_or_insert(now);
        let all = begun + self.patience + Duration::from_secs(self.taken / LEAST_RATE);
        all.min(now + self.patience)
    }

    /// Reads and drops the rest of the body, up to a limit.
    pub(super) async fn drain(&mut self) {
        let drain = async {
            let mut drained = 0;
            while let Some(Ok(frame)) = self.body.frame().await {
                drained += frame.data_ref().map_or(0, Bytes::len) as u64;
                if drained > DRAINED {
                    return;
                }
            }
        };
        // A slower client is abandoned.
        let _ = timeout(DRAINING, drain).await;
    }
}
