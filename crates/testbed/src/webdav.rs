//! A WebDAV server: wsgidav over a folder.

use crate::Tools;
use crate::ask::ask;
use crate::escape::escaped;
use crate::program::Program;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// A running WebDAV server. Dropping it stops the server and removes its folder.
pub struct WebDav {
    program: Program,
}

impl WebDav {
    /// Starts a server over an empty folder; this takes about a second.
    pub fn start() -> io::Result<Self> {
        let wsgidav = Tools::find().wsgidav()?;
        let command = |address: SocketAddr, data: &std::path::Path| {
            let mut command = Command::new(&wsgidav);
            command.args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()]);
            command.args(["--auth", "anonymous", "--no-config", "--root"]).arg(data);
            command
        };
        let ready = |address: SocketAddr, _: &str| {
            ask(address, "OPTIONS", "/", &[]).is_ok_and(|(status, _)| status == 200)
        };
        Ok(Self { program: Program::start("wsgidav", command, ready)? })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Returns the folder that it serves.
    pub fn folder(&self) -> PathBuf {
        self.program.data()
    }

    /// Returns thalweg's URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("webdav://{}/{}", self.address(), escaped(path))
    }

    /// Returns the output of the server, for the message of a failing test.
    pub fn output(&self) -> String {
        self.program.output()
    }
}
