//! The signals that end a run or reopen its outputs.

use std::io;
use std::pin::pin;
use std::time::Duration;

/// The request behind a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// To end: SIGINT, SIGTERM, Ctrl-C.
    End,
    /// To reopen outputs: SIGHUP.
    #[cfg(unix)]
    Reopen,
}

/// Receives signals. Once it was created, these signals no longer end the process.
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Begins to receive signals. It is called within a runtime.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::End,
            _ = self.terminate.recv() => Signal::End,
            _ = self.hang_up.recv() => Signal::Reopen,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Begins to receive signals. It is called within a runtime.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::End
    }
}

impl Signals {
    /// Waits for the next signal, for ever if none is received.
    pub(super) async fn next_of(signals: &mut Option<Self>) -> Signal {
        match signals {
            Some(signals) => signals.next().await,
            None => std::future::pending().await,
        }
    }
}

/// Waits between two runs. Returns true if a signal to end arrived meanwhile.
///
/// # Errors
/// If the runtime or the signal handlers cannot be created.
pub fn pause(time: Duration) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut end = pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                () = &mut end => break Ok(false),
                signal = signals.next() => if signal == Signal::End { break Ok(true) },
            }
        }
    })
}
