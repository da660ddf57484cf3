//! Runs a configuration once, again after pauses, or at the times of a schedule.
//!
//! One loop serves all three. They differ in what comes before a run, and in what stays of a failed one. With
//! `--repeat` the first run begins at once, the others a pause after the end of the one before, and a failure
//! of any run is one of the process. A schedule waits for its time also before the first run. Its process is
//! a service: a failed run is logged, counted and in the history, and a service that is stopped between two
//! runs ends well. Runs never overlap, as the loop is in the run: the times that pass meanwhile are the
//! [`Timetable`]'s.

use std::str::FromStr;
use std::time::Duration;

use chrono::Utc;
use thalweg_config::{Cron, FormatError};

use crate::around::{Around, Awaited};
use crate::exit::{CommandError, Exit, tell};
use crate::timetable::Timetable;

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

/// Whether a configuration runs at the times of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// As the configuration says.
    #[default]
    AsConfigured,
    /// It runs at once, whatever the configuration says.
    Off,
    /// At these times. The other options are those of the configuration's schedule.
    At(Cron),
}

impl FromStr for Scheduling {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At),
        }
    }
}

/// When the runs of a process begin.
pub(crate) enum Pace {
    /// One run begins at once.
    Once,
    /// A run begins at once, and others a pause after the one before.
    After(Repeat),
    /// Runs begin at times.
    At(Timetable),
}

impl Pace {
    pub(crate) fn timetable(&self) -> Option<&Timetable> {
        match self {
            Self::At(timetable) => Some(timetable),
            Self::Once | Self::After(_) => None,
        }
    }

    /// Waits until the run of this number begins, the first of which is 0. Returns false if there is none.
    fn wait(&self, number: u64, around: &Around<'_>) -> Result<bool, CommandError> {
        match self {
            Self::Once => Ok(number == 0),
            Self::After(_) if number == 0 => Ok(true),
            Self::After(Repeat { iterations: Some(most), .. }) if number >= *most => Ok(false),
            Self::After(Repeat { pause, .. }) => around.wait(&Awaited::pause(*pause)),
            Self::At(timetable) => {
                let goes_on =
                    timetable.decide(Utc::now()) && around.wait(&Awaited::Time(timetable.clone()))?;
                if goes_on {
                    timetable.begin(Utc::now());
                }
                Ok(goes_on)
            }
        }
    }

    /// True if a run that failed so may succeed later. The configuration of a schedule had no mistakes when
    /// the process began. Those that a run finds are of secrets, such as a file that is being replaced.
    fn may_succeed_later(&self, error: &CommandError) -> bool {
        match error {
            CommandError::ReaderGone => false,
            CommandError::Mistakes(_) | CommandError::Usage(_) => self.timetable().is_some(),
            CommandError::Failed(_) | CommandError::AlreadyReported => true,
        }
    }

    /// Notes the end of a run. Returns true if it is the last one.
    fn end(&self, is_success: bool) -> bool {
        match self {
            Self::Once => true,
            Self::After(_) => false,
            Self::At(timetable) => timetable.end(Utc::now(), is_success),
        }
    }
}

/// Runs a function as often as `pace` says. A failed run is reported, and the next one still takes place: its
/// input may exist by then. Mistakes in the configuration, unless it has a schedule, and requests to end, by
/// signals or clients, stop the repetition, whatever the outcome of the current run.
pub(crate) fn repeated(
    pace: &Pace,
    json: bool,
    around: &Around<'_>,
    mut run: impl FnMut() -> Result<Exit, CommandError>,
) -> Result<Exit, CommandError> {
    let mut worst = Exit::Done;
    let mut has_failed = false;
    let mut number = 0;
    while pace.wait(number, around)? {
        number += 1;
        let ended = run();
        let is_last = pace.end(matches!(ended, Ok(Exit::Done))) || around.is_ending();
        match ended {
            Ok(Exit::Done) => {}
            Ok(exit) => worst = exit,
            Err(error) if is_last || !pace.may_succeed_later(&error) => return Err(error),
            Err(error) => {
                tell(&error, json);
                has_failed = true;
            }
        }
        if is_last {
            break;
        }
        if pace.timetable().is_some() {
            (worst, has_failed) = (Exit::Done, false);
        }
    }
    if has_failed { Err(CommandError::AlreadyReported) } else { Ok(worst) }
}
