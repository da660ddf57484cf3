//! `thalweg serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use thalweg_capyfile_server::{Check, Event, Mistakes, Settings, serve};
use thalweg_config::ByteSize;
use thalweg_frontend::{CommandError, Exit, log, print};
use thalweg_job::{Configuration, cores};

use super::{size, time};

/// Serves a service definition of capyfile over HTTP.
///
/// A request to `/SERVICE/PROCESSOR` carries files, in a form or as its body. The answer is JSON in
/// capyfile's form, with the outcome of each file. SIGTERM or Ctrl-C lets requests in flight finish; a second
/// signal ends the server at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg serve service.yml
  thalweg serve service.yml --listen 127.0.0.1:8024 --health-check
  curl -F file=@photo.jpg http://127.0.0.1:8024/photos/archive

Without SERVICE and -f, the definition is at the URL in CAPYFILE_SERVICE_DEFINITION_URL, or in the
file in CAPYFILE_SERVICE_DEFINITION_FILE, or in /etc/capyfile/service-definition.json.

Other environment variables:
  SERVER_ADDR                          the address to listen at, without --listen (:8024)
  SERVER_CERT_FILE, SERVER_KEY_FILE    the certificate and key for TLS
  SERVER_SHUTDOWN_TIMEOUT              how long requests in flight may take after a stop, in seconds
                                       or as `1m` (30s)
  ETCD_ENDPOINTS, ETCD_USERNAME, ETCD_PASSWORD    the etcd that has the parameters

Each request and its outcome are logged on the standard error output, with --json as one object per line.

Exit codes:
  0  stopped, and all requests in flight were answered
  2  the definition or the command line is wrong
  3  failed, for example because the address is in use, or requests in flight were not answered")]
pub struct Arguments {
    /// The service definition; `-` reads it from the standard input.
    #[arg(value_name = "SERVICE")]
    service: Option<PathBuf>,
    /// The service definition, by capyfile's option.
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "service")]
    service_definition: Option<PathBuf>,
    /// The address to listen at. Overrides SERVER_ADDR.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Accepted for compatibility with capyfile, without effect: files are always processed in parallel.
    #[arg(short, long)]
    concurrency: bool,
    /// Accepted for compatibility with capyfile, without effect.
    #[arg(short = 'm', long, value_name = "MODE")]
    concurrency_mode: Option<Mode>,
    /// Answer a health check.
    #[arg(long)]
    health_check: bool,
    /// The path of the health check.
    #[arg(long, value_name = "PATH", default_value = "/health")]
    health_check_endpoint: String,
    /// The detail of the health check: 0 for the status alone; 1 adds the program; 2 adds the state of the
    /// process.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    health_check_verbosity: u8,
    /// Answer a request with a mistake as capyfile does, with status 500 and the code INTERNAL, instead of
    /// 400 and what is wrong.
    #[arg(long)]
    compat_status: bool,
    /// The largest file that is accepted.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    max_file_bytes: ByteSize,
    /// The largest request that is accepted.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    max_request_bytes: ByteSize,
    /// The most files that one request may carry.
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_files: usize,
    /// How long requests in flight may take after a stop, for example `30s`; a number is seconds. Overrides
    /// SERVER_SHUTDOWN_TIMEOUT. Without either, `30s`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    drain_timeout: Option<Duration>,
    /// The memory for data in flight, of all requests together.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print everything as JSON on the standard error output, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Print only errors.
    #[arg(long, short)]
    quiet: bool,
}

/// capyfile's modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Event,
    Lock,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let given = arguments.service.as_deref().or(arguments.service_definition.as_deref());
    let configuration = Configuration::find(given)?;
    log::begin_with("warn,thalweg=info", arguments.json, arguments.quiet, false)?;
    let settings = settings(arguments)?;
    let done = serve(&configuration, settings, &mut |event| print_event(arguments, event))?;
    match done {
        true => Ok(Exit::Done),
        false => Err(CommandError::Failed("stopped before all requests in flight were answered".to_owned())),
    }
}

fn print_event(arguments: &Arguments, event: Event<'_>) {
    let (name, text) = match event {
        Event::Listening(address) => ("listening", format!("listening: {address}")),
        Event::Stopping => {
            let text = "stopping: requests in flight are answered first; signal again to stop at once";
            ("stopping", text.to_owned())
        }
    };
    print::err(&print::event(arguments.json, arguments.quiet, name, &text));
}

/// The settings of the command line, completed by those of the environment.
fn settings(arguments: &Arguments) -> Result<Settings, CommandError> {
    let endpoint = arguments.health_check_endpoint.clone();
    if !endpoint.starts_with('/') {
        return Err(CommandError::Usage(format!("`{endpoint}` is not a path; it must begin with `/`")));
    }
    let verbosity = arguments.health_check_verbosity;
    let usual = Settings::of_the_environment(arguments.drain_timeout)?;
    Ok(Settings {
        address: arguments.listen.clone().unwrap_or(usual.address),
        mistakes: if arguments.compat_status { Mistakes::Internal } else { Mistakes::Said },
        check: arguments.health_check.then_some(Check { endpoint, verbosity }),
        max_file_bytes: arguments.max_file_bytes,
        max_request_bytes: arguments.max_request_bytes,
        max_files: arguments.max_files,
        memory: arguments.memory.unwrap_or(usual.memory),
        cores: arguments.threads.map_or_else(cores, usize::from),
        ..usual
    })
}
