//! The signals that end a run or reopen its outputs.
//!
//! One thread per process counts the signals and never ends. Listening only while a phase runs was rejected:
//! tokio keeps its signal handlers installed, so a signal that arrived between two phases, runs or pauses had
//! no effect.
//!
//! A program installs the handlers before anything else ([`install`]), so that a signal during its start is
//! counted. Until the command is known, a signal only counts. Then the command decides about it: see
//! [`until_heeded`].
//!
//! Programs such as `timeout` and `npm` send a signal to the process and again to its group. So signals to
//! end that follow each other within [`ONE_REQUEST`] are one request: the second one would abort the run.

use std::io;
use std::process::exit;
use std::time::{Duration, Instant};

#[cfg(unix)]
use nix::sys::signal::{
    SigSet, SigmaskHow,
    Signal::{SIGHUP, SIGINT, SIGTERM},
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Signals to end that arrive within this time of the first are one request.
pub const ONE_REQUEST: Duration = Duration::from_millis(300);

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
    /// The system's number of the last signal.
    number: u8,
}

impl Counts {
    /// The signal to decide about: one to end, if there is one.
    fn arrived(self) -> Option<Signal> {
        #[cfg(unix)]
        if self.ends == 0 && self.reopens > 0 {
            return Some(Signal::Reopen);
        }
        (self.ends > 0).then_some(Signal::End)
    }
}

/// Joins signals to end that are one request.
#[derive(Debug, Default)]
struct Requests(Option<Instant>);

impl Requests {
    /// True if a signal to end is a request of its own.
    fn is_new(&mut self, now: Instant) -> bool {
        let is_new = self.0.is_none_or(|last| now.saturating_duration_since(last) >= ONE_REQUEST);
        if is_new {
            self.0 = Some(now);
        }
        is_new
    }
}

/// Decides about a signal that nothing heeds yet, by its kind and its number. Returns the exit code if the
/// process ends.
type Unheeded = Box<dyn Fn(Signal, u8) -> Option<u8> + Send>;

/// The listener of this process.
struct Listener {
    received: watch::Receiver<Counts>,
    /// True once a part of the process heeds signals.
    is_heeded: bool,
    unheeded: Option<Unheeded>,
}

impl Listener {
    /// Ends the process if a signal arrived that nothing heeds, and the command says so.
    fn decide(&self) {
        let Some(unheeded) = self.unheeded.as_ref().filter(|_| !self.is_heeded) else { return };
        let counts = *self.received.borrow();
        if let Some(code) = counts.arrived().and_then(|signal| unheeded(signal, counts.number)) {
            exit(code.into());
        }
    }
}

static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);

/// Begins to count signals, which no longer end the process. Call it first in a program. A write beyond the
/// largest file size of the process then fails instead of ending it.
///
/// # Errors
/// If the system does not allow it.
pub fn install() -> io::Result<()> {
    let mut listener = LISTENER.lock();
    if listener.is_none() {
        let (counts, received) = watch::channel(Counts::default());
        listen(counts)?;
        *listener = Some(Listener { received, is_heeded: false, unheeded: None });
    }
    Ok(())
}

/// Says what a signal does until [`Signals::new`] is called, in a program that has called [`install`].
/// `unheeded` returns the exit code with which the process then ends. It also applies to signals that have
/// arrived already.
pub fn until_heeded(unheeded: impl Fn(Signal, u8) -> Option<u8> + Send + 'static) {
    if let Some(listener) = &mut *LISTENER.lock() {
        listener.unheeded = Some(Box::new(unheeded));
        listener.decide();
    }
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
    /// Begins to receive signals. It may be called within a runtime. The first value of a process receives
    /// all signals since [`install`], later ones those that arrive from now on.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new() -> io::Result<Self> {
        install()?;
        let mut listener = LISTENER.lock();
        let Some(listener) = &mut *listener else { return Err(io::ErrorKind::Other.into()) };
        let is_first = !std::mem::replace(&mut listener.is_heeded, true);
        let received = listener.received.clone();
        Ok(match is_first {
            true => Self { received, seen: Counts::default() },
            false => Self::of(received),
        })
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

/// Counts a signal.
fn count(counts: &watch::Sender<Counts>, requests: &mut Requests, signal: Signal, number: i32) {
    counts.send_modify(|counts| {
        counts.number = u8::try_from(number).unwrap_or_default();
        match signal {
            Signal::End => counts.ends += u64::from(requests.is_new(Instant::now())),
            #[cfg(unix)]
            Signal::Reopen => counts.reopens += 1,
        }
    });
    if let Some(listener) = &*LISTENER.lock() {
        listener.decide();
    }
}

/// Starts the thread that counts signals.
#[cfg(unix)]
fn listen(counts: watch::Sender<Counts>) -> io::Result<()> {
    // The handlers are installed before this function returns. A library installs them, and a signal is lost
    // that arrives after its handler is there and before the library knows it. So they wait until then.
    let mut blocked = SigSet::empty();
    [SIGINT, SIGTERM, SIGHUP].into_iter().for_each(|signal| blocked.add(signal));
    let former = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let result = counting(counts);
    former.thread_set_mask()?;
    let (runtime, counting) = result?;
    begin(runtime, counting)
}

/// Installs the handlers. Returns the task that counts signals, and its runtime.
#[cfg(unix)]
fn counting(counts: watch::Sender<Counts>) -> io::Result<(Runtime, impl Future<Output = ()> + Send)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    let (mut interrupt, mut terminate, mut hang_up) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    // With a handler, the write fails. Child processes do not inherit it, as they would a signal that is
    // ignored.
    let largest_file = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    drop(context);
    let counting = async move {
        let _largest_file = largest_file;
        let mut requests = Requests::default();
        loop {
            let (signal, kind) = tokio::select! {
                _ = interrupt.recv() => (Signal::End, SignalKind::interrupt()),
                _ = terminate.recv() => (Signal::End, SignalKind::terminate()),
                _ = hang_up.recv() => (Signal::Reopen, SignalKind::hangup()),
            };
            count(&counts, &mut requests, signal, kind.as_raw_value());
        }
    };
    Ok((runtime, counting))
}

/// The number of SIGINT.
#[cfg(not(unix))]
const CTRL_C: i32 = 2;

/// Starts the thread that counts signals.
#[cfg(not(unix))]
fn listen(counts: watch::Sender<Counts>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    begin(runtime, async move {
        let mut requests = Requests::default();
        while tokio::signal::ctrl_c().await.is_ok() {
            count(&counts, &mut requests, Signal::End, CTRL_C);
        }
    })
}

fn begin(runtime: Runtime, count: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("thalweg-signals".to_owned());
    thread.spawn(move || runtime.block_on(count)).map(drop)
}

/// Waits between two runs, on a runtime of its own. Returns `None` if a signal to end has arrived since
/// `signals` was created.
///
/// # Errors
/// If the runtime cannot be created.
pub fn pause<T>(waiting: impl Future<Output = T>, signals: &Signals) -> io::Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = signals.clone();
    Ok(runtime.block_on(async {
        tokio::select! {
            biased;
            () = signals.end() => None,
            waited = waiting => Some(waited),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_arrives_while_no_run_listens_ends_the_pause_after_it() {
        let (counts, received) = watch::channel(Counts { ends: 1, ..Counts::default() });
        let signals = Signals::of(received);
        assert!(!signals.has_end() && pause(async {}, &signals).unwrap().is_some());
        counts.send_modify(|counts| counts.ends += 1);
        assert!(signals.has_end() && pause(std::future::pending::<()>(), &signals).unwrap().is_none());
    }

    #[test]
    fn signals_of_one_request_count_once() {
        let (mut requests, first) = (Requests::default(), Instant::now());
        let after = |millis| first + Duration::from_millis(millis);
        let news = [0, 1, 299, 300, 599, 601].map(|millis| requests.is_new(after(millis)));
        assert_eq!(news, [true, false, false, true, false, true]);
    }

    #[cfg(unix)]
    #[test]
    fn each_signal_is_received_once_and_ends_before_reopens() {
        let (counts, received) = watch::channel(Counts::default());
        let mut signals = Signals::of(received);
        counts.send_modify(|counts| *counts = Counts { ends: 2, reopens: 1, number: 1 });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let next = |signals: &mut Signals| runtime.block_on(signals.next());
        let mut later = signals.clone().without_reopens();
        assert_eq!([(); 3].map(|()| next(&mut signals)), [Signal::End, Signal::End, Signal::Reopen]);
        assert_eq!([(); 2].map(|()| next(&mut later)), [Signal::End; 2]);
        assert!(!signals.has_end() && !later.has_end());
    }
}
