//! Sockets that stay open while the component that listens on them is replaced.
//!
//! A reloaded configuration ends a source and builds another one for the same address. In between, the system
//! would refuse connections and drop datagrams. So a copy of the socket stays open, and the next component
//! with that address continues with it: clients that come meanwhile wait in the queue of the system.
//!
//! Only a process that may reload makes copies. Sockets that no component takes are closed a moment after the
//! reload. (Rejected: to give the socket from one component to the other. They do not know each other, and
//! the old one ends before the new one is built.)
//!
//! Unix sockets are not handed over: the path belongs to the component, which removes it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::Handle;

/// How long after a reload a socket waits for its next component, which is built by then, but may not listen
/// yet.
const WAIT: Duration = Duration::from_secs(5);

static IS_POSSIBLE: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<Waiting> = Mutex::new(Waiting { holders: 0, sockets: BTreeMap::new() });

/// The kind of a socket, and its address as it is configured.
type Key = (Protocol, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Tcp,
    Udp,
}

/// The sockets that wait for a component.
struct Waiting {
    /// The number of reloads that are under way, or have just ended.
    holders: usize,
    sockets: BTreeMap<Key, OwnedFd>,
}

/// Lets the sockets of components that end wait for those in their place, until it is dropped and a moment
/// longer.
#[derive(Debug)]
pub struct Handover(Option<Holder>);

#[derive(Debug)]
struct Holder;

impl Handover {
    /// Lets the components of this process that are built from now on hand their sockets over.
    pub fn make_possible() {
        IS_POSSIBLE.store(true, Relaxed);
    }

    /// Begins. Sockets that wait since the last reload are closed: its components are built, and this reload
    /// tries its new addresses.
    #[must_use]
    pub fn begin() -> Self {
        let mut waiting = WAITING.lock();
        waiting.holders += 1;
        waiting.sockets.clear();
        Self(Some(Holder))
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let holder = self.0.take();
        // Without a runtime nothing is built any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(WAIT).await;
                drop(holder);
            });
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut waiting = WAITING.lock();
        waiting.holders -= 1;
        if waiting.holders == 0 {
            waiting.sockets.clear();
        }
    }
}

/// A copy of the socket of a component, if it may be handed over. Dropped with the component.
#[derive(Debug, Default)]
pub struct Copied(Option<(Key, OwnedFd)>);

impl Copied {
    /// Copies a listener.
    pub(super) fn of_tcp(at: &str, listener: &TcpListener) -> Self {
        Self::of(Protocol::Tcp, at, listener)
    }

    /// Copies a socket for datagrams.
    pub(super) fn of_udp(at: &str, socket: &UdpSocket) -> Self {
        Self::of(Protocol::Udp, at, socket)
    }

    fn of(protocol: Protocol, at: &str, socket: &impl AsFd) -> Self {
        // Port 0 is another one each time. Without a copy, the component after this one binds the address.
        if !IS_POSSIBLE.load(Relaxed) || at.ends_with(":0") {
            return Self(None);
        }
        let copied = socket.as_fd().try_clone_to_owned().ok();
        Self(copied.map(|copied| ((protocol, at.to_owned()), copied)))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let mut waiting = WAITING.lock();
        if let Some((key, socket)) = self.0.take().filter(|_| waiting.holders > 0) {
            waiting.sockets.insert(key, socket);
        }
    }
}

/// The listener that waits for a component with this address, if one does.
pub(super) fn waiting_tcp(at: &str) -> Option<io::Result<TcpListener>> {
    let socket = taken(Protocol::Tcp, at)?;
    Some(TcpListener::from_std(socket.into()))
}

/// The socket for datagrams that waits for a component with this address, if one does.
pub(super) fn waiting_udp(at: &str) -> Option<io::Result<UdpSocket>> {
    let socket = taken(Protocol::Udp, at)?;
    Some(UdpSocket::from_std(socket.into()))
}

/// Closes the listeners that wait with the port of this address: their hosts are written in another way, such
/// as `0.0.0.0` for none. Returns false if there are none.
pub(super) fn close_tcp(at: &str) -> bool {
    closed(Protocol::Tcp, at)
}

/// As [`close_tcp`], of the sockets for datagrams.
pub(super) fn close_udp(at: &str) -> bool {
    closed(Protocol::Udp, at)
}

fn closed(protocol: Protocol, at: &str) -> bool {
    let mut waiting = WAITING.lock();
    let before = waiting.sockets.len();
    waiting.sockets.retain(|(of_other, other), _| *of_other != protocol || port(other) != port(at));
    waiting.sockets.len() < before
}

fn port(at: &str) -> Option<&str> {
    at.rsplit_once(':').map(|(_, port)| port)
}

fn taken(protocol: Protocol, at: &str) -> Option<OwnedFd> {
    WAITING.lock().sockets.remove(&(protocol, at.to_owned()))
}
