//! The tokio runtime of the process, on which all that waits runs, and waiting for it from Python.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// How often a thread that waits looks whether the user wants it to end.
const LOOK: Duration = Duration::from_millis(50);

/// The runtime, with the process that it was made in: threads are not there after a `fork`.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// The runtime of this process. It is made when it is first needed.
///
/// # Errors
/// `OSError` if the system gives no threads.
pub fn runtime() -> PyResult<Arc<Runtime>> {
    let mut made = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, runtime)) = made.as_ref().filter(|(of, _)| *of == process) {
        return Ok(runtime.clone());
    }
    let runtime = Arc::new(Builder::new_multi_thread().enable_all().thread_name("thalweg").build()?);
    // The one of the process that forked has no threads here: to end it would wait for them for ever.
    std::mem::forget(made.replace((process, runtime.clone())));
    Ok(runtime)
}

/// Waits for something without the interpreter lock. Ctrl-C, or what else a signal's handler raises, ends it.
///
/// # Errors
/// What a signal's handler raises: what was waited for is dropped then.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    what: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let runtime = runtime()?;
    let (tell, mut told) = oneshot::channel();
    let task = runtime.spawn(async move {
        // Nobody may wait any more.
        let _ = tell.send(what.await);
    });
    loop {
        let looked = py.detach(|| runtime.block_on(async { tokio::time::timeout(LOOK, &mut told).await }));
        match looked {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(_)) => return Err(crate::errors::Error::new_err("this failed without a word")),
            Err(_) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
        }
    }
}
