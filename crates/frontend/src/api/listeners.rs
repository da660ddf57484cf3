//! The addresses at which a process listens.
//!
//! They are bound once, before the first run, and stay bound between runs: a client that connects there while
//! one server ends and the next begins waits in the queue of the system. Each server listens on a copy.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_engine::Error;
use thalweg_job::LoadError;
use tokio::task::AbortHandle;

use super::Observed;
use super::server::serve_address;

/// The addresses at which a process listens.
pub(crate) struct Listeners {
    addresses: Vec<SocketAddr>,
    /// Empty until the first server begins.
    bound: Mutex<Vec<TcpListener>>,
}

impl Listeners {
    /// These addresses, which are not bound yet.
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        Self { addresses: addresses.to_vec(), bound: Mutex::default() }
    }

    /// True if the addresses are bound.
    pub(crate) fn is_open(&self) -> bool {
        !self.bound.lock().is_empty()
    }

    /// Binds the addresses, unless they are: an address in use is an early error. Returns a line for each one
    /// that is bound now, with the port that the system chose if none was given.
    pub(crate) fn open(&self) -> Result<Vec<String>, LoadError> {
        let mut bound = self.bound.lock();
        if !bound.is_empty() {
            return Ok(Vec::new());
        }
        let (mut lines, mut listeners) = (Vec::new(), Vec::new());
        for address in &self.addresses {
            let listener = TcpListener::bind(address)
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|error| Error::permanent(format!("cannot listen on {address}: {error}")))?;
            lines.push(format!("listening: http://{}/metrics", listener.local_addr()?));
            listeners.push(listener);
        }
        *bound = listeners;
        Ok(lines)
    }

    /// Answers for a run at the bound addresses until the tasks are aborted. It is called within a runtime.
    pub(crate) fn serve(&self, run: &Arc<Observed>) -> Result<Vec<AbortHandle>, LoadError> {
        let begin = |listener: &TcpListener| -> Result<AbortHandle, LoadError> {
            let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
            Ok(tokio::spawn(serve_address(listener, run.clone())).abort_handle())
        };
        self.bound.lock().iter().map(begin).collect()
    }
}
