//! The server with the object, and a slow connection to it.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use thalweg_testbed::{Fault, Proxy, Rule, S3, Tools};

use super::rows::Rows;
use super::{bare, connection};

/// The delay of each request on the slow connection.
pub const LATENCY: Duration = Duration::from_millis(30);

/// The bucket of all objects.
pub const BUCKET: &str = "bench";

/// The key of the object that is read.
pub const SOURCE: &str = "rows.csv";

/// A running server.
pub struct Testbed {
    /// The server itself.
    pub server: S3,
    slow: Proxy,
    program: PathBuf,
    /// The CPU time of the server at the last call of [`spent`](Self::spent).
    taken: Cell<Duration>,
}

impl Testbed {
    /// Starts a server and uploads the rows.
    ///
    /// # Errors
    /// Returns an error if the server does not start, or rejects the rows.
    pub fn start(rows: &Rows) -> Result<Self, String> {
        let server = S3::start().map_err(|error| error.to_string())?;
        server.create_bucket(BUCKET).map_err(|error| error.to_string())?;
        let slow = Proxy::start(server.address()).map_err(|error| error.to_string())?;
        slow.set([Rule::new(Fault::Delay(LATENCY))]);
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let place = Self { server, slow, program, taken: Cell::default() };
        let mut upload = place.bare(false, "put", &rows.path.display().to_string(), &target(SOURCE), 4);
        crate::measure::run(&mut upload)?;
        rows.input.compare(&place.path(SOURCE))?;
        Ok(place)
    }

    /// Returns the file in which the server stores an object.
    pub fn path(&self, key: &str) -> PathBuf {
        self.server.folder().join(BUCKET).join(key)
    }

    /// Returns the folder that contains the server's folder.
    pub fn folder(&self) -> String {
        self.server.folder().parent().unwrap_or(Path::new("/")).display().to_string()
    }

    /// Returns thalweg's URL of an object, over the fast or the slow connection.
    pub fn url(&self, key: &str, is_slow: bool) -> String {
        if is_slow {
            self.slow.clear();
            return self.server.url_through(&self.slow, BUCKET, key);
        }
        self.server.url(BUCKET, key)
    }

    /// Returns the command of the bare client, which copies over the given number of connections.
    pub fn bare(&self, is_slow: bool, what: &str, from: &str, to: &str, connections: usize) -> Command {
        let address = if is_slow { self.slow.address() } else { self.server.address() };
        let mut command = Command::new(&self.program);
        command.args([bare::COMMAND, what, &address.to_string(), from, to]);
        command.arg(connections.to_string()).envs(self.server.env());
        command
    }

    /// Returns the CPU time of the server since the last call; zero if the system does not report it.
    pub fn spent(&self) -> Duration {
        let now = cpu_of(self.server.process_id());
        now.saturating_sub(self.taken.replace(now))
    }

    /// Returns the URL of an object for a client without keys, valid for an hour.
    ///
    /// # Errors
    /// Returns an error if the URL cannot be signed.
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

    /// Returns the version of the server. The server does not report it; the installer wrote it to a file.
    pub fn version(&self) -> String {
        let program = Tools::find().versitygw().unwrap_or_default();
        let noted = program.ancestors().nth(2).map(|folder| folder.join("versitygw.version"));
        let version = noted.and_then(|noted| std::fs::read_to_string(noted).ok());
        format!("versitygw {}", version.as_deref().unwrap_or("of an unknown version").trim())
    }
}

/// Returns the CPU time of a process; zero if the system does not report it.
pub fn cpu_of(process: u32) -> Duration {
    // The times are in hundredths of a second, after the program name, which may contain spaces.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Returns the path of an object, as in requests.
pub fn target(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}
