//! The options of a connection, which the source and the sink share.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Error, Mistake, TransactionPlace};
use thalweg_net::net::{Address, Dial, check_timeout};
use thalweg_net::tls::TlsClient;

/// The port of Redis.
const PORT: u16 = 6379;

/// Servers, and how to connect to them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ServerOptions {
    /// The servers to connect to, each as `HOST`, `HOST:PORT`, `rediss://HOST` for TLS, or `unix:///PATH`.
    /// The first one that answers is used, or the next one if that is a replica. The port is 6379 by default.
    /// The nodes of a cluster are found through one of them.
    #[schemars(example = &"127.0.0.1:6379")]
    pub(crate) servers: List<String>,
    /// Connect with TLS. By default only servers with `rediss://` are connected to with TLS.
    #[serde(default)]
    pub(crate) tls: Option<TlsClient>,
    /// The user of the connections. By default connections have no user.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// The number of the database. A cluster has only 0, which is the default.
    #[serde(default)]
    pub(crate) database: u32,
    /// The name of this program in the server's list of clients. The default is `thalweg`.
    #[serde(default = "thalweg_net::net::defaults::client_id")]
    pub(crate) client_id: String,
    /// How long connecting may take, and how long the server may take for an answer. After that the component
    /// connects again. The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    pub(crate) timeout: TimeSpan,
}

/// The user of connections.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// The name of the user. By default that of the server, `default`.
    pub(crate) user: Option<String>,
    /// The password of the user.
    pub(crate) password: Option<String>,
}

/// A server in its written form, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Server {
    address: Address,
    has_tls: bool,
}

impl Server {
    /// Reads a server. `None` if it is none.
    fn read(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            let is_path = Path::new(path).is_absolute();
            return is_path.then(|| Self { address: Address::Unix(path.into()), has_tls: false });
        }
        let (rest, has_tls) = match text.split_once("://") {
            Some(("redis", rest)) => (rest, false),
            Some(("rediss", rest)) => (rest, true),
            Some(_) => return None,
            None => (text, false),
        };
        Some(Self { address: Address::Tcp(host_and_port(rest)?), has_tls })
    }
}

/// Returns `HOST:PORT`, with the port of Redis if there is none. `None` if the text is no host.
fn host_and_port(text: &str) -> Option<String> {
    Address::split(text, PORT).map(|(host, port)| format!("{host}:{port}"))
}

impl ServerOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.servers.is_empty() {
            let mistake = Mistake::new("servers", "There is no server to connect to.");
            mistakes.push(mistake.help("For example `servers: redis.example.com`."));
        }
        if !self.servers.iter().all(|server| Server::read(server).is_some()) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("servers", "A server is a host, or a host with a port.");
            mistakes.push(mistake.help(
                "For example `redis.example.com:6379` or `rediss://redis.example.com`; a user has its place in \
                 `auth`, and the number of a database in `database`.",
            ));
        }
        if self.auth.as_ref().is_some_and(|auth| auth.password.is_none()) {
            let mistake = Mistake::new("auth", "A user has a password.");
            mistakes.push(mistake.help("For example `auth: { user: thalweg, password: \"${PASSWORD}\" }`."));
        }
        if self.client_id.is_empty() || !self.client_id.bytes().all(|byte| byte.is_ascii_graphic()) {
            let mistake = Mistake::new("client_id", "This is no name of a client.");
            mistakes.push(mistake.help("It has printable ASCII characters without spaces."));
        }
        mistakes.extend(check_timeout("timeout", self.timeout));
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    /// Returns the database, as far as its addresses tell: two with an address in common are one.
    pub(crate) fn place(&self) -> TransactionPlace {
        let servers = self.servers.iter().filter_map(|text| Server::read(text));
        TransactionPlace::new("redis", servers.map(|server| format!("{}/{}", server.address, self.database)))
    }

    /// How long the server may take for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.duration()
    }

    /// Prepares to connect to each of the servers.
    ///
    /// # Errors
    /// If a file of `tls` cannot be used.
    pub(crate) fn dials(&self) -> Result<Vec<Dial>, Error> {
        self.servers.iter().filter_map(|text| Server::read(text)).map(|server| self.dial(server)).collect()
    }

    /// Prepares to connect to another node of the cluster, at `HOST:PORT`, as to the first server.
    ///
    /// # Errors
    /// As [`dials`](Self::dials); also if the address is none.
    pub(crate) fn dial_node(&self, at: &str) -> Result<Dial, Error> {
        let first = self.servers.first().and_then(|text| Server::read(text));
        let has_tls = first.is_some_and(|server| server.has_tls);
        let address = host_and_port(at).map(Address::Tcp);
        let address =
            address.ok_or_else(|| Error::temporary("the cluster named a node without an address"))?;
        self.dial(Server { address, has_tls })
    }

    fn dial(&self, server: Server) -> Result<Dial, Error> {
        let default = TlsClient::default();
        let tls = self.tls.as_ref().or(server.has_tls.then_some(&default));
        let tls = tls.filter(|_| !server.address.is_path());
        Ok(Dial {
            address: server.address,
            timeout: self.timeout(),
            send_buffer: None,
            tls: tls.map(TlsClient::connector).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        for (yaml, expected) in [
            ("{ servers: [] }", "There is no server to connect to."),
            ("{ servers: 'redis://user:secret@host' }", "A server is a host, or a host with a port."),
            ("{ servers: 'redis://host/1' }", "A server is a host, or a host with a port."),
            ("{ servers: 'http://host' }", "A server is a host, or a host with a port."),
            ("{ servers: 'unix://relative' }", "A server is a host, or a host with a port."),
            ("{ servers: h, auth: { user: u } }", "A user has a password."),
            ("{ servers: h, client_id: 'a b' }", "This is no name of a client."),
            ("{ servers: h, timeout: 0s }", "No server can answer in no time."),
            ("{ servers: h, tls: { key: k } }", "`certificate` and `key` belong together."),
        ] {
            assert_eq!(messages(options::<ServerOptions>(yaml).check()), [expected], "{yaml}");
        }
    }

    #[test]
    fn a_server_has_a_scheme_a_host_and_a_port_if_it_is_not_the_usual_one() {
        let tcp = |at: &str, has_tls| Some(Server { address: Address::Tcp(at.to_owned()), has_tls });
        assert_eq!(Server::read("h"), tcp("h:6379", false));
        assert_eq!(Server::read("h:1"), tcp("h:1", false));
        assert_eq!(Server::read("redis://h"), tcp("h:6379", false));
        assert_eq!(Server::read("rediss://h:2"), tcp("h:2", true));
        assert_eq!(Server::read("[::1]"), tcp("[::1]:6379", false));
        assert_eq!(Server::read("[::1]:7"), tcp("[::1]:7", false));
        let unix = Server { address: Address::Unix("/run/redis.sock".into()), has_tls: false };
        assert_eq!(Server::read("unix:///run/redis.sock"), Some(unix));
    }

    proptest! {
        #[test]
        fn any_text_is_a_server_or_not(text in "(rediss?://|unix://)?\\PC*") {
            let _ = Server::read(&text);
        }
    }
}
