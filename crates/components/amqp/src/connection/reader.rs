//! The events of a server, read when they are asked for.

use std::time::{Duration, Instant};

use thalweg_engine::Error;
use thalweg_net::net::Stream;
use tokio::io::{AsyncReadExt, ReadHalf};

use super::{CONNECT, FRAME, ended};
use crate::wire::{Assembler, Event, Frames, Malformed, Method};

/// The size of a read.
const READ: usize = 32 << 10;

/// Reads the events of a connection.
pub(crate) struct Reader {
    half: ReadHalf<Stream>,
    frames: Frames,
    assembler: Assembler,
    /// How long the server may send nothing: it has heartbeats.
    silence: Duration,
    /// How long the server has sent nothing, while it was waited for.
    silent: Duration,
    /// Why the server takes nothing for now.
    blocked: Option<String>,
}

impl Reader {
    /// Of each message, at most `payload_limit` bytes are kept.
    pub(super) fn new(half: ReadHalf<Stream>, payload_limit: usize) -> Self {
        Self {
            half,
            frames: Frames::new(FRAME as usize),
            assembler: Assembler::new(payload_limit),
            silence: CONNECT,
            silent: Duration::ZERO,
            blocked: None,
        }
    }

    /// Sets the time after which the server sends something in any case.
    pub(super) fn expect_heartbeats(&mut self, every: Duration) {
        self.silence = every.saturating_mul(2).max(CONNECT);
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
            match tokio::time::timeout(left, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => {
                    self.silent = self.silent.saturating_add(begun.elapsed());
                    if self.silent >= self.silence {
                        return Err(Error::temporary("the server does not answer any more"));
                    }
                    return Ok(None);
                }
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

    async fn fill(&mut self) -> Result<(), Error> {
        let buffer = self.frames.buffer();
        buffer.reserve(READ);
        match self.half.read_buf(buffer).await {
            Ok(0) => Err(Error::temporary("the server has closed the connection")),
            Ok(_) => {
                self.silent = Duration::ZERO;
                Ok(())
            }
            Err(error) => Err(Error::temporary("the connection broke").caused_by(error)),
        }
    }
}
