//! Messages, and the description of a server.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::Headers;

/// The numbers of messages that are about others (architecture decision 13 and 37 of NATS).
pub(crate) mod status {
    /// A sign of life.
    pub(crate) const IDLE_HEARTBEAT: u16 = 100;
    /// The message is not about others.
    pub(crate) const OK: u16 = 200;
    /// There is no message.
    pub(crate) const NOT_FOUND: u16 = 404;
    /// No message came in time.
    pub(crate) const TIMEOUT: u16 = 408;
    /// The request has ended.
    pub(crate) const REQUEST_TERMINATED: u16 = 409;
    /// Nothing has subscribed to the subject.
    pub(crate) const NO_RESPONDERS: u16 = 503;
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) subject: Arc<str>,
    /// The subject at which the sender expects an answer.
    pub(crate) reply: Option<Arc<str>>,
    /// Its headers. Of larger ones than [`LARGEST_HEADERS`](super::LARGEST_HEADERS), none is here.
    pub(crate) headers: Headers,
    /// The size of its headers, in bytes.
    pub(crate) headers_size: usize,
    /// Its payload, of a large one the beginning.
    pub(crate) payload: Bytes,
    /// The size of its payload, in bytes.
    pub(crate) size: usize,
}

impl Message {
    /// Returns the number of bytes that the message holds.
    pub(crate) fn length(&self) -> usize {
        let reply = self.reply.as_ref().map_or(0, |reply| reply.len());
        self.subject.len() + reply + self.headers.length() + self.payload.len()
    }

    /// Returns the number of a message that is about others.
    pub(crate) fn status(&self) -> Option<u16> {
        self.headers.status().map(|(number, _)| number)
    }
}

/// The description of a server, as far as it is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    /// True if connections must be encrypted.
    pub(crate) tls_required: bool,
    /// The text to sign with a key.
    pub(crate) nonce: String,
    /// The servers of the cluster, each as `HOST:PORT`.
    pub(crate) connect_urls: Vec<String>,
    /// The largest message that the server takes, in bytes. Zero or less if it has no limit.
    pub(crate) max_payload: i64,
}
