//! Running something again and again.

use std::str::FromStr;
use std::time::Duration;

use thalweg_config::TimeSpan;

use crate::drive::pause;
use crate::exit::{CliError, Exit};

use super::{Arguments, Ended};

/// A time span, or a number of seconds.
pub fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    TimeSpan::from_str(text).map(|span| span.0).map_err(|error| error.to_string())
}

/// Runs something once, or as often as the command line says. A run that fails is told and does not keep the next from
/// being tried: what is to be there may be there then.
pub fn again_and_again(
    arguments: &Arguments,
    mut run: impl FnMut() -> Result<Ended, CliError>,
) -> Result<Exit, CliError> {
    let mut worst = Exit::Done;
    let mut iteration = 0;
    loop {
        iteration += 1;
        match run() {
            Ok(ended) => {
                if ended.exit != Exit::Done {
                    worst = ended.exit;
                }
                if !arguments.repeat || ended.stopped {
                    return Ok(worst);
                }
            }
            // What is wrong with it is not put right by itself.
            Err(failure @ (CliError::Mistakes(_) | CliError::Usage(_) | CliError::NobodyReads)) => {
                return Err(failure);
            }
            Err(failure) if !arguments.repeat => return Err(failure),
            Err(failure) => {
                crate::exit::tell(&failure, arguments.json);
                worst = Exit::Errors;
            }
        }
        if arguments.iterations.is_some_and(|most| iteration >= most) {
            return Ok(worst);
        }
        if pause(arguments.sleep.unwrap_or_default())? {
            return Ok(worst);
        }
    }
}
