//! The history of the runs.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use thalweg_engine::Error;
use thalweg_job::History;

use super::Observed;
use super::reply::Refusal;

/// The latest runs, at most this many, without their components. A record that cannot be read is left out.
pub(super) async fn runs(run: &Arc<Observed>, limit: u32) -> Result<Value, Refusal> {
    let runs = read(run, move |history| {
        // The first run has not begun.
        if !history.exists() {
            return Ok(Vec::new());
        }
        let records = history.records()?.filter_map(Result::ok).take(limit as usize);
        Ok(records.map(|record| record.brief()).collect::<Vec<_>>())
    })
    .await?;
    Ok(json!({ "runs": runs }))
}

/// A run with its components.
pub(super) async fn one(run: &Arc<Observed>, id: &str) -> Result<Value, Refusal> {
    let unknown =
        || Refusal::new(StatusCode::NOT_FOUND, "there is no run of this number; `/api/v1/runs` lists them");
    let id: u64 = id.parse().map_err(|_| unknown())?;
    let record = read(run, move |history| history.record(id)).await?;
    record.map(|record| json!(record)).ok_or_else(unknown)
}

/// Reads the history on a thread that may wait for the disk, for one client at a time.
async fn read<T: Send + 'static>(
    run: &Arc<Observed>,
    of: impl FnOnce(&History) -> Result<T, Error> + Send + 'static,
) -> Result<T, Refusal> {
    let Some(history) = run.history.clone() else {
        let reason = "runs without a state directory have no history: use `--state`";
        return Err(Refusal::new(StatusCode::NOT_FOUND, reason));
    };
    let failed = |reason: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason);
    let one = run.letters.clone().lock_owned().await;
    let found = tokio::task::spawn_blocking(move || {
        let found = of(&history);
        drop(one);
        found
    });
    match found.await {
        Ok(read) => read.map_err(|error| failed(error.full())),
        Err(error) => Err(failed(format!("the history cannot be read: {error}"))),
    }
}
