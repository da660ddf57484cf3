//! Servers on this machine and on its link, to which a server elsewhere must not lead.
//!
//! The host of a link is looked at three times: its text, when the link is read; its addresses, before the
//! request, so that the failure says why; and the addresses that the client connects to, because a name
//! server may answer each time differently (DNS rebinding).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The reason against a link to such a server.
pub(super) const FROM_ELSEWHERE: &str =
    "a link leads from another machine to this one, or to a link-local address";

/// True if the host is this machine, or has a link-local address, as the services have that give credentials
/// to programs in clouds. A server elsewhere must not choose what is read there.
pub(super) fn is_near(url: &Url) -> bool {
    let host = host(url);
    match address(host) {
        Some(address) => is_near_address(address),
        None => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Looks at the addresses of a host before a request, unless the options name the same host: any name may
/// have the address of this machine. `first` is the URL of the options.
///
/// A name without an answer `within` this time is no error: a proxy may know it. The client looks the name up
/// again when it connects, by its [`Guard`].
///
/// # Errors
/// If a server elsewhere would lead to this machine or its link.
pub(super) async fn check(first: &Url, next: &Url, within: Duration) -> Result<(), String> {
    if next.host_str() == first.host_str() || is_near(first) {
        return Ok(());
    }
    // The first server may be near by a name of this machine.
    match has_near_address(next, within).await && !has_near_address(first, within).await {
        true => Err(FROM_ELSEWHERE.to_owned()),
        false => Ok(()),
    }
}

/// True if one of the addresses of the host is near.
async fn has_near_address(url: &Url, within: Duration) -> bool {
    let host = host(url);
    if address(host).is_some() {
        return is_near(url);
    }
    let port = url.port_or_known_default().unwrap_or_default();
    match tokio::time::timeout(within, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(mut addresses)) => addresses.any(|found| is_near_address(found.ip())),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Looks up names for the connections of a client whose server is elsewhere, and leaves out near addresses.
///
/// Any name may be near while the name of the options is: such a server is one of this machine. It no longer
/// is once the name has had another address. Otherwise who controls its name server could have the source
/// read this machine, and be near for a moment.
pub(super) struct Guard(Arc<Known>);

struct Known {
    /// The host of the options.
    first: String,
    /// True once this host had an address that is not near.
    is_elsewhere: AtomicBool,
    /// The hosts of proxies, which the administrator has chosen. A proxy looks up the other names itself.
    proxies: Vec<String>,
}

impl Guard {
    /// Returns the guard of a client for this URL of the options. `None` if that is near by its text.
    pub(super) fn of(first: &Url) -> Option<Self> {
        let known = || Known {
            first: host(first).to_owned(),
            // An address is never looked up.
            is_elsewhere: address(host(first)).is_some().into(),
            proxies: proxies(|name| std::env::var(name).ok()),
        };
        (!is_near(first)).then(|| Self(Arc::new(known())))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let known = self.0.clone();
        Box::pin(async move {
            let found = known.look_up(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl Known {
    /// Returns the addresses of a name that the client may connect to.
    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        // With its dot, which keeps a name out of the search list of the system.
        let mut found = addresses(name).await?;
        let name = name.trim_end_matches('.');
        let is_first = name.eq_ignore_ascii_case(&self.first);
        if is_first {
            self.note(&found);
        }
        let is_proxy = self.proxies.iter().any(|proxy| name.eq_ignore_ascii_case(proxy));
        if !found.iter().any(is_near_socket) || is_proxy || self.is_first_near(is_first).await {
            return Ok(found);
        }
        found.retain(|address| !is_near_socket(address));
        if found.is_empty() { Err(io::Error::other(FROM_ELSEWHERE)) } else { Ok(found) }
    }

    /// True if the host of the options is near. `is_noted` if its addresses were just looked at.
    async fn is_first_near(&self, is_noted: bool) -> bool {
        if !is_noted && !self.is_elsewhere.load(Ordering::Relaxed) {
            match addresses(&self.first).await {
                Ok(found) if !found.is_empty() => self.note(&found),
                Ok(_) | Err(_) => return false,
            }
        }
        !self.is_elsewhere.load(Ordering::Relaxed)
    }

    /// Notes addresses of the host of the options.
    fn note(&self, found: &[SocketAddr]) {
        if !found.iter().all(is_near_socket) {
            self.is_elsewhere.store(true, Ordering::Relaxed);
        }
    }
}

/// Looks up a name. The client knows the port.
async fn addresses(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((name, 0)).await?.collect())
}

fn is_near_socket(address: &SocketAddr) -> bool {
    is_near_address(address.ip())
}

/// Returns the hosts of the proxies that the client takes from the environment.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let names = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let of = |text: String| {
        let url =
            if text.contains("://") { Url::parse(&text) } else { Url::parse(&format!("http://{text}")) };
        url.ok().map(|url| host(&url).to_owned())
    };
    names.into_iter().filter_map(|name| variable(name).and_then(of)).collect()
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_end_matches('.')
}

/// Returns the address that a host is, if it is no name.
fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

fn is_near_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_is_near_by_its_addresses() {
        let checked = async |first: &str, next: &str| {
            let (first, next) = (Url::parse(first).unwrap(), Url::parse(next).unwrap());
            check(&first, &next, Duration::from_secs(60)).await
        };
        let far = "http://192.0.2.1/";
        let elsewhere = Err(FROM_ELSEWHERE.to_owned());
        for near in ["http://localhost:1/", "http://localhost./", "http://169.254.169.254/", "http://[::1]/"]
        {
            assert_eq!(checked(far, near).await, elsewhere, "{near}");
            assert_eq!(checked("http://127.0.0.1:9/", near).await, Ok(()), "{near}");
            assert_eq!(checked(near, near).await, Ok(()), "{near}");
        }
        for next in ["http://192.0.2.2/", "http://192.0.2.1:8/", "https://[2001:db8::1]/"] {
            assert_eq!(checked(far, next).await, Ok(()), "{next}");
        }
    }

    fn known(first: &str, proxies: &[&str]) -> Known {
        Known {
            first: first.to_owned(),
            is_elsewhere: false.into(),
            proxies: proxies.iter().map(|&proxy| proxy.to_owned()).collect(),
        }
    }

    #[tokio::test]
    async fn a_client_of_a_server_elsewhere_connects_to_no_near_address() {
        let far = Guard::of(&Url::parse("http://192.0.2.1:8/").unwrap()).unwrap();
        assert!(far.0.look_up("localhost").await.is_err());
        assert!(Guard::of(&Url::parse("http://localhost:1/").unwrap()).is_none());
        let elsewhere = known("192.0.2.1", &[]);
        for name in ["localhost", "LOCALHOST"] {
            assert_eq!(elsewhere.look_up(name).await.unwrap_err().to_string(), FROM_ELSEWHERE, "{name}");
        }
        assert!(known("192.0.2.1", &["localhost"]).look_up("localhost").await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_was_elsewhere_does_not_become_near() {
        let known = known("localhost", &[]);
        assert!(known.look_up("localhost").await.is_ok());
        known.note(&["127.0.0.1:0".parse().unwrap(), "192.0.2.1:0".parse().unwrap()]);
        assert!(known.look_up("localhost").await.is_err());
        known.note(&["127.0.0.1:0".parse().unwrap()]);
        assert!(known.look_up("localhost").await.is_err());
    }

    #[test]
    fn proxies_are_those_of_the_environment() {
        let variable = |name: &str| match name {
            "HTTP_PROXY" => Some("cache:3128".to_owned()),
            "https_proxy" => Some("http://me:pw@Proxy.example.:8080/".to_owned()),
            "ALL_PROXY" => Some(String::new()),
            _ => None,
        };
        assert_eq!(proxies(variable), ["cache", "proxy.example"]);
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_looked_up() {
        let has =
            async |url: &str| has_near_address(&Url::parse(url).unwrap(), Duration::from_secs(60)).await;
        // The text of a name says nothing here.
        assert!(has("http://localhost:1/").await);
        assert!(!has("http://192.0.2.1/").await);
    }
}
