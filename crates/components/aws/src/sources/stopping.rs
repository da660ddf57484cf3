//! How a source waits for an answer of a service.

use std::time::Duration;

use thalweg_engine::SourceOutput;

/// How long the service may take for an answer when the run is being stopped. A later run gets again what
/// this one does not get.
pub(super) const FAREWELL: Duration = Duration::from_secs(3);

/// Waits for an answer of the service; when the run is being stopped, for [`FAREWELL`] at most. Returns
/// `None` if there is none by then.
pub(super) async fn unless_stopped<T>(out: &SourceOutput, answer: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        out.stopping().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = stopped => None,
    }
}
