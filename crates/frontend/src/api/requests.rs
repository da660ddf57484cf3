//! Requests that change what a run does.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use thalweg_engine::{Handle, UnknownSource};
use tracing_subscriber::filter::LevelFilter;

use super::Observed;
use super::entries::entries;
use super::reply::Refusal;
use crate::log;

/// The time between the answer to a request to stop and the stop.
const BEFORE_STOP: Duration = Duration::from_millis(50);
/// The accepted levels, as an answer.
const LEVELS: &str = "`level` must be `off`, `error`, `warn`, `info`, `debug` or `trace`, or levels of modules, as in `warn,thalweg_engine=debug`";
/// The level in an answer, if it differs between modules.
const BY_MODULE: &str = "by module";
/// The longest text that selects log events.
const LONGEST_LEVEL: usize = 256;

pub(super) fn pause(run: &Observed, source: &str) -> Result<Value, Refusal> {
    let handle = run.handle()?;
    handle.pause(source).map_err(unknown)?;
    Ok(status(handle, source))
}

pub(super) fn resume(run: &Observed, source: &str) -> Result<Value, Refusal> {
    let handle = run.handle()?;
    handle.resume(source).map_err(unknown)?;
    Ok(status(handle, source))
}

pub(super) fn drain(run: &Observed, source: &str) -> Result<Value, Refusal> {
    let handle = run.handle()?;
    handle.drain(source).map_err(unknown)?;
    Ok(status(handle, source))
}

fn unknown(error: UnknownSource) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, error.to_string())
}

/// The state of a source after a request. A source that has ended stays ended.
fn status(handle: &Handle, source: &str) -> Value {
    let found = handle.sources().into_iter().find(|status| status.name == source);
    json!({ "source": source, "state": found.map(|status| status.state) })
}

/// Asks the process to stop, as SIGTERM does. Another request changes nothing. The run may end at once, and
/// its server with it, so the answer leaves first.
pub(super) fn stop(run: &Observed) -> Value {
    run.stop.set();
    let (handle, stop) = (run.handle().ok().cloned(), run.stop.clone());
    tokio::spawn(async move {
        tokio::time::sleep(BEFORE_STOP).await;
        if let Some(handle) = handle {
            handle.stop();
        }
        stop.heed();
    });
    json!({ "stopping": true })
}

/// Changes what is logged.
pub(super) fn log_level(body: &[u8]) -> Result<Value, Refusal> {
    let wrong = || Refusal::bad("send an object with a level: `{\"level\":\"debug\"}`");
    let body = entries(body)?.ok_or_else(wrong)?;
    let level = body.get("level").and_then(Value::as_str).ok_or_else(wrong)?;
    // Other characters are regular expressions over fields, which may cost any amount of time.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_:,=-".contains(c);
    if level.is_empty() || level.len() > LONGEST_LEVEL || !level.chars().all(is_plain) {
        return Err(Refusal::bad(LEVELS));
    }
    // The filter takes any other word for the name of a module.
    let is_level = |part: &str| {
        let name = part.rsplit_once('=').map_or(part, |(_, name)| name);
        !name.is_empty() && name.parse::<LevelFilter>().is_ok()
    };
    if !level.split(',').all(is_level) {
        return Err(Refusal::bad(LEVELS));
    }
    log::set_level(level).map_err(Refusal::bad)?;
    // The names of modules are not repeated: the answer would tell whether a guess is a secret.
    let shown = if level.contains([',', '=']) { BY_MODULE } else { level };
    Ok(json!({ "level": shown }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_changes_nothing() {
        let long = format!("{{\"level\":\"{}\"}}", "a,".repeat(200));
        for body in [
            "",
            "[]",
            "{}",
            r#"{"level":1}"#,
            r#"{"level":""}"#,
            r#"{"level":"[x{a=.*}]"}"#,
            long.as_str(),
            r#"{"level":"loud"}"#,
            r#"{"level":"warn,loud"}"#,
            r#"{"level":"a=loud"}"#,
            r#"{"level":"a="}"#,
            r#"{"level":"warn","level":"warn"}"#,
        ] {
            assert_eq!(log_level(body.as_bytes()).unwrap_err().status, StatusCode::BAD_REQUEST, "{body}");
        }
    }
}
