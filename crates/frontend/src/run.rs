//! Runs a configuration and shows it.

use std::io::{BufWriter, IsTerminal, Write, stdout};
use std::sync::Arc;

use chrono::Utc;
use indicatif::MultiProgress;
use thalweg_engine::Schedule;
use thalweg_job::{Configuration, DryRun, Job, JobRun, Outcome, Overrides, Reloads, RunOptions, Signals};
use thalweg_redact::for_terminal;

use crate::api::{Listeners, StopRequest};
use crate::around::Around;
use crate::exit::{CommandError, Exit};
use crate::limits;
use crate::paint::Paint;
use crate::print;
use crate::pulse::Pulse;
use crate::repeat::{Pace, Repeat, Scheduling, repeated};
use crate::screen::{Screen, Show};
use crate::service_manager::ServiceManager;
use crate::summary;
use crate::timetable::Timetable;

/// How to run a configuration.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// Settings that replace those in the configuration.
    pub overrides: Overrides,
    /// How to run it.
    pub options: RunOptions,
    /// How to show it.
    pub show: Show,
    /// True if rejected messages lead to exit code 1.
    pub strict: bool,
    /// How to repeat it, if at all.
    pub repeat: Option<Repeat>,
    /// Whether it runs at the times of a schedule.
    pub schedule: Scheduling,
    /// True if it follows its file: see [`Reloads`].
    pub watch: bool,
    /// True if a service exits with code 0 even if files failed.
    pub compat_exit_code: bool,
    /// True if a service reports the files that its operations skip, as capyfile's concurrent modes do.
    pub reports_skipped: bool,
    /// True if the run only shows what it would write, and has no effects.
    pub dry_run: bool,
    /// True if a quiet run ends with the names of fields that no message had.
    pub hints: bool,
    /// The sink that shows messages that could not be processed. A quiet run with `hints` ends with the
    /// number of those that it did not show.
    pub shows_rejected: Option<&'static str>,
}

/// Runs a configuration until its sources end or a signal stops it, or at the times of its schedule until a
/// signal stops the process.
///
/// # Errors
/// Why it could not run, or why the run failed.
pub fn run(configuration: &Configuration, request: &RunRequest) -> Result<Exit, CommandError> {
    // One value for all runs, so that a signal between two of them counts.
    let signals = Signals::new()?;
    let pulse = Pulse::default();
    let reloads = request.watch.then(|| Reloads::of(configuration, &request.overrides)).transpose()?;
    let manager = ServiceManager::of_the_environment(&pulse, reloads.as_ref(), request.show.json);
    let manager = manager.map(Arc::new);
    let stop = StopRequest::default();
    let build = || configuration.job(&thalweg_job::registry(), &request.overrides);
    let mut built = Some(build());
    let job = built.as_ref().and_then(|built| built.as_ref().ok());
    let pace = pace_of(request, job)?;
    if reloads.is_some() && !matches!(pace, Pace::Once) {
        return Err(CommandError::Usage(
            "`--watch` is for a run that goes on, not for one that begins again: leave it out, or the schedule"
                .to_owned(),
        ));
    }
    let state_dir = job.and_then(|job| job.phases.first()).map(|phase| phase.state_dir.clone());
    // A mistake is reported at once. Each run reads variables and secrets as they are at its time.
    if pace.timetable().is_some()
        && let Some(job) = built.take().transpose()?
    {
        // The wait for the first run has a log too, whose level a client may change.
        request.show.begin_log(&MultiProgress::new(), &job.phases, false)?;
    }
    let listeners = Arc::new(Listeners::new(&request.show.listen));
    let around = Around {
        signals: &signals,
        manager: manager.as_ref(),
        pulse: &pulse,
        stop: &stop,
        reloads: reloads.as_ref(),
        show: &request.show,
        listeners: &listeners,
        timetable: pace.timetable(),
        configuration: configuration.name(),
        state_dir,
    };
    repeated(&pace, request.show.json, &around, || {
        let job = built.take().unwrap_or_else(build);
        let ended =
            job.map_err(CommandError::from).and_then(|job| once(configuration, job, request, &around));
        // A run that could not begin has not said that it ended.
        around.pulse.end();
        if let Some(manager) = around.manager {
            manager.end();
        }
        ended
    })
}

/// When the runs begin. A dry run takes place once, at once.
fn pace_of(request: &RunRequest, job: Option<&Job>) -> Result<Pace, CommandError> {
    let configured = job.and_then(Job::schedule);
    let schedule = match &request.schedule {
        _ if request.dry_run => None,
        Scheduling::Off => None,
        Scheduling::AsConfigured => configured.cloned(),
        Scheduling::At(cron) => Some(match configured {
            Some(configured) => Schedule { cron: cron.clone(), ..configured.clone() },
            None => cron.clone().into(),
        }),
    };
    match (schedule, request.repeat) {
        (None, None) => Ok(Pace::Once),
        (None, Some(repeat)) => Ok(Pace::After(repeat)),
        (Some(schedule), None) => Ok(Pace::At(Timetable::new(schedule, Utc::now()))),
        (Some(_), Some(_)) => Err(CommandError::Usage(
            "`--repeat` and a schedule exclude each other: leave one out. `--schedule off` ignores the `schedule` \
             of the configuration"
                .to_owned(),
        )),
    }
}

fn once(
    configuration: &Configuration,
    job: Job,
    request: &RunRequest,
    around: &Around<'_>,
) -> Result<Exit, CommandError> {
    let Show { json, quiet, verbose, .. } = request.show;
    let speaks = !json && !quiet;
    let events = job.file_events(
        speaks.then(output),
        Paint::stdout().is_on(),
        stdout().is_terminal(),
        request.reports_skipped,
    );
    let ending = summary::Ending {
        errors_command: (!request.dry_run).then(|| errors_command(configuration, request)),
        verbose,
    };
    let report: Report = match (json, speaks && events.is_none()) {
        (true, _) => Box::new(|outcome: &Outcome| format!("{}\n", outcome.json())),
        (_, true) => Box::new(move |outcome: &Outcome| summary::text(outcome, &ending, Paint::stderr())),
        _ if request.hints => {
            let shows = request.shows_rejected;
            Box::new(move |outcome: &Outcome| summary::hints(outcome, shows, Paint::stderr()))
        }
        _ => Box::new(|_: &Outcome| String::new()),
    };
    // Progress would garble the lines of file events.
    let show = Show {
        quiet: quiet || (speaks && events.is_some()),
        // A dry run has no effects, and its figures are not those of the configuration.
        telemetry: request.show.telemetry.clone().filter(|_| !request.dry_run),
        ..request.show.clone()
    };
    let mut screen = Screen::new(show).with_events(events.clone()).reporting(report).within(around);
    if verbose {
        print::err(&print::event(json, false, "limits", &limits::line(&job, request.options.cores)));
    }
    // Those of a converted configuration are for its author, who reads them once.
    if configuration.dialect().is_native() {
        for remark in job.remarks.iter().map(ToString::to_string) {
            for line in remark.lines() {
                print::err(&print::event(json, quiet, "remark", &format!("remark: {line}")));
            }
        }
    }
    let options = RunOptions {
        signals: Some(around.signals.clone()),
        reloads: around.reloads.cloned(),
        dry_run: request.dry_run.then(|| DryRun::new(Box::new(stdout()))),
        ..request.options.clone()
    };
    let outcome = JobRun::prepare(job, options, &mut screen)?.run(&mut screen)?;
    if outcome.phases.iter().any(Outcome::reader_is_gone) {
        return Err(CommandError::ReaderGone);
    }
    match outcome.failure() {
        Some(_) if json => return Err(CommandError::AlreadyReported),
        Some(failure) => return Err(CommandError::Failed(failure)),
        None => {}
    }
    let has_errors = match events {
        Some(events) => {
            let reasons = events.end()?;
            if speaks {
                reasons.iter().for_each(|reason| print::err(&format!("{}\n", for_terminal(reason, false))));
            }
            !reasons.is_empty() && !request.compat_exit_code
        }
        None => request.strict && outcome.rejected() > 0,
    };
    Ok(if has_errors { Exit::Errors } else { Exit::Done })
}

/// Turns the outcome of a phase into text.
pub(crate) type Report = Box<dyn Fn(&Outcome) -> String + Send>;

fn output() -> Box<dyn Write + Send> {
    Box::new(BufWriter::new(stdout()))
}

/// The command that shows dead letters.
fn errors_command(configuration: &Configuration, request: &RunRequest) -> String {
    let mut command = "thalweg errors list".to_owned();
    if !configuration.is_stdin() {
        command += &format!(" {}", configuration.name());
    }
    if let Some(state) = &request.overrides.state {
        command += &format!(" --state {}", state.display());
    }
    command
}
