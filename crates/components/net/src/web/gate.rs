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
    /// Returns a clone of the source output for one request; `None` once the run stops.
    pub fn output(&self) -> Option<SourceOutput> {
        self.0.lock().output.clone()
    }

    /// Records the error with which the connection ends.
    pub fn fail(&self, error: Error) {
        self.0.lock().error = Some(error);
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
    let gate = Arc::new(Gate(Mutex::new(State { output: Some(out.clone()), error: None })));
    let stopping = {
        let gate = gate.clone();
        async move {
            out.stopping().await;
            // Downstream stages end only when all source outputs are dropped. A request in progress holds its
            // own clone.
            gate.0.lock().output = None;
            drop(out);
        }
    };
    converse(client, options, stopping, |request| answer(request, gate.clone())).await;
    let error = gate.0.lock().error.take();
    error.map_or(Ok(()), Err)
}
