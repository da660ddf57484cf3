//! Socket addresses in their written form: `tcp://0.0.0.0:5880`, `unix:///run/thalweg.sock`.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, register_format};
use thalweg_engine::Claim;

const FORMAT: &str = "socket-address";
const HELP: &str = "For example `tcp://0.0.0.0:5880`, `udp://localhost:514`, `unix:///run/thalweg.sock` or, for datagrams, \
                    `unixgram:///dev/log`.";

/// The address of a socket.
///
/// `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` (a stream) or `unixgram:///PATH` (datagrams). An
/// address without a scheme is TCP. Without a host, a source listens on all addresses of the machine, and a
/// sink connects to `localhost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String),
    /// Host and port.
    Udp(String),
    /// The path of a stream socket.
    Unix(PathBuf),
    /// The path of a datagram socket.
    Unixgram(PathBuf),
}

impl Address {
    /// True if the socket carries a byte stream, false if it carries datagrams.
    pub fn is_stream(&self) -> bool {
        matches!(self, Address::Tcp(_) | Address::Unix(_))
    }

    /// True if the address is a path.
    pub fn is_path(&self) -> bool {
        matches!(self, Address::Unix(_) | Address::Unixgram(_))
    }

    /// Returns the addresses to try to listen on, in order; the first one that the machine supports is used.
    pub fn to_listen(host_and_port: &str) -> Vec<String> {
        match host_and_port.strip_prefix(':') {
            // `[::]` accepts both IPv6 and IPv4 on machines that have both.
            Some(port) => vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")],
            None => vec![host_and_port.to_owned()],
        }
    }

    /// Returns the host and port to connect to.
    pub fn to_connect(host_and_port: &str) -> Cow<'_, str> {
        match host_and_port.strip_prefix(':') {
            Some(port) => format!("localhost:{port}").into(),
            None => host_and_port.into(),
        }
    }

    /// Returns what a component has that listens here: no other one can. None if the system chooses the port.
    pub fn claim(&self, option: &'static str) -> Option<Claim> {
        match self {
            Address::Tcp(at) => Claim::port(option, "tcp", at),
            Address::Udp(at) => Claim::port(option, "udp", at),
            Address::Unix(path) | Address::Unixgram(path) => Some(Claim::socket(option, path)),
        }
    }

    /// Splits `HOST` or `HOST:PORT`, as clients of databases and brokers take it. Returns None if the text is
    /// neither. An IPv6 address has brackets.
    pub fn split(text: &str, default_port: u16) -> Option<(&str, u16)> {
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an IPv6 address are between brackets.
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (text, default_port),
        };
        (!host.is_empty() && !host.contains(['/', '@', '?', '#', ' '])).then_some((host, port))
    }

    /// Checks that `text` is `HOST:PORT`.
    ///
    /// # Errors
    /// If the port is missing or not a port number, or there is more than host and port.
    pub fn check_host_and_port(text: &str) -> Result<(), FormatError> {
        if text.contains(['@', '/', '?', '#']) {
            // The rest may be a password, and addresses are shown in messages. So it is not repeated here.
            let message = "The address of a socket has only a host and a port.";
            return Err(FormatError::new(message).help(HELP));
        }
        let port = text.rsplit_once(':').map(|(_, port)| port);
        match port {
            Some(port) if port.parse::<u16>().is_ok() => Ok(()),
            Some(port) => Err(FormatError::new(format!("`{port}` is not a port."))
                .at(text.len() - port.len()..text.len())
                .help("A port is a number up to 65535, as in `localhost:5880`.")),
            None => Err(FormatError::new(format!("`{text}` names no port.")).help(HELP)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(at) => write!(f, "tcp://{at}"),
            Address::Udp(at) => write!(f, "udp://{at}"),
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Unixgram(path) => write!(f, "unixgram://{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
        let start = text.len() - rest.len();
        let address = match scheme {
            "tcp" | "tcp4" | "tcp6" => Address::Tcp(rest.to_owned()),
            "udp" | "udp4" | "udp6" => Address::Udp(rest.to_owned()),
            "unix" => Address::Unix(rest.into()),
            "unixgram" => Address::Unixgram(rest.into()),
            other => {
                let message = format!("`{other}` is not a kind of socket.");
                return Err(FormatError::new(message).at(0..other.len()).help(HELP));
            }
        };
        match address.is_path() {
            true if rest.is_empty() => Err(FormatError::new("The path of the socket is missing.").help(HELP)),
            true => Ok(address),
            false => Address::check_host_and_port(rest).map(|()| address).map_err(|mut error| {
                error.range = error.range.map(|range| range.start + start..range.end + start);
                error
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Address {
    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(FORMAT, |text| Address::from_str(text).map(|_| ()));
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "description": "The address of a socket: `tcp://HOST:PORT`, `udp://HOST:PORT`, `unix:///PATH` or `unixgram:///PATH`.",
            "examples": ["tcp://0.0.0.0:5880"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_scheme() {
        let read = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(read("localhost:5880"), Address::Tcp("localhost:5880".into()));
        assert_eq!(read("udp://[::1]:514"), Address::Udp("[::1]:514".into()));
        assert_eq!(read("unix:///run/a.sock"), Address::Unix("/run/a.sock".into()));
        assert_eq!(read("unixgram://log"), Address::Unixgram("log".into()));
        assert_eq!(read("udp://:514").to_string(), "udp://:514");
        assert_eq!(Address::to_listen(":80"), ["[::]:80", "0.0.0.0:80"]);
        assert_eq!(Address::to_connect(":80"), "localhost:80");
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let place =
            |text: &str| text[text.parse::<Address>().unwrap_err().range.unwrap_or(0..text.len())].to_owned();
        assert_eq!(place("tpc://localhost:1"), "tpc");
        assert_eq!(place("udp://localhost:http"), "http");
        assert_eq!(place("localhost"), "localhost");
        assert_eq!(place("unix://"), "unix://");
        for text in ["u:SEKRET@host:1", "host:1/SEKRET", "host:1?token=SEKRET", "tcp://u:SEKRET@host:SEKRET"]
        {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.message, "The address of a socket has only a host and a port.", "{text}");
        }
    }
}
