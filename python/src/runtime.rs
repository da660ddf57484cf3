//! The tokio runtime of the process, which runs all asynchronous work, and waiting for it from Python.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How often a waiting thread checks for signals, such as Ctrl-C.
pub const LOOK: Duration = Duration::from_millis(50);

/// The runtime and the id of the process that created it. Threads do not survive a `fork`.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Returns the runtime of this process. The first call creates it.
///
/// # Errors
/// `OSError` if the system provides no threads.
pub fn runtime() -> PyResult<Arc<Runtime>> {
    let mut made = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, runtime)) = made.as_ref().filter(|(of, _)| *of == process) {
        return Ok(runtime.clone());
    }
    let runtime = Arc::new(Builder::new_multi_thread().enable_all().thread_name("thalweg").build()?);
    // After a fork, the parent's runtime has no threads here. Dropping it would wait for them for ever.
    std::mem::forget(made.replace((process, runtime.clone())));
    Ok(runtime)
}

/// Waits for a future without the interpreter lock. An exception from a signal handler, such as Ctrl-C, ends
/// the wait.
///
/// # Errors
/// The exception that a signal handler raises. The future is dropped then.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    what: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let runtime = runtime()?;
    let (send, mut receive) = oneshot::channel();
    let task = runtime.spawn(async move {
        // The receiver is gone if the wait was interrupted.
        let _ = send.send(what.await);
    });
    loop {
        let looked = py.detach(|| runtime.block_on(async { tokio::time::timeout(LOOK, &mut receive).await }));
        match looked {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(_)) => return Err(crate::errors::Error::new_err("the background task panicked")),
            Err(_) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
        }
    }
}
