//! A proxy between a client and a server that injects faults by rule and records the requests.
//!
//! It passes heads and bodies unchanged, byte for byte: signatures cover the Host header and the path as the
//! client wrote them. An HTTP library for server and client was rejected for that reason. Libraries also
//! refuse to send what a fault needs: a body that ends early, a wrong length, an end at an exact byte.

mod body;
mod exchange;
mod head;
mod rules;

pub use rules::{Fault, Rule, Times};

use crate::background::Background;
use parking_lot::Mutex;
use rules::Plan;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A proxy to one server, on a free port of loopback. It speaks HTTP/1.1 without TLS. Dropping it closes its
/// connections.
pub struct Proxy {
    background: Background,
    shared: Arc<Shared>,
}

/// A request to the proxy, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The path with the query, as it was sent.
    pub path_and_query: String,
    /// The status that the client received, if any.
    pub status: Option<u16>,
    /// The status that the upstream returned, if it was asked and answered.
    pub upstream_status: Option<u16>,
    /// The bytes of the request body that arrived.
    pub request_bytes: u64,
    /// The bytes of the answer body that were sent to the client.
    pub response_bytes: u64,
}

struct Shared {
    upstream: SocketAddr,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Arc<Entry>>>,
}

/// A record that is created when the request arrives, and updated afterwards.
struct Entry(Mutex<Seen>);

impl Proxy {
    /// Starts a proxy to a server, without faults.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared { upstream, rules: Mutex::default(), seen: Mutex::default() });
        let serving = shared.clone();
        let background = Background::serve("proxy", move |client| {
            let shared = serving.clone();
            async move {
                // A broken connection is an expected result here.
                let _ = exchange::serve(client, &shared).await;
            }
        })?;
        Ok(Self { background, shared })
    }

    /// Returns the address that the proxy listens on.
    pub fn address(&self) -> SocketAddr {
        self.background.address
    }

    /// Returns the URL of the proxy, without a path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Replaces the rules for future requests; without rules, there are no faults.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        *self.shared.rules.lock() = rules.into_iter().collect();
    }

    /// Returns the requests so far, in order. The records include all bytes that a client has received.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().iter().map(|entry| entry.0.lock().clone()).collect()
    }

    /// Deletes the records of the requests so far.
    pub fn clear(&self) {
        self.shared.seen.lock().clear();
    }
}

impl Shared {
    /// Returns the faults for a request, and creates its record.
    fn begin(&self, request: &head::Request) -> (Plan, Arc<Entry>) {
        let plan = Plan::of(&mut self.rules.lock(), &request.method, &request.target);
        let entry = Arc::new(Entry(Mutex::new(Seen {
            method: request.method.clone(),
            path_and_query: request.target.clone(),
            status: None,
            upstream_status: None,
            request_bytes: 0,
            response_bytes: 0,
        })));
        self.seen.lock().push(entry.clone());
        (plan, entry)
    }
}

impl Entry {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.lock());
    }
}
