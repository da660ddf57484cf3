//! Starts worker processes that end with the process that started them, however that ends.
//!
//! A worker whose component never returns does not see the end of its input. Therefore the system kills it
//! (`PR_SET_PDEATHSIG` of Linux). Linux does so when the *thread* ends that started the worker, and threads
//! of a run end with the run, or when they are idle. Hence one thread starts all workers and never ends. A
//! thread in each worker that watches its parent was rejected: Python warns of a fork in a process with
//! threads.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    /// The runtime on which the caller waits for the process.
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// Gives orders to the thread, and the id of the process that it belongs to. Threads do not survive a `fork`.
static THREAD: Mutex<Option<(u32, Sender<Order>)>> = Mutex::new(None);

/// Starts a process. Its last argument is the id of this process, for [`end_with_parent`].
///
/// # Errors
/// Those of the system.
pub async fn start(mut command: Command) -> io::Result<Child> {
    command.arg(std::process::id().to_string());
    let (started, child) = oneshot::channel();
    let order = Order { command, runtime: Handle::current(), started };
    let gone = || io::Error::other("the thread that starts processes has ended");
    thread()?.send(order).map_err(|_| gone())?;
    child.await.map_err(|_| gone())?
}

fn thread() -> io::Result<Sender<Order>> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, orders)) = thread.as_ref().filter(|(of, _)| *of == process) {
        return Ok(orders.clone());
    }
    let (orders, received) = channel::<Order>();
    std::thread::Builder::new().name("thalweg-starter".to_owned()).spawn(move || {
        for Order { mut command, runtime, started } in received {
            let _entered = runtime.enter();
            // If the caller is gone, the process is killed.
            let _ = started.send(command.spawn());
        }
    })?;
    // After a fork, another thread of the parent may hold a lock within.
    std::mem::forget(thread.replace((process, orders.clone())));
    Ok(orders)
}

/// Lets the system kill this process when the one with the id `parent`, which started it, ends.
#[pyfunction]
pub fn end_with_parent(parent: u32) -> PyResult<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    if std::os::unix::process::parent_id() != parent {
        // It ended before.
        std::process::exit(1);
    }
    Ok(())
}
