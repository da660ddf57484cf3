//! etcd, of which capyfile's service definitions may take parameters.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::Tools;
use crate::ask::{ask, post};
use crate::program::Program;

/// A running etcd of one member. Dropping it stops the server and removes its data.
pub struct Etcd {
    program: Program,
}

impl Etcd {
    /// Starts a server without keys; this takes about half a second.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start() -> io::Result<Self> {
        let etcd = Tools::find().etcd()?;
        let command = |address: SocketAddr, data: &Path| {
            let clients = format!("http://{address}");
            // It has no peers; the system chooses a port for them.
            let peers = "http://127.0.0.1:0";
            let mut command = Command::new(&etcd);
            command.arg("--data-dir").arg(data).args(["--listen-client-urls", &clients]);
            command.args(["--advertise-client-urls", &clients, "--listen-peer-urls", peers]);
            command.args(["--initial-advertise-peer-urls", peers]);
            command.arg("--initial-cluster").arg(format!("default={peers}"));
            command
        };
        let ready = |address: SocketAddr, _: &str| {
            let healthy = |body: &[u8]| String::from_utf8_lossy(body).contains("true");
            ask(address, "GET", "/health", &[]).is_ok_and(|(status, body)| status == 200 && healthy(&body))
        };
        Ok(Self { program: Program::start("etcd", command, ready)? })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn put(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
        self.ask("/v3/kv/put", &format!(r#"{{"key":"{key}","value":"{value}"}}"#))
    }

    /// Requires this password of the user `root`; without it, keys can no longer be read.
    ///
    /// # Errors
    /// If the server refuses it.
    pub fn require_password(&self, password: &str) -> io::Result<()> {
        self.ask("/v3/auth/role/add", r#"{"name":"root"}"#)?;
        self.ask("/v3/auth/user/add", &format!(r#"{{"name":"root","password":"{password}"}}"#))?;
        self.ask("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#)?;
        self.ask("/v3/auth/enable", "{}")
    }

    fn ask(&self, target: &str, body: &str) -> io::Result<()> {
        match post(self.address(), target, body.as_bytes())? {
            (200, _) => Ok(()),
            (status, body) => {
                Err(io::Error::other(format!("etcd answered {status}: {}", String::from_utf8_lossy(&body))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_until_a_password_is_required() {
        let etcd = Etcd::start().unwrap();
        etcd.put("/a/key", "its value").unwrap();
        let key = format!(r#"{{"key":"{}"}}"#, BASE64_STANDARD.encode("/a/key"));
        let value = || {
            let (status, body) = post(etcd.address(), "/v3/kv/range", key.as_bytes()).unwrap();
            (status, String::from_utf8(body).unwrap().contains(&BASE64_STANDARD.encode("its value")))
        };
        assert_eq!(value(), (200, true));
        etcd.require_password("secret").unwrap();
        assert!(!value().1);
    }
}
