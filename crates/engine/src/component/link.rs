//! A source whose positions are moved by the transactions of a sink.
//!
//! Some systems keep positions and output in one place, and can change both in one transaction. A source and
//! a sink of one such system are linked by the plan: the sink puts what both use into the [`Link`] when it is
//! built, and the source takes it out when it runs. The engine knows nothing of what that is.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

use std::any::Any;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// The system in which a source keeps its positions, a sink makes transactions, or a component has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionPlace {
    protocol: &'static str,
    addresses: Vec<String>,
}

impl TransactionPlace {
    /// Creates a place of a protocol, such as `kafka`, with the addresses by which it is known.
    pub fn new(protocol: &'static str, addresses: impl IntoIterator<Item = String>) -> Self {
        Self { protocol, addresses: addresses.into_iter().collect() }
    }

    /// True if both are the same system: they have an address in common.
    pub fn is(&self, other: &Self) -> bool {
        self.protocol == other.protocol
            && self.addresses.iter().any(|address| other.addresses.contains(address))
    }

    /// Returns an address of each if both are probably one system, although they have no address in common:
    /// the same host with another port or in another spelling, or the next host of a row.
    ///
    /// Such places are not linked: a transaction with the positions of another system would lose them.
    pub(crate) fn spelling_of<'a>(&'a self, other: &'a Self) -> Option<(&'a str, &'a str)> {
        if self.protocol != other.protocol || self.is(other) {
            return None;
        }
        let both =
            |address: &'a String| Some((address, other.addresses.iter().find(|of| alike(address, of))?));
        self.addresses.iter().find_map(both).map(|(one, other)| (one.as_str(), other.as_str()))
    }

    /// Returns the protocol.
    pub(crate) fn protocol(&self) -> &'static str {
        self.protocol
    }
}

/// True if two addresses are probably those of one host, or of two hosts of one system.
fn alike(one: &str, other: &str) -> bool {
    let (one, other) = (host(one), host(other));
    if one == other {
        return true;
    }
    let is_number = |host: &str| host.parse::<IpAddr>().is_ok();
    if is_number(&one) || is_number(&other) {
        return false;
    }
    let split = |host: &str| {
        let (label, domain) = host.split_once('.').unwrap_or((host, ""));
        // The hosts of a row have numbers: `kafka-1`, `kafka-2`.
        (label.replace(|letter: char| letter.is_ascii_digit(), ""), domain.to_owned())
    };
    let is_short_for =
        |short: &str, long: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
    split(&one) == split(&other)
        || (!one.contains('.') && is_short_for(&one, &other))
        || (!other.contains('.') && is_short_for(&other, &one))
}

/// Returns the host of an address, in one spelling.
fn host(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) if address.to_canonical().is_loopback() => "localhost".to_owned(),
        _ => host,
    }
}

/// Holds what a linked source and sink share.
#[derive(Debug, Clone, Default)]
pub struct Link(Arc<OnceLock<Arc<dyn Any + Send + Sync>>>);

impl Link {
    /// Puts what both share. Only the first one is kept.
    pub fn put<T: Send + Sync + 'static>(&self, shared: Arc<T>) {
        let _ = self.0.set(shared);
    }

    /// Returns what was put, if it is of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get()?.clone().downcast().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_with_an_address_in_common_are_the_same() {
        let place = |protocol, addresses: &[&str]| {
            TransactionPlace::new(protocol, addresses.iter().map(|&address| address.to_owned()))
        };
        let first = place("kafka", &["a:1", "b:1"]);
        assert!(first.is(&place("kafka", &["c:1", "b:1"])));
        assert!(!first.is(&place("kafka", &["c:1"])));
        assert!(!first.is(&place("other", &["a:1"])));
    }

    #[test]
    fn another_spelling_of_a_place_is_recognised() {
        let place = |addresses: &[&str]| {
            TransactionPlace::new("kafka", addresses.iter().map(|&address| address.to_owned()))
        };
        for (one, other, alike) in [
            (&["localhost:9092"][..], &["127.0.0.1:9092"][..], true),
            (&["localhost:9092"], &["[::1]:9093"], true),
            (&["kafka.example.com:9092"], &["kafka.example.com:9093"], true),
            (&["kafka.example.com:9092"], &["Kafka.Example.com.:9092"], true),
            (&["kafka:9092"], &["kafka.example.com:9092"], true),
            (&["x:1", "kafka-1.example.com:9092"], &["kafka-2.example.com:9092"], true),
            // The same, so they are linked.
            (&["a:1", "b:1"], &["b:1", "a:1"], false),
            (&["kafka-1.eu.example.com:9092"], &["kafka-1.us.example.com:9092"], false),
            (&["old.example.com:9092"], &["new.example.com:9092"], false),
            (&["10.0.0.1:9092"], &["10.0.0.2:9092"], false),
        ] {
            assert_eq!(place(one).spelling_of(&place(other)).is_some(), alike, "{one:?} {other:?}");
            assert_eq!(place(other).spelling_of(&place(one)).is_some(), alike, "{other:?} {one:?}");
        }
    }

    #[test]
    fn a_link_returns_what_was_put_first_and_only_as_its_type() {
        let link = Link::default();
        assert_eq!(link.get::<u32>(), None);
        link.clone().put(Arc::new(7_u32));
        link.put(Arc::new(8_u32));
        assert_eq!(link.get::<u32>().as_deref(), Some(&7));
        assert_eq!(link.get::<u64>(), None);
    }
}
