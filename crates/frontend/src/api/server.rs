//! Accepts connections, and bounds their number and their time.
//!
//! A connection gets one answer within ten seconds, so that a limited number of connections serves every
//! client in a bounded time. Other clients wait in the queue of the system. A tap has no end, so its
//! connection is not one of these: the engine limits the number of taps.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_job::descriptors_for_clients;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::access::Access;
use super::waiting::Limited;
use super::{Observed, routes};

/// The largest number of connections that are served at the same time. It is smaller if this process may have
/// few files open.
const MOST_CONNECTIONS: usize = 64;
/// The same, as a part of the descriptors that the clients of sources may take.
const PART_OF_DESCRIPTORS: usize = 6;
/// How long a connection may take, unless it is a tap.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The oldest connection is closed after this time if another client waits.
const LEAST: Duration = Duration::from_secs(1);
/// The longest head of a request, and the most bytes of an answer that wait for the client.
const BUFFER: usize = 64 << 10;

/// The rest of a connection whose answer has no end.
type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Serves an address until it is dropped.
pub(super) async fn serve_address(listener: TcpListener, run: Arc<Observed>) {
    let access = listener.local_addr().map_or(Access::Network, Access::of);
    serve(listener, access, run).await;
}

/// Serves the socket of a state directory until it is dropped.
pub(crate) async fn serve_socket(listener: UnixListener, run: Arc<Observed>) {
    serve(listener, Access::Socket, run).await;
}

/// A listener of any kind.
trait Listen {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

async fn serve(listener: impl Listen, access: Access, run: Arc<Observed>) {
    let most = MOST_CONNECTIONS.min(descriptors_for_clients() / PART_OF_DESCRIPTORS).max(1);
    let mut open = Open::default();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut streams = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.next() => accepted,
            Some(stream) = receiver.recv() => {
                streams.spawn(stream);
                continue;
            }
            Some(_) = streams.join_next() => continue,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                // The process may be out of file descriptors for a while.
                tracing::warn!("cannot accept a connection for /metrics: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        open.make_room(most).await;
        open.begin(converse(stream, access, run.clone(), sender.clone()));
    }
}

/// The connections that are served.
#[derive(Default)]
struct Open {
    tasks: JoinSet<()>,
    /// When each began, the oldest first. Some may have ended.
    ages: VecDeque<(tokio::time::Instant, AbortHandle)>,
}

impl Open {
    fn begin(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(connection);
        self.ages.push_back((tokio::time::Instant::now(), task));
    }

    /// Waits until fewer than `most` connections are open. A client that connects and sends nothing must not
    /// keep others waiting, so the oldest one is closed after [`LEAST`].
    async fn make_room(&mut self, most: usize) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.ages.retain(|(_, task)| !task.is_finished());
            let Some((begun, oldest)) = self.ages.front().filter(|_| self.tasks.len() >= most) else {
                return;
            };
            match tokio::time::timeout_at(*begun + LEAST, self.tasks.join_next()).await {
                Ok(_) => {}
                Err(_) => {
                    tracing::debug!("a client of /metrics was too slow, and others wait");
                    oldest.abort();
                    self.tasks.join_next().await;
                }
            }
        }
    }
}

/// Answers a client's request. The rest of an answer without an end goes to `streams`.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    access: Access,
    run: Arc<Observed>,
    streams: mpsc::UnboundedSender<Stream>,
) {
    let is_endless = Arc::new(Notify::new());
    let of_service = is_endless.clone();
    let service = service_fn(move |request| {
        let (run, is_endless) = (run.clone(), of_service.clone());
        async move { Ok::<_, Infallible>(routes::answer(request, access, &run, &is_endless).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TIMEOUT).keep_alive(false).max_buf_size(BUFFER);
    let mut served = Box::pin(server.serve_connection(TokioIo::new(Limited::new(stream)), service));
    let ended = tokio::select! {
        ended = tokio::time::timeout(TIMEOUT, &mut served) => ended,
        () = is_endless.notified() => {
            // The receiver is there for as long as this task.
            let _ = streams.send(Box::pin(async move {
                if let Err(error) = served.await {
                    tracing::debug!("a tap ended: {error}");
                }
            }));
            return;
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection for /metrics ended: {error}"),
        Err(_) => tracing::debug!("a client of /metrics was too slow"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_connection_is_closed_only_if_another_client_waits() {
        let mut open = Open::default();
        let (kept, mut closed) = (Arc::new(()), Vec::new());
        for _ in 0..3 {
            open.make_room(3).await;
            let held = Arc::new(());
            closed.push(Arc::downgrade(&held));
            open.begin(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        tokio::time::advance(LEAST * 5).await;
        assert_eq!(open.tasks.len(), 3);
        for at in 0..3 {
            open.make_room(3).await;
            assert_eq!(closed.iter().filter(|held| held.strong_count() == 0).count(), at + 1);
            assert_eq!(closed[at].strong_count(), 0);
            let kept = kept.clone();
            open.begin(async move {
                std::future::pending::<()>().await;
                drop(kept);
            });
        }
        assert_eq!(Arc::strong_count(&kept), 4);
    }
}
