//! How the messages of a request ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use hyper::StatusCode;

use super::Refusal;
use crate::net::Sent;

/// The messages of a request that are settled.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Their number, rejected ones included.
    pub messages: usize,
    /// The number of those that were rejected.
    pub rejected: usize,
}

impl Accepted {
    /// Waits until all batches of a request are settled.
    ///
    /// # Errors
    /// The answer if one of them failed.
    pub async fn of(batches: Vec<Sent>) -> Result<Self, Refusal> {
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
