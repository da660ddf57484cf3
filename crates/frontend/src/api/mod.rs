//! The HTTP API of a run: what it does now, single messages of it, and requests to its sources.
//!
//! The same server answers on each address of `--listen`, and on the socket `control.sock` of the state
//! directory. The table in [`routes`] has each path once: the router, the answer of `/` and the OpenAPI
//! document are made from it. Numbers come from the engine's own counters at the time of the request.
//!
//! The listener decides which clients may use it, before a request is read: see [`access`]. All memory is
//! bounded: a request has at most 64 KiB, and the numbers of connections and taps are limited.
//!
//! The dashboard is a client of this API that the same server brings into browsers: see [`dashboard`].
//!
//! See docs/decisions/099-a-run-answers-over-http.md.

mod access;
mod dashboard;
mod entries;
#[cfg(target_os = "linux")]
mod letter_search;
mod letters;
mod listeners;
mod metrics;
mod openapi;
mod reload;
mod reply;
mod requests;
mod routes;
mod runs;
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

use hyper::StatusCode;
use thalweg_engine::Handle;
use thalweg_job::{History, Reloads};
use tokio::sync::Notify;

use crate::around::Awaited;
use crate::pulse::Pulse;
use crate::telemetry;
use crate::timetable::Timetable;
use reply::Refusal;

pub(crate) use listeners::Listeners;
pub(crate) use reload::RELOADING;
pub(crate) use server::serve_socket;
pub(crate) use token::Token;

/// The run that is observed, or the process between two runs.
pub(crate) struct Observed {
    pub(crate) activity: Activity,
    pub(crate) pulse: Pulse,
    /// When the run began, or the pause.
    pub(crate) begun: Instant,
    /// The name of the configuration, without secrets.
    pub(crate) configuration: String,
    /// The folder of checkpoints and dead letters.
    pub(crate) state: PathBuf,
    /// The history of the runs, if they leave one.
    pub(crate) history: Option<History>,
    /// The times of the runs, if they have a schedule.
    pub(crate) timetable: Option<Timetable>,
    /// The token that clients of `/api/` on the network must have.
    pub(crate) token: Option<Token>,
    pub(crate) stop: StopRequest,
    /// Reloads the configuration, if it may be.
    pub(crate) reloads: Option<Reloads>,
    /// The counters of the telemetry of the run, if it sends any.
    pub(crate) telemetry: Option<Arc<telemetry::Counts>>,
    /// Locked while dead letters or the history are read: only one such answer is made at a time.
    pub(crate) letters: Arc<tokio::sync::Mutex<()>>,
}

/// The present work of the process.
pub(crate) enum Activity {
    /// A run is active.
    Running(Handle),
    /// The next run is waited for.
    Waiting(Awaited),
}

impl Observed {
    /// Returns the active run, or why there is none.
    fn handle(&self) -> Result<&Handle, Refusal> {
        match &self.activity {
            Activity::Running(handle) => Ok(handle),
            Activity::Waiting(awaited) => {
                let reason = format!("no run is active: the next one begins at {}", awaited.next());
                Err(Refusal::new(StatusCode::CONFLICT, reason))
            }
        }
    }
}

/// Whether a client has asked the process to stop. All clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopRequest(Arc<Stop>);

#[derive(Debug, Default)]
struct Stop {
    is_set: AtomicBool,
    heeded: Notify,
}

impl StopRequest {
    fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }

    /// Ends a wait between two runs.
    fn heed(&self) {
        self.0.heeded.notify_one();
    }

    /// True if a client has asked.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Waits until a client has asked and has its answer.
    pub(crate) async fn heeded(&self) {
        self.0.heeded.notified().await;
    }
}
