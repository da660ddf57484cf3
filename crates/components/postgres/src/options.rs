//! The options of a connection, which the source and the sink share.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::Mistake;
use thalweg_net::net::{Address, check_timeout};
use thalweg_net::tls::TlsClient;

/// The port of servers.
const PORT: u16 = 5432;

/// A database, and how to connect to it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ServerOptions {
    /// The server, as `HOST` or `HOST:PORT`. The port is 5432 by default.
    #[schemars(example = &"db.example.com:5432")]
    pub(crate) server: String,
    /// The database. The default is the name of the user.
    #[serde(default)]
    pub(crate) database: Option<String>,
    /// The user of the connections. The default is the user `postgres` without a password.
    #[serde(default)]
    pub(crate) auth: Auth,
    /// Connect with TLS. By default connections are not encrypted.
    #[serde(default)]
    pub(crate) tls: Option<TlsClient>,
    /// The name of this program in the server's list of connections. The default is `thalweg`.
    #[serde(default = "thalweg_net::net::defaults::client_id")]
    pub(crate) client_id: String,
    /// How long the server may take to connect, or to answer a statement. The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    pub(crate) timeout: TimeSpan,
}

/// The user of connections.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The name of the user.
    pub(crate) user: String,
    /// The password of the user, if the server asks for one.
    #[serde(default)]
    pub(crate) password: Option<String>,
}

impl Default for Auth {
    fn default() -> Self {
        Self { user: "postgres".to_owned(), password: None }
    }
}

impl ServerOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.address().is_none() {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("server", "A server is a host, or a host with a port.");
            let help = "For example `db.example.com:5432`; the user has its place in `auth`, and the \
                        database in `database`.";
            mistakes.push(mistake.help(help));
        }
        mistakes.extend(check_timeout("timeout", self.timeout));
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    /// Returns the host and the port. None if the option is neither.
    pub(crate) fn address(&self) -> Option<(&str, u16)> {
        let (host, port) = Address::split(&self.server, PORT)?;
        // A text with `=` is the settings of other clients, maybe with a password.
        (!host.contains('=')).then(|| (host.trim_matches(['[', ']']), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        for (yaml, expected) in [
            ("{ server: 'postgres://user:secret@host/db' }", "A server is a host, or a host with a port."),
            ("{ server: 'host=h password=secret' }", "A server is a host, or a host with a port."),
            ("{ server: 'h:port' }", "A server is a host, or a host with a port."),
            ("{ server: h, timeout: 0s }", "No server can answer in no time."),
            ("{ server: h, tls: { key: k } }", "`certificate` and `key` belong together."),
        ] {
            assert_eq!(messages(options::<ServerOptions>(yaml).check()), [expected], "{yaml}");
        }
        for (server, address) in [("h", ("h", 5432)), ("h:1", ("h", 1)), ("[::1]:2", ("::1", 2))] {
            let options: ServerOptions = options(&format!("{{ server: '{server}' }}"));
            assert_eq!(options.address(), Some(address));
        }
    }
}
