//! The places of a source for connections, and which connection loses its place if all are taken.
//!
//! A client that connects and sends nothing costs next to nothing, except its place: if such clients take all
//! of them, no other client is served. So when a client waits for a place, another connection is closed. A
//! sender without acknowledgements loses the next message that it sends into a closed connection, so the
//! connections of real senders come last:
//!
//! 1. Connections that never sent a message with content.
//! 2. Connections that did.
//!
//! While there are connections of the first kind, none of the second is closed. Among these, the peer address
//! with the most connections gives one up: the one without a message for the longest time, but connections in
//! the middle of a message after the others. Empty messages and parts of messages do not count: a client
//! could keep its place with a byte now and then.
//!
//! A connection must have been without a message for [`LEAST`]. Otherwise many busy clients would take each
//! other's places all the time. For an address that has at least two connections more than the waiting
//! client's address, [`LEAST_OF_MANY`] is enough. If no connection was silent for that long, such an address
//! gives up a busy one, even one that waits for an answer: otherwise one address could keep all others out.
//! Shares that become equal come to rest.
//!
//! A connection that loses its place is read until nothing more arrives, or for a second ([`FAREWELL`]), and
//! gets its answers. Complete messages that have arrived are therefore delivered.
//!
//! The rejected alternative is a default of `idle_timeout`. It would close silent connections also where no
//! client waits.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_config::counted;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection that is without a message for less than this keeps its place.
const LEAST: Duration = Duration::from_secs(10);
/// The same for a connection of an address that has more than its share, if it has such a connection.
/// Messages on their way from a client that sends without pause would be lost.
const LEAST_OF_MANY: Duration = Duration::from_secs(1);
/// How long a connection that lost its place is read at most, to deliver what has arrived.
pub const FAREWELL: Duration = Duration::from_secs(1);
/// How often closed connections are reported.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// The address of a client, as far as it is one client's: the network of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A client over TCP.
    Ip(IpAddr),
    /// Any client of a unix socket.
    Unix,
}

impl Peer {
    /// Returns the address of a TCP client.
    pub fn tcp(address: IpAddr) -> Self {
        Self::Ip(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(network.into())
            }
            v4 => v4,
        })
    }
}

/// The connections of a source. A clone is another handle on the same ones.
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, Open>,
    /// The number of open connections of each address.
    counts: HashMap<Peer, usize>,
    /// The number of connections that were closed since the last report, and when that was.
    closed: usize,
    reported: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    peer: Peer,
    standing: Standing,
    closing: Arc<Notify>,
    /// True once `closing` was notified.
    is_told: bool,
}

/// How much a connection needs its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It cannot be closed: it has just begun.
    Fixed,
    /// It waits for an answer, or may get one. It is closed only if its address has many connections.
    Busy {
        /// When the last message with content came or was answered, or else when the connection was opened.
        since: Instant,
    },
    /// It may be closed.
    Silent {
        /// When the last message with content came or was answered, or else when the connection was opened.
        since: Instant,
        /// True if there was such a message.
        has_spoken: bool,
        /// True in the middle of a message.
        is_within: bool,
    },
}

impl Places {
    /// Gives a place to a connection, which is [`Standing::Fixed`] at first.
    pub fn take(&self, peer: Peer) -> Place {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let (standing, closing) = (Standing::Fixed, Arc::new(Notify::new()));
        state.open.insert(number, Open { peer, standing, closing: closing.clone(), is_told: false });
        *state.counts.entry(peer).or_default() += 1;
        Place { places: self.clone(), number, standing: standing.into(), closing }
    }

    /// Returns the index of the address with the fewest connections, the first one of several.
    pub fn neediest(&self, peers: impl Iterator<Item = Peer>) -> Option<usize> {
        let state = self.0.lock();
        peers.enumerate().min_by_key(|(_, peer)| state.count(*peer)).map(|(at, _)| at)
    }

    /// Closes a connection for a client of this address, and reports that for the source `name`. `most` is
    /// the number of places. Returns false if no connection can be closed for it.
    pub fn close_for(&self, peer: Peer, name: &str, most: usize) -> bool {
        let mut state = self.0.lock();
        let Some((number, since)) = state.next_to_close(peer) else { return false };
        let Some(open) = state.open.get_mut(&number) else { return false };
        open.is_told = true;
        open.closing.notify_one();
        let of = open.peer;
        state.closed += 1;
        if state.reported.is_none_or(|reported| reported.elapsed() >= REPORT_EVERY) {
            let closed = counted(std::mem::take(&mut state.closed) as u64, "connection");
            state.reported = Some(Instant::now());
            let count = state.count(of);
            let of = match of {
                Peer::Ip(address) => format!(" of {address}, which had {count} of them,"),
                Peer::Unix => String::new(),
            };
            tracing::warn!(
                "`{name}`: {closed} closed for other clients, because all {most} places were taken: the last one{of} \
                 after {} s without a message. A sender without acknowledgements may lose its next message. Raise \
                 `max_connections`, or set `idle_timeout`",
                since.elapsed().as_secs()
            );
        }
        true
    }
}

impl State {
    fn count(&self, peer: Peer) -> usize {
        self.counts.get(&peer).copied().unwrap_or_default()
    }

    /// Returns the connections that have not lost their places.
    fn staying(&self) -> impl Iterator<Item = (u64, &Open)> {
        self.open.iter().filter(|(_, open)| !open.is_told).map(|(&number, open)| (number, open))
    }

    /// Returns the connection that is closed next for a client of this address, and since when it has been
    /// without a message.
    fn next_to_close(&self, waiting: Peer) -> Option<(u64, Instant)> {
        let own = self.count(waiting);
        let is_new = |open: &Open| matches!(open.standing, Standing::Silent { has_spoken: false, .. });
        // Real senders stay also while connections that never sent anything are too young to be closed.
        let has_new = self.staying().any(|(_, open)| is_new(open));
        let candidates = self.staying().filter(|(_, open)| !has_new || is_new(open));
        let candidates = candidates.filter_map(|(number, open)| {
            let Standing::Silent { since, has_spoken, is_within } = open.standing else { return None };
            let count = self.count(open.peer);
            let is_long = since.elapsed() >= LEAST;
            let gives_up = count > own + 1 && !(has_spoken && is_within) && since.elapsed() >= LEAST_OF_MANY;
            (is_long || gives_up).then_some(((has_spoken, Reverse(count), is_within, since), number))
        });
        match candidates.min() {
            Some(((.., since), number)) => Some((number, since)),
            None if has_new => None,
            None => self.busy_of_many(own),
        }
    }

    /// Returns a connection of the address with the most, although it is busy, if that has more than its
    /// share beside an address with `own` connections.
    fn busy_of_many(&self, own: usize) -> Option<(u64, Instant)> {
        let candidates = self.staying().filter_map(|(number, open)| {
            let (is_busy, is_within, since) = match open.standing {
                Standing::Fixed => return None,
                Standing::Busy { since } => (true, false, since),
                Standing::Silent { since, is_within, .. } => (false, is_within, since),
            };
            let count = self.count(open.peer);
            (count > own + 1).then_some(((Reverse(count), is_busy, is_within, since), number))
        });
        candidates.min().map(|((.., since), number)| (number, since))
    }
}

/// The place of a connection, until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
    /// The last argument of [`Place::set`].
    standing: Mutex<Standing>,
    closing: Arc<Notify>,
}

impl Place {
    /// Sets how much the connection needs its place.
    pub fn set(&self, standing: Standing) {
        if std::mem::replace(&mut *self.standing.lock(), standing) == standing {
            return;
        }
        if let Some(open) = self.places.0.lock().open.get_mut(&self.number) {
            open.standing = standing;
        }
    }

    /// Waits until the connection must be closed, because another client needs its place.
    pub async fn closing(&self) {
        self.closing.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.0.lock();
        let Some(open) = state.open.remove(&self.number) else { return };
        if let Entry::Occupied(mut count) = state.counts.entry(open.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::tcp([10, 0, 0, last].into())
    }

    fn silent(since: Instant, has_spoken: bool, is_within: bool) -> Standing {
        Standing::Silent { since, has_spoken, is_within }
    }

    /// Returns the connection that is closed for a client.
    async fn closed(places: &Places, waiting: Peer, of: &[Place]) -> Option<usize> {
        if !places.close_for(waiting, "s", of.len()) {
            return None;
        }
        for (at, place) in of.iter().enumerate() {
            let mut closing = pin!(place.closing());
            if poll_fn(|context| Poll::Ready(closing.as_mut().poll(context).is_ready())).await {
                return Some(at);
            }
        }
        panic!("no connection is told")
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_message_are_closed_before_those_of_real_senders() {
        let places = Places::default();
        let all: Vec<Place> = (0..5).map(|_| places.take(peer(1))).collect();
        let begun = Instant::now();
        let later = |seconds| begun + Duration::from_secs(seconds);
        // The first one cannot be closed.
        all[1].set(silent(begun, true, false));
        all[2].set(silent(later(2), false, false));
        all[3].set(silent(later(1), false, true));
        all[4].set(silent(begun, true, true));
        tokio::time::advance(LEAST - Duration::from_millis(1)).await;
        assert_eq!(closed(&places, peer(1), &all).await, None);
        tokio::time::advance(Duration::from_secs(3)).await;
        let mut order = Vec::new();
        while let Some(at) = closed(&places, peer(1), &all).await {
            order.push(at);
        }
        assert_eq!(order, [2, 3, 1, 4]);
        drop(all);
        let state = places.0.lock();
        assert!(state.open.is_empty() && state.counts.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_connections_gives_one_up_at_once_to_another() {
        let places = Places::default();
        let all: Vec<Place> = (0..5).map(|at| places.take(peer(if at < 4 { 1 } else { 2 }))).collect();
        let now = Instant::now();
        for (at, place) in all.iter().enumerate() {
            place.set(silent(now + Duration::from_millis(10 - at as u64), true, at == 3));
        }
        tokio::time::advance(LEAST_OF_MANY * 2).await;
        // Not to itself, and not one in the middle of a message.
        assert_eq!(closed(&places, peer(1), &all).await, None);
        assert_eq!(closed(&places, peer(3), &all).await, Some(2));
        assert_eq!(closed(&places, peer(2), &all).await, Some(1));
        // To an address that has nearly as many, after a time without messages only.
        let _more = (places.take(peer(2)), places.take(peer(2)));
        assert_eq!(closed(&places, peer(2), &all).await, None);
        tokio::time::advance(LEAST).await;
        assert_eq!(closed(&places, peer(2), &all).await, Some(0));
        assert_eq!(closed(&places, peer(2), &all).await, Some(3));
        assert_eq!(closed(&places, peer(2), &all).await, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_with_many_busy_connections_makes_room_for_another() {
        let places = Places::default();
        let all: Vec<Place> = (0..5).map(|at| places.take(peer(if at < 4 { 1 } else { 2 }))).collect();
        let now = Instant::now();
        all[0].set(Standing::Busy { since: now });
        all[1].set(silent(now, true, true));
        all[2].set(silent(now, true, false));
        all[4].set(Standing::Busy { since: now });
        assert_eq!(closed(&places, peer(1), &all).await, None);
        assert_eq!(closed(&places, peer(3), &all).await, Some(2));
        assert_eq!(closed(&places, peer(3), &all).await, Some(1));
        assert_eq!(closed(&places, peer(3), &all).await, Some(0));
        // The others are about to end, or belong to an address with one connection.
        assert_eq!(closed(&places, peer(3), &all).await, None);
        assert_eq!(places.neediest([peer(1), peer(2), peer(3), peer(4)].into_iter()), Some(2));
    }

    #[test]
    fn the_addresses_of_one_client_are_one() {
        let peer = |text: &str| Peer::tcp(text.parse().unwrap());
        assert_eq!(peer("2001:db8:1:2::3"), peer("2001:db8:1:2:ffff::4"));
        assert_ne!(peer("2001:db8:1:2::3"), peer("2001:db8:1:3::3"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.2"), peer("10.0.0.1"));
    }
}
