//! Streams of the messages that pass an edge.
//!
//! The engine gives copies of messages, cut and at a limited rate, and leaves out what a slow client does not
//! take. So a tap costs the run little, and a client cannot hold it back. A line of its own says how many
//! messages were left out. Such a line also comes while nothing else does, so that a client that is gone is
//! noticed.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use thalweg_engine::{Tap, TapError, TapRequest, Tapped};
use thalweg_redact::{longest_secret, redacted_start};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};

use super::Observed;
use super::reply::{self, Body, Lines, Refusal};
use super::routes::Given;

/// The most names in one request.
const MOST_EDGES: usize = 64;
/// How often the number of messages that were left out is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a line comes if nothing passes.
const SIGN_EVERY: Duration = Duration::from_secs(15);
/// The most bytes of a payload, and of all fields together.
const MOST_BYTES: u32 = 32 << 10;
/// The bytes that a field counts for beside its name and its text.
const LEAST: usize = 8;
/// The name in place of fields that were left out. Its value is their number.
const MORE: &str = "…";
/// The number of lines that wait for the connection. The engine has more for a slow client.
const WAITING: usize = 1;

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A line of JSON.
    Json,
    /// An event for the `EventSource` of browsers.
    Event,
}

impl Form {
    fn of(given: Option<&str>) -> Result<Self, Refusal> {
        match given {
            None | Some("ndjson") => Ok(Self::Json),
            Some("sse") => Ok(Self::Event),
            Some(_) => Err(Refusal::bad("`format` must be `ndjson` or `sse`")),
        }
    }

    fn line(self, value: &Value) -> Bytes {
        match self {
            Self::Json => format!("{value}\n").into(),
            Self::Event => format!("data: {value}\n\n").into(),
        }
    }
}

/// Answers with a stream that ends with the run, or when the client is gone.
pub(super) fn tap(run: &Arc<Observed>, given: &Given, streams: &Notify) -> Result<Response<Body>, Refusal> {
    let form = Form::of(given.first("format"))?;
    let edges = given.all("edge");
    if edges.len() > MOST_EDGES {
        return Err(Refusal::bad(format!("a tap may have {MOST_EDGES} edges; `*` is any text in a name")));
    }
    let max_bytes = given.number("max_bytes", 4096, 0..=MOST_BYTES)? as usize;
    let rate = given.number("rate", 10, 1..=1000)?;
    // A secret at the cut is recognised only as a whole.
    let request = TapRequest { edges, rate, max_bytes: max_bytes + longest_secret() };
    let tap = run.handle()?.tap(request).map_err(|error| {
        let status = match &error {
            TapError::Unknown { .. } => StatusCode::NOT_FOUND,
            TapError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        };
        Refusal::new(status, error.to_string())
    })?;
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send(tap, form, max_bytes, sender));
    streams.notify_one();
    let of_type = if form == Form::Event { reply::EVENTS } else { reply::JSON_LINES };
    Ok(reply::lines(of_type, Lines(receiver)))
}

/// Sends what the tap gives until the run ends or the client is gone.
async fn send(mut tap: Tap, form: Form, max_bytes: usize, lines: mpsc::Sender<Bytes>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut told, mut last) = (0, Instant::now());
    loop {
        let line = tokio::select! {
            () = lines.closed() => return,
            tapped = tap.next() => match tapped {
                Some(tapped) => form.line(&shown(tapped, max_bytes)),
                None => break,
            },
            _ = looks.tick() => {
                let left_out = tap.left_out();
                if left_out == told && last.elapsed() < SIGN_EVERY {
                    continue;
                }
                told = left_out;
                form.line(&json!({ "left_out": left_out }))
            }
        };
        last = Instant::now();
        if lines.send(line).await.is_err() {
            return;
        }
    }
    let left_out = tap.left_out();
    if left_out != told {
        // The client may be gone.
        let _ = lines.send(form.line(&json!({ "left_out": left_out }))).await;
    }
}

/// A message without secrets, whose texts have at most `max_bytes`.
fn shown(tapped: Tapped, max_bytes: usize) -> Value {
    let Tapped { edge, output, time, payload, payload_is_cut, fields, reason, files } = tapped;
    let is_cut = payload_is_cut || payload.as_ref().is_some_and(|payload| payload.len() > max_bytes);
    let mut shown = json!({ "time": time, "edge": edge, "output": output });
    if let Some(reason) = reason {
        shown["reason"] = redacted_start(&reason, reason.len()).into();
    }
    if let Some(payload) = payload {
        shown["payload"] = redacted_start(&payload, max_bytes).into();
        shown["payload_is_cut"] = is_cut.into();
    }
    shown["fields"] = Value::Object(shown_fields(fields, max_bytes));
    if files {
        shown["files"] = true.into();
    }
    shown
}

/// The fields of a message, without secrets. Their names and texts have at most `max_bytes` together, counted
/// as the engine does, so that a part of a secret at its cut is never shown.
fn shown_fields(fields: Map<String, Value>, max_bytes: usize) -> Map<String, Value> {
    let mut shown = Map::new();
    let (mut left, mut left_out) = (max_bytes, 0);
    for (name, value) in fields {
        if name == MORE {
            left_out += value.as_u64().unwrap_or_default();
            continue;
        }
        let Some(rest) = left.checked_sub(name.len() + LEAST) else {
            left_out += 1;
            continue;
        };
        let (value, length) = match value {
            Value::String(text) => (redacted_start(&text, rest).into(), text.len()),
            other => (reply::without_secrets(other), LEAST),
        };
        left = rest.saturating_sub(length);
        shown.insert(name, value);
    }
    if left_out > 0 {
        shown.insert(MORE.to_owned(), left_out.into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_at_the_cut_is_removed_as_a_whole() {
        thalweg_redact::keep("planted-in-a-tap", Some("${TAP}"));
        let fields = [("k", json!("xx planted-in-a-tap")), ("late", json!(7)), ("…", json!(2))];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let tapped = Tapped {
            edge: "in".to_owned(),
            output: "main".to_owned(),
            time: "2026-11-25T13:42:47.123Z".to_owned(),
            payload: Some("xx planted-in-a-tap yy".to_owned()),
            payload_is_cut: false,
            fields,
            reason: None,
            files: false,
        };
        let shown = shown(tapped, 16);
        assert_eq!(shown["payload"], "xx ${TAP}");
        assert_eq!(shown["payload_is_cut"], true);
        assert_eq!(shown["fields"], json!({ "k": "xx ${TAP}", "…": 3 }));
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        let value = json!({ "a": "x\ny" });
        assert_eq!(Form::Json.line(&value), "{\"a\":\"x\\ny\"}\n");
        assert_eq!(Form::Event.line(&value), "data: {\"a\":\"x\\ny\"}\n\n");
    }
}
