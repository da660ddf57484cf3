//! Many connections, one source.

use std::time::Duration;

use std::sync::Arc;

use thalweg_engine::{Error, Outlet};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::listener::Accepted;
use super::{Listener, Stream};
use crate::shared::tls::Acceptor;

/// How long a source that was told to stop waits for what its connections sent to be delivered and answered. Some of it
/// may only be delivered when the source has ended; its connections then answer after that.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The bounds of a source that listens.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections may be open. Others wait to be accepted.
    pub max_connections: usize,
    /// How long there must have been none for the source to end.
    pub end_after_idle: Option<Duration>,
}

/// Accepts connections, and has each served by a task of its own with a clone of the outlet, until the run is told to
/// stop. A connection must give up its outlet when that happens: see [`Outlet`].
///
/// # Errors
/// The first of a connection's; those that have to do with one client alone must stay there.
pub async fn serve<F, W>(
    listener: &Listener,
    limits: Limits,
    tls: Option<&Acceptor>,
    out: &Outlet,
    connection: F,
) -> Result<(), Error>
where
    F: Fn(Stream, Arc<str>, Outlet) -> W + Clone + Send + 'static,
    W: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut open: JoinSet<Result<(), Error>> = JoinSet::new();
    let mut last = Instant::now();
    loop {
        let is_idle = open.is_empty();
        let end = limits.end_after_idle.filter(|_| is_idle);
        tokio::select! {
            biased;
            () = out.stopping() => break,
            Some(ended) = open.join_next() => {
                last = Instant::now();
                result(ended)?;
            }
            accepted = listener.accept(), if open.len() < limits.max_connections => match accepted {
                Ok((accepted, peer)) => {
                    let (tls, out, connection) = (tls.cloned(), out.clone(), connection.clone());
                    open.spawn(async move {
                        match secure(accepted, tls).await {
                            Ok(stream) => connection(stream, peer, out).await,
                            Err(error) => {
                                tracing::debug!("`{}`: {peer}: no agreement on TLS: {error}", out.name());
                                Ok(())
                            }
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("`{}`: cannot accept a connection: {error}", out.name());
                    sleep(PAUSE).await;
                }
            },
            () = sleep_until(last + end.unwrap_or_default()), if end.is_some() => break,
        }
    }
    let end = Instant::now() + GRACE;
    while let Ok(Some(ended)) = timeout_at(end, open.join_next()).await {
        result(ended)?;
    }
    open.detach_all();
    Ok(())
}

fn result(ended: Result<Result<(), Error>, JoinError>) -> Result<(), Error> {
    match ended {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Ok(()),
    }
}

async fn secure(accepted: Accepted, tls: Option<Acceptor>) -> std::io::Result<Stream> {
    match (accepted, tls) {
        (Accepted::Tcp(stream), Some(tls)) => Ok(Stream::Tls(Box::new(tls.accept(stream).await?))),
        (Accepted::Tcp(stream), None) => Ok(Stream::Tcp(stream)),
        (Accepted::Unix(stream), _) => Ok(Stream::Unix(stream)),
    }
}
