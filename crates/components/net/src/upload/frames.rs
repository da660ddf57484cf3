//! A body, piece by piece, within its limits.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use thalweg_config::ByteSize;
use tokio::time::timeout;

use super::{Limits, Refusal, too_large};

/// How much of a body that is not taken is read nevertheless, and for how long, so that its client gets to read the
/// answer: if a connection is closed with something unread, the answer may be lost with it.
const DRAINED: u64 = 16 << 20;
const DRAINING: Duration = Duration::from_secs(2);

/// The pieces of a body.
pub(super) struct Frames<B> {
    body: B,
    taken: u64,
    most: ByteSize,
    patience: Duration,
}

impl<B> Frames<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    pub(super) fn new(body: B, limits: Limits) -> Self {
        Self { body, taken: 0, most: limits.max_request, patience: limits.patience }
    }

    /// Whether a body that says how long it is says too much.
    pub(super) fn check_length(&self) -> Result<(), Refusal> {
        self.check(self.body.size_hint().lower())
    }

    fn check(&self, length: u64) -> Result<(), Refusal> {
        match length > self.most.bytes() {
            true => Err(too_large("a request", self.most).by("max_request")),
            false => Ok(()),
        }
    }

    /// The next piece; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let Ok(frame) = timeout(self.patience, self.body.frame()).await else {
                return Err(Refusal::Late);
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| Refusal::Malformed(format!("the body cannot be read: {error}")))?;
            // What is no data is headers at the end.
            let Ok(data) = frame.into_data() else { continue };
            self.taken += data.len() as u64;
            self.check(self.taken)?;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Reads what is left and forgets it, up to a bound.
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
        // One that takes longer is given up.
        let _ = timeout(DRAINING, drain).await;
    }
}
