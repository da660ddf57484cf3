//! `thalweg serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use thalweg_capyfile_server::{Check, Event, Settings, serve};
use thalweg_config::ByteSize;
use thalweg_frontend::{CommandError, Exit, Paint, log, print};
use thalweg_job::{Configuration, cores};

use super::{size, time};

/// Serves a service definition of capyfile over HTTP.
///
/// A request to `/SERVICE/PROCESSOR` brings files, in a form or as its body, and is answered with what became
/// of each, in JSON as capyfile answers. SIGTERM or Ctrl-C lets what is under way end; a second one ends at
/// once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg serve service.yml
  thalweg serve service.yml --listen 127.0.0.1:8024 --health-check
  curl -F file=@photo.jpg http://127.0.0.1:8024/photos/archive

Without SERVICE and -f, the definition is at CAPYFILE_SERVICE_DEFINITION_URL, or in the file
CAPYFILE_SERVICE_DEFINITION_FILE, or in /etc/capyfile/service-definition.json.

More from the environment:
  SERVER_ADDR                          where to listen, unless --listen says it (:8024)
  SERVER_CERT_FILE, SERVER_KEY_FILE    speak TLS, with this certificate and key
  SERVER_SHUTDOWN_TIMEOUT              how long what is under way may take at the end, in seconds or
                                       as `1m` (30s)
  ETCD_ENDPOINTS, ETCD_USERNAME, ETCD_PASSWORD    where parameters from etcd are

Each request and what it comes to is told on the standard error output, with --json an object a line.

Exit codes:
  0  it was told to stop, and all that was under way is done
  2  the definition or the command line is wrong
  3  failed: the address is in use, say")]
pub struct Arguments {
    /// The service definition; `-` reads it from the standard input.
    #[arg(value_name = "SERVICE")]
    service: Option<PathBuf>,
    /// The same, as capyfile has it.
    #[arg(short = 'f', long, value_name = "FILE")]
    service_definition: Option<PathBuf>,
    /// Where to listen. Goes before SERVER_ADDR.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Accepted, and means nothing: files are always processed side by side.
    #[arg(short, long)]
    concurrency: bool,
    /// Accepted, and means nothing: each file goes through its operations on its own. There is nothing slower
    /// to select.
    #[arg(short = 'm', long, value_name = "MODE")]
    concurrency_mode: Option<Mode>,
    /// Answer a health check.
    #[arg(long)]
    health_check: bool,
    /// The path of the health check.
    #[arg(long, value_name = "PATH", default_value = "/health")]
    health_check_endpoint: String,
    /// How much the health check says: 0, that all is well; 1, also the program; 2, also how the process is.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    health_check_verbosity: u8,
    /// The largest file that is taken.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    max_file: ByteSize,
    /// The largest request that is taken.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    max_request: ByteSize,
    /// The most files that are taken in one request.
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_files: usize,
    /// How long what is under way may take at the end, for example `30s`; a number is seconds. Goes before
    /// SERVER_SHUTDOWN_TIMEOUT, which goes before `30s`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    drain_timeout: Option<Duration>,
    /// The memory for data in flight, of all requests together.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How many cores to use. Without it, all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Tell everything in JSON, a line each, on the standard error output.
    #[arg(long)]
    pub json: bool,
    /// Tell nothing but errors.
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
    log::begin_with("warn,thalweg=info", arguments.json, arguments.quiet)?;
    let settings = settings(arguments)?;
    let done = serve(&configuration, settings, &mut |event| tell(arguments, event))?;
    match done {
        true => Ok(Exit::Done),
        false => Err(CommandError::Failed("some of what was under way was given up".to_owned())),
    }
}

fn tell(arguments: &Arguments, event: Event<'_>) {
    let (name, text) = match event {
        Event::Listening(address) => ("listening", format!("listening: {address}")),
        Event::Stopping => {
            let text = "stopping: what is under way is answered first; again to stop at once";
            ("stopping", text.to_owned())
        }
    };
    if arguments.json {
        print::err(&format!("{}\n", json!({ "event": name, "message": text })));
    } else if !arguments.quiet {
        let (word, rest) = text.split_once(':').unwrap_or((&text, ""));
        print::err(&format!("{}{rest}\n", Paint::stderr().yellow(&format!("{word}:"))));
    }
}

/// The settings of the command line, and those of the environment where that says nothing.
fn settings(arguments: &Arguments) -> Result<Settings, CommandError> {
    let endpoint = arguments.health_check_endpoint.clone();
    if !endpoint.starts_with('/') {
        return Err(CommandError::Usage(format!("`{endpoint}` is no path: it begins with `/`")));
    }
    let verbosity = arguments.health_check_verbosity;
    let usual = Settings::of_the_environment(arguments.drain_timeout)?;
    Ok(Settings {
        address: arguments.listen.clone().unwrap_or(usual.address),
        check: arguments.health_check.then_some(Check { endpoint, verbosity }),
        max_file: arguments.max_file,
        max_request: arguments.max_request,
        max_files: arguments.max_files,
        memory: arguments.memory.unwrap_or(usual.memory),
        cores: arguments.threads.map_or_else(cores, usize::from),
        ..usual
    })
}
