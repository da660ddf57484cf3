//! `thalweg reload`: lets a run read its configuration again, and shows the difference.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use thalweg_engine::Difference;
use thalweg_redact::foreign;

use super::RunTarget;
use super::client::Client;
use crate::api::RELOADING;
use crate::exit::{CommandError, Exit};
use crate::print;

/// How often it is asked whether a reload has ended.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A request to reload.
#[derive(Debug, Clone)]
pub struct ReloadOptions {
    /// The run.
    pub target: RunTarget,
    /// True if the difference is only shown.
    pub only_shows: bool,
}

/// Lets a run reload its configuration, waits until it has, and prints the difference.
///
/// # Errors
/// If the run does not answer, or goes on as it was.
pub fn reload(options: &ReloadOptions) -> Result<Exit, CommandError> {
    let client = options.target.client()?;
    if options.only_shows {
        return show(&client.value("GET", "/api/v1/difference")?["difference"]);
    }
    let answer = client.value("POST", "/api/v1/reload")?;
    match answer["state"].as_str() {
        Some(RELOADING) => show(&awaited(&client, &answer["number"])?),
        _ => show(&answer["difference"]),
    }
}

/// Waits for the end of the reload with this number, and returns its difference.
fn awaited(client: &Client, number: &Value) -> Result<Value, CommandError> {
    loop {
        thread::sleep(ASK_EVERY);
        let about = client.value("GET", "/api/v1")?;
        let status = &about["reload"];
        let ended = status["ended"].as_u64().ok_or_else(|| silent("how the reload went"))?;
        if number.as_u64().is_some_and(|number| ended < number) {
            continue;
        }
        return match status["failure"].as_str() {
            Some(failure) => Err(CommandError::Failed(foreign(failure).to_string())),
            None => Ok(status["difference"].clone()),
        };
    }
}

fn silent(what: &str) -> CommandError {
    CommandError::Failed(format!("the run does not say {what}: it may be of another version"))
}

fn show(difference: &Value) -> Result<Exit, CommandError> {
    let text = match serde_json::from_value::<Difference>(difference.clone()) {
        Ok(difference) => difference.to_string(),
        Err(_) => return Err(silent("what differs")),
    };
    print::show(&format!("{}\n", foreign(&text)))?;
    Ok(Exit::Done)
}
