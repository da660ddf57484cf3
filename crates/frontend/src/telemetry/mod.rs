//! Telemetry: the metrics of a run, and traces of some of its batches, sent to a receiver of OpenTelemetry.
//!
//! It is off unless the command asks for it, so that a variable of the environment that is meant for another
//! program sends nothing. The standard variables then say where to and how often: see [`Telemetry`]. Metrics
//! are the [instruments](crate::instruments) that `/metrics` has too. Traces are those of the engine.
//!
//! A thread of its own sends them, on a runtime of its own: a receiver that is dead or slow takes no worker
//! of the run, and the thread is still there when the run has ended, for the last figures. Nothing waits for
//! it but the end of the run, for [`LAST`] at most. Unsent telemetry is bounded: metrics are cumulative, so
//! the next request has them all, and traces beyond a number are dropped and counted.
//!
//! OpenTelemetry's SDK was rejected: it would count everything a second time, and bring a second client of
//! HTTP and a second encoder. Requests are made as OTLP's JSON, which the codec of the source `otlp` turns
//! into the binary form.
//!
//! See docs/decisions/118-telemetry-is-sent-by-a-thread-of-its-own.md.

mod encode;
mod export;
mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use thalweg_engine::{Error, Handle};
use tokio::sync::oneshot;

use crate::api::Observed;
use crate::instruments::{Instrument, Value};
use export::Export;
pub use settings::Telemetry;

/// How long sending the last figures of a run may take.
const LAST: Duration = Duration::from_secs(5);
/// How much longer the end of a run waits for the thread, so that it can say that it failed.
const SAYS: Duration = Duration::from_millis(500);

/// Counters of the telemetry of a run.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that failed.
    failures: AtomicU64,
    /// Traces that were not sent.
    dropped: AtomicU64,
}

impl Counts {
    /// Adds its instruments to those of the run.
    pub(crate) fn instruments(&self, handle: &Handle, all: &mut Vec<Instrument>) {
        let dropped = self.dropped.load(Relaxed) + handle.traces_left_out();
        all.extend([
            Instrument::single(
                "telemetry_failures_total",
                "Requests with telemetry that the receiver did not take.",
                Value::Whole(self.failures.load(Relaxed)),
            ),
            Instrument::single(
                "telemetry_traces_dropped_total",
                "Traces of batches that were chosen, and not sent because there were too many.",
                Value::Whole(dropped),
            ),
        ]);
    }
}

/// The thread that sends the telemetry of a run. If it is dropped, the thread ends without sending the rest.
pub(crate) struct Exporter {
    ends: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl Exporter {
    /// Begins to send the telemetry of this run.
    pub(crate) fn begin(
        telemetry: &Telemetry,
        run: &Arc<Observed>,
        counts: &Arc<Counts>,
        handle: &Handle,
    ) -> Result<Self, Error> {
        let export = Export::new(telemetry, run.clone(), counts.clone(), handle.clone())?;
        handle.trace(telemetry.ratio());
        let (ends, asked) = oneshot::channel();
        let (tell, ended) = mpsc::channel();
        let work = move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(export.run(asked));
                    // The lookup of a name may still wait.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::warn!("no telemetry is sent: {error}"),
            }
            // The run may have ended without waiting.
            let _ = tell.send(());
        };
        let spawned = thread::Builder::new().name("telemetry".to_owned()).spawn(work);
        spawned
            .map_err(|error| Error::permanent("the thread of the telemetry cannot start").caused_by(error))?;
        Ok(Self { ends, ended })
    }

    /// Sends the last figures of a run that has ended, and waits for that, but not long.
    pub(crate) fn end(self) {
        // The thread has ended if it could not begin.
        let _ = self.ends.send(());
        let _ = self.ended.recv_timeout(LAST + SAYS);
    }
}
