//! Reads the answer to a request of documents.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::requests::{Answer, Failure, Reading, Request, Verdict};

/// The answer, as far as it is read.
#[derive(Deserialize)]
struct Bulk {
    items: Vec<Item>,
}

/// The outcome of a document, under the name of its action.
#[derive(Deserialize)]
struct Item {
    #[serde(alias = "create")]
    index: Outcome,
}

#[derive(Deserialize)]
struct Outcome {
    status: u16,
    error: Option<Value>,
}

/// Returns the fate of each document. `has_one_index` is true if all documents are for the same index.
pub(super) fn read(request: &Request, answer: &Answer, has_one_index: bool) -> Reading {
    match answer.status {
        StatusCode::OK => of_documents(request, answer, has_one_index),
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => Reading::Refused(request.text(answer)),
        // Also wrong credentials: the documents are not the reason, so they wait.
        _ => Reading::Again(request.failure(answer)),
    }
}

fn of_documents(request: &Request, answer: &Answer, has_one_index: bool) -> Reading {
    let bulk = serde_json::from_slice::<Bulk>(&answer.body).ok().filter(|_| answer.is_whole);
    let Some(Bulk { items }) = bulk else {
        let text = format!("the answer of {} is cut off, or none to a bulk request", request.server());
        return Reading::Again(Failure::temporary(text));
    };
    let wait = answer.retry_after();
    let verdict = |Item { index: Outcome { status, error } }| match status {
        200..=299 => Verdict::Delivered,
        // Only `create` has conflicts: the document is there.
        409 => Verdict::Delivered,
        429 | 503 => Verdict::Again(Failure::overloaded(reason(request, status, error)).after(wait)),
        500..=599 => Verdict::Again(Failure::temporary(reason(request, status, error)).after(wait)),
        // The index is absent or locked, or the user may not write to it.
        401 | 403 | 404 if has_one_index => {
            Verdict::Again(Failure::temporary(reason(request, status, error)).after(wait))
        }
        _ => Verdict::Rejected(reason(request, status, error)),
    };
    Reading::Each(items.into_iter().map(verdict).collect())
}

/// Returns the server's reason.
fn reason(request: &Request, status: u16, error: Option<Value>) -> String {
    let part = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let reason = match &error {
        Some(Value::String(text)) => text.clone(),
        Some(error) => {
            let parts = [
                part(error.get("type")),
                part(error.get("reason")),
                part(error.pointer("/caused_by/reason")),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
        }
        None => String::new(),
    };
    let colon = if reason.is_empty() { "" } else { ": " };
    format!(
        "{} answered {status} for the document{colon}{}",
        request.server(),
        request.shown(reason.as_bytes())
    )
}
