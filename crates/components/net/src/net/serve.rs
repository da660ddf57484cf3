//! Accepts connections for one source.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use thalweg_engine::{Error, SourceOutput};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::listener::Accepted;
use super::sockets::Listening;
use super::{Listener, Peer, Place, Places, Stream};
use crate::tls::Acceptor;

/// How long a stopped source waits until the messages of its connections are delivered and answered. Some of
/// them may be delivered only after the source has ended; their connections then answer after that.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait after the system could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// How often to look for a connection to close while clients wait for a place.
const LOOK: Duration = Duration::from_secs(1);

/// The component for which connections are accepted.
pub trait Owner: Clone + Send + Sync + 'static {
    /// Its name in the log.
    fn name(&self) -> &str;

    /// Waits until it should stop.
    fn stopping(&self) -> impl Future<Output = ()> + Send;

    /// How long its connections may continue after that.
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

/// The limits of a listening source.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest number of open connections. Further clients wait until one ends or loses its place. It is
    /// smaller if this process may have too few files open.
    pub max_connections: usize,
    /// The source ends after this time without activity.
    pub end_after_idle: Option<Duration>,
}

/// A client that was accepted.
type Arrived = (Accepted, Arc<str>, Peer);

impl Limits {
    /// Returns a waiting client that gets a place now: there is one, or a connection loses its place. Such a
    /// connection ends within a moment, so at most one client has none. The client is one whose address has
    /// the fewest connections: no other client could displace a connection that this one could not.
    fn admit(
        &self,
        waiting: &mut VecDeque<Arrived>,
        open: usize,
        places: &Places,
        name: &str,
    ) -> Option<Arrived> {
        let at = places.neediest(waiting.iter().map(|(.., peer)| *peer))?;
        let (.., peer) = waiting.get(at)?;
        let has_place = match open.cmp(&self.max_connections) {
            Ordering::Less => true,
            Ordering::Equal => places.close_for(*peer, name, self.max_connections),
            Ordering::Greater => false,
        };
        if has_place { waiting.remove(at) } else { None }
    }
}

/// Lets a client wait, one of at most `most`. Of more, the last one of the address with the most of them is
/// turned away, so that every address has its share: an address can be seen only once its client is accepted.
/// Returns that client.
fn wait(waiting: &mut VecDeque<Arrived>, most: usize, new: Arrived) -> Option<Arrived> {
    let (.., newest) = new;
    waiting.push_back(new);
    if waiting.len() <= most {
        return None;
    }
    let mut counts: HashMap<Peer, usize> = HashMap::new();
    waiting.iter().for_each(|(.., peer)| *counts.entry(*peer).or_default() += 1);
    let (most, _) = counts.into_iter().max_by_key(|(peer, count)| (*count, *peer == newest))?;
    waiting.remove(waiting.iter().rposition(|(.., peer)| *peer == most)?)
}

/// Tracks whether the connections of a source are active. An open connection alone is not activity, since
/// HTTP clients keep connections open.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    /// When data last arrived, in milliseconds after `begun`.
    last: AtomicU64,
    /// The number of activities in progress.
    under_way: AtomicUsize,
}

impl Activity {
    /// Begins now, without activity.
    pub fn begin() -> Self {
        let begun = Instant::now();
        Self(Arc::new(Inner { begun, last: AtomicU64::new(0), under_way: AtomicUsize::new(0) }))
    }

    /// Records that data arrived.
    pub fn note(&self) {
        let passed = self.0.begun.elapsed().as_millis();
        self.0.last.fetch_max(u64::try_from(passed).unwrap_or(u64::MAX), Relaxed);
    }

    /// Marks an activity as in progress until the returned guard is dropped.
    pub fn under_way(&self) -> UnderWay {
        self.0.under_way.fetch_add(1, Relaxed);
        UnderWay(self.clone())
    }

    /// Returns when the source will have been idle for `span`, provided no data arrives before.
    fn idle_at(&self, span: Duration) -> Instant {
        match self.0.under_way.load(Relaxed) {
            0 => self.0.begun + Duration::from_millis(self.0.last.load(Relaxed)) + span,
            _ => Instant::now() + span,
        }
    }
}

/// A client that has connected.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub stream: Stream,
    /// Its name in logs and messages.
    pub name: Arc<str>,
    /// Where its activity is recorded.
    pub activity: Activity,
    /// Its place among the connections.
    pub place: Place,
}

/// A guard: an activity is in progress until it is dropped.
#[derive(Debug)]
pub struct UnderWay(Activity);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.note();
        self.0.0.under_way.fetch_sub(1, Relaxed);
    }
}

/// Accepts connections until `out` should stop. Each connection runs in its own task with a clone of its
/// owner, usually a source output. A connection must drop that clone on stopping: see [`SourceOutput`].
///
/// # Errors
/// The first error of a connection. Errors that concern one client alone must be handled there.
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
    serve_beside(listener, limits, tls, &Activity::begin(), out, connection).await
}

/// As [`serve`], for a source with several listeners: the source is idle if none of them has activity.
///
/// # Errors
/// As [`serve`].
pub async fn serve_beside<O, F, W>(
    listener: &Listener,
    limits: Limits,
    tls: Option<&Acceptor>,
    activity: &Activity,
    out: &O,
    connection: F,
) -> Result<(), Error>
where
    O: Owner,
    F: Fn(Client, O) -> W + Clone + Send + 'static,
    W: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut open: JoinSet<Result<(), Error>> = JoinSet::new();
    let places = Places::default();
    let mut waiting = VecDeque::new();
    let idle_at = || limits.end_after_idle.map(|span| activity.idle_at(span));
    let mut check = idle_at();
    let mut listening = Listening::begin();
    loop {
        let sockets = listening.sockets(limits.max_connections, out.name());
        let limits = Limits { max_connections: sockets.places, ..limits };
        while let Some((accepted, name, peer)) = limits.admit(&mut waiting, open.len(), &places, out.name()) {
            let place = places.take(peer);
            let (tls, out, connection) = (tls.cloned(), out.clone(), connection.clone());
            let activity = activity.clone();
            open.spawn(async move {
                match secure(accepted, tls).await {
                    Ok(stream) => connection(Client { stream, name, activity, place }, out).await,
                    Err(error) => {
                        tracing::debug!("`{}`: {name}: the TLS handshake failed: {error}", out.name());
                        Ok(())
                    }
                }
            });
        }
        tokio::select! {
            biased;
            () = out.stopping() => break,
            Some(ended) = open.join_next() => result(ended)?,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    activity.note();
                    if let Some((_, client, _)) = wait(&mut waiting, sockets.waiting, accepted) {
                        tracing::debug!("`{}`: {client} is turned away: too many clients wait", out.name());
                    }
                }
                Err(error) => {
                    tracing::warn!("`{}`: cannot accept a connection: {error}", out.name());
                    sleep(PAUSE).await;
                }
            },
            () = sleep(LOOK), if !waiting.is_empty() => {}
            () = sleep_until(check.unwrap_or_else(Instant::now)), if check.is_some() => {
                // After a pause of the whole process, data has arrived that no connection has seen yet.
                tokio::task::yield_now().await;
                check = idle_at();
                if check.is_some_and(|at| at <= Instant::now()) {
                    // The clients that are still connected are idle.
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

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: usize = 8;

    #[tokio::test]
    async fn each_address_has_a_share_of_the_waiting_clients() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut waiting = VecDeque::new();
        let mut away = Vec::new();
        for number in 0..WAITING + 3 {
            let _client = tokio::net::TcpStream::connect(at).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            // The last two are of another address.
            let peer = Peer::tcp([10, 0, 0, if number > WAITING { 2 } else { 1 }].into());
            let new = (Accepted::Tcp(stream), number.to_string().into(), peer);
            away.extend(wait(&mut waiting, WAITING, new).map(|(_, name, _)| name.to_string()));
        }
        let names = [WAITING, WAITING - 1, WAITING - 2].map(|number| number.to_string());
        assert_eq!(away, names);
        assert_eq!(waiting.len(), WAITING);
    }
}
