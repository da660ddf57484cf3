//! The signals that end a run or reopen its outputs.
//!
//! One thread per process counts the signals and never ends. Listening only while a phase runs was rejected:
//! tokio keeps its signal handlers installed, so a signal that arrived between two phases, runs or pauses had
//! no effect.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The request behind a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// To end: SIGINT, SIGTERM, Ctrl-C.
    End,
    /// To reopen outputs: SIGHUP.
    #[cfg(unix)]
    Reopen,
}

/// The number of signals of each kind.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    ends: u64,
    #[cfg(unix)]
    reopens: u64,
}

/// Receives signals. Once the first one was created, these signals no longer end the process. A clone
/// receives the signals that the original has not returned.
#[derive(Debug, Clone)]
pub struct Signals {
    received: watch::Receiver<Counts>,
    /// The signals that were returned, or that arrived earlier.
    seen: Counts,
}

impl Signals {
    /// Begins to receive signals. It may be called within a runtime.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new() -> io::Result<Self> {
        static RECEIVED: Mutex<Option<watch::Receiver<Counts>>> = Mutex::new(None);
        let mut known = RECEIVED.lock();
        let received = match (*known).clone() {
            Some(received) => received,
            None => listen()?,
        };
        *known = Some(received.clone());
        Ok(Self::of(received))
    }

    /// Receives what is counted from now on.
    fn of(received: watch::Receiver<Counts>) -> Self {
        let seen = *received.borrow();
        Self { received, seen }
    }

    /// True if a signal to end has arrived that [`next`](Self::next) has not returned.
    #[must_use]
    pub fn has_end(&self) -> bool {
        self.received.borrow().ends > self.seen.ends
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Signal {
        loop {
            let counts = *self.received.borrow_and_update();
            if counts.ends > self.seen.ends {
                self.seen.ends += 1;
                return Signal::End;
            }
            #[cfg(unix)]
            if counts.reopens > self.seen.reopens {
                self.seen.reopens += 1;
                return Signal::Reopen;
            }
            if self.received.changed().await.is_err() {
                // The thread that counts has panicked.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the next signal, without end if none is received.
    pub(super) async fn next_of(signals: &mut Option<Self>) -> Signal {
        match signals {
            Some(signals) => signals.next().await,
            None => std::future::pending().await,
        }
    }

    /// Drops the requests to reopen outputs that have arrived: a run that begins opens its outputs anyway.
    pub(super) fn without_reopens(mut self) -> Self {
        #[cfg(unix)]
        {
            self.seen.reopens = self.received.borrow().reopens;
        }
        self
    }

    async fn end(&mut self) {
        while self.next().await != Signal::End {}
    }
}

/// Starts the thread that counts signals.
#[cfg(unix)]
fn listen() -> io::Result<watch::Receiver<Counts>> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The handlers are installed before this function returns.
    let (mut interrupt, mut terminate, mut hang_up) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    let (counts, received) = watch::channel(Counts::default());
    let count = async move {
        while !counts.is_closed() {
            let is_end = tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => true,
                _ = hang_up.recv() => false,
            };
            counts.send_modify(|counts| match is_end {
                true => counts.ends += 1,
                false => counts.reopens += 1,
            });
        }
    };
    begin(runtime, count)?;
    Ok(received)
}

/// Starts the thread that counts signals.
#[cfg(not(unix))]
fn listen() -> io::Result<watch::Receiver<Counts>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (counts, received) = watch::channel(Counts::default());
    let count = async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            counts.send_modify(|counts| counts.ends += 1);
        }
    };
    begin(runtime, count)?;
    Ok(received)
}

fn begin(
    runtime: tokio::runtime::Runtime,
    count: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("thalweg-signals".to_owned());
    thread.spawn(move || runtime.block_on(count)).map(drop)
}

/// Waits between two runs. Returns true if a signal to end has arrived since `signals` was created.
///
/// # Errors
/// If the runtime cannot be created.
pub fn pause(time: Duration, signals: &Signals) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = signals.clone();
    Ok(runtime.block_on(async { tokio::time::timeout(time, signals.end()).await.is_ok() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_arrives_while_no_run_listens_ends_the_pause_after_it() {
        let (counts, received) = watch::channel(Counts { ends: 1, ..Counts::default() });
        let signals = Signals::of(received);
        assert!(!signals.has_end() && !pause(Duration::ZERO, &signals).unwrap());
        counts.send_modify(|counts| counts.ends += 1);
        assert!(signals.has_end() && pause(Duration::from_secs(3600), &signals).unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn each_signal_is_received_once_and_ends_before_reopens() {
        let (counts, received) = watch::channel(Counts::default());
        let mut signals = Signals::of(received);
        counts.send_modify(|counts| *counts = Counts { ends: 2, reopens: 1 });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let next = |signals: &mut Signals| runtime.block_on(signals.next());
        let mut later = signals.clone().without_reopens();
        assert_eq!([(); 3].map(|()| next(&mut signals)), [Signal::End, Signal::End, Signal::Reopen]);
        assert_eq!([(); 2].map(|()| next(&mut later)), [Signal::End; 2]);
        assert!(!signals.has_end() && !later.has_end());
    }
}
