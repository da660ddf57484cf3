//! The events of a server, read when they are asked for.

use std::time::{Duration, Instant};

use thalweg_broker::halves::FromServer;
use thalweg_engine::Error;
use thalweg_net::net::Stream;
use tokio::io::ReadHalf;

use super::{CONNECT, FRAME, ended};
use crate::wire::{Assembler, Event, Frames, Malformed, Method};

/// Reads the events of a connection.
pub(crate) struct Reader {
    half: FromServer<ReadHalf<Stream>>,
    frames: Frames,
    assembler: Assembler,
    /// Why the server takes nothing for now.
    blocked: Option<String>,
}

impl Reader {
    /// Of each message, at most `payload_limit` bytes are kept.
    pub(super) fn new(half: ReadHalf<Stream>, payload_limit: usize) -> Self {
        Self {
            // Later it has heartbeats.
            half: FromServer::new(half, CONNECT),
            frames: Frames::new(FRAME as usize),
            assembler: Assembler::new(payload_limit),
            blocked: None,
        }
    }

    /// Sets the time after which the server sends something in any case.
    pub(super) fn expect_heartbeats(&mut self, every: Duration) {
        self.half.set_silence(every.saturating_mul(2).max(CONNECT));
    }

    /// Returns the next event. None after `wait`, and earlier if a message has not arrived as a whole.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the connection broke, or the server has ended it, sends what is no frame, or is silent for too
    /// long.
    pub(crate) async fn next(&mut self, wait: Duration) -> Result<Option<Event>, Error> {
        let begun = Instant::now();
        let mut has_read = false;
        loop {
            if let Some(event) = self.arrived()? {
                return Ok(Some(event));
            }
            let left = wait.saturating_sub(begun.elapsed());
            // A message may have no end.
            if has_read && left.is_zero() {
                return Ok(None);
            }
            if !self.half.fill(self.frames.buffer(), begun, left).await? {
                return Ok(None);
            }
            has_read = true;
        }
    }

    /// Returns why the server takes no messages for now, if that is so.
    pub(crate) fn blocked(&self) -> Option<&str> {
        self.blocked.as_deref()
    }

    /// Returns the next event of the bytes that were read.
    fn arrived(&mut self) -> Result<Option<Event>, Error> {
        let malformed =
            |error: Malformed| Error::temporary("the server has sent what is no frame").caused_by(error);
        let Some(event) = self.assembler.next(&mut self.frames).map_err(malformed)? else { return Ok(None) };
        match &event {
            Event::Method(Method::Close(close)) => return Err(ended(close)),
            Event::Method(Method::Blocked(reason)) => self.blocked = Some(reason.clone()),
            Event::Method(Method::Flow(false)) => {
                self.blocked = Some("it has stopped the flow of messages".to_owned());
            }
            Event::Method(Method::Unblocked | Method::Flow(true)) => self.blocked = None,
            _ => {}
        }
        Ok(Some(event))
    }
}
