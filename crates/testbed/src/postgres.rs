//! A PostgreSQL server.
//!
//! It refuses to run as root, so it then runs as the user that the package of the distribution has created.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, config::SslMode};

use crate::Tools;
use crate::relay::Relay;
use crate::server::{Recipe, Server};

/// The number of attempts to start a killed server again: the processes of its connections end a moment
/// later, and it does not start beside them.
const ATTEMPTS: usize = 50;

/// A PostgreSQL server.
pub type Postgres = Server<PostgresServer>;

/// The kind of [`Postgres`].
pub struct PostgresServer;

impl Postgres {
    /// Starts a server; this takes about three seconds. The user `postgres` needs no password. The user
    /// `thalweg` has the password of [`PASSWORD`](Self::PASSWORD), owns the database `shop`, and must give
    /// it.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        Self::start_with(&[], &[])
    }

    /// The password of the user `thalweg`.
    pub const PASSWORD: &str = "not-a-secret";

    /// As [`start`](Self::start), with further settings, each as `NAME=VALUE`, and with files in the folder
    /// of the data, each with its content, that only the server may read.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[&str], files: &[(&str, &str)]) -> io::Result<Self> {
        let folder = Tools::find().postgres()?;
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let programs = folder.clone();
        let command = move |address: SocketAddr, data: &Path| run(&programs, address, data, &settings);
        // The usual signal, `TERM`, would wait for the clients to leave.
        let recipe = Recipe {
            is_ready,
            dropped_by: Signal::INT,
            attempts: ATTEMPTS,
            ..Recipe::new("postgres", command)
        };
        let prepare = |_: SocketAddr, data: &Path| initialise(&folder, data, files);
        let server = Self::launch(recipe, Relay::start()?, PostgresServer, prepare)?;
        server.run(&format!("CREATE ROLE thalweg LOGIN PASSWORD '{}'", Self::PASSWORD))?;
        server.run("CREATE DATABASE shop OWNER thalweg")?;
        Ok(server)
    }

    /// Executes statements in the database `postgres`.
    ///
    /// # Errors
    /// If the server refuses one.
    pub fn run(&self, statements: &str) -> io::Result<()> {
        self.run_in("postgres", statements)
    }

    /// Executes statements in a database.
    ///
    /// # Errors
    /// If the server refuses one.
    pub fn run_in(&self, database: &str, statements: &str) -> io::Result<()> {
        block_on(self.address(), database, async |client| client.batch_execute(statements).await)
    }

    /// Returns the rows of a query in the database `postgres`, as texts; NULL is `NULL`.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn rows(&self, query: &str) -> io::Result<Vec<Vec<String>>> {
        block_on(self.address(), "postgres", async |client| {
            let answers = client.simple_query(query).await?;
            let rows = answers.iter().filter_map(|answer| match answer {
                SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            let texts = |row: &tokio_postgres::SimpleQueryRow| {
                (0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect()
            };
            Ok(rows.map(texts).collect())
        })
    }

    /// Returns the only value of a query.
    ///
    /// # Errors
    /// If the server refuses it, or the result is no single value.
    pub fn value(&self, query: &str) -> io::Result<String> {
        let rows = self.rows(query)?;
        match &rows[..] {
            [row] if row.len() == 1 => Ok(row.concat()),
            _ => Err(io::Error::other(format!("`{query}` has {} rows", rows.len()))),
        }
    }
}

/// Runs a client of the server on a runtime of its own, so that tests without one can use it.
fn block_on<T>(
    address: SocketAddr,
    database: &str,
    work: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let mut config = Config::new();
        config.user("postgres").dbname(database).ssl_mode(SslMode::Disable);
        let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(io::Error::other)?;
        tokio::select! {
            done = work(&client) => done.map_err(|error| match error.as_db_error() {
                Some(error) => io::Error::other(error.to_string()),
                None => io::Error::other(error),
            }),
            // The work fails by itself if the connection breaks, unless the connection is seen first.
            ended = connection => Err(io::Error::other(format!("the connection ended: {ended:?}"))),
        }
    })
}

/// A command as a user who may run the server.
fn as_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

/// Creates the files of the databases, and the rules of access.
fn initialise(folder: &Path, data: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        // The user must reach the folder, which only its owner can.
        if let Some(parent) = data.parent() {
            std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o711))?;
        }
        give(data)?;
    }
    let mut command = as_user(&folder.join("initdb"));
    command.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]);
    let made = command.arg("--pgdata").arg(data).current_dir("/").output()?;
    if !made.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
    }
    let rules = "host all thalweg 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(data.join("pg_hba.conf"), rules)?;
    files.iter().try_for_each(|(name, content)| {
        let path = data.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        give(&path)
    })
}

/// Gives a file or folder to the user of the server.
fn give(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        Command::new("chown").arg("postgres").arg(path).status()?;
    }
    Ok(())
}

fn run(folder: &Path, address: SocketAddr, data: &Path, settings: &[String]) -> Command {
    let mut command = as_user(&folder.join("postgres"));
    command.arg("-D").arg(data).current_dir("/");
    let (host, port) = (address.ip(), address.port());
    command.args(["-h", &host.to_string(), "-p", &port.to_string()]);
    // A crash of the server loses nothing that the system has, and tests crash no system.
    let own = ["unix_socket_directories=", "fsync=off", "full_page_writes=off", "lc_messages=C"];
    for setting in own.into_iter().chain(settings.iter().map(String::as_str)) {
        command.arg("-c").arg(setting);
    }
    command
}

/// The server is ready when it answers a query: it accepts connections while it recovers, and refuses them.
fn is_ready(address: SocketAddr, _: &str) -> bool {
    TcpStream::connect(address).is_ok()
        && block_on(address, "postgres", async |client| client.batch_execute("SELECT 1").await).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_killed_comes_back_at_its_address_with_its_rows() {
        let mut server = Postgres::start().unwrap();
        let address = server.address();
        server.run("CREATE TABLE t (id int); INSERT INTO t VALUES (1), (2), (NULL)").unwrap();
        server.kill().unwrap();
        assert!(server.rows("SELECT 1").is_err());
        server.restart().unwrap();
        assert_eq!(server.address(), address);
        assert_eq!(server.rows("SELECT id FROM t").unwrap(), [["1"], ["2"], ["NULL"]]);
        assert_eq!(server.value("SELECT count(*) FROM t").unwrap(), "3");
        let error = server.run("SELECT no_such_column").unwrap_err().to_string();
        assert!(error.contains("no_such_column"), "{error}");
    }
}
