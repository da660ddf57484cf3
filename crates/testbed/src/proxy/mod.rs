//! A proxy between a client and a server, which does wrong by rule and remembers what it saw.
//!
//! It passes heads and bodies as they are, byte for byte: signatures cover the Host header and the path as the client
//! wrote them. A library's server and client were rejected for that reason, and since they refuse to send what a fault
//! needs: a body that ends early, a length that is not true, an end at an exact byte.

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

/// A proxy before one server, on a free port of loopback. It speaks HTTP/1.1 without TLS. Dropping it ends its connections.
pub struct Proxy {
    background: Background,
    shared: Arc<Shared>,
}

/// A request that came to a proxy, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The path with the query, as it was sent.
    pub path_and_query: String,
    /// What the client was answered, if it was.
    pub status: Option<u16>,
    /// What the upstream answered, if it was asked and did.
    pub upstream_status: Option<u16>,
    /// How much of the request's body came.
    pub request_bytes: u64,
    /// How much of the answer's body was sent to the client.
    pub response_bytes: u64,
}

struct Shared {
    upstream: SocketAddr,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Arc<Entry>>>,
}

/// One that is seen is written down when it comes, and goes on being written.
struct Entry(Mutex<Seen>);

impl Proxy {
    /// Stands before a server from now on, at first without faults.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared { upstream, rules: Mutex::default(), seen: Mutex::default() });
        let serving = shared.clone();
        let background = Background::serve("proxy", move |client| {
            let shared = serving.clone();
            async move {
                // A connection that breaks is what this is for.
                let _ = exchange::serve(client, &shared).await;
            }
        })?;
        Ok(Self { background, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.background.address
    }

    /// Its URL, without a path.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The rules for requests that come from now on, in the place of those that were set before; none to do no wrong.
    pub fn set(&self, rules: impl IntoIterator<Item = Rule>) {
        *self.shared.rules.lock() = rules.into_iter().collect();
    }

    /// The requests that came, in their order. What an answered client has received is in it.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().iter().map(|entry| entry.0.lock().clone()).collect()
    }

    /// Forgets the requests that came.
    pub fn clear(&self) {
        self.shared.seen.lock().clear();
    }
}

impl Shared {
    /// What is to be done with a request, which is written down.
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
