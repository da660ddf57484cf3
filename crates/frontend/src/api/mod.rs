//! The HTTP API of a run: what it does now, single messages of it, and requests to its sources.
//!
//! The same server answers on each address of `--listen`, and on the socket `control.sock` of the state
//! directory. The table in [`routes`] has each path once: the router, the answer of `/` and the OpenAPI
//! document are made from it. Numbers come from the engine's own counters at the time of the request.
//!
//! The listener decides which clients may use it, before a request is read: see [`access`]. All memory is
//! bounded: a request has at most 64 KiB, and the numbers of connections and taps are limited.
//!
//! See docs/decisions/099-a-run-answers-over-http.md.

mod access;
mod letters;
mod metrics;
mod openapi;
mod reply;
mod requests;
mod routes;
mod server;
pub(crate) mod socket;
mod state;
mod tap;
mod token;
mod waiting;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thalweg_engine::Handle;

use crate::pulse::Pulse;

pub(crate) use server::{Server, serve_socket};
pub(crate) use token::Token;

/// The run that is observed.
pub(crate) struct Observed {
    pub(crate) handle: Handle,
    pub(crate) pulse: Pulse,
    pub(crate) begun: Instant,
    /// The name of the configuration, without secrets.
    pub(crate) configuration: String,
    /// The folder of checkpoints and dead letters.
    pub(crate) state: PathBuf,
    /// The token that clients of `/api/` on the network must have.
    pub(crate) token: Option<Token>,
    pub(crate) stop: StopRequest,
    /// Locked while dead letters are read, so that only one answer with them is in memory.
    pub(crate) letters: Arc<tokio::sync::Mutex<()>>,
}

/// True once a client has asked the process to stop. All clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopRequest(Arc<AtomicBool>);

impl StopRequest {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True if a client has asked.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
