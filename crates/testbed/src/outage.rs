//! Outages of a server while a client sends to it, which end when the test has seen what the client does.

use std::io;

use crate::Server;

/// How a server is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The connections of the relay break, once.
    Cut,
    /// The server is killed, and does not run.
    Killed,
    /// The process stays where it is.
    Hanging,
}

/// A server that is lost until it is [mended](Self::mend).
pub struct Lost<'a, K> {
    server: &'a mut Server<K>,
    /// None if the outage is over.
    outage: Option<Outage>,
}

impl<K> Server<K> {
    /// Begins an outage.
    ///
    /// # Errors
    /// If the server cannot be killed or stopped.
    pub fn lose(&mut self, outage: Outage) -> io::Result<Lost<'_, K>> {
        match outage {
            Outage::Cut => self.cut(),
            Outage::Killed => self.kill()?,
            Outage::Hanging => self.hang()?,
        }
        Ok(Lost { server: self, outage: Some(outage).filter(|outage| *outage != Outage::Cut) })
    }
}

impl<K> Lost<'_, K> {
    /// Ends the outage, unless it has ended.
    ///
    /// # Errors
    /// If the server does not start or continue.
    pub fn mend(&mut self) -> io::Result<()> {
        match self.outage.take() {
            Some(Outage::Killed) => self.server.restart(),
            Some(Outage::Hanging) => self.server.wake(),
            Some(Outage::Cut) | None => Ok(()),
        }
    }

    /// True if the process hangs.
    pub fn is_hanging(&self) -> bool {
        self.outage == Some(Outage::Hanging)
    }

    /// True if the outage has ended.
    pub fn is_over(&self) -> bool {
        self.outage.is_none()
    }
}
