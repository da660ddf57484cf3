//! `thalweg top`: rates, latencies and queues of a run, on the whole terminal.
//!
//! Lines are plain text with a few escape sequences. A library for user interfaces was rejected: a table that
//! is drawn again every second needs none. Where the output is no terminal, one picture is printed.

mod terminal;
mod view;

use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_job::Signals;
use thalweg_redact::foreign;

use super::RunTarget;
use super::client::Client;
use crate::exit::{CommandError, Exit};
use crate::paint::Paint;
use crate::print;
use terminal::Terminal;
use view::{Look, lines};

/// How often the counters are read.
const EVERY: Duration = Duration::from_secs(1);
/// How often keys, signals and the size of the terminal are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Shows a run until it ends, or until `q` or Ctrl-C.
///
/// # Errors
/// If the run does not answer.
pub fn top(target: &RunTarget) -> Result<Exit, CommandError> {
    let client = target.client()?;
    let about = client.value("GET", "/api/v1")?;
    let first = Look::new(about.clone(), client.value("GET", "/api/v1/stats")?, None);
    if !std::io::stdout().is_terminal() {
        thread::sleep(EVERY);
        let look = Look::new(about, client.value("GET", "/api/v1/stats")?, Some(&first));
        let text: String = lines(&look, print::width(), usize::MAX, Paint::stdout())
            .into_iter()
            .map(|line| line + "\n")
            .collect();
        print::show(&text)?;
        return Ok(Exit::Done);
    }
    // From here on, a signal ends the loop, so that the terminal is left as it was.
    let signals = Signals::new()?;
    let terminal = Terminal::enter()?;
    let ended = watch(&client, &about, first, &terminal, &signals);
    drop(terminal);
    if let Some(reason) = ended? {
        print::err(&format!("{reason}\n"));
    }
    Ok(Exit::Done)
}

/// Draws until the user or the run ends it. Returns why, if it was the run.
fn watch(
    client: &Client,
    about: &Value,
    mut look: Look,
    terminal: &Terminal,
    signals: &Signals,
) -> Result<Option<String>, CommandError> {
    loop {
        let drawn = Instant::now();
        let mut size = terminal.size();
        terminal.draw(&lines(&look, size.0, size.1, Paint::stdout()))?;
        while drawn.elapsed() < EVERY {
            thread::sleep(TICK);
            if signals.has_end() || terminal.is_left()? {
                return Ok(None);
            }
            if terminal.size() != size {
                size = terminal.size();
                terminal.draw(&lines(&look, size.0, size.1, Paint::stdout()))?;
            }
        }
        look = match client.value("GET", "/api/v1/stats") {
            Ok(stats) => Look::new(about.clone(), stats, Some(&look)),
            Err(CommandError::Failed(reason)) => {
                return Ok(Some(format!("ended: {}", foreign(&reason))));
            }
            Err(other) => return Err(other),
        };
    }
}
