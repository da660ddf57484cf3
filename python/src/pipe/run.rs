//! A run, seen from Python.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use thalweg_frontend::Screen;
use thalweg_job::{Control, JobRun, LoadError, statistics};

use super::objects::Cause;
use super::stream::Queue;
use crate::attach::attach;
use crate::errors::Error;
use crate::runtime::LOOK;

/// A job that runs or has ended.
#[pyclass(module = "thalweg._thalweg", frozen)]
pub struct Run {
    control: Control,
    end: Arc<End>,
    cause: Cause,
    /// The process whose threads execute the job. In a forked child nothing runs.
    process: u32,
}

/// The end of a job.
#[derive(Default)]
pub struct End {
    state: Mutex<State>,
    reached: Condvar,
}

#[derive(Default)]
struct State {
    summary: Option<String>,
    failure: Option<String>,
    /// Functions to call at the end.
    waiting: Vec<Py<PyAny>>,
}

impl Run {
    /// Starts a job on a separate thread. Its end ends the streams of these queues.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn begin(
        run: JobRun,
        mut screen: Screen,
        cause: Cause,
        queues: Vec<Arc<Queue>>,
    ) -> Result<Self, LoadError> {
        let (control, end) = (run.control(), Arc::new(End::default()));
        let (of_thread, at_end) = (control.clone(), end.clone());
        let thread = std::thread::Builder::new().name("thalweg-run".to_owned());
        thread.spawn(move || {
            let summary = match run.run(&mut screen) {
                Ok(outcome) => outcome.json(),
                Err(error) => {
                    let mut summary = statistics(&of_thread.handle());
                    summary["failure"] = error.to_string().into();
                    summary
                }
            };
            let failure = summary["failure"].as_str().map(str::to_owned);
            at_end.set(summary.to_string(), failure);
            queues.iter().for_each(|queue| queue.end());
        })?;
        Ok(Self { control, end, cause, process: std::process::id() })
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Fails in a forked child, which has none of the run's threads and possibly locks that they held.
    pub(super) fn here(&self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(Error::new_err(
            "the run belongs to the process that started it, not to this forked one; start another",
        ))
    }

    /// Returns the end of the job, for threads that wait for it.
    pub fn end(&self) -> Arc<End> {
        self.end.clone()
    }
}

impl End {
    /// Waits for the end. Returns the reason if the job failed.
    pub fn failure(&self) -> Option<String> {
        let mut state = self.state.lock();
        while state.summary.is_none() {
            self.reached.wait(&mut state);
        }
        state.failure.clone()
    }

    fn set(&self, summary: String, failure: Option<String>) {
        let waiting = {
            let mut state = self.state.lock();
            state.failure = failure;
            state.summary = Some(summary);
            std::mem::take(&mut state.waiting)
        };
        self.reached.notify_all();
        if !waiting.is_empty() {
            attach(|py| waiting.into_iter().for_each(|call| called(py, &call)));
        }
    }
}

/// Calls a function. Its exceptions are reported as unraisable.
fn called(py: Python<'_>, call: &Py<PyAny>) {
    if let Err(raised) = call.call0(py) {
        raised.write_unraisable(py, Some(call.bind(py)));
    }
}

#[pymethods]
impl Run {
    /// The counters of the current phase, in JSON.
    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        self.here()?;
        Ok(py.detach(|| statistics(&self.control.handle()).to_string()))
    }

    /// Asks the sources to stop, and drains the rest.
    fn stop(&self) {
        if self.is_here() {
            self.control.stop();
        }
    }

    /// Ends the job at once.
    fn abort(&self) {
        if self.is_here() {
            self.control.abort();
        }
    }

    /// True until the job has ended.
    #[getter]
    fn is_running(&self) -> bool {
        self.is_here() && self.end.state.lock().summary.is_none()
    }

    /// Waits for the end, at most `timeout` seconds. Returns the summary in JSON, or None after the timeout.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        self.here()?;
        let until =
            timeout.map(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX));
        let until = until.and_then(|time| Instant::now().checked_add(time));
        loop {
            let look = Instant::now() + LOOK;
            let look = until.map_or(look, |until| until.min(look));
            let summary = py.detach(|| {
                let mut state = self.end.state.lock();
                if state.summary.is_none() {
                    self.end.reached.wait_until(&mut state, look);
                }
                state.summary.clone()
            });
            if summary.is_some() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(summary);
            }
            py.check_signals()?;
        }
    }

    /// Calls a function at the end, on another thread; at once if the job has ended.
    fn at_end(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        self.here()?;
        {
            let mut state = self.end.state.lock();
            if state.summary.is_none() {
                state.waiting.push(call);
                return Ok(());
            }
        }
        called(py, &call);
        Ok(())
    }

    /// Takes the Python exception that made the job fail, if there was one. A later call returns `None`.
    fn cause(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.cause.take().map(|error| error.into_value(py).into_any())
    }
}
