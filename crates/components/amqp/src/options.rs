//! The options of a connection, which the source and the sink share.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Error, Mistake};
use thalweg_net::net::{Address, Dial};
use thalweg_net::tls::TlsClient;
use thalweg_net::upload::percent_decoded;

use crate::connection::CONNECT;
use crate::wire::{self, LONGEST};

/// Servers, and how to connect to them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ServerOptions {
    /// The servers to connect to, each as `HOST`, `HOST:PORT`, or `amqp://HOST:PORT/VIRTUAL_HOST`. The port
    /// is 5672 by default, and 5671 with TLS. The virtual host is `/` by default; one that has a slash is
    /// written `%2F`. If there are several servers, they are tried in turn until one answers.
    #[schemars(example = &"amqp://rabbitmq.example.com/orders")]
    pub(crate) servers: List<String>,
    /// Connect with TLS. `{}` accepts certificates that the system trusts. By default connections are not
    /// encrypted.
    #[serde(default)]
    pub(crate) tls: Option<TlsClient>,
    /// The user of the connections. The default is the user `guest` with the password `guest`, whom servers
    /// accept from their own machine only.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// How long a connection may be silent before either side ends it (its heartbeat). The server may want
    /// less. The default is 60 s.
    #[serde(default = "thalweg_net::net::defaults::one_minute")]
    pub(crate) heartbeat_interval: TimeSpan,
}

/// The user of connections.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// The name of the user.
    pub(crate) user: Option<String>,
    /// The password of the user.
    pub(crate) password: Option<String>,
    /// True if the certificate of `tls` tells the server who the user is (SASL EXTERNAL). The default is
    /// false.
    pub(crate) external: bool,
}

/// The value of an argument of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ArgumentOption {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

/// A server to connect to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) dial: Dial,
    pub(crate) virtual_host: String,
}

/// The parts of an entry of `servers`.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    /// `HOST:PORT`.
    address: String,
    virtual_host: String,
    wants_tls: bool,
}

impl ServerOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.servers.is_empty() {
            let mistake = Mistake::new("servers", "There is no server to connect to.");
            mistakes.push(mistake.help("For example `servers: rabbitmq.example.com`."));
        }
        let parts: Vec<Option<Parts>> = self.servers.iter().map(|server| self.parts(server)).collect();
        if parts.iter().any(Option::is_none) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("servers", "A server is a host, with a port and a virtual host.");
            mistakes.push(mistake.help(
                "For example `amqp://rabbitmq.example.com:5672/orders`; a user has its place in `auth`.",
            ));
        }
        if self.tls.is_none() && parts.iter().flatten().any(|parts| parts.wants_tls) {
            let mistake = Mistake::new("servers", "A server of `amqps://` needs `tls`.");
            mistakes.push(mistake.help("Give `tls: {}`."));
        }
        if !(1..=u64::from(u16::MAX)).contains(&self.heartbeat_interval.duration().as_secs()) {
            let mistake = Mistake::new("heartbeat_interval", "It is between 1 s and 65,535 s.");
            mistakes.push(mistake.help("The default is `60s`."));
        }
        mistakes.extend(self.mistake_of_user());
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    fn mistake_of_user(&self) -> Option<Mistake> {
        let auth = self.auth.as_ref()?;
        if auth.external {
            if auth.user.is_some() || auth.password.is_some() {
                let mistake = Mistake::new("auth", "With `external`, the certificate names the user.");
                return Some(mistake.help("Remove `user` and `password`."));
            }
            self.tls.as_ref().and_then(TlsClient::identity).is_none().then_some(())?;
            let mistake = Mistake::new("auth", "With `external`, the client has a certificate.");
            return Some(mistake.help("Give `certificate` and `key` in `tls`."));
        }
        if auth.user.is_none() {
            let mistake = Mistake::new("auth", "A user has a name.");
            return Some(mistake.help("Give `user` and `password`, or `external: true`."));
        }
        None
    }

    /// Returns the parts of a server, if it has them.
    fn parts(&self, server: &str) -> Option<Parts> {
        let (scheme, rest) = server.split_once("://").unwrap_or(("", server));
        if !["", "amqp", "amqps"].contains(&scheme) {
            return None;
        }
        let (host, path) = match rest.split_once('/') {
            Some((host, path)) if !path.is_empty() => (host, Some(path)),
            Some((host, _)) => (host, None),
            None => (rest, None),
        };
        let (host, port) = Address::split(host, if self.tls.is_some() { 5671 } else { 5672 })?;
        let virtual_host = match path {
            // A query would name options that this client has elsewhere. A password with a slash would be the
            // beginning of a path with a `@`.
            Some(path) if path.contains(['/', '?', '#', '@']) => return None,
            Some(path) => String::from_utf8(percent_decoded(path.as_bytes())).ok()?,
            None => "/".to_owned(),
        };
        let is_short = virtual_host.len() <= LONGEST;
        let (address, wants_tls) = (format!("{host}:{port}"), scheme == "amqps");
        is_short.then_some(Parts { address, virtual_host, wants_tls })
    }

    /// Returns how to connect to each server.
    ///
    /// # Errors
    /// If a file of `tls` cannot be read or used.
    pub(crate) fn targets(&self) -> Result<Vec<Target>, Error> {
        let tls = self.tls.as_ref().map(TlsClient::connector).transpose()?;
        let parts = self.servers.iter().filter_map(|server| self.parts(server));
        let target = |parts: Parts| Target {
            dial: Dial {
                address: Address::Tcp(parts.address),
                timeout: CONNECT,
                send_buffer: None,
                tls: tls.clone(),
            },
            virtual_host: parts.virtual_host,
        };
        Ok(parts.map(target).collect())
    }

    /// Returns the mechanism to log in with, and its answer: the user and the password.
    pub(crate) fn login(&self) -> (&'static str, Vec<u8>) {
        let auth = self.auth.clone().unwrap_or_else(|| Auth {
            user: Some("guest".to_owned()),
            password: Some("guest".to_owned()),
            external: false,
        });
        if auth.external {
            return ("EXTERNAL", Vec::new());
        }
        let (user, password) = (auth.user.unwrap_or_default(), auth.password.unwrap_or_default());
        ("PLAIN", format!("\0{user}\0{password}").into_bytes())
    }
}

/// Returns the bytes of arguments.
pub(crate) fn arguments(options: &BTreeMap<String, ArgumentOption>) -> Vec<u8> {
    wire::table(options.iter().map(|(name, value)| {
        let value = match value {
            ArgumentOption::Bool(value) => wire::Argument::Bool(*value),
            ArgumentOption::Number(value) => wire::Argument::Number(*value),
            ArgumentOption::Text(text) => wire::Argument::Text(text.clone()),
        };
        (name.as_str(), value)
    }))
}

/// Returns the mistake of a name that is too long for the protocol.
pub(crate) fn mistake_of_length<'a>(
    option: &'static str,
    names: impl IntoIterator<Item = &'a String>,
) -> Option<Mistake> {
    names.into_iter().find(|name| name.len() > LONGEST)?;
    Some(Mistake::new(option, "A name is too long.").help("Names and keys have at most 255 bytes."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        let server = "A server is a host, with a port and a virtual host.";
        for (yaml, expected) in [
            ("{ servers: [] }", "There is no server to connect to."),
            ("{ servers: 'amqp://user:secret@host' }", server),
            ("{ servers: 'amqp://user:12/secret@host' }", server),
            ("{ servers: 'host:port' }", server),
            ("{ servers: 'http://host' }", server),
            ("{ servers: 'amqp://host/a/b' }", server),
            ("{ servers: 'amqp://host/%ff' }", server),
            ("{ servers: 'amqps://h' }", "A server of `amqps://` needs `tls`."),
            ("{ servers: h, auth: { password: p } }", "A user has a name."),
            (
                "{ servers: h, auth: { external: true, user: u } }",
                "With `external`, the certificate names the user.",
            ),
            (
                "{ servers: h, tls: {}, auth: { external: true } }",
                "With `external`, the client has a certificate.",
            ),
            ("{ servers: h, heartbeat_interval: 1ms }", "It is between 1 s and 65,535 s."),
            ("{ servers: h, tls: { key: k } }", "`certificate` and `key` belong together."),
        ] {
            assert_eq!(messages(options::<ServerOptions>(yaml).check()), [expected], "{yaml}");
        }
    }

    #[test]
    fn a_server_without_a_port_or_virtual_host_has_those_of_the_protocol() {
        let plain = options::<ServerOptions>("{ servers: h }");
        let secure = options::<ServerOptions>("{ servers: h, tls: {} }");
        for (server, address, virtual_host) in [
            ("h", "h:5672", "/"),
            ("amqp://h", "h:5672", "/"),
            ("amqp://h/", "h:5672", "/"),
            ("h:1", "h:1", "/"),
            ("[::1]", "[::1]:5672", "/"),
            ("[::1]:2/orders", "[::1]:2", "orders"),
            ("amqp://h:3/%2Fa%20b", "h:3", "/a b"),
        ] {
            let parts = plain.parts(server).unwrap();
            assert_eq!((parts.address.as_str(), parts.virtual_host.as_str()), (address, virtual_host));
        }
        assert_eq!(secure.parts("amqps://h").unwrap().address, "h:5671");
    }

    #[test]
    fn the_user_is_in_the_answer_to_the_server() {
        let login = |yaml: &str| options::<ServerOptions>(yaml).login();
        assert_eq!(login("{ servers: h }"), ("PLAIN", b"\0guest\0guest".to_vec()));
        assert_eq!(login("{ servers: h, auth: { user: a, password: b } }"), ("PLAIN", b"\0a\0b".to_vec()));
        assert_eq!(login("{ servers: h, auth: { external: true } }"), ("EXTERNAL", Vec::new()));
    }
}
