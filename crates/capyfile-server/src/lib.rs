//! capyfile's upload server: serves a service definition over HTTP.
//!
//! [`serve`] takes a configuration and [`Settings`], and answers requests until a signal stops it. A request
//! carries files, which a processor of the service works on. Answers have capyfile's form, from
//! `thalweg_dialects::capyfile::response`.
//!
//! It is a separate crate because it is the runtime of one dialect: only `thalweg serve` uses it. Nothing is
//! printed here.
//!
//! See docs/decisions/073-an-upload-server-of-its-own.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod address;
mod health;
mod phases;
mod request;
mod server;
mod settings;
mod uploads;
mod watch;

use std::sync::Arc;

use thalweg_engine::Error;
use thalweg_job::{Configuration, LoadError, Signal, Signals};
use thalweg_net::net::Announce;
use thalweg_runtime::Stop;

use server::Server;

pub use health::Check;
pub use settings::{Mistakes, Settings};

/// The most threads for blocking calls: the file transforms of all requests.
const BLOCKING_THREADS: usize = 1024;

/// An event that the caller may print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The server listens at this URL.
    Listening(&'a str),
    /// A signal stopped the server: requests in flight are answered first.
    Stopping,
}

/// Serves a service definition until SIGINT or SIGTERM. Returns true if all requests in flight were answered.
///
/// # Errors
/// If the definition is wrong, or the address cannot be bound.
pub fn serve(
    configuration: &Configuration,
    settings: Settings,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<bool, LoadError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(settings.cores)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("thalweg")
        .enable_all()
        .build()?;
    let server = Arc::new(Server::new(configuration, settings)?);
    let signals = Signals::new()?;
    let ended = runtime.block_on(until_stopped(server, signals, tell));
    // The temporary files of requests that are still in flight are removed at the next start.
    runtime.shutdown_background();
    ended
}

async fn until_stopped(
    server: Arc<Server>,
    mut signals: Signals,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<bool, LoadError> {
    let scheme = if server.has_tls() { "https" } else { "http" };
    let announce = Announce::new("serve");
    let at = announce.watch();
    let listener = server.bind(&announce).await?;
    let address = at.borrow().clone().unwrap_or_default();
    tell(Event::Listening(&format!("{scheme}://{address}")));
    let stop = Stop::default();
    let mut serving = tokio::spawn(server.run(listener, stop.clone()));
    loop {
        tokio::select! {
            ended = &mut serving => {
                return ended.unwrap_or_else(|error| Err(Error::permanent(error.to_string()).into()));
            }
            signal = signals.next() => match signal {
                Signal::End if stop.is_requested() => return Ok(false),
                Signal::End => {
                    stop.request();
                    tell(Event::Stopping);
                }
                #[cfg(unix)]
                Signal::Reopen => {}
            },
        }
    }
}
