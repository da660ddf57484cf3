//! Things outside of a run that only one component can have: an address to listen on, the name of a session.
//!
//! A component declares them, and the graph is checked for two components with the same one. Without that, a
//! run finds out late: the second listener cannot start, and two sessions of one name end each other for
//! ever.
//!
//! See docs/decisions/101-mistakes-never-work-remarks-may-be-meant.md.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use super::TransactionPlace;

/// Something that only one component can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The option that has it.
    pub option: &'static str,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A port of this machine.
    Port { protocol: &'static str, host: Host, port: u16, written: String },
    /// The path of a socket.
    Path(PathBuf),
    /// A name in another system.
    Name { place: TransactionPlace, name: String, outcome: &'static str, help: &'static str },
}

/// The addresses of this machine that a listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    /// All.
    All,
    /// All of IPv4.
    AllOfIpv4,
    /// All of IPv6. A setting of the system decides whether the socket takes those of IPv4 too.
    AllOfIpv6,
    /// One.
    One(IpAddr),
    /// Those of a name. They are not looked up: they may be others where the run takes place.
    Named(String),
}

impl Host {
    fn of(text: &str) -> Self {
        let bare = text.trim_matches(['[', ']']);
        match bare.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V6(address)) if address.is_unspecified() => Self::AllOfIpv6,
            Ok(IpAddr::V4(address)) if address.is_unspecified() => Self::AllOfIpv4,
            Ok(address) => Self::One(address),
            Err(_) if bare.is_empty() => Self::All,
            Err(_) => Self::Named(bare.to_ascii_lowercase()),
        }
    }

    /// True if two listeners certainly take one address.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::AllOfIpv4, Self::One(address)) | (Self::One(address), Self::AllOfIpv4) => {
                address.is_ipv4()
            }
            (Self::AllOfIpv6, Self::One(address)) | (Self::One(address), Self::AllOfIpv6) => {
                address.is_ipv6()
            }
            (one, other) => one == other,
        }
    }
}

impl Claim {
    /// The port of `HOST:PORT` on which a component listens, by a protocol such as `tcp`. None if the system
    /// chooses the port, or the text has none.
    pub fn port(option: &'static str, protocol: &'static str, host_and_port: &str) -> Option<Self> {
        let (host, port) = host_and_port.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
        let written = host_and_port.to_owned();
        Some(Self { option, what: What::Port { protocol, host: Host::of(host), port, written } })
    }

    /// The path of a unix socket on which a component listens.
    pub fn socket(option: &'static str, path: impl Into<PathBuf>) -> Self {
        Self { option, what: What::Path(super::normalised(&path.into())) }
    }

    /// A name in the system at `place`. `outcome` says what becomes of two components with the name, as in
    /// "each would end the transactions of the other", and `help` is a sentence that says how to correct it.
    pub fn name(
        option: &'static str,
        place: TransactionPlace,
        name: impl Into<String>,
        outcome: &'static str,
        help: &'static str,
    ) -> Self {
        Self { option, what: What::Name { place, name: name.into(), outcome, help } }
    }

    /// Claims of different keys never meet.
    pub(crate) fn key(&self) -> (&'static str, String) {
        match &self.what {
            What::Port { protocol, port, .. } => (*protocol, port.to_string()),
            What::Path(path) => ("unix", path.to_string_lossy().into_owned()),
            What::Name { place, name, .. } => (place.protocol(), name.clone()),
        }
    }

    /// True if both are the same, so that two components cannot have them.
    pub fn meets(&self, other: &Self) -> bool {
        match (&self.what, &other.what) {
            (
                What::Port { protocol, host, port, .. },
                What::Port { protocol: of_other, host: other_host, port: other_port, .. },
            ) => protocol == of_other && port == other_port && host.meets(other_host),
            (What::Path(path), What::Path(other)) => path == other,
            (What::Name { place, name, .. }, What::Name { place: other_place, name: other_name, .. }) => {
                name == other_name && place.is(other_place)
            }
            _ => false,
        }
    }

    /// Listens on the port for a moment, if the claim is one. Blocks while the name of a host is looked up.
    ///
    /// # Errors
    /// If that is impossible, because another program has the port, for example.
    pub(crate) fn try_out(&self) -> io::Result<()> {
        let What::Port { protocol, host, port, written } = &self.what else { return Ok(()) };
        let addresses: Vec<SocketAddr> = match host {
            Host::All => {
                vec![(Ipv6Addr::UNSPECIFIED, *port).into(), (Ipv4Addr::UNSPECIFIED, *port).into()]
            }
            _ => written.to_socket_addrs()?.collect(),
        };
        match *protocol {
            "tcp" => TcpListener::bind(&*addresses).map(drop),
            "udp" => UdpSocket::bind(&*addresses).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the mistake of the component `own`, whose claim this is, if `other` has the same one: what is
    /// wrong, and how to correct it.
    pub(crate) fn clash(&self, own: &str, other: &str) -> (String, &'static str) {
        match &self.what {
            What::Name { outcome, help, .. } => {
                (format!("`{own}` has the `{}` of `{other}`: {outcome}.", self.option), *help)
            }
            What::Port { .. } | What::Path(_) => {
                let message = format!("`{own}` listens on {self}, as `{other}` does: only one of them can.");
                (message, "Give each an address of its own, or let one source take all messages.")
            }
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Port { protocol, written, .. } => write!(f, "`{protocol}://{written}`"),
            What::Path(path) => write!(f, "`unix://{}`", path.display()),
            What::Name { name, .. } => write!(f, "`{name}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(at: &str) -> Claim {
        Claim::port("address", "tcp", at).unwrap()
    }

    #[test]
    fn a_port_that_another_program_has_cannot_be_tried_out() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = other.local_addr().unwrap();
        let all = format!(":{}", at.port());
        for taken in [tcp(&at.to_string()), tcp(&all)] {
            assert_eq!(taken.try_out().unwrap_err().kind(), io::ErrorKind::AddrInUse, "{taken}");
        }
        drop(other);
        tcp(&at.to_string()).try_out().unwrap();
        Claim::socket("address", "/run/a").try_out().unwrap();
    }

    #[test]
    fn listeners_meet_if_they_take_one_address_of_the_machine() {
        for (one, other, meet) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            (":80", "[::1]:80", true),
            (":80", "0.0.0.0:80", true),
            ("[::]:80", ":80", true),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "[::]:80", true),
            // With `net.ipv6.bindv6only`, that is how to listen on both.
            ("[::]:80", "0.0.0.0:80", false),
            ("[::]:80", "127.0.0.1:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("localhost:80", "LocalHost:80", true),
            // The name may have an address of IPv6 as well.
            ("localhost:80", "127.0.0.1:80", false),
            ("localhost:80", ":80", true),
        ] {
            assert_eq!(tcp(one).meets(&tcp(other)), meet, "{one} {other}");
            assert_eq!(tcp(other).meets(&tcp(one)), meet, "{other} {one}");
        }
        assert!(!tcp(":80").meets(&Claim::port("address", "udp", ":80").unwrap()));
        assert_eq!(Claim::port("address", "tcp", "127.0.0.1:0"), None);
        assert_eq!(Claim::port("address", "tcp", "no port"), None);
        assert!(Claim::socket("address", "/run/a/../b").meets(&Claim::socket("address", "/run/b")));
    }

    #[test]
    fn names_meet_in_one_system() {
        let claim = |address: &str, name: &str| {
            let place = TransactionPlace::new("mqtt", [address.to_owned()]);
            Claim::name("client_id", place, name, "each would take the session of the other", "Rename one.")
        };
        assert!(claim("a:1", "x").meets(&claim("a:1", "x")));
        assert!(!claim("a:1", "x").meets(&claim("a:1", "y")));
        assert!(!claim("a:1", "x").meets(&claim("b:1", "x")));
        assert_eq!(
            claim("a:1", "x").clash("two", "one").0,
            "`two` has the `client_id` of `one`: each would take the session of the other."
        );
    }
}
