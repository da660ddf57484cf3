//! Looking at what passes through a running graph.
//!
//! A tap copies the texts of some messages where they are routed, and a client takes them from a queue. The
//! route never waits for it: what the client is too slow for is left out and counted. A tap holds neither a
//! batch nor a lease nor an ack of one, so nothing is held back by a client that does not read. Its copies
//! count on the budget, up to a limit for all taps together.
//!
//! A port without a viewer costs one relaxed load for each batch.
//!
//! See docs/decisions/098-a-run-is-watched-without-cost-per-message.md.

mod allowance;
mod shown;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use thalweg_record::{Budget, Lease, Share};
use tokio::sync::mpsc;

use super::edges::{EdgeCounts, Place, Port, Ports};
use allowance::Allowance;
pub(crate) use shown::Tappable;
pub use shown::Tapped;

/// The most taps at the same time.
const MOST_TAPS: usize = 16;
/// The messages that may wait for the client of a tap.
const WAITING: usize = 256;
/// The most messages a second that a tap copies: it looks at a run, and is no output of it.
const MOST_RATE: u32 = 1000;
/// The most bytes of a text.
const LONGEST_TEXT: usize = 64 << 10;
/// The holder of their memory.
const HOLDER: &str = "open taps";
/// The most bytes that wait in all taps. A small budget has less: an eighth of it.
const MOST_BYTES: usize = 16 << 20;

/// Which messages a tap shows.
#[derive(Debug, Clone)]
pub struct TapRequest {
    /// The names of components whose outputs are looked at, such as `access` or `main.parse_json`; or the
    /// name of a sink for what it receives. `NAME.LABEL` is one labelled output, and `NAME.errors` what was
    /// rejected. `*` stands for any characters.
    pub edges: Vec<String>,
    /// The most messages a second, from 1 to 1000.
    pub rate: u32,
    /// The most bytes of the payload, and of all fields together. At most 64 KiB.
    pub max_bytes: usize,
}

/// Why there is no tap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// Nothing has one of the names. The name is not a part of this: a client that reads it where secrets are
    /// removed could find out whether a guess is one.
    #[error("nothing has such a name; there are: {}", .known.join(", "))]
    Unknown {
        /// The names of all that can be looked at.
        known: Vec<String>,
    },
    /// There are as many taps as there may be.
    #[error("{} taps are open already; close one of them", MOST_TAPS)]
    TooMany,
}

/// Shows messages that pass through a run. Dropping it ends that.
#[derive(Debug)]
pub struct Tap {
    waiting: mpsc::Receiver<Waiting>,
    left_out: Arc<AtomicU64>,
    number: u64,
    taps: Arc<Taps>,
}

impl Tap {
    /// Waits for the next message. Returns None when the run has ended and all were taken.
    pub async fn next(&mut self) -> Option<Tapped> {
        self.waiting.recv().await.map(|waiting| waiting.tapped)
    }

    /// Returns the number of messages that passed and were left out: there were more than the rate allows, or
    /// too many waited for the client.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.taps.close(self.number);
    }
}

/// A message that waits for its client, and the memory that it counts on the budget.
#[derive(Debug)]
struct Waiting {
    tapped: Tapped,
    _lease: Lease,
}

/// The taps of a run.
#[derive(Debug)]
pub(super) struct Taps {
    /// Locked after the state.
    ports: RwLock<Ports>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeSet<u64>,
    /// Those who look, for the ports of parts that begin later.
    viewers: Vec<Arc<Viewer>>,
    has_ended: bool,
    /// The account of all taps with the budget.
    share: Option<Share>,
}

impl Taps {
    pub(super) fn new(ports: Ports) -> Self {
        Self { ports: RwLock::new(ports), state: Mutex::default() }
    }

    /// The port of a component.
    pub(super) fn port(&self, component: &Arc<str>, place: Place) -> Option<Arc<Port>> {
        self.ports.read().get(component, place)
    }

    /// The counters of all edges, sorted.
    pub(super) fn counts(&self) -> Vec<EdgeCounts> {
        self.ports.read().counts()
    }

    /// Adds the ports of a part that begins, also for the taps that mean them.
    pub(super) fn add(&self, ports: &Ports) {
        let state = self.state.lock();
        for viewer in &state.viewers {
            let meant = |port: &&Arc<Port>| viewer.edges.iter().any(|name| port.is_meant(name));
            ports.iter().filter(meant).for_each(|port| port.viewers.add(viewer.clone()));
        }
        self.ports.write().add(ports);
    }

    /// Removes the ports of a part that has ended.
    pub(super) fn remove(&self, ports: &Ports) {
        self.ports.write().remove(ports);
    }

    pub(super) fn open(self: &Arc<Self>, request: TapRequest, budget: &Budget) -> Result<Tap, TapError> {
        // Locked first: a part that begins meanwhile finds the viewer, or its ports are found here.
        let mut state = self.state.lock();
        let ports = self.meant(&request.edges)?;
        if state.open.len() >= MOST_TAPS {
            return Err(TapError::TooMany);
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number);
        let share = state.share.get_or_insert_with(|| budget.held_by(HOLDER).share()).clone();
        let (sender, waiting) = mpsc::channel(WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let viewer = Arc::new(Viewer {
            number,
            edges: request.edges,
            max_bytes: request.max_bytes.min(LONGEST_TEXT),
            most_bytes: MOST_BYTES.min(budget.limit() / 8),
            sender,
            share,
            allowance: Mutex::new(Allowance::new(request.rate.clamp(1, MOST_RATE), Instant::now())),
            left_out: left_out.clone(),
        });
        // Under the lock of the state: the end of the run comes before, or finds the viewer.
        if !state.has_ended {
            ports.iter().for_each(|port| port.viewers.add(viewer.clone()));
            state.viewers.push(viewer);
        }
        drop(state);
        Ok(Tap { waiting, left_out, number, taps: self.clone() })
    }

    /// The ports that some names mean.
    fn meant(&self, names: &[String]) -> Result<Vec<Arc<Port>>, TapError> {
        let ports = self.ports.read();
        for name in names {
            if !ports.iter().any(|port| port.is_meant(name)) {
                let known: BTreeSet<String> = ports.iter().map(|port| port.name()).collect();
                return Err(TapError::Unknown { known: known.into_iter().collect() });
            }
        }
        let meant = |port: &&Arc<Port>| names.iter().any(|name| port.is_meant(name));
        Ok(ports.iter().filter(meant).cloned().collect())
    }

    fn close(&self, number: u64) {
        let mut state = self.state.lock();
        state.open.remove(&number);
        state.viewers.retain(|viewer| viewer.number != number);
        self.ports.read().iter().for_each(|port| port.viewers.remove(number));
    }

    /// Ends all taps: the run is over.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.viewers.clear();
        self.ports.read().iter().for_each(|port| port.viewers.clear());
    }

    /// True if nothing of any tap is left.
    #[cfg(test)]
    pub(super) fn are_closed(&self) -> bool {
        let state = self.state.lock();
        let bytes = state.share.as_ref().map_or(0, Share::held);
        state.open.is_empty() && bytes == 0 && !self.ports.read().iter().any(|port| port.viewers.are_any())
    }
}

/// Those who look at a port.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    are_any: AtomicBool,
    all: Mutex<Vec<Arc<Viewer>>>,
}

impl Viewers {
    /// True if there are some. One who has just begun may not be seen yet.
    pub(super) fn are_any(&self) -> bool {
        self.are_any.load(Relaxed)
    }

    pub(super) fn show(&self, port: &Port, content: &impl Tappable) {
        let viewers = self.all.lock().clone();
        viewers.iter().for_each(|viewer| viewer.look(port, content));
    }

    fn add(&self, viewer: Arc<Viewer>) {
        self.change(|all| all.push(viewer));
    }

    fn remove(&self, number: u64) {
        self.change(|all| all.retain(|viewer| viewer.number != number));
    }

    fn clear(&self) {
        self.change(Vec::clear);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Viewer>>)) {
        let mut all = self.all.lock();
        change(&mut all);
        self.are_any.store(!all.is_empty(), Relaxed);
    }
}

/// The side of a tap that the run has.
#[derive(Debug)]
struct Viewer {
    number: u64,
    /// The names of the request.
    edges: Vec<String>,
    max_bytes: usize,
    /// The most bytes that wait in all taps.
    most_bytes: usize,
    sender: mpsc::Sender<Waiting>,
    share: Share,
    allowance: Mutex<Allowance>,
    left_out: Arc<AtomicU64>,
}

impl Viewer {
    /// Copies as much of the content as may be, and counts the rest.
    fn look(&self, port: &Port, content: &impl Tappable) {
        let count = content.count();
        let shown = (0..count).take_while(|at| self.copy(port, content, *at)).count();
        self.left_out.fetch_add((count - shown) as u64, Relaxed);
    }

    /// Copies a message. Returns false if there is no room for it, or it is too early.
    fn copy(&self, port: &Port, content: &impl Tappable, at: usize) -> bool {
        let Ok(room) = self.sender.try_reserve() else { return false };
        if self.share.held() >= self.most_bytes || !self.allowance.lock().take(Instant::now()) {
            return false;
        }
        let tapped = content.shown(at, port, self.max_bytes);
        let lease = self.share.claim(tapped.memory());
        room.send(Waiting { tapped, _lease: lease });
        true
    }
}

#[cfg(test)]
mod tests;
