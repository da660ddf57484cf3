//! Servers on this machine and on its link, to which a server elsewhere must not lead.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;

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
/// again when it connects, so a name server that answers differently then is not noticed.
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

    #[tokio::test]
    async fn the_addresses_of_a_name_are_looked_up() {
        let has =
            async |url: &str| has_near_address(&Url::parse(url).unwrap(), Duration::from_secs(60)).await;
        // The text of a name says nothing here.
        assert!(has("http://localhost:1/").await);
        assert!(!has("http://192.0.2.1/").await);
    }
}
