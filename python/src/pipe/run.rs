//! A run, as Python sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use serde_json::json;
use thalweg::embed::{self, LoadError, Showing};
use thalweg_engine::Handle;

use super::objects::Cause;
use crate::attach::attach;

/// How often a waiting thread checks for signals, such as Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// How long an aborted run may take to end before the thread stops waiting for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A started run.
#[pyclass(module = "thalweg._thalweg", frozen)]
pub struct Run {
    handle: Handle,
    end: Arc<End>,
    cause: Cause,
}

/// The result of a run, available at its end.
#[derive(Default)]
pub struct End {
    state: Mutex<State>,
    come: Condvar,
}

#[derive(Default)]
struct State {
    summary: Option<String>,
    failure: Option<String>,
    /// Callbacks for the end.
    waiting: Vec<Py<PyAny>>,
}

impl Run {
    /// Starts a run on threads of its own.
    ///
    /// # Errors
    /// If the system provides no threads.
    pub fn begin(
        run: thalweg_engine::Run,
        showing: Showing,
        cores: usize,
        cause: Cause,
    ) -> Result<Self, LoadError> {
        let failed = |error: std::io::Error| LoadError::Failed(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("thalweg")
            .enable_all()
            .build()
            .map_err(failed)?;
        let (handle, end) = (run.handle(), Arc::new(End::default()));
        let (of_thread, at_end) = (handle.clone(), end.clone());
        let thread = std::thread::Builder::new().name("thalweg-run".to_owned());
        thread
            .spawn(move || {
                let summary = runtime.block_on(async {
                    tokio::select! {
                        summary = run.wait() => Some(summary),
                        () = late(&of_thread) => None,
                    }
                });
                let retried = showing.end();
                let told = match summary {
                    Some(summary) => embed::summary(summary, retried),
                    None => {
                        let mut told = embed::statistics(&of_thread);
                        told["failure"] =
                            json!("stopped at once; a component was still waiting for something");
                        told
                    }
                };
                // A thread may still wait for something that never comes.
                runtime.shutdown_background();
                let failure = told["failure"].as_str().map(str::to_owned);
                at_end.tell(told.to_string(), failure);
            })
            .map_err(failed)?;
        Ok(Self { handle, end, cause })
    }

    /// Returns the handle of the run's result.
    pub fn end(&self) -> Arc<End> {
        self.end.clone()
    }
}

/// Waits until the run is aborted and [`PATIENCE`] has passed.
async fn late(handle: &Handle) {
    handle.aborted().await;
    tokio::time::sleep(PATIENCE).await;
}

impl End {
    /// Waits for the end of the run. Returns why the run failed, if it did.
    pub fn failure(&self) -> Option<String> {
        let mut state = self.state.lock();
        while state.summary.is_none() {
            self.come.wait(&mut state);
        }
        state.failure.clone()
    }

    fn tell(&self, summary: String, failure: Option<String>) {
        let waiting = {
            let mut state = self.state.lock();
            state.failure = failure;
            state.summary = Some(summary);
            std::mem::take(&mut state.waiting)
        };
        self.come.notify_all();
        if !waiting.is_empty() {
            attach(|py| waiting.into_iter().for_each(|call| called(py, &call)));
        }
    }
}

/// Calls a callback. No caller can receive its exception, so it is reported as unraisable.
fn called(py: Python<'_>, call: &Py<PyAny>) {
    if let Err(raised) = call.call0(py) {
        raised.write_unraisable(py, Some(call.bind(py)));
    }
}

#[pymethods]
impl Run {
    /// Returns the current statistics, in JSON.
    fn statistics(&self, py: Python<'_>) -> String {
        py.detach(|| embed::statistics(&self.handle).to_string())
    }

    /// Asks the sources to stop; messages in flight are drained.
    fn stop(&self) {
        self.handle.stop();
    }

    /// Aborts the run without draining.
    fn abort(&self) {
        self.handle.abort();
    }

    /// True until the run has ended.
    #[getter]
    fn is_running(&self) -> bool {
        self.end.state.lock().summary.is_none()
    }

    /// Waits for the end and returns its summary in JSON. Returns `None` if the run is still going after
    /// `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let until =
            timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let until = until.and_then(|time| Instant::now().checked_add(time));
        loop {
            let look = Instant::now() + LOOK;
            let look = until.map_or(look, |until| until.min(look));
            let summary = py.detach(|| {
                let mut state = self.end.state.lock();
                if state.summary.is_none() {
                    self.end.come.wait_until(&mut state, look);
                }
                state.summary.clone()
            });
            if summary.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(summary);
            }
            py.check_signals()?;
        }
    }

    /// Calls `call` at the end, on another thread; immediately if the run has ended.
    fn at_end(&self, py: Python<'_>, call: Py<PyAny>) {
        {
            let mut state = self.end.state.lock();
            if state.summary.is_none() {
                state.waiting.push(call);
                return;
            }
        }
        called(py, &call);
    }

    /// Returns the Python exception that made the run fail, if there is one.
    fn cause(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.cause.take().map(|error| error.into_value(py).into_any())
    }
}
