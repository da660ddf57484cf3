//! The server, with the object in it, and a slow way there.

use std::cell::Cell;
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
pub struct Testbed {
    /// The server itself.
    pub server: S3,
    slow: Proxy,
    program: PathBuf,
    /// What the server had taken of the cores when it was last asked.
    taken: Cell<Duration>,
}

impl Testbed {
    /// Starts a server, and uploads the rows.
    ///
    /// # Errors
    /// If it does not start, or does not take them.
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
    pub fn bare(&self, is_slow: bool, what: &str, from: &str, to: &str, connections: usize) -> Command {
        let address = if is_slow { self.slow.address() } else { self.server.address() };
        let mut command = Command::new(&self.program);
        command.args([bare::COMMAND, what, &address.to_string(), from, to]);
        command.arg(connections.to_string()).envs(self.server.env());
        command
    }

    /// What the server took of the cores since this was last asked; nothing where the system does not say it.
    pub fn spent(&self) -> Duration {
        // In hundredths of a second, after the name of the program, which may have spaces.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.server.process_id()));
        let stat = stat.unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let now = Duration::from_millis(ticks * 10);
        now.saturating_sub(self.taken.replace(now))
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

    /// Which version the server has: it does not say so itself, but who installed it has noted it.
    pub fn version(&self) -> String {
        let program = Tools::find().versitygw().unwrap_or_default();
        let noted = program.ancestors().nth(2).map(|folder| folder.join("versitygw.version"));
        let version = noted.and_then(|noted| std::fs::read_to_string(noted).ok());
        format!("versitygw {}", version.as_deref().unwrap_or("of an unknown version").trim())
    }
}

/// The path of an object as requests have it.
pub fn target(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}
