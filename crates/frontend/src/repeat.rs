//! Repeats a run.

use std::time::Duration;

use thalweg_job::pause;

use crate::exit::{CommandError, Exit, tell};

/// How to repeat a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Repeat {
    /// The pause between two runs.
    pub pause: Duration,
    /// The number of runs in all; without end if `None`.
    pub iterations: Option<u64>,
}

/// How a run ended, and whether it was stopped.
pub(crate) struct Ended {
    pub exit: Exit,
    pub stopped: bool,
}

/// Runs a function once, or as often as `repeat` says. A failed run is reported, and the next one still takes
/// place: its input may exist by then. Mistakes in the configuration end the repetition.
pub(crate) fn repeated(
    repeat: Option<Repeat>,
    json: bool,
    mut run: impl FnMut() -> Result<Ended, CommandError>,
) -> Result<Exit, CommandError> {
    let mut worst = Exit::Done;
    let mut iteration = 0;
    loop {
        iteration += 1;
        match (run(), repeat) {
            (Ok(ended), _) => {
                if ended.exit != Exit::Done {
                    worst = ended.exit;
                }
                if repeat.is_none() || ended.stopped {
                    return Ok(worst);
                }
            }
            (
                Err(error @ (CommandError::Mistakes(_) | CommandError::Usage(_) | CommandError::NobodyReads)),
                _,
            )
            | (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                tell(&error, json);
                worst = Exit::Errors;
            }
        }
        let Repeat { pause: time, iterations } = repeat.unwrap_or_default();
        if iterations.is_some_and(|most| iteration >= most) || pause(time)? {
            return Ok(worst);
        }
    }
}
