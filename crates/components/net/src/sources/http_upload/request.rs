//! Handles one request: reads its files, sends them on, and answers with their outcomes.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use thalweg_engine::{Error, SourceOutput};
use thalweg_record::{Ending, File, Outcome, Report, Settlement};

use super::{Respond, Server};
use crate::upload::{self, Refusal, Uploads};
use crate::web::{self, Answer, Gate, Request};

/// The answer to a request.
#[derive(Serialize)]
struct Response {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    files: Vec<FileResponse>,
}

/// The outcome of a file.
#[derive(Serialize)]
struct FileResponse {
    name: String,
    size: u64,
    #[serde(rename = "type")]
    mime: Option<Arc<str>>,
    status: &'static str,
    reason: Option<String>,
}

impl Server {
    /// Sends the files of a request on and returns the answer.
    pub(super) async fn answer(&self, request: Request, gate: &Gate) -> Answer {
        if let Err(refused) = self.admission.admit(&request).await {
            return *refused;
        }
        let ending = || refused(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down");
        let Some(out) = gate.output() else { return ending() };
        match self.take(request, out).await {
            Ok(Ok((status, response))) => json(status, &response),
            Ok(Err(refusal)) => {
                match &refusal {
                    Refusal::Failed(error) => tracing::warn!("an upload was refused: {}", error.full()),
                    Refusal::Busy(reason) => tracing::warn!("an upload was refused: {reason}"),
                    // The client alone is concerned.
                    Refusal::Malformed(_)
                    | Refusal::Unsupported(_)
                    | Refusal::TooLarge(_)
                    | Refusal::Late => {}
                }
                refused(refusal.status(), refusal.reason())
            }
            Err(error) => {
                gate.fail(error);
                ending()
            }
        }
    }

    async fn take(
        &self,
        request: Request,
        mut out: SourceOutput,
    ) -> Result<Result<(StatusCode, Response), Refusal>, Error> {
        let (head, body) = request.into_parts();
        let uploads = match upload::read(&head, body, self.accept, self.limits, &self.room).await {
            Ok(uploads) => uploads,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut files: Vec<File> = uploads.files.iter().map(|file| file.file(out.name().clone())).collect();
        if self.respond == Respond::Received {
            let response = accepted(uploads);
            out.send_files(files, None).await?;
            return Ok(Ok((StatusCode::ACCEPTED, response)));
        }
        // From here on, only the files hold their contents.
        let mut waiting = Vec::new();
        for (file, upload) in files.iter_mut().zip(uploads.files) {
            let settled = out.settled(file.ack_mut());
            waiting.push((upload.name, upload.size, Report::default(), settled));
        }
        let reported = files.into_iter().zip(&waiting);
        let files = reported.map(|(file, (.., report, _))| file.with_report(report.clone())).collect();
        out.send_files(files, None).await?;
        // Downstream stages end only when all source outputs are dropped. Some settle their files only then.
        drop(out);
        let mut responses = Vec::new();
        let mut outcomes = Vec::new();
        for (name, size, report, settled) in waiting {
            let Settlement { outcome, reason, .. } = settled.await;
            let ending = report.lock().take();
            let outcome = match outcome {
                // The file was rejected, and its error was delivered to the `errors` output.
                Outcome::Delivered | Outcome::Filtered if has_problem(ending.as_ref()) => Outcome::Rejected,
                outcome => outcome,
            };
            outcomes.push(outcome);
            responses.push(file_response(name.to_string_lossy().into_owned(), size, outcome, reason, ending));
        }
        let (code, status) = of_all(&outcomes);
        Ok(Ok((code, Response { status, reason: None, files: responses })))
    }
}

/// Returns the answer to a request whose files have arrived.
fn accepted(uploads: Uploads) -> Response {
    let files = uploads.files.into_iter().map(|file| FileResponse {
        name: file.name.to_string_lossy().into_owned(),
        size: file.size,
        mime: None,
        status: "accepted",
        reason: None,
    });
    Response { status: "accepted", reason: None, files: files.collect() }
}

fn has_problem(ending: Option<&Ending>) -> bool {
    ending.is_some_and(|ending| ending.problem.is_some())
}

/// Returns the part of the answer about one file. It has the name that the client sent and the size that
/// arrived, since the client knows no others.
fn file_response(
    name: String,
    size: u64,
    outcome: Outcome,
    reason: Option<String>,
    ending: Option<Ending>,
) -> FileResponse {
    let (mime, problem) = ending.map(|ending| (ending.mime, ending.problem)).unwrap_or_default();
    let reason = problem.map(|problem| problem.reason).or(reason);
    let (status, reason) = match outcome {
        Outcome::Delivered | Outcome::Filtered => ("delivered", None),
        Outcome::Rejected => ("rejected", Some(reason.unwrap_or_else(|| "it was rejected".to_owned()))),
        // The cause is only logged, since it may reveal more than a client should know.
        Outcome::Failed | Outcome::Unfinished => ("failed", Some("it could not be delivered".to_owned())),
    };
    FileResponse { name, size, mime, status, reason }
}

/// Returns the status for all files together, as an HTTP status and as a word.
fn of_all(outcomes: &[Outcome]) -> (StatusCode, &'static str) {
    let is_delivered = |outcome: &Outcome| matches!(outcome, Outcome::Delivered | Outcome::Filtered);
    if outcomes.contains(&Outcome::Failed) {
        (StatusCode::SERVICE_UNAVAILABLE, "failed")
    } else if outcomes.iter().all(is_delivered) {
        (StatusCode::OK, "delivered")
    } else if outcomes.iter().any(is_delivered) {
        (StatusCode::MULTI_STATUS, "partial")
    } else {
        (StatusCode::UNPROCESSABLE_ENTITY, "rejected")
    }
}

fn refused(status: StatusCode, reason: &str) -> Answer {
    json(status, &Response { status: "refused", reason: Some(reason.to_owned()), files: Vec::new() })
}

fn json(status: StatusCode, response: &Response) -> Answer {
    // Text and numbers can always be serialised.
    let mut answer = web::text(status, serde_json::to_string(response).unwrap_or_default());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
