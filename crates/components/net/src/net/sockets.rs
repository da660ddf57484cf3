//! The number of sockets that the clients of a source may have, within the limit of open files.
//!
//! A process that has no descriptor left cannot accept a client, so it cannot see whose connection should
//! give way. All sources that accept connections therefore share the descriptors that a run can spare, and
//! each keeps a part of its share for clients that wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use thalweg_runtime::descriptors;

/// The largest number of accepted clients of a source that may wait for a place.
const MOST_WAITING: usize = 256;

/// The number of sources of this process that accept connections.
static LISTENING: AtomicUsize = AtomicUsize::new(0);

/// The sockets of the clients of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sockets {
    /// How many clients may be connected.
    pub(super) places: usize,
    /// How many accepted clients may wait for a place.
    pub(super) waiting: usize,
}

impl Sockets {
    /// Divides the descriptors for clients among the sources. A source wants at most `wanted` places.
    fn of(descriptors: usize, sources: usize, wanted: usize) -> Self {
        let own = descriptors / sources.max(1);
        let waiting = (own / 4).clamp(1, MOST_WAITING);
        Self { places: own.saturating_sub(waiting).clamp(1, wanted), waiting }
    }
}

/// A guard: its source counts among those that accept connections.
#[derive(Debug)]
pub(super) struct Listening {
    /// The number of places that was reported last, because it is smaller than wanted.
    reported: Option<usize>,
}

impl Listening {
    /// Counts a source.
    pub(super) fn begin() -> Self {
        LISTENING.fetch_add(1, Ordering::Relaxed);
        Self { reported: None }
    }

    /// Returns the present share of the source `name`, which wants at most `wanted` places. Warns if these
    /// are too many, and again only if they become fewer.
    pub(super) fn sockets(&mut self, wanted: usize, name: &str) -> Sockets {
        let sockets = Sockets::of(descriptors::for_clients(), LISTENING.load(Ordering::Relaxed), wanted);
        let is_news = self.reported.is_none_or(|reported| sockets.places < reported);
        if sockets.places < wanted && is_news {
            self.reported = Some(sockets.places);
            let limit = descriptors::limit().unwrap_or_default();
            tracing::warn!(
                "`{name}`: `max_connections` is {wanted}, but this process may have only {limit} files open: {} \
                 clients can be connected. Raise the limit, for example with `ulimit -n {}`, or lower \
                 `max_connections`",
                sockets.places,
                limit.saturating_mul(4).max(1024)
            );
        }
        sockets
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_connected_or_wait_share_the_descriptors_of_all_sources() {
        let of = |descriptors, sources, wanted| {
            let Sockets { places, waiting } = Sockets::of(descriptors, sources, wanted);
            (places, waiting)
        };
        assert_eq!(of(usize::MAX, 1, 1024), (1024, 256));
        assert_eq!(of(24, 1, 1024), (18, 6));
        assert_eq!(of(24, 2, 1024), (9, 3));
        assert_eq!(of(24, 1, 4), (4, 6));
        // With next to none, one client after the other is served.
        assert_eq!(of(0, 3, 1024), (1, 1));
    }
}
