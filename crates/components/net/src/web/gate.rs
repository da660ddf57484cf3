//! An HTTP connection of a source, which ends when the run stops.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_engine::{Error, SourceOutput};

use super::{Answer, ConnectionOptions, Request, converse};
use crate::net::Client;

/// The way from the requests of a connection to the source output. It is closed once the run stops.
pub struct Gate(Mutex<State>);

struct State {
    /// `None` once the run stops.
    output: Option<SourceOutput>,
    error: Option<Error>,
}

impl Gate {
    /// Returns a gate to this output, and a future that closes it once the run stops.
    pub(super) fn new(out: SourceOutput) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let gate = Arc::new(Self(Mutex::new(State { output: Some(out.clone()), error: None })));
        let closed = gate.clone();
        let stopping = async move {
            out.stopping().await;
            // Downstream stages end only when all source outputs are dropped. A request in progress holds its
            // own clone.
            closed.0.lock().output = None;
            drop(out);
        };
        (gate, stopping)
    }

    /// Returns a clone of the source output for one request; `None` once the run stops.
    pub fn output(&self) -> Option<SourceOutput> {
        self.0.lock().output.clone()
    }

    /// Records the error with which the connection ends.
    pub fn fail(&self, error: Error) {
        self.0.lock().error = Some(error);
    }

    /// Returns the result of the connection, which has ended.
    pub(super) fn result(&self) -> Result<(), Error> {
        let mut state = self.0.lock();
        state.output = None;
        state.error.take().map_or(Ok(()), Err)
    }
}

/// Answers a client's requests, one after the other, until the run stops. The request in progress is then the
/// last one.
///
/// # Errors
/// The last error that `answer` recorded with [`Gate::fail`].
pub async fn converse_until_stopped<A, F>(
    client: Client,
    options: ConnectionOptions,
    out: SourceOutput,
    answer: A,
) -> Result<(), Error>
where
    A: Fn(Request, Arc<Gate>) -> F,
    F: Future<Output = Answer>,
{
    let (gate, stopping) = Gate::new(out);
    converse(client, options, stopping, |request| answer(request, gate.clone())).await;
    gate.result()
}
