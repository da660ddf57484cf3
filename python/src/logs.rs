//! Log events of the engine, passed to Python's `logging`.
//!
//! An event may occur on any thread, with locks held. So it is queued, and a thread of its own calls
//! `logging`. A call at the event's place was rejected: it would wait for the interpreter lock there.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use thalweg_frontend::log;
use thalweg_job::LoadError;

use crate::attach::{attach, prepare};

/// The name of the logger.
const LOGGER: &str = "thalweg";
/// How long a caller waits until earlier events have reached `logging`.
const PATIENCE: Duration = Duration::from_secs(1);

enum Item {
    Event { level: u8, message: String },
    Flush(Sender<()>),
}

/// The queue, and the process whose thread reads it.
static QUEUE: OnceLock<Mutex<(u32, Sender<Item>)>> = OnceLock::new();

/// Begins to pass log events to `logging`. In a forked child, begins again.
///
/// # Errors
/// `OSError` if the system provides no thread.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    prepare(py)?;
    let process = std::process::id();
    match QUEUE.get() {
        // A lock that a thread of the parent process held stays locked: events are lost then, no time.
        Some(queue) => {
            if let Some(mut queue) = queue.try_lock().filter(|queue| queue.0 != process) {
                *queue = (process, spawn()?);
            }
        }
        None => {
            let made = Mutex::new((process, spawn()?));
            if QUEUE.set(made).is_ok() {
                log::divert(queued);
            }
        }
    }
    Ok(())
}

/// Makes the events of a process without runs visible: a copy has no screen that would do it. A later run may
/// have a source that collects logs, so they are collected from now on.
///
/// # Errors
/// If the variable that selects events is invalid.
pub fn show() -> Result<(), LoadError> {
    log::begin_with("warn", false, false, true)
}

/// Waits until all earlier events have reached `logging`.
#[pyfunction]
pub fn flush_logs(py: Python<'_>) {
    let (send, receive) = channel();
    let Some(queue) = QUEUE.get() else { return };
    py.detach(move || {
        let process = std::process::id();
        let queued = queue.try_lock_for(PATIENCE).filter(|queue| queue.0 == process);
        if queued.is_some_and(|queue| queue.1.send(Item::Flush(send)).is_ok()) {
            // A handler that blocks must not block the program.
            let _ = receive.recv_timeout(PATIENCE);
        }
    });
}

fn queued(level: log::Level, message: String) {
    let level = match level {
        log::Level::ERROR => 40,
        log::Level::WARN => 30,
        log::Level::INFO => 20,
        _ => 10,
    };
    if let Some(queue) = QUEUE.get() {
        // The receiver is gone once the interpreter has ended.
        let _ = queue.lock().1.send(Item::Event { level, message });
    }
}

fn spawn() -> PyResult<Sender<Item>> {
    let (send, receive) = channel();
    std::thread::Builder::new().name("thalweg-log".to_owned()).spawn(move || pass_on(&receive))?;
    Ok(send)
}

fn pass_on(events: &Receiver<Item>) {
    while let Ok(item) = events.recv() {
        match item {
            Item::Event { level, message } => {
                let logged = attach(|py| {
                    if let Err(error) = logged(py, level, &message) {
                        error.write_unraisable(py, None);
                    }
                });
                if logged.is_none() {
                    return;
                }
            }
            Item::Flush(done) => drop(done),
        }
    }
}

fn logged(py: Python<'_>, level: u8, message: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    logger.call_method1("log", (level, "%s", message)).map(drop)
}
