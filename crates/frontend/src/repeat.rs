//! Repeats a run.

use std::time::Duration;

use thalweg_job::{Signals, pause};

use crate::api::StopRequest;
use crate::exit::{CommandError, Exit, tell};

/// How to repeat a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Repeat {
    /// The pause between two runs.
    pub pause: Duration,
    /// The number of runs in all; without end if `None`.
    pub iterations: Option<u64>,
}

impl Repeat {
    /// The pause, unless another is asked for: a configuration without input must not keep a core busy.
    pub const PAUSE: Duration = Duration::from_secs(1);
}

/// Runs a function once, or as often as `repeat` says. A failed run is reported, and the next one still takes
/// place: its input may exist by then. The repetition has then failed too. Mistakes in the configuration and
/// requests to end, by signals or clients, stop the repetition, whatever the outcome of the current run.
pub(crate) fn repeated(
    repeat: Option<Repeat>,
    json: bool,
    signals: &Signals,
    stop: &StopRequest,
    mut run: impl FnMut() -> Result<Exit, CommandError>,
) -> Result<Exit, CommandError> {
    let Repeat { pause: time, iterations } = repeat.unwrap_or_default();
    let mut worst = Exit::Done;
    let mut has_failed = false;
    let mut iteration = 0;
    loop {
        iteration += 1;
        let ended = run();
        let is_last = repeat.is_none() || signals.has_end() || stop.is_set();
        match ended {
            Ok(Exit::Done) => {}
            Ok(exit) => worst = exit,
            Err(error) if is_last || !may_succeed_later(&error) => return Err(error),
            Err(error) => {
                tell(&error, json);
                has_failed = true;
            }
        }
        if is_last || iterations.is_some_and(|most| iteration >= most) || pause(time, signals)? {
            return if has_failed { Err(CommandError::AlreadyReported) } else { Ok(worst) };
        }
    }
}

fn may_succeed_later(error: &CommandError) -> bool {
    !matches!(error, CommandError::Mistakes(_) | CommandError::Usage(_) | CommandError::ReaderGone)
}
