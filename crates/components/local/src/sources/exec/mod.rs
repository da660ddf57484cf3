//! `exec`: messages from the output of a program.
//!
//! [`thalweg_stream::command`] runs the program, and [`crate::program`] reads one run of it. This module
//! decides when it runs, and what a failure means.

mod command_line;
mod output;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::timezone::Tz;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::framing::{CutOptions, StreamPosition};
use thalweg_config::{Cron, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};
use thalweg_stream::command::{Command, Errors, Failure, check_environment};
use tokio::time::Instant;

use self::command_line::CommandLine;
use self::output::Output;
use self::schedule::Schedule;
use crate::program::Run;

/// Runs a program and reads its output: each line is a message.
///
/// The program runs once, and the source ends with it. With `every` or `cron` it runs at those times, and
/// with `restart` again whenever it has ended. Runs never overlap: a time that comes while the program still
/// runs is left out.
///
/// No shell is involved. The standard input of the program is empty. It waits while the pipeline is busy: the
/// capacity of a pipe is all that is buffered.
///
/// If the program exits with a code other than 0, is ended by a signal or exceeds `timeout`, that is logged
/// with the last lines of its standard error output, and `on_failure` says whether the source continues. The
/// summary of the run counts `program_runs` and `program_failures`. Messages that were read before are
/// delivered. Of a program that was ended by a signal, a last message without its delimiter is rejected: it
/// may be torn.
///
/// When the run is asked to stop, the program and the processes that it started get SIGTERM, and SIGKILL
/// after `stop_timeout`. Their output until then is read, except a last message that is cut off. When the
/// program ends, the processes that it left behind are killed. A process that left the program's process
/// group (`setsid`) stays. The output cannot be read a second time, so a run that is killed loses the
/// messages in flight.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecSource {
    /// The program and its arguments: a list, or a text that is split at blanks as a shell splits it, with
    /// quotes. The program is a path, or a name that is looked up in the folders of `PATH`. For pipes and
    /// variables of a shell, write `[sh, -c, "…"]`.
    #[schemars(example = &["df", "-Pk"])]
    command: CommandLine,
    /// The time between the beginnings of two runs. The first run begins at once.
    every: Option<TimeSpan>,
    /// The times of runs in the notation of cron: minute, hour, day, month and weekday, such as `*/5 * * *
    /// *`, or `@hourly`, `@daily`, `@weekly`, `@monthly`. With six fields, the first is the second.
    #[schemars(example = &"*/5 * * * *")]
    cron: Option<Cron>,
    /// The time zone of `cron`, such as `Europe/Berlin`. A time that a change of the clock skips has no run,
    /// and one that comes twice has two. The default is UTC.
    timezone: Option<String>,
    /// Whether to run the program again when it has ended, after `restart_delay`: for programs that run for
    /// ever. The default is `false`.
    #[serde(default)]
    restart: bool,
    /// The pause before the program is started again. The default is 1 second.
    restart_delay: Option<TimeSpan>,
    /// The maximum duration of a run. The program is then asked to end, as when the run is stopped. By
    /// default there is no limit.
    timeout: Option<TimeSpan>,
    /// How long a program may take to end after SIGTERM. Then it gets SIGKILL. The default is 5 seconds.
    #[serde(default = "patience")]
    stop_timeout: TimeSpan,
    /// The reaction to a failure of the program: `error` (the source and the run fail) or `continue`. The
    /// default is `error` for a program that runs once, and otherwise `continue`.
    on_failure: Option<OnFailure>,
    /// The destination of the standard error output: `log` (thalweg's own log, the default), `messages` (as
    /// the standard output) or `ignore`.
    #[serde(default)]
    stderr: StandardError,
    #[serde(flatten)]
    cut: CutOptions,
    /// Variables to add to the environment that thalweg itself has.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The directory in which the program runs. The default is the directory of thalweg.
    directory: Option<PathBuf>,
}

/// The reaction to a failure of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnFailure {
    /// The source and the run fail.
    Error,
    /// The failure is logged, and the source continues.
    Continue,
}

/// The destination of the standard error output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StandardError {
    /// The log of thalweg: each line is a warning, of at most 4 KiB. Programs that write their progress there
    /// are better ignored.
    #[default]
    Log,
    /// Messages, as the standard output.
    Messages,
    /// Nowhere.
    Ignore,
}

fn patience() -> TimeSpan {
    TimeSpan::seconds(5)
}

impl Component for ExecSource {
    const NAME: &'static str = "exec";
    const EXAMPLE: &'static str = "\
# Runs until it is stopped.
sources:
  load: { exec: { command: [cat, /proc/loadavg], every: 1m } }

pipelines:
  main: { from: load, to: history }

sinks:
  history: { file: { path: out/load.log } }
";

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cut.check();
        let times =
            [("every", self.every.is_some()), ("cron", self.cron.is_some()), ("restart", self.restart)];
        let mut times = times.into_iter().filter(|(_, is_given)| *is_given);
        if let (Some((first, _)), Some((second, _))) = (times.next(), times.next()) {
            let mistake = Mistake::new(second, format!("`{first}` and `{second}` exclude each other."));
            mistakes.push(mistake.help("Remove one of the two."));
        }
        for (option, span) in [("every", self.every), ("timeout", self.timeout)] {
            if span.is_some_and(|span| span.is_zero()) {
                let mistake = Mistake::new(option, format!("`{option}` cannot be 0."));
                mistakes.push(mistake.help("Leave it out, or write for example `1m`."));
            }
        }
        if let Some(zone) = &self.timezone {
            if zone.parse::<Tz>().is_err() {
                let mistake = Mistake::new("timezone", format!("`{zone}` is not a time zone."));
                mistakes.push(mistake.help("Write for example `Europe/Berlin` or `+01:00`."));
            } else if self.cron.is_none() {
                mistakes.push(Mistake::new("timezone", "`timezone` has no effect without `cron`."));
            }
        }
        if self.restart_delay.is_some() && !self.restart {
            let mistake = Mistake::new("restart_delay", "`restart_delay` has no effect without `restart`.");
            mistakes.push(mistake.help("Add `restart: true`."));
        }
        mistakes.extend(check_environment(self.env.keys()));
        mistakes
    }
}

impl ExecSource {
    fn schedule(&self) -> Schedule {
        let zone = self.timezone.as_deref().unwrap_or("UTC").parse();
        match (&self.every, &self.cron, zone) {
            (Some(every), _, _) => Schedule::Every(every.duration()),
            (None, Some(cron), Ok(zone)) => Schedule::Cron(cron.clone(), zone),
            _ if self.restart => {
                Schedule::Restart(self.restart_delay.unwrap_or(TimeSpan::seconds(1)).duration())
            }
            _ => Schedule::Once,
        }
    }

    fn runs_once(&self) -> bool {
        self.every.is_none() && self.cron.is_none() && !self.restart
    }
}

impl SourceConfig for ExecSource {
    fn endless(&self) -> Option<Endless> {
        let options =
            [("every", self.every.is_some()), ("cron", self.cron.is_some()), ("restart", self.restart)];
        options.into_iter().find_map(|(option, is_given)| Endless::by(option, is_given))
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn resends(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        self.runs_once()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let CommandLine { program, arguments } = &self.command;
        let counts = Arc::new(Counts::default());
        let (runs, failures) = (counts.clone(), counts.clone());
        context.details.show("program_runs", move || runs.runs.load(Relaxed));
        context.details.show("program_failures", move || failures.failures.load(Relaxed));
        let default = if self.runs_once() { OnFailure::Error } else { OnFailure::Continue };
        Ok(Box::new(Running {
            schedule: self.schedule(),
            on_failure: self.on_failure.unwrap_or(default),
            counts,
            cut: self.cut.clone(),
            run: Run {
                command: Command {
                    environment: self.env.clone().into_iter().collect(),
                    directory: self.directory.clone(),
                    timeout: self.timeout.map(TimeSpan::duration),
                    ..Command::new(program, arguments.iter().map(Into::into).collect())
                },
                errors: match self.stderr {
                    StandardError::Log => Errors::Apart,
                    StandardError::Messages => Errors::Joined,
                    StandardError::Ignore => Errors::Dropped,
                },
                patience: self.stop_timeout.duration(),
                path: program.as_str().into(),
                batch_bytes: context.batch_bytes,
            },
        }))
    }
}

#[derive(Debug, Default)]
struct Counts {
    runs: AtomicU64,
    failures: AtomicU64,
}

struct Running {
    schedule: Schedule,
    on_failure: OnFailure,
    counts: Arc<Counts>,
    cut: CutOptions,
    run: Run,
}

#[async_trait]
impl Source for Running {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let (first, mut runs) = (Instant::now(), 0);
        while self.schedule.wait(runs, first, out).await {
            runs += 1;
            self.counts.runs.fetch_add(1, Relaxed);
            let cutter = self.cut.cutter(StreamPosition::default());
            let mut output = Output::new(cutter, self.cut.framing.quiet(), &self.run.path, out);
            if let Err(failure) = self.run.run(&mut output, out).await? {
                self.counts.failures.fetch_add(1, Relaxed);
                self.failed(failure, out)?;
            }
        }
        Ok(())
    }
}

impl Running {
    fn failed(&self, failure: Failure, out: &SourceOutput) -> Result<(), Error> {
        match self.on_failure {
            OnFailure::Continue => {
                tracing::error!("`{}`: {failure}", out.name());
                Ok(())
            }
            OnFailure::Error => Err(failure.into_error()),
        }
    }
}
