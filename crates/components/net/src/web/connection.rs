//! One HTTP connection, which carries requests one after the other.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_runtime::Failpoint;
use tokio::time::{Instant, sleep_until};

use super::arriving::Arriving;
use super::{Answer, repeated_header, text};
use crate::net::{Client, FAREWELL, Place, Standing, Stream};

/// How many bytes of a request are buffered before its body is read.
const HEAD_BYTES: usize = 64 << 10;

/// How a connection is served.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionOptions {
    /// How long a client may take to send the head of a request.
    pub read_timeout: Duration,
    /// True if a connection may carry several requests.
    pub keep_alive: bool,
}

impl ConnectionOptions {
    /// Returns the connection that serves this stream.
    fn serve<S>(self, stream: Stream, service: S) -> http1::Connection<TokioIo<Stream>, S>
    where
        S: HttpService<Incoming>,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        S::ResBody: 'static,
        <S::ResBody as Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.read_timeout)
            .keep_alive(self.keep_alive)
            .max_buf_size(HEAD_BYTES);
        builder.serve_connection(TokioIo::new(stream), service)
    }
}

/// Answers a client's requests. Once `stopping` completes or the connection loses its place, the request in
/// progress is the last one. If its place is lost, the rest of that request must arrive within [`FAREWELL`].
pub async fn converse<A, F>(
    client: Client,
    options: ConnectionOptions,
    stopping: impl Future<Output = ()>,
    answer: A,
) where
    A: Fn(super::Request) -> F,
    F: Future<Output = Answer>,
{
    let Client { stream, name: peer, activity, place } = client;
    let idle = |has_spoken| {
        let since = Instant::now();
        place.set(Standing::Silent { since, has_spoken, is_within: false });
    };
    idle(false);
    let (is_told, arriving) = (AtomicBool::new(false), Arriving::default());
    let service = service_fn(|request: Request<Incoming>| {
        let (under_way, is_told, idle) = (activity.under_way(), &is_told, &idle);
        place.set(Standing::Busy { since: Instant::now() });
        let answer = match repeated_header(request.headers()) {
            Some(reason) => Err(text(StatusCode::BAD_REQUEST, reason)),
            None => Ok(answer(request.map(|body| arriving.watch(body)))),
        };
        async move {
            let answer = match answer {
                Ok(answer) => answer.await,
                Err(refused) => refused,
            };
            drop(under_way);
            idle(answer.status().is_success());
            if answer.status().is_success() {
                Failpoint::AnswerBefore.pass();
                is_told.store(true, Ordering::Relaxed);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = pin!(options.serve(stream, service));
    let watching = Watching {
        peer: &peer,
        place: &place,
        arriving: &arriving,
        is_told: &is_told,
        // An idle connection of HTTP/1.1 ends by itself.
        is_idle: &|| false,
    };
    watching.drive(connection, |connection| connection.graceful_shutdown(), stopping).await;
}

/// The state that is watched while a connection is driven.
pub(super) struct Watching<'a> {
    pub(super) peer: &'a str,
    pub(super) place: &'a Place,
    pub(super) arriving: &'a Arriving,
    /// True if an answer was made that is about to be written.
    pub(super) is_told: &'a AtomicBool,
    /// True if there has been no request for a while.
    pub(super) is_idle: &'a (dyn Fn() -> bool + Sync),
}

impl Watching<'_> {
    /// Drives a connection to its end. `leave` has it end after the requests in progress: once `stopping`
    /// completes, or when it has lost its place. It ends without its client's consent if it is idle then.
    pub(super) async fn drive<C: Future<Output = hyper::Result<()>>>(
        &self,
        mut connection: Pin<&mut C>,
        leave: impl Fn(Pin<&mut C>),
        stopping: impl Future<Output = ()>,
    ) {
        let mut stopping = pin!(stopping);
        let (mut is_stopped, mut is_displaced, mut look_at) = (false, false, None);
        loop {
            tokio::select! {
                biased;
                ended = watched(connection.as_mut(), self.is_told) => {
                    if let Err(error) = ended {
                        tracing::debug!("{}: the connection broke: {error}", self.peer);
                    }
                    return;
                }
                () = &mut stopping, if !is_stopped => {
                    is_stopped = true;
                    look_at = look_at.or(Some(Instant::now() + FAREWELL));
                }
                () = self.place.closing() => {
                    is_displaced = true;
                    look_at = Some(Instant::now() + FAREWELL);
                }
                () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {
                    if is_displaced && self.arriving.is_under_way() {
                        tracing::debug!(
                            "{}: another client needed its place before its request had arrived",
                            self.peer
                        );
                        return;
                    }
                    if (self.is_idle)() {
                        return;
                    }
                    look_at = Some(Instant::now() + FAREWELL);
                }
            }
            leave(connection.as_mut());
        }
    }
}

/// Drives a connection, and passes the failpoint after an answer was written.
async fn watched<C: Future>(mut connection: Pin<&mut C>, is_told: &AtomicBool) -> C::Output {
    poll_fn(|context| {
        let polled = connection.as_mut().poll(context);
        // A poll in which the answer was made has also written it, unless the client does not read.
        if is_told.swap(false, Ordering::Relaxed) {
            Failpoint::AnswerAfter.pass();
        }
        polled
    })
    .await
}
