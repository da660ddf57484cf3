//! The rules for the use of `/api/`.
//!
//! The socket in the state directory can be opened by the user of the run alone, so nothing more is asked
//! there. An address of the network needs a token. An address of this machine needs it if the run has one;
//! otherwise every user of the machine may ask. There, a browser is the way in for strangers: a page may send
//! requests to `127.0.0.1`, also under a name of its own that leads there (DNS rebinding). So a name that is
//! not of this machine is refused, and a request of another site.
//!
//! The address of the listener decides, not that of the client: a proxy on this machine would make all
//! clients local.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::{StatusCode, Uri};

use super::reply::Refusal;
use super::token::Token;

/// Where a request of a browser comes from.
const SITE: &str = "sec-fetch-site";

/// Where a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// In a folder of this user.
    Socket,
    /// At an address that only this machine reaches.
    Machine,
    /// At another address.
    Network,
}

impl Access {
    pub(super) fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_loopback() { Self::Machine } else { Self::Network }
    }

    /// Checks a request to `/api/`.
    pub(super) fn check(self, token: Option<&Token>, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        match (self, token) {
            (Self::Socket, _) => Ok(()),
            (_, Some(token)) => {
                let fits = headers.get(AUTHORIZATION).is_some_and(|value| token.fits(value.as_bytes()));
                fits.then_some(()).ok_or_else(Refusal::unauthorized)
            }
            (Self::Network, None) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "on an address of the network, the API needs a token: run with `--api-token-file FILE`, or listen on \
                 127.0.0.1",
            )),
            (Self::Machine, None) => check_site(uri, headers),
        }
    }
}

/// Refuses what only a browser sends on behalf of another site.
fn check_site(uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let refusal = |reason: &str| Err(Refusal::new(StatusCode::FORBIDDEN, reason));
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
    for name in host.into_iter().chain(uri.authority().map(|authority| authority.as_str())) {
        if !is_of_this_machine(name) {
            return refusal(
                "the name in the request is not of this machine: ask `127.0.0.1` or `localhost`, or run with \
                 `--api-token-file FILE`",
            );
        }
    }
    let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    let is_own = |origin: &str| host.is_some() && origin.strip_prefix("http://") == host;
    if origin.is_some_and(|origin| !is_own(origin)) {
        return refusal("the request comes from a page of another site");
    }
    let site = headers.get(SITE).map(|site| site.to_str().unwrap_or_default());
    if site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return refusal("the request comes from a page of another site");
    }
    Ok(())
}

/// True for `localhost` and addresses of this machine, with any port: a tunnel has another one.
fn is_of_this_machine(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Access::Machine.check(None, &Uri::from_static("/api/v1"), &headers.collect()).is_ok()
    }

    #[test]
    fn names_and_sites_of_others_are_refused_on_this_machine() {
        for host in ["127.0.0.1:9598", "localhost", "LOCALHOST:1", "[::1]:80", "127.9.9.9", "[::1]"] {
            assert!(check(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example:9598",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]:1",
            "",
        ] {
            assert!(!check(&[("host", host)]), "{host}");
        }
        assert!(check(&[]));
        assert!(check(&[("host", "localhost:1"), ("origin", "http://localhost:1")]));
        for origin in ["http://localhost:2", "https://localhost:1", "null", "http://evil.example"] {
            assert!(!check(&[("host", "localhost:1"), ("origin", origin)]), "{origin}");
        }
        assert!(!check(&[("origin", "null")]) && !check(&[("origin", "http://localhost:1")]));
        assert!(check(&[("sec-fetch-site", "none")]) && check(&[("sec-fetch-site", "same-origin")]));
        assert!(!check(&[("sec-fetch-site", "cross-site")]) && !check(&[("sec-fetch-site", "same-site")]));
        let uri = Uri::from_static("http://evil.example/api/v1");
        assert!(Access::Machine.check(None, &uri, &HeaderMap::new()).is_err());
    }

    #[test]
    fn the_network_needs_a_token_and_the_socket_none() {
        let uri = Uri::from_static("/api/v1");
        let headers = HeaderMap::new();
        let refused = Access::Network.check(None, &uri, &headers).unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(Access::Socket.check(None, &uri, &headers).is_ok());
        let of = |address: &str| Access::of(address.parse().unwrap());
        for address in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(of(address), Access::Machine, "{address}");
        }
        for address in ["0.0.0.0:1", "10.1.2.3:1", "[::]:1"] {
            assert_eq!(of(address), Access::Network, "{address}");
        }
    }
}
