//! `thalweg serve`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::MultiProgress;
use serde_json::json;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_dialects::capyfile;
use thalweg_engine::DEFAULT_MEMORY;
use thalweg_net::net::Announce;
use thalweg_net::tls::TlsServer;
use thalweg_runtime::Stop;

use crate::drive::{Asked, Signals};
use crate::exit::{CliError, Exit};
use crate::log;
use crate::paint::Paint;
use crate::print;
use crate::server::{Check, Server, Settings};
use crate::service::{self, EtcdLookup};

/// Where capyfile's server listens.
const USUAL_ADDRESS: &str = ":8024";
/// How long what is under way may take at the end.
const USUAL_GRACE: Duration = Duration::from_secs(30);
/// A number of seconds from which on it was meant for the nanoseconds that capyfile took.
const NANOSECONDS: u64 = 1_000_000_000;

/// Serves a service definition of capyfile over HTTP.
///
/// A request to `/SERVICE/PROCESSOR` brings files, in a form or as its body, and is answered with what became of each, in JSON as
/// capyfile answers. SIGTERM or Ctrl-C lets what is under way end; a second one ends at once.
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
    /// Accepted, and means nothing: each file goes through its operations on its own. There is nothing slower to select.
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
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::run::size)]
    max_file: ByteSize,
    /// The largest request that is taken.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = super::run::size)]
    max_request: ByteSize,
    /// The most files that are taken in one request.
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_files: usize,
    /// The memory for data in flight, of all requests together.
    #[arg(long, value_name = "SIZE", value_parser = super::run::size)]
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

pub fn run(arguments: &Arguments) -> Result<Exit, CliError> {
    let given = arguments.service.as_deref().or(arguments.service_definition.as_deref());
    let document = service::find(given)?;
    if !capyfile::is_capyfile(&document) {
        let name = document.name();
        return Err(CliError::Usage(format!(
            "`{name}` is no service definition: it has no list of `processors`; use `thalweg run {name}`"
        )));
    }
    let usual = "warn,thalweg=info";
    log::begin_with(usual, &MultiProgress::new(), arguments.json, arguments.quiet, false)?;
    let settings = settings(arguments)?;
    let (cores, has_tls) = (settings.cores, settings.tls.is_some());
    let server = Arc::new(Server::new(document, settings, EtcdLookup::of_this_process()?)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores)
        .max_blocking_threads(1024)
        .thread_name("thalweg")
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let announce = Announce::new("serve");
        let at = announce.watch();
        let listener = server.bind(&announce).await?;
        let scheme = if has_tls { "https" } else { "http" };
        let at = at.borrow().clone().unwrap_or_default();
        tell(arguments, "listening", &format!("listening: {scheme}://{at}"));
        let stop = Stop::default();
        let mut signals = Signals::new()?;
        let mut serving = tokio::spawn(server.run(listener, stop.clone()));
        loop {
            tokio::select! {
                ended = &mut serving => {
                    break ended.unwrap_or_else(|error| Err(CliError::Failed(error.to_string())));
                }
                signal = signals.next() => match signal {
                    Asked::ToEnd if stop.is_requested() => break Ok(false),
                    Asked::ToEnd => {
                        stop.request();
                        let text = "stopping: what is under way is answered first; again to stop at once";
                        tell(arguments, "stopping", text);
                    }
                    #[cfg(unix)]
                    Asked::ToRoll => {}
                },
            }
        }
    });
    // What is still under way is given up, and its temporary files are removed at the next start.
    runtime.shutdown_background();
    match ended? {
        true => Ok(Exit::Done),
        false => Err(CliError::Failed("some of what was under way was given up".to_owned())),
    }
}

fn tell(arguments: &Arguments, event: &str, text: &str) {
    if arguments.json {
        print::err(&format!("{}\n", json!({ "event": event, "message": text })));
    } else if !arguments.quiet {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        print::err(&format!("{}{rest}\n", Paint::stderr().yellow(&format!("{word}:"))));
    }
}

fn settings(arguments: &Arguments) -> Result<Settings, CliError> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let tls = match (set("SERVER_CERT_FILE"), set("SERVER_KEY_FILE")) {
        (Some(certificate), Some(key)) => Some(TlsServer::new(certificate.into(), key.into())),
        (None, None) => None,
        _ => {
            let text = "`SERVER_CERT_FILE` and `SERVER_KEY_FILE` belong together: set both, or neither";
            return Err(CliError::Usage(text.to_owned()));
        }
    };
    let endpoint = arguments.health_check_endpoint.clone();
    if !endpoint.starts_with('/') {
        return Err(CliError::Usage(format!("`{endpoint}` is no path: it begins with `/`")));
    }
    let verbosity = arguments.health_check_verbosity;
    Ok(Settings {
        address: arguments
            .listen
            .clone()
            .or_else(|| set("SERVER_ADDR"))
            .unwrap_or_else(|| USUAL_ADDRESS.to_owned()),
        tls,
        check: arguments.health_check.then_some(Check { endpoint, verbosity }),
        max_file: arguments.max_file,
        max_request: arguments.max_request,
        max_files: arguments.max_files,
        memory: arguments.memory.unwrap_or(DEFAULT_MEMORY),
        cores: arguments.threads.map_or_else(super::cores, usize::from),
        grace: match set("SERVER_SHUTDOWN_TIMEOUT") {
            Some(text) => grace(&text)?,
            None => USUAL_GRACE,
        },
    })
}

/// A number of seconds, or a time with its unit.
fn grace(text: &str) -> Result<Duration, CliError> {
    match text.parse::<u64>() {
        Ok(number) if number >= NANOSECONDS => {
            tracing::warn!(
                "`SERVER_SHUTDOWN_TIMEOUT` is taken for nanoseconds, as capyfile took it; write it in seconds"
            );
            Ok(Duration::from_nanos(number))
        }
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => TimeSpan::from_str(text).map(TimeSpan::duration).map_err(|_| {
            let what = "is neither a number of seconds nor a time such as `1m`";
            CliError::Usage(format!("`SERVER_SHUTDOWN_TIMEOUT` is `{text}`, which {what}"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_end_is_in_seconds_and_was_in_nanoseconds() {
        let is = |text: &str| grace(text).ok();
        assert_eq!(is("5"), Some(Duration::from_secs(5)));
        assert_eq!(is("1m"), Some(Duration::from_secs(60)));
        assert_eq!(is("30000000000"), Some(Duration::from_secs(30)));
        assert_eq!(is("soon"), None);
    }
}
