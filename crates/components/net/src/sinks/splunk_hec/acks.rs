//! Waits until the indexers of Splunk have what the collector accepted.
//!
//! The numbers of accepted requests belong to a channel, which a client chooses by a random name. A number
//! that is confirmed is forgotten by the server, so each is asked for until then, and never again. An answer
//! to such a question that is lost takes the confirmation with it: the events are then sent again after
//! `ack_timeout`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use tokio::time::Instant;

use crate::requests::{Failure, Request};

/// The channel of a sink in a run: its clones have the same.
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
    channel: Channel,
    interval: Duration,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Indexed {
    acks: BTreeMap<u64, bool>,
}

impl Acks {
    pub(super) fn new(channel: Channel, interval: Duration, timeout: Duration) -> Self {
        Self { channel, interval, timeout }
    }

    /// Waits until the events of these numbers are indexed. Returns the failures of those that are not.
    pub(super) async fn wait(&self, request: &Request, numbers: &[u64]) -> Vec<Option<Failure>> {
        let begun = Instant::now();
        let mut open: BTreeSet<u64> = numbers.iter().copied().collect();
        let mut failed = None;
        while !open.is_empty() && begun.elapsed() < self.timeout {
            tokio::time::sleep(self.interval).await;
            match self.ask(request, &open).await {
                Ok(indexed) => {
                    failed = None;
                    open.retain(|number| !indexed.get(number).copied().unwrap_or(false));
                }
                Err(failure) => failed = Some(failure),
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
        numbers.iter().map(|number| open.contains(number).then(failure)).collect()
    }

    /// Returns which of these numbers are indexed.
    async fn ask(&self, request: &Request, numbers: &BTreeSet<u64>) -> Result<BTreeMap<u64, bool>, Failure> {
        let mut url = request.url.join("ack").map_err(|error| Failure::temporary(error.to_string()))?;
        url.query_pairs_mut().append_pair("channel", &self.channel.0);
        let body = serde_json::json!({ "acks": numbers }).to_string();
        let built = request.client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let answer = request.send_built(built).await?;
        if !answer.status.is_success() {
            return Err(request.failure(&answer));
        }
        let indexed = serde_json::from_slice::<Indexed>(&answer.body);
        let Indexed { acks } = indexed.map_err(|_| Failure::temporary(request.text(&answer)))?;
        Ok(acks)
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
