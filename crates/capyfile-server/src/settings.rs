//! The settings of the server, and those that capyfile reads from the environment.

use std::time::Duration;

use thalweg_config::{ByteSize, TimeSpan};
use thalweg_job::{Limits, LoadError, cores};
use thalweg_net::tls::TlsServer;

use crate::health::Check;

/// The address of capyfile's server.
const USUAL_ADDRESS: &str = ":8024";
/// How long requests in flight may take after a stop.
const USUAL_DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// A timeout of this number or more is in nanoseconds, as capyfile's server expected it.
const NANOSECONDS: u64 = 1_000_000_000;

/// The answer to a request with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistakes {
    /// Status 400, 408, 413 or 415 and what is wrong.
    Said,
    /// Status 500 and `INTERNAL`, as from capyfile.
    Internal,
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen at.
    pub address: String,
    /// The answer to a client's mistake.
    pub mistakes: Mistakes,
    /// The certificate and key, if the server speaks TLS.
    pub tls: Option<TlsServer>,
    /// The health check, if there is one.
    pub check: Option<Check>,
    /// The largest file.
    pub max_file_bytes: ByteSize,
    /// The largest request.
    pub max_request_bytes: ByteSize,
    /// The most files in a request.
    pub max_files: usize,
    /// The budget of all requests together.
    pub memory: ByteSize,
    /// The number of cores to use.
    pub cores: usize,
    /// How long requests in flight may take after a stop.
    pub drain_timeout: Duration,
}

impl Settings {
    /// Reads `SERVER_ADDR`, `SERVER_CERT_FILE`, `SERVER_KEY_FILE` and `SERVER_SHUTDOWN_TIMEOUT`.
    /// `drain_timeout` replaces the last of these.
    ///
    /// # Errors
    /// If a variable is invalid.
    pub fn of_the_environment(drain_timeout: Option<Duration>) -> Result<Self, LoadError> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let tls = match (set("SERVER_CERT_FILE"), set("SERVER_KEY_FILE")) {
            (Some(certificate), Some(key)) => Some(TlsServer::new(certificate.into(), key.into())),
            (None, None) => None,
            _ => {
                let text = "`SERVER_CERT_FILE` and `SERVER_KEY_FILE` belong together: set both, or neither";
                return Err(LoadError::Variable(text.to_owned()));
            }
        };
        let shutdown = set("SERVER_SHUTDOWN_TIMEOUT").filter(|_| drain_timeout.is_none());
        let shutdown = shutdown.map(|text| timeout(&text)).transpose()?;
        Ok(Self {
            address: set("SERVER_ADDR").unwrap_or_else(|| USUAL_ADDRESS.to_owned()),
            mistakes: Mistakes::Said,
            tls,
            check: None,
            max_file_bytes: ByteSize(1 << 30),
            max_request_bytes: ByteSize(4 << 30),
            max_files: 100,
            memory: Limits::of_this_process().usual_memory(),
            cores: cores(),
            drain_timeout: drain_timeout.or(shutdown).unwrap_or(USUAL_DRAIN_TIMEOUT),
        })
    }
}

/// Reads a number of seconds, or a time span with its unit.
fn timeout(text: &str) -> Result<Duration, LoadError> {
    if let Some(number) = text.parse::<u64>().ok().filter(|number| *number >= NANOSECONDS) {
        tracing::warn!(
            "`SERVER_SHUTDOWN_TIMEOUT` is read as nanoseconds, as by capyfile; write it in seconds"
        );
        return Ok(Duration::from_nanos(number));
    }
    TimeSpan::or_seconds(text).map(TimeSpan::duration).map_err(|_| {
        let problem = "is neither a number of seconds nor a time such as `1m`";
        LoadError::Variable(format!("`SERVER_SHUTDOWN_TIMEOUT` is `{text}`, which {problem}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_in_seconds_and_large_numbers_are_nanoseconds() {
        let is = |text: &str| timeout(text).ok();
        assert_eq!(is("5"), Some(Duration::from_secs(5)));
        assert_eq!(is("1m"), Some(Duration::from_secs(60)));
        assert_eq!(is("30000000000"), Some(Duration::from_secs(30)));
        let wrong = timeout("soon").unwrap_err().to_string();
        assert_eq!(
            wrong,
            "`SERVER_SHUTDOWN_TIMEOUT` is `soon`, which is neither a number of seconds nor a time such as `1m`"
        );
    }

    #[test]
    fn an_option_goes_before_the_environment() {
        let settings = Settings::of_the_environment(Some(Duration::from_secs(7))).unwrap();
        assert_eq!(settings.drain_timeout, Duration::from_secs(7));
    }
}
