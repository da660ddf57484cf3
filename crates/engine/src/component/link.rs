//! A source whose positions are moved by the transactions of a sink.
//!
//! Some systems keep positions and output in one place, and can change both in one transaction. A source and
//! a sink of one such system are linked by the plan: the sink puts what both use into the [`Link`] when it is
//! built, and the source takes it out when it runs. The engine knows nothing of what that is.
//!
//! See docs/decisions/093-offsets-are-committed-in-transactions.md.

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// The system in which a source keeps its positions, or a sink makes transactions.
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
    fn a_link_returns_what_was_put_first_and_only_as_its_type() {
        let link = Link::default();
        assert_eq!(link.get::<u32>(), None);
        link.clone().put(Arc::new(7_u32));
        link.put(Arc::new(8_u32));
        assert_eq!(link.get::<u32>().as_deref(), Some(&7));
        assert_eq!(link.get::<u64>(), None);
    }
}
