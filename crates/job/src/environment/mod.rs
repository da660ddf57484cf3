//! The environment that a configuration is read in: this process, the request that is served, and etcd.

mod etcd;

use std::time::Duration;

use thalweg_dialects::Environment;
use thalweg_dialects::capyfile::Request;
use thalweg_engine::Error;

use crate::error::LoadError;
#[doc(hidden)]
pub use etcd::etcd_value;

use etcd::Etcd;

/// How long a server may take to send a service definition.
pub(crate) const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Looks up parameters in etcd.
pub struct EtcdLookup {
    ask: Option<Box<Ask>>,
}

type Ask = dyn Fn(&str) -> Result<Option<String>, String> + Send + Sync;

impl EtcdLookup {
    /// The etcd that the environment variables of this process describe.
    ///
    /// # Errors
    /// If a variable is invalid.
    pub fn of_this_process() -> Result<Self, LoadError> {
        let etcd = Etcd::of_the_environment(&variable)?;
        Ok(Self { ask: etcd.map(|etcd| -> Box<Ask> { Box::new(move |key| etcd.get(key)) }) })
    }

    /// Like [`of_this_process`](Self::of_this_process), but reports invalid variables only at the first
    /// lookup. So a configuration without parameters from etcd is read even if the variables are invalid.
    pub(crate) fn when_asked() -> Self {
        Self::of_this_process().unwrap_or_else(|error| {
            let why = format!("{error}.");
            Self { ask: Some(Box::new(move |_| Err(why.clone()))) }
        })
    }

    /// The environment of this process, with the request if there is one. Its functions may block.
    #[must_use]
    pub fn environment<'a>(&'a self, request: Option<&'a Request>) -> Environment<'a> {
        let etcd = self.ask.as_deref().map(|ask| -> thalweg_dialects::capyfile::Etcd<'a> { ask });
        Environment { request, etcd, ..Environment::of_this_process() }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Waits for an answer on a separate thread, so that it may be called within a tokio runtime. It blocks the
/// calling thread.
pub(crate) fn wait<T: Send>(answer: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
    let failed = |error| Error::permanent("cannot wait for an answer").caused_by(error);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(failed)?.block_on(answer)
        });
        let panicked = |_| Err(Error::permanent("asking over HTTP panicked"));
        waiting.join().unwrap_or_else(panicked)
    })
}
