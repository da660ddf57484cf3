//! `thalweg run`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use thalweg_config::ByteSize;
use thalweg_frontend::{CommandError, Exit, Repeat, RunRequest, Scheduling, Show, Telemetry};
use thalweg_job::{Configuration, GollumVersion, Overrides, RunOptions, cores};

use super::{COMPATIBILITY, address, candidates, schedule, size, time};

/// Runs a configuration until its sources end, or until a signal stops it.
///
/// Ctrl-C or SIGTERM stops the sources and delivers what is in flight; a second signal ends the run at once.
/// SIGHUP lets sinks finish their files and open new ones, and with `--watch` reads the configuration again.
/// With `--state`, a run resumes where the last one ended. A message that cannot be processed is kept, with
/// the reason: see `thalweg errors`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg run logs.yaml
  thalweg run logs.yaml main --state /var/lib/logs
  thalweg run logs.yaml --dry-run --limit 10
  zcat old.gz | thalweg run from-stdin.yaml | wc -l
  thalweg new generate | thalweg run -
  thalweg run logs.yaml --repeat --sleep 10s
  thalweg run logs.yaml --state /var/lib/logs --watch
  thalweg run logs.yaml --state /var/lib/logs --schedule '30 2 * * *'
  thalweg run service.yml photos:archive       a service definition of capyfile

With --json, all output goes to the standard error output, one object per line; the standard
output belongs to the sink `stdout`. Each object has an `event`: `listening`, `waiting`, `progress`
(every 10 s), `log`, `stopping`, `reopening`, `reloaded`, `limits`, and at the end `summary`, `mistakes` or
`failed`.

THALWEG_LOG is the level of the log: error, warn (the default), info, debug, trace.

Exit codes:
  0  done; also after a stop, if everything in flight was delivered
  1  done, but messages could not be processed (only with --strict), or files of a capyfile
     service failed (unless --compat-exit-code)
  2  the configuration or the command line is wrong
  3  failed")]
pub struct Arguments {
    /// The configuration; `-` reads it from the standard input.
    #[arg(value_name = "CONFIG", add = candidates::configurations())]
    config: PathBuf,
    /// Run only these pipelines, and everything that feeds them. Without names, all pipelines run. Of a
    /// service definition of capyfile, the processor: `service:processor`.
    #[arg(value_name = "PIPELINE", add = candidates::pipelines())]
    pipelines: Vec<String>,
    /// Keep checkpoints and dead letters in this folder, and resume where the last run ended. Overrides
    /// `state` in the configuration.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The memory for data in flight, for example `1GiB`. Overrides `memory` in the configuration. Without
    /// either, `256MiB`, or less in a container with less than 320 MiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long a stopped run may take to deliver what is in flight, for example `30s`; a number is seconds,
    /// and 0 does not wait. After that the run ends with exit code 3 and names what is left. It is not
    /// acknowledged: with `--state`, the next run sends it again.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", allow_hyphen_values = true)]
    drain_timeout: Duration,
    /// Serve the state of the run over HTTP at this address: `/metrics` for Prometheus; `/health`, which
    /// answers 503 with the reason while a component cannot work; `/ready`, which answers 200 while the run
    /// takes input; and the API below `/api/v1`, which shows messages and controls sources. May be given
    /// several times.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    listen: Vec<SocketAddr>,
    /// The file with the token that clients of the API must send, of at least 16 characters. Without it, the
    /// API answers only at addresses of this machine, such as 127.0.0.1, where it answers every user.
    #[arg(long, value_name = "FILE", requires = "listen")]
    api_token_file: Option<PathBuf>,
    /// Send the metrics of the run, and traces of some of its batches, to a receiver of OpenTelemetry (OTLP)
    /// by HTTP. Without ENDPOINT, that of OTEL_EXPORTER_OTLP_ENDPOINT, or `http://localhost:4318`. Other
    /// standard variables count too, such as OTEL_SERVICE_NAME. Without this option, none counts and nothing
    /// is sent. A receiver that does not answer does not hold up the run. A dry run sends nothing.
    #[arg(long, value_name = "ENDPOINT", num_args = 0..=1, require_equals = true)]
    telemetry: Option<Option<String>>,
    /// End each source after this number of messages, or of files if it reads files. The rest is not read,
    /// and not acknowledged: with `--state`, the next run continues there.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Write nothing, and show each message and file that sinks would get, as JSON on the standard output.
    ///
    /// Each line has the name of the sink and, if it writes files or objects, the name there (`to`). Messages
    /// and files that cannot be processed are shown with the reason. Nothing is removed or acknowledged, and
    /// the state is neither read nor written: input is read from its beginning. Transforms that have effects,
    /// such as `exec`, `write` and `remove`, do nothing. Sources that listen, such as `http`, do listen; a
    /// sender that waits for an answer gets a failure, and keeps what it sent.
    #[arg(long, conflicts_with = "repeat")]
    dry_run: bool,
    /// End with exit code 1 if messages could not be processed.
    #[arg(long)]
    strict: bool,
    /// Print everything as JSON on the standard error output, one object per line.
    #[arg(long)]
    json: bool,
    /// The format of what is printed on the standard error output: `json` is the same as `--json`.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    log_format: Option<LogFormat>,
    /// Print only errors.
    #[arg(long, short)]
    quiet: bool,
    /// Also print the limits that the run has found, and how the engine handed batches over.
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Run the configuration again when it has ended, until a signal stops it.
    #[arg(long)]
    repeat: bool,
    /// The pause between two runs, for example `10s`; a number is seconds. The default is `1s`.
    #[arg(long, short, value_name = "TIME", value_parser = time, requires = "repeat")]
    sleep: Option<Duration>,
    /// The number of runs in all.
    #[arg(long, short, value_name = "N", requires = "repeat", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Run the configuration at these times until a signal stops it: minute, hour, day, month and weekday in
    /// the notation of cron, or `@hourly`, `@daily`, `@weekly`, `@monthly`; with six fields, the first is the
    /// second. Replaces the times of `schedule` in the configuration, whose time zone and other options stay.
    /// `off` runs the configuration once, at once, and so does `--dry-run`.
    #[arg(long, value_name = "CRON", value_parser = schedule)]
    schedule: Option<Scheduling>,
    /// Follow the configuration: read it again when its file changes, on SIGHUP, and when a client of the API
    /// asks for it (`thalweg reload`).
    ///
    /// Components that are connected with no changed one run on untouched. The others deliver what is in
    /// flight, and those of the new configuration begin in their place. With `--state` they continue where
    /// the old ones ended. Without it, a source that would read its input from the beginning again cannot be
    /// changed. A configuration with mistakes changes nothing.
    #[arg(long, conflicts_with_all = ["repeat", "limit", "dry_run"])]
    watch: bool,
    /// A service definition of capyfile; CONFIG is then `service:processor`. If CONFIG has this form without
    /// the option, the environment names the definition: see `thalweg serve`. A definition that is CONFIG
    /// itself runs as well.
    #[arg(long, short = 'f', value_name = "FILE", help_heading = COMPATIBILITY, hide_short_help = true)]
    service_definition: Option<PathBuf>,
    /// As in capyfile, report the files that an operation skips. Files are always processed in parallel.
    #[arg(long, short, help_heading = COMPATIBILITY, hide_short_help = true)]
    concurrency: bool,
    /// Accepted without effect.
    #[arg(long, short = 'm', value_name = "MODE", value_parser = ["event", "lock"])]
    #[arg(help_heading = COMPATIBILITY, hide_short_help = true)]
    concurrency_mode: Option<String>,
    /// The version of gollum that a configuration of gollum was written for: `0.4`, `0.5` or `0.6`. Without
    /// it, the form and the plugins tell.
    #[arg(long, value_name = "VERSION", help_heading = COMPATIBILITY, hide_short_help = true)]
    gollum: Option<GollumVersion>,
    /// End with exit code 0 even if files of a service failed, as capyfile does. Without it, the exit code is
    /// then 1.
    #[arg(long, help_heading = COMPATIBILITY, hide_short_help = true)]
    compat_exit_code: bool,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Json,
    Text,
}

impl Arguments {
    /// True if everything is printed as JSON.
    pub fn speaks_json(&self) -> bool {
        self.json || self.log_format == Some(LogFormat::Json)
    }
}

pub fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let definition = arguments.service_definition.as_deref();
    let (configuration, names) = Configuration::given(&arguments.config, &arguments.pipelines, definition)?;
    let configuration = super::of_gollum(configuration, arguments.gollum)?;
    let repeat = arguments.repeat.then(|| Repeat {
        pause: arguments.sleep.unwrap_or(Repeat::PAUSE),
        iterations: arguments.iterations,
    });
    let json = arguments.speaks_json();
    let telemetry = match &arguments.telemetry {
        Some(endpoint) => Telemetry::of_the_environment(endpoint.as_deref())?,
        None => None,
    };
    let request = RunRequest {
        overrides: Overrides { names, state: arguments.state, memory: arguments.memory },
        options: RunOptions {
            cores: arguments.threads.map_or_else(cores, usize::from),
            drain_timeout: arguments.drain_timeout,
            limit: arguments.limit,
            ..RunOptions::default()
        },
        show: Show {
            json,
            quiet: arguments.quiet,
            listen: arguments.listen,
            api_token_file: arguments.api_token_file,
            telemetry,
            warns: false,
            verbose: arguments.verbose,
        },
        dry_run: arguments.dry_run,
        strict: arguments.strict,
        repeat,
        schedule: arguments.schedule.unwrap_or_default(),
        watch: arguments.watch,
        compat_exit_code: arguments.compat_exit_code,
        reports_skipped: arguments.concurrency,
        hints: false,
        shows_rejected: None,
    };
    thalweg_frontend::run(&configuration, &request)
}
