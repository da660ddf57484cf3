//! Many connections, one source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use thalweg_engine::{Error, SourceOutput};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::listener::Accepted;
use super::{Listener, Stream};
use crate::tls::Acceptor;

/// How long a source that was told to stop waits for what its connections sent to be delivered and answered. Some of it
/// may only be delivered when the source has ended; its connections then answer after that.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Who connections are accepted for.
pub trait Owner: Clone + Send + Sync + 'static {
    /// What to call it in the log.
    fn name(&self) -> &str;

    /// Waits until it is told to stop.
    fn stopping(&self) -> impl Future<Output = ()> + Send;

    /// How long its connections may go on then.
    fn grace(&self) -> Duration {
        GRACE
    }
}

impl Owner for SourceOutput {
    fn name(&self) -> &str {
        SourceOutput::name(self)
    }

    fn stopping(&self) -> impl Future<Output = ()> + Send {
        SourceOutput::stopping(self)
    }
}

/// The bounds of a source that listens.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections may be open. Others wait to be accepted.
    pub max_connections: usize,
    /// How long nothing must have come for the source to end.
    pub end_after_idle: Option<Duration>,
}

/// Whether anything goes on in the connections of a source. Being connected is not enough: clients of HTTP stay so.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    /// When something came last, in milliseconds since it began.
    last: AtomicU64,
    /// How much is under way.
    under_way: AtomicUsize,
}

impl Activity {
    fn begin() -> Self {
        let begun = Instant::now();
        Self(Arc::new(Inner { begun, last: AtomicU64::new(0), under_way: AtomicUsize::new(0) }))
    }

    /// Notes that something came.
    pub fn note(&self) {
        let passed = self.0.begun.elapsed().as_millis();
        self.0.last.fetch_max(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Something is under way, as long as this is held.
    pub fn under_way(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// When there will have been nothing for so long, unless something comes until then.
    fn idle_at(&self, span: Duration) -> Instant {
        match self.0.under_way.load(Ordering::Relaxed) {
            0 => self.0.begun + Duration::from_millis(self.0.last.load(Ordering::Relaxed)) + span,
            _ => Instant::now() + span,
        }
    }
}

/// A client that has connected.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub stream: Stream,
    /// What to call it.
    pub name: Arc<str>,
    /// Where it is noted what goes on.
    pub activity: Activity,
}

/// Something is under way.
#[derive(Debug)]
pub struct UnderWay(Activity);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.note();
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections, and has each served by a task of its own with a clone of their owner, as a rule a source's outlet,
/// until it is told to stop. A connection must give up its outlet when that happens: see [`SourceOutput`].
///
/// # Errors
/// The first of a connection's; those that have to do with one client alone must stay there.
pub async fn serve<O, F, W>(
    listener: &Listener,
    limits: Limits,
    tls: Option<&Acceptor>,
    out: &O,
    connection: F,
) -> Result<(), Error>
where
    O: Owner,
    F: Fn(Client, O) -> W + Clone + Send + 'static,
    W: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut open: JoinSet<Result<(), Error>> = JoinSet::new();
    let activity = Activity::begin();
    let idle_at = || limits.end_after_idle.map(|span| activity.idle_at(span));
    let mut check = idle_at();
    loop {
        tokio::select! {
            biased;
            () = out.stopping() => break,
            Some(ended) = open.join_next() => result(ended)?,
            accepted = listener.accept(), if open.len() < limits.max_connections => match accepted {
                Ok((accepted, name)) => {
                    activity.note();
                    let (tls, out, connection) = (tls.cloned(), out.clone(), connection.clone());
                    let activity = activity.clone();
                    open.spawn(async move {
                        match secure(accepted, tls).await {
                            Ok(stream) => connection(Client { stream, name, activity }, out).await,
                            Err(error) => {
                                tracing::debug!("`{}`: {name}: no agreement on TLS: {error}", out.name());
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
            () = sleep_until(check.unwrap_or_else(Instant::now)), if check.is_some() => {
                check = idle_at();
                if check.is_some_and(|at| at <= Instant::now()) {
                    // Who is still connected says nothing.
                    open.shutdown().await;
                    break;
                }
            }
        }
    }
    let end = Instant::now() + out.grace();
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
