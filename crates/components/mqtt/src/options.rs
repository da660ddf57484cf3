//! The options of a connection, which the source and the sink share.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Claim, Error, Mistake, TransactionPlace};
use thalweg_net::net::{Address, Dial};
use thalweg_net::tls::TlsClient;

use crate::connection::CONNECT;
use crate::topic::{LONGEST, is_text};
use crate::wire::{Qos, Version};

/// Servers, and how to connect to them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ServerOptions {
    /// The servers to connect to, each as `HOST` or `HOST:PORT`. The port is 1883 by default, and 8883 with
    /// TLS. If there are several, they are tried in turn until one answers.
    #[schemars(example = &"mqtt.example.com:1883")]
    pub(crate) servers: List<String>,
    /// The version of the protocol. The default is `mqtt5`.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// Connect with TLS. `{}` accepts certificates that the system trusts. By default connections are not
    /// encrypted.
    #[serde(default)]
    pub(crate) tls: Option<TlsClient>,
    /// The user of the connections. By default connections have no user.
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    /// How long a connection may be silent before the server ends it. Twice in this time the client asks
    /// whether the server is there. The default is 60 s.
    #[serde(default = "thalweg_net::net::defaults::one_minute")]
    pub(crate) keep_alive_interval: TimeSpan,
}

/// The version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Protocol {
    /// MQTT 5: answers have reasons, and messages have properties.
    #[default]
    #[serde(rename = "mqtt5")]
    Mqtt5,
    /// MQTT 3.1.1.
    #[serde(rename = "mqtt3.1.1")]
    Mqtt3,
}

/// The user of connections.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// The name of the user.
    pub(crate) user: Option<String>,
    /// The password of the user.
    pub(crate) password: Option<String>,
}

/// How often a message is delivered, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u8")]
pub(crate) struct QosOption(pub(crate) Qos);

impl Default for QosOption {
    fn default() -> Self {
        Self(Qos::AtLeastOnce)
    }
}

impl TryFrom<u8> for QosOption {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        Qos::of(number).map(Self).ok_or_else(|| format!("`{number}` is none of 0, 1 and 2."))
    }
}

impl JsonSchema for QosOption {
    fn schema_name() -> Cow<'static, str> {
        "Qos".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 2 })
    }
}

impl ServerOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.servers.is_empty() {
            let mistake = Mistake::new("servers", "There is no server to connect to.");
            mistakes.push(mistake.help("For example `servers: mqtt.example.com`."));
        }
        if !self.servers.iter().all(|server| Address::check_host_and_port(&self.address(server)).is_ok()) {
            // The text is not shown: it may be a URL with a password.
            let mistake = Mistake::new("servers", "A server is a host, or a host with a port.");
            mistakes
                .push(mistake.help("For example `mqtt.example.com:1883`; a user has its place in `auth`."));
        }
        if self.tls.is_none() && self.servers.iter().any(|server| server.starts_with("mqtts://")) {
            let mistake = Mistake::new("servers", "A server of `mqtts://` needs `tls`.");
            mistakes.push(mistake.help("Give `tls: {}`."));
        }
        if self.auth.as_ref().is_some_and(|auth| auth.user.is_none()) {
            let mistake = Mistake::new("auth", "A user has a name.");
            mistakes.push(mistake.help("Give `user`, and `password` if the server wants one."));
        }
        let texts = self.auth.iter().flat_map(|auth| [&auth.user, &auth.password]).flatten();
        if texts.into_iter().any(|text| text.len() > LONGEST) {
            let mistake = Mistake::new("auth", "A name or a password is too long.");
            mistakes.push(mistake.help("They have at most 65,535 bytes."));
        }
        if !(1..=u64::from(u16::MAX)).contains(&self.keep_alive_interval.duration().as_secs()) {
            let mistake = Mistake::new("keep_alive_interval", "It is between 1 s and 65,535 s.");
            mistakes.push(mistake.help("The default is `60s`."));
        }
        mistakes.extend(self.tls.as_ref().and_then(TlsClient::check));
        mistakes
    }

    /// Returns the mistake in the name of a session.
    pub(crate) fn mistake_of_client_id(client_id: Option<&String>) -> Option<Mistake> {
        let wrong = client_id.filter(|id| id.is_empty() || !is_text(id))?;
        let message = if wrong.is_empty() { "The session has no name." } else { "This is no name." };
        Some(Mistake::new("client_id", message).help("For example `archive-1`."))
    }

    /// Returns what only one component can have with this session: the server would end the connection of the
    /// other. Some servers keep the sessions of each user apart.
    pub(crate) fn claim(&self, client_id: &str) -> Claim {
        let user = self.auth.as_ref().and_then(|auth| auth.user.as_deref()).unwrap_or_default();
        let servers = self.servers.iter().map(|server| self.address(server));
        let place = TransactionPlace::new("mqtt", servers);
        let outcome = "each would take the session of the other, without end";
        let name = format!("{client_id}\0{user}");
        Claim::name("client_id", place, name, outcome, "Give each component a session of its own.")
    }

    pub(crate) fn version(&self) -> Version {
        match self.protocol {
            Protocol::Mqtt5 => Version::V5,
            Protocol::Mqtt3 => Version::V3,
        }
    }

    /// Returns the host and the port of a server.
    fn address(&self, server: &str) -> String {
        let server = ["mqtt://", "mqtts://"]
            .into_iter()
            .find_map(|scheme| server.strip_prefix(scheme))
            .unwrap_or(server);
        // The colons of an IPv6 address are between brackets.
        match server.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => server.to_owned(),
            _ => format!("{server}:{}", if self.tls.is_some() { 8883 } else { 1883 }),
        }
    }

    /// Returns how to connect to each server.
    ///
    /// # Errors
    /// If a file of `tls` cannot be read or used.
    pub(crate) fn dials(&self) -> Result<Vec<Dial>, Error> {
        let tls = self.tls.as_ref().map(TlsClient::connector).transpose()?;
        let dial = |server: &String| Dial {
            address: Address::Tcp(self.address(server)),
            timeout: CONNECT,
            send_buffer: None,
            tls: tls.clone(),
        };
        Ok(self.servers.iter().map(dial).collect())
    }
}

/// Returns a name for a session that nothing refers to.
pub(crate) fn random_client_id() -> String {
    format!("thalweg-{:014x}", fastrand::u64(..) >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        for (yaml, expected) in [
            ("{ servers: [] }", "There is no server to connect to."),
            ("{ servers: 'mqtt://user:secret@host' }", "A server is a host, or a host with a port."),
            ("{ servers: 'host:port' }", "A server is a host, or a host with a port."),
            ("{ servers: 'mqtts://h' }", "A server of `mqtts://` needs `tls`."),
            ("{ servers: h, auth: { password: p } }", "A user has a name."),
            ("{ servers: h, keep_alive_interval: 1ms }", "It is between 1 s and 65,535 s."),
            ("{ servers: h, tls: { key: k } }", "`certificate` and `key` belong together."),
        ] {
            assert_eq!(messages(options::<ServerOptions>(yaml).check()), [expected], "{yaml}");
        }
    }

    #[test]
    fn a_server_without_a_port_has_that_of_the_protocol() {
        let plain = options::<ServerOptions>("{ servers: h }");
        let secure = options::<ServerOptions>("{ servers: h, tls: {} }");
        for (server, expected) in [
            ("h", "h:1883"),
            ("mqtt://h", "h:1883"),
            ("h:1", "h:1"),
            ("[::1]", "[::1]:1883"),
            ("[::1]:2", "[::1]:2"),
        ] {
            assert_eq!(plain.address(server), expected);
        }
        assert_eq!(secure.address("mqtts://h"), "h:8883");
        let ids = [random_client_id(), random_client_id()];
        // Servers of MQTT 3.1 take at most 23 characters.
        assert!(ids[0] != ids[1] && ids[0].len() <= 23);
    }
}
