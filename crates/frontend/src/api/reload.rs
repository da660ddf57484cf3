//! Requests to read the configuration again.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use thalweg_job::{ReloadError, Reloads};

use super::Observed;
use super::reply::Refusal;

/// How long an answer waits for the end of a reload, which may take as long as a run may drain.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The state of a reload that goes on.
pub(crate) const RELOADING: &str = "reloading";

/// Reloads the configuration. Without a result in time, the answer has the number of the reload.
pub(super) async fn reload(run: &Observed) -> Result<Value, Refusal> {
    run.handle()?;
    let reloads = reloads(run)?;
    // This one comes after a reload that goes on, which may have read the file before the last change.
    let number = reloads.status().begun + 1;
    match tokio::time::timeout(ANSWER_WITHIN, reloads.reload()).await {
        Ok(Ok(difference)) => Ok(json!({ "state": "reloaded", "difference": difference })),
        Ok(Err(error)) => Err(refusal(&error)),
        Err(_) => Ok(json!({ "state": RELOADING, "number": number })),
    }
}

/// Only shows the difference.
pub(super) async fn difference(run: &Observed) -> Result<Value, Refusal> {
    run.handle()?;
    match tokio::time::timeout(ANSWER_WITHIN, reloads(run)?.show()).await {
        Ok(Ok(difference)) => Ok(json!({ "difference": difference })),
        Ok(Err(error)) => Err(refusal(&error)),
        Err(_) => {
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the configuration cannot be read in time"))
        }
    }
}

/// How the reloads went.
pub(super) fn status(reloads: &Reloads) -> Value {
    let status = reloads.status();
    json!({
        "begun": status.begun,
        "ended": status.ended,
        "failure": status.failure,
        "difference": status.difference.as_deref(),
    })
}

fn reloads(run: &Observed) -> Result<&Reloads, Refusal> {
    let reason = "this run does not read its configuration again: start it with `--watch`";
    run.reloads.as_ref().ok_or_else(|| Refusal::new(StatusCode::CONFLICT, reason))
}

fn refusal(error: &ReloadError) -> Refusal {
    let status = match error {
        ReloadError::Mistakes(_) => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadError::TooSlow => StatusCode::SERVICE_UNAVAILABLE,
        ReloadError::Refused(_) | ReloadError::NotRunning => StatusCode::CONFLICT,
    };
    Refusal::new(status, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_whether_to_correct_the_file_or_to_ask_again() {
        let status = |error: ReloadError| refusal(&error).status;
        let mistakes = ReloadError::Mistakes("`c.yaml` is not a regular file".to_owned());
        assert_eq!(status(mistakes), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(status(ReloadError::TooSlow), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(ReloadError::NotRunning), StatusCode::CONFLICT);
    }
}
