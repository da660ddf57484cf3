//! The server, with the object in it, and a slow way there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thalweg_testbed::{Fault, Proxy, Rule, S3, Tools};

use super::rows::Rows;
use super::{bare, connection};

/// How much later each request comes to the server on the slow way.
pub const LATENCY: Duration = Duration::from_millis(30);

/// The bucket of everything.
pub const BUCKET: &str = "bench";

/// The key of the object that is read.
pub const SOURCE: &str = "rows.csv";

/// A running server.
pub struct Place {
    /// The server itself.
    pub server: S3,
    slow: Proxy,
}

impl Place {
    /// Starts a server, and uploads the rows.
    ///
    /// # Errors
    /// If it does not start, or does not take them.
    pub fn start(rows: &Rows) -> Result<Self, String> {
        let server = S3::start().map_err(|error| error.to_string())?;
        server.create_bucket(BUCKET).map_err(|error| error.to_string())?;
        let slow = Proxy::start(server.address()).map_err(|error| error.to_string())?;
        slow.set([Rule::new(Fault::Delay(LATENCY))]);
        let place = Self { server, slow };
        let mut upload = place.bare("put", &rows.path.display().to_string(), &target(SOURCE), 4)?;
        crate::measure::run(&mut upload)?;
        rows.input.compare(&place.path(SOURCE))?;
        Ok(place)
    }

    /// The file in which the server keeps an object.
    pub fn path(&self, key: &str) -> PathBuf {
        self.server.folder().join(BUCKET).join(key)
    }

    /// Where all of them are.
    pub fn folder(&self) -> String {
        self.server.folder().parent().unwrap_or(Path::new("/")).display().to_string()
    }

    /// What thalweg calls an object, by the short way or by the slow one.
    pub fn url(&self, key: &str, is_slow: bool) -> String {
        if is_slow {
            self.slow.clear();
            return self.server.url_through(&self.slow, BUCKET, key);
        }
        self.server.url(BUCKET, key)
    }

    /// The bare client, which copies from one place to the other by so many connections.
    ///
    /// # Errors
    /// If this program does not find itself.
    pub fn bare(&self, what: &str, from: &str, to: &str, connections: usize) -> Result<Command, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.args([bare::COMMAND, what, &self.server.address().to_string(), from, to]);
        command.arg(connections.to_string()).envs(self.server.env());
        Ok(command)
    }

    /// The URL of an object for somebody without keys, for an hour.
    ///
    /// # Errors
    /// If it cannot be signed.
    pub fn signed(&self, key: &str) -> std::io::Result<String> {
        let url = format!("{}{}", self.server.endpoint(), target(key));
        let request = http::Request::get(url).body(()).map_err(std::io::Error::other)?;
        let (mut head, ()) = request.into_parts();
        let server = &self.server;
        let signer = connection::signer(server.access_key(), server.secret_key(), server.region());
        let hour = Duration::from_secs(3600);
        connection::runtime()?.block_on(signer.sign(&mut head, Some(hour))).map_err(std::io::Error::other)?;
        Ok(head.uri.to_string())
    }

    /// What the server says that it is.
    pub fn version(&self) -> String {
        let unknown = || "versitygw of an unknown version".to_owned();
        let Ok(program) = Tools::find().versitygw() else { return unknown() };
        let Ok(output) = Command::new(program).arg("--version").output() else { return unknown() };
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .find_map(|line| line.split_once("ersion"))
            .map_or_else(unknown, |(_, version)| format!("versitygw {}", version.trim_matches([':', ' '])))
    }
}

/// The path of an object as requests have it.
pub fn target(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}
