//! The commands of `python -m thalweg`. Python parses the command line; the commands are those of
//! `thalweg-frontend`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pyo3::prelude::*;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_frontend::errors::{
    self, ClearOptions, Filter, ListOptions, ReplayOptions, ShowOptions, StateLocation,
};
use thalweg_frontend::{
    CheckOptions, CommandError, Exit, Repeat, RunRequest, Scheduling, Show, Telemetry, report,
};
use thalweg_job::copy::CopyOptions;
use thalweg_job::{Configuration, Overrides, RunOptions, cores};

/// The arguments of `run`, by their names in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RunArguments {
    config: PathBuf,
    pipelines: Vec<String>,
    state: Option<PathBuf>,
    memory: Option<String>,
    threads: Option<usize>,
    drain_timeout: Option<String>,
    listen: Option<String>,
    api_token_file: Option<PathBuf>,
    /// The endpoint, or an empty text for that of the environment.
    telemetry: Option<String>,
    limit: Option<u64>,
    dry_run: bool,
    strict: bool,
    json: bool,
    quiet: bool,
    verbose: bool,
    repeat: bool,
    sleep: Option<String>,
    iterations: Option<u64>,
    schedule: Option<String>,
    service_definition: Option<PathBuf>,
    compat_exit_code: bool,
}

impl RunArguments {
    fn request(&self, names: Vec<String>) -> Result<RunRequest, CommandError> {
        let memory = option("memory", self.memory.as_deref(), size)?;
        let listen = option("listen", self.listen.as_deref(), address)?;
        let drain_timeout = option("drain-timeout", self.drain_timeout.as_deref(), time)?;
        let pause = option("sleep", self.sleep.as_deref(), time)?;
        let iterations = self.iterations;
        let schedule = option("schedule", self.schedule.as_deref(), schedule)?;
        let telemetry = match self.telemetry.as_deref() {
            Some(endpoint) => Telemetry::of_the_environment(Some(endpoint))?,
            None => None,
        };
        Ok(RunRequest {
            overrides: Overrides { names, state: self.state.clone(), memory },
            options: RunOptions {
                cores: self.threads.unwrap_or_else(cores).max(1),
                drain_timeout: drain_timeout.unwrap_or(RunOptions::DRAIN_TIMEOUT),
                limit: self.limit,
                ..RunOptions::default()
            },
            show: Show {
                json: self.json,
                quiet: self.quiet,
                listen: listen.into_iter().collect(),
                api_token_file: self.api_token_file.clone(),
                telemetry,
                warns: false,
                verbose: self.verbose,
            },
            dry_run: self.dry_run,
            strict: self.strict,
            repeat: self.repeat.then(|| Repeat { pause: pause.unwrap_or(Repeat::PAUSE), iterations }),
            schedule: schedule.unwrap_or_default(),
            watch: false,
            compat_exit_code: self.compat_exit_code,
            reports_skipped: false,
            hints: false,
            shows_rejected: None,
        })
    }

    fn run(&self) -> Result<Exit, CommandError> {
        let definition = self.service_definition.as_deref();
        let (configuration, names) = Configuration::given(&self.config, &self.pipelines, definition)?;
        thalweg_frontend::run(&configuration, &self.request(names)?)
    }
}

/// Parses the value of an option, if it was given. The error names the option and the reason.
fn option<T>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, CommandError> {
    let wrong = |error: String| CommandError::Usage(format!("`--{name}`: {error}"));
    text.map(|text| parse(text).map_err(wrong)).transpose()
}

/// Parses a size.
fn size(text: &str) -> Result<ByteSize, String> {
    ByteSize::from_str(text).map_err(|error| error.to_string())
}

/// Parses an address with a port.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as `127.0.0.1:9090`".to_owned())
}

/// Parses the times of a schedule, or `off`.
fn schedule(text: &str) -> Result<Scheduling, String> {
    Scheduling::from_str(text).map_err(|error| error.to_string())
}

/// Parses a time span, or a number of seconds.
fn time(text: &str) -> Result<Duration, String> {
    TimeSpan::or_seconds(text).map(TimeSpan::duration).map_err(|error| error.to_string())
}

/// Runs a configuration as `thalweg run` does, and returns the exit code.
#[pyfunction]
pub fn run_command(py: Python<'_>, arguments: RunArguments) -> u8 {
    py.detach(|| report(arguments.run(), arguments.json))
}

/// Checks a configuration as `thalweg check` does, and returns the exit code.
#[pyfunction]
pub fn check_command(py: Python<'_>, config: PathBuf, plan: bool, json: bool, threads: Option<usize>) -> u8 {
    let options = CheckOptions { plan, json, threads };
    py.detach(|| report(thalweg_frontend::check(Configuration::open(&config), &options), false))
}

/// Converts a configuration as `thalweg convert` does, and returns the exit code.
#[pyfunction]
pub fn convert_command(
    py: Python<'_>,
    config: PathBuf,
    processor: Option<String>,
    output: Option<PathBuf>,
) -> u8 {
    py.detach(|| {
        let converted = Configuration::open(&config).map_err(CommandError::from).and_then(|configuration| {
            thalweg_frontend::convert(&configuration, processor.as_deref(), output.as_deref())
        });
        report(converted, false)
    })
}

/// Copies objects as `thalweg copy` does, and returns the exit code. `options` are those of `copy`, in JSON.
#[pyfunction]
pub fn copy_command(
    py: Python<'_>,
    options: &str,
    state: Option<PathBuf>,
    print_config: bool,
    json: bool,
    quiet: bool,
) -> u8 {
    py.detach(|| {
        let options = CopyOptions::from_json(options);
        let copied = options.map_err(CommandError::from).and_then(|mut options| {
            options.state.state = state;
            match print_config {
                true => thalweg_frontend::print_config(&options),
                false => thalweg_frontend::copy(&options, &Show { json, quiet, ..Show::default() }),
            }
        });
        report(copied, json)
    })
}

/// The arguments of `errors`, by their names in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ErrorsArguments {
    action: String,
    config: Option<PathBuf>,
    state: Option<PathBuf>,
    component: Option<String>,
    id: u64,
    limit: Option<u64>,
    json: bool,
    payload: bool,
    yes: bool,
}

impl ErrorsArguments {
    fn run(self) -> Result<Exit, CommandError> {
        let Self { action, config, state, component, id, limit, json, payload, yes } = self;
        let filter = Filter { component };
        if action == "replay" {
            let config = config.unwrap_or_default();
            return errors::replay(&ReplayOptions { config, state, filter, limit, json });
        }
        let location = StateLocation { config, state };
        match action.as_str() {
            "show" => errors::show(&ShowOptions { location, id, json, payload }),
            "clear" => errors::clear(&ClearOptions { location, filter, limit, yes }),
            _ => errors::list(&ListOptions { location, filter, limit: limit.unwrap_or(50), json }),
        }
    }
}

/// Lists, shows, replays or removes dead letters as `thalweg errors` does, and returns the exit code.
#[pyfunction]
pub fn errors_command(py: Python<'_>, arguments: ErrorsArguments) -> u8 {
    py.detach(|| report(arguments.run(), false))
}
