//! Waiting until a file descriptor can be read from or written to.
//!
//! On an event loop of this module, a descriptor is registered with the system only while a task waits for
//! it, since it may be closed after that. Several tasks may wait for the same descriptor, in either
//! direction.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Token};
use smallvec::SmallVec;

use super::event_loop;
use super::home;
use super::inbox::Inbox;
use super::tokio_readiness;

const INBOX: Token = Token(usize::MAX);

/// Waits until the descriptor can be read from without blocking, or has reached its end. Returns at once for
/// a descriptor that never blocks, such as a regular file.
///
/// On tokio's threads, the descriptor must not be registered already by a type of tokio's; use that type's
/// own `readable`.
///
/// # Errors
/// The error of the system if it cannot watch the descriptor.
///
/// ```
/// use std::io::{Read, Write};
/// use thalweg_runtime::evaluation::{await_readable, block_on, concurrently};
///
/// let (mut reader, mut writer) = std::io::pipe()?;
/// concurrently(async move { writer.write_all(b"down the river") }).forget();
/// let mut text = String::new();
/// block_on(await_readable(&reader))?;
/// reader.read_to_string(&mut text)?;
/// assert_eq!(text, "down the river");
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn await_readable(descriptor: impl AsFd) -> io::Result<()> {
    Ready { descriptor: descriptor.as_fd(), interest: Interest::READABLE, state: State::New }.await
}

/// Waits until the descriptor can be written to without blocking. Otherwise like [`await_readable`].
///
/// # Errors
/// The error of the system if it cannot watch the descriptor.
pub async fn await_writable(descriptor: impl AsFd) -> io::Result<()> {
    Ready { descriptor: descriptor.as_fd(), interest: Interest::WRITABLE, state: State::New }.await
}

struct Ready<'fd> {
    descriptor: BorrowedFd<'fd>,
    interest: Interest,
    state: State<'fd>,
}

type OfTokio<'fd> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'fd>>;

enum State<'fd> {
    New,
    Here { event_loop: usize, number: u64 },
    Tokio(OfTokio<'fd>),
}

impl Future for Ready<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let descriptor = self.descriptor.as_raw_fd();
        match &mut self.state {
            State::New if home::is_tokio() => {
                let mut ready: OfTokio = Box::pin(tokio_readiness::ready(self.descriptor, self.interest));
                let polled = ready.as_mut().poll(context);
                self.state = State::Tokio(ready);
                polled
            }
            State::New => match event_loop::watch(descriptor, self.interest, context.waker()) {
                Ok((event_loop, number)) => {
                    self.state = State::Here { event_loop, number };
                    Poll::Pending
                }
                Err(error) if cannot_be_watched(&error) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            },
            State::Here { event_loop, .. } if !event_loop::is_here(*event_loop) => {
                self.state = State::New;
                self.poll(context)
            }
            State::Here { event_loop, number } => {
                if event_loop::rewatch(*event_loop, descriptor, *number, context.waker()) {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                }
            }
            State::Tokio(ready) => ready.as_mut().poll(context),
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let State::Here { event_loop, number } = self.state {
            event_loop::unwatch(event_loop, self.descriptor.as_raw_fd(), number);
        }
    }
}

/// True if the system refused to watch the descriptor. It refuses regular files, which never block.
pub(super) fn cannot_be_watched(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The descriptors that tasks of an event loop wait for.
pub(super) struct Readiness {
    poll: mio::Poll,
    events: mio::Events,
    watched: BTreeMap<RawFd, Watched>,
    made: u64,
}

#[derive(Default)]
struct Watched {
    waiters: SmallVec<[Waiter; 2]>,
}

struct Waiter {
    number: u64,
    interest: Interest,
    waker: Waker,
}

impl Watched {
    /// Returns the union of the waiters' interests, if there are waiters.
    fn interest(&self) -> Option<Interest> {
        self.waiters.iter().map(|waiter| waiter.interest).reduce(Interest::add)
    }
}

impl Readiness {
    pub(super) fn new(inbox: &Inbox) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        inbox.set_descriptors(mio::Waker::new(poll.registry(), INBOX)?);
        Ok(Self { poll, events: mio::Events::with_capacity(256), watched: BTreeMap::new(), made: 0 })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.watched.is_empty()
    }

    /// Registers a waiter. Its number is used for [`rewatch`](Self::rewatch) and [`unwatch`](Self::unwatch).
    pub(super) fn watch(&mut self, descriptor: RawFd, interest: Interest, waker: Waker) -> io::Result<u64> {
        self.made += 1;
        let number = self.made;
        let entry = self.watched.entry(descriptor);
        let is_known = matches!(entry, btree_map::Entry::Occupied(_));
        let watched = entry.or_default();
        watched.waiters.push(Waiter { number, interest, waker });
        if let Err(error) = register(&self.poll, descriptor, watched, is_known) {
            watched.waiters.retain(|waiter| waiter.number != number);
            if watched.waiters.is_empty() {
                self.watched.remove(&descriptor);
            }
            return Err(error);
        }
        Ok(number)
    }

    /// Sets another waker. Returns the former one, or `None` if the descriptor was ready already.
    pub(super) fn rewatch(&mut self, descriptor: RawFd, number: u64, waker: &Waker) -> Option<Waker> {
        let waiters = &mut self.watched.get_mut(&descriptor)?.waiters;
        let waiter = waiters.iter_mut().find(|waiter| waiter.number == number)?;
        Some(std::mem::replace(&mut waiter.waker, waker.clone()))
    }

    /// Removes a waiter.
    pub(super) fn unwatch(&mut self, descriptor: RawFd, number: u64) -> Option<Waker> {
        let watched = self.watched.get_mut(&descriptor)?;
        let at = watched.waiters.iter().position(|waiter| waiter.number == number)?;
        let waiter = watched.waiters.remove(at);
        self.settle(descriptor);
        Some(waiter.waker)
    }

    /// Waits for descriptors and adds the wakers of the ready ones, in the order in which the waiters came.
    pub(super) fn poll(&mut self, at_most: Option<Duration>, ready: &mut Vec<Waker>) {
        // An interruption ends the wait early, which every caller allows for.
        if self.poll.poll(&mut self.events, at_most).is_err() {
            return;
        }
        let mut touched = SmallVec::<[RawFd; 16]>::new();
        for event in &self.events {
            let Ok(descriptor) = RawFd::try_from(event.token().0) else { continue };
            let Some(watched) = self.watched.get_mut(&descriptor) else { continue };
            let can_read = event.is_readable() || event.is_read_closed() || event.is_error();
            let can_write = event.is_writable() || event.is_write_closed() || event.is_error();
            watched.waiters.retain(|waiter| {
                let is_ready =
                    can_read && waiter.interest.is_readable() || can_write && waiter.interest.is_writable();
                if is_ready {
                    ready.push(waiter.waker.clone());
                }
                !is_ready
            });
            touched.push(descriptor);
        }
        for descriptor in touched {
            self.settle(descriptor);
        }
    }

    /// Updates the registration of a descriptor to its remaining waiters. This also makes the system check it
    /// again.
    fn settle(&mut self, descriptor: RawFd) {
        let Some(watched) = self.watched.get_mut(&descriptor) else { return };
        if watched.waiters.is_empty() {
            self.watched.remove(&descriptor);
            // This fails if the descriptor is closed; the system has dropped the registration itself then.
            let _ = self.poll.registry().deregister(&mut SourceFd(&descriptor));
        } else {
            let _ = register(&self.poll, descriptor, watched, true);
        }
    }
}

fn register(poll: &mio::Poll, descriptor: RawFd, watched: &Watched, is_known: bool) -> io::Result<()> {
    let Some(interest) = watched.interest() else { return Ok(()) };
    let token = Token(descriptor as usize);
    let registry = poll.registry();
    if is_known {
        match registry.reregister(&mut SourceFd(&descriptor), token, interest) {
            // Another descriptor has this number now: one was closed while a wait for it was leaked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
    }
    registry.register(&mut SourceFd(&descriptor), token, interest)
}
