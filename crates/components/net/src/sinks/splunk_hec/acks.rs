//! Waits until the indexers of Splunk have what the collector accepted.
//!
//! The numbers of accepted requests belong to a channel, which a client chooses by a random name. Each
//! request has a channel of its own: a collector that restarts loses its queue and counts from 0 again, so in
//! a common channel the number of a lost request would be confirmed by a later one. To notice a repeated
//! number and change the channel then was rejected, because the answer with that number can be late or lost.
//!
//! A number that is confirmed is forgotten by the server, so each is asked for until then, and never again.
//! An answer to such a question that is lost takes the confirmation with it: the events are then sent again
//! after `ack_timeout`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;

use crate::requests::{Failure, Receipt, Request};

/// The header with the name of a channel.
pub(super) const CHANNEL: &str = "x-splunk-request-channel";

/// A channel: its clones have the same name.
#[derive(Debug, Clone)]
pub(super) struct Channel(Arc<str>);

impl Default for Channel {
    /// Returns a channel of its own, in the form of a random UUID.
    fn default() -> Self {
        let random = fastrand::u128(..);
        // The version 4, and the variant of RFC 9562.
        let bits = (random & !(0xf << 76)) | (4 << 76);
        let bits = (bits & !(0b11 << 62)) | (0b10 << 62);
        let digits = format!("{bits:032x}");
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
        let text =
            format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32));
        Self(text.into())
    }
}

impl Channel {
    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// Asks whether events are indexed.
#[derive(Debug)]
pub(super) struct Acks {
    interval: Duration,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Indexed {
    acks: BTreeMap<u64, bool>,
}

impl Acks {
    pub(super) fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout }
    }

    /// Waits until the events of these receipts are indexed. Returns the failures of those that are not.
    pub(super) async fn wait(&self, request: &Request, receipts: &[Receipt]) -> Vec<Option<Failure>> {
        let begun = Instant::now();
        let mut open: BTreeSet<usize> = (0..receipts.len()).collect();
        let mut failed = None;
        while !open.is_empty() && begun.elapsed() < self.timeout {
            tokio::time::sleep(self.interval).await;
            for (index, receipt) in receipts.iter().enumerate() {
                if !open.contains(&index) {
                    continue;
                }
                match self.ask(request, receipt).await {
                    Ok(is_indexed) => {
                        failed = None;
                        if is_indexed {
                            open.remove(&index);
                        }
                    }
                    Err(failure) => failed = Some(failure),
                }
                if begun.elapsed() >= self.timeout {
                    break;
                }
            }
        }
        let failure = || match &failed {
            Some(failure) => failure.clone(),
            None => Failure::temporary(format!(
                "{} did not confirm within {} s that events are indexed",
                request.server(),
                self.timeout.as_secs_f64()
            )),
        };
        (0..receipts.len()).map(|index| open.contains(&index).then(failure)).collect()
    }

    /// Returns whether the events of an accepted request are indexed.
    async fn ask(&self, request: &Request, receipt: &Receipt) -> Result<bool, Failure> {
        let mut url = request.url.join("ack").map_err(|error| Failure::temporary(error.to_string()))?;
        let channel = receipt.own.get(CHANNEL).and_then(|channel| channel.to_str().ok()).unwrap_or_default();
        url.query_pairs_mut().append_pair("channel", channel);
        let body = serde_json::json!({ "acks": [receipt.number] }).to_string();
        let built = request.client.post(url).headers(receipt.own.clone());
        let built = built.header(CONTENT_TYPE, "application/json").body(body);
        let answer = request.send_built(built).await?;
        if !answer.status.is_success() {
            return Err(request.failure(&answer));
        }
        let indexed = serde_json::from_slice::<Indexed>(&answer.body);
        let Indexed { acks } = indexed.map_err(|_| Failure::temporary(request.text(&answer)))?;
        Ok(acks.get(&receipt.number).copied().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_a_random_uuid() {
        let (one, other) = (Channel::default(), Channel::default());
        assert_ne!(one.0, other.0);
        let parts: Vec<&str> = one.0.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{}", one.0);
    }
}
