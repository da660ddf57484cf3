//! Reads a body in pieces, within limits.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use thalweg_config::ByteSize;
use tokio::time::{Instant, timeout};

use super::{Limits, Refusal, too_large};

/// How many bytes of a refused body are still read, and for how long, so that the client reads the answer. If
/// a connection is closed with unread data, the answer may be lost.
const DRAINED: u64 = 16 << 20;
const DRAINING: Duration = Duration::from_secs(2);

/// The least number of bytes per second that a body must arrive with on average, after `patience`. Only time
/// in which the client was waited for counts.
const LEAST_RATE: u64 = 1 << 10;

/// The pieces of a body.
pub(super) struct Frames<B> {
    body: B,
    taken: u64,
    most: ByteSize,
    patience: Duration,
    /// How long the client was waited for, before all pieces together.
    waited: Duration,
}

impl<B> Frames<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    pub(super) fn new(body: B, limits: Limits) -> Self {
        Self {
            body,
            taken: 0,
            most: limits.max_request_bytes,
            patience: limits.patience,
            waited: Duration::ZERO,
        }
    }

    /// Refuses a body whose declared length exceeds the limit.
    pub(super) fn check_length(&self) -> Result<(), Refusal> {
        self.check(self.body.size_hint().lower())
    }

    fn check(&self, length: u64) -> Result<(), Refusal> {
        match length > self.most.bytes() {
            true => Err(too_large("a request", self.most).by("max_request_bytes")),
            false => Ok(()),
        }
    }

    /// Returns the next piece, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let begun = Instant::now();
            let frame = timeout(self.time_left(), self.body.frame()).await;
            self.waited += begun.elapsed();
            let Ok(frame) = frame else { return Err(Refusal::Late) };
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

    /// Returns how long the next piece may take. A pause is too long after `patience`, and so are many short
    /// ones: a client that sends a byte now and then would hold its memory without end.
    fn time_left(&self) -> Duration {
        let all = self.patience + Duration::from_secs(self.taken / LEAST_RATE);
        all.saturating_sub(self.waited).min(self.patience)
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use hyper::body::Frame;
    use tokio::time::{Sleep, sleep};

    use super::*;

    /// A body whose client pauses before each byte.
    struct Pausing {
        /// The pauses in seconds.
        pauses: VecDeque<u64>,
        pause: Option<Pin<Box<Sleep>>>,
    }

    impl Body for Pausing {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some(&seconds) = self.pauses.front() else { return Poll::Ready(None) };
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(Duration::from_secs(seconds))));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.pauses.pop_front();
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    /// Waits up to 30 s for each piece.
    fn frames(pauses: &[u64]) -> Frames<Pausing> {
        let patience = Duration::from_secs(30);
        let limits =
            Limits { max_file_bytes: ByteSize(99), max_request_bytes: ByteSize(99), max_files: 1, patience };
        Frames::new(Pausing { pauses: pauses.iter().copied().collect(), pause: None }, limits)
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_body_is_not_read_does_not_count() {
        let mut frames = frames(&[10, 10]);
        for _ in 0..2 {
            assert_eq!(frames.next().await.unwrap().as_deref(), Some(&b"x"[..]));
            // The disk is slow, for example.
            sleep(Duration::from_secs(3600)).await;
        }
        assert_eq!(frames.next().await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_with_a_long_pause_or_many_short_ones_is_late() {
        assert!(matches!(frames(&[31]).next().await, Err(Refusal::Late)));
        let mut frames = frames(&[20, 20]);
        assert_eq!(frames.next().await.unwrap().as_deref(), Some(&b"x"[..]));
        assert!(matches!(frames.next().await, Err(Refusal::Late)));
    }
}
