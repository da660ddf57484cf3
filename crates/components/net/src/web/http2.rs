//! One HTTP/2 connection of a source, which carries several requests at the same time.
//!
//! Each request runs in a task of its own, as the library has it. The tasks belong to the connection: they
//! end with it, as the requests of HTTP/1.1 do.
//!
//! Data that a client has sent and no request has read yet lies in memory outside the budget. The window of
//! the connection bounds it.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Response, header::HeaderName};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use thalweg_engine::{Error, SourceOutput};
use thalweg_runtime::Failpoint;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::arriving::Arriving;
use super::connection::Watching;
use super::{Gate, Request};
use crate::net::{Activity, Client, FAREWELL, Place, Standing};

/// How many requests of a connection may be in progress.
const STREAMS: u32 = 32;

/// How many bytes a client may send that no request has read, in bytes.
const WINDOW: u32 = 256 << 10;

/// The header of an answer that is an error although its status is not.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Answers a client's requests until the run stops. Those in progress are then the last ones. A client that
/// does not answer a ping, which is sent at this interval, is disconnected.
///
/// # Errors
/// The last error that `answer` recorded with [`Gate::fail`].
pub async fn converse_by_http2<A, F, B>(
    client: Client,
    ping_interval: Duration,
    out: SourceOutput,
    answer: A,
) -> Result<(), Error>
where
    A: Fn(Request, Arc<Gate>) -> F,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let Client { stream, name: peer, activity, place } = client;
    let (gate, stopping) = Gate::new(out);
    let (is_told, arriving) = (Arc::new(AtomicBool::new(false)), Arriving::default());
    let talk = Arc::new(Talk { place, state: Mutex::default() });
    talk.note(|_| ());
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let exchange = Exchange::begin(&talk, &activity);
        let is_told = is_told.clone();
        let answer = answer(request.map(|body| arriving.watch(body)), gate.clone());
        async move {
            let answer = answer.await;
            if exchange.end(&answer) {
                Failpoint::AnswerBefore.pass();
                is_told.store(true, Ordering::Relaxed);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let tasks = Arc::new(Mutex::new(JoinSet::new()));
    let mut builder = http2::Builder::new(Tasks(Arc::downgrade(&tasks)));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(ping_interval);
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let watching = Watching {
        peer: &peer,
        place: &talk.place,
        arriving: &arriving,
        is_told: &is_told,
        is_idle: &|| talk.is_idle(),
    };
    watching.drive(connection, |connection| connection.graceful_shutdown(), stopping).await;
    drop(tasks);
    gate.result()
}

/// Runs the requests of a connection.
#[derive(Clone)]
struct Tasks(Weak<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        // A task holds a clone of this, so only the connection keeps the set.
        let Some(tasks) = self.0.upgrade() else { return };
        let mut tasks = tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        tasks.spawn(future);
    }
}

/// A connection and its requests in progress.
struct Talk {
    place: Place,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_progress: usize,
    has_spoken: bool,
    /// When the last request began or ended.
    since: Option<Instant>,
}

impl Talk {
    /// Changes the state, and notes how much the connection needs its place.
    fn note(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let (since, has_spoken) = (Instant::now(), state.has_spoken);
        state.since = Some(since);
        self.place.set(match state.in_progress {
            0 => Standing::Silent { since, has_spoken, is_within: false },
            _ => Standing::Busy { since },
        });
    }

    /// True if no request is in progress, and the last answer has had time to be written. Such a connection
    /// waits for its client: to begin HTTP/2, or to confirm that it sends no further requests.
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.in_progress == 0 && state.since.is_none_or(|since| since.elapsed() >= FAREWELL)
    }
}

/// A request in progress, until this is dropped.
struct Exchange {
    talk: Arc<Talk>,
    _under_way: crate::net::UnderWay,
}

impl Exchange {
    fn begin(talk: &Arc<Talk>, activity: &Activity) -> Self {
        talk.note(|state| state.in_progress += 1);
        Self { talk: talk.clone(), _under_way: activity.under_way() }
    }

    /// Ends the exchange with this answer. Returns true if it is a success.
    fn end<B>(self, answer: &Response<B>) -> bool {
        let is_success = answer.status().is_success() && !answer.headers().contains_key(STATUS);
        self.talk.note(|state| state.has_spoken |= is_success);
        is_success
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.talk.note(|state| state.in_progress -= 1);
    }
}
