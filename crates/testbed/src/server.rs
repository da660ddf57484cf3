//! A server that fails on request, as brokers and databases do.
//!
//! The kinds of servers differ in how they are started and in what tests ask of them. All can be killed and
//! started again, and stopped as a process that hangs. Clients may connect through a relay that cuts
//! connections.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::program::Program;
use crate::relay::Relay;

/// A running server of the kind `K`. Dropping it stops the server and removes its data.
pub struct Server<K> {
    program: Program,
    relay: Relay,
    recipe: Recipe,
    pub(crate) kind: K,
}

/// Makes the command of a server from its address and its data folder.
type Start = dyn Fn(SocketAddr, &Path) -> Command + Send + Sync;

/// How a server is started and stopped.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) command: Box<Start>,
    /// True if the server at the address, with this output, serves clients.
    pub(crate) is_ready: fn(SocketAddr, &str) -> bool,
    /// The signal of [`Server::kill`].
    pub(crate) killed_by: Signal,
    /// The signal of a server that is dropped.
    pub(crate) dropped_by: Signal,
    /// The number of attempts to start a killed server again.
    pub(crate) attempts: usize,
}

impl Recipe {
    /// Describes a server that serves clients when it accepts connections.
    pub(crate) fn new(
        name: &'static str,
        command: impl Fn(SocketAddr, &Path) -> Command + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            command: Box::new(command),
            is_ready: |address, _| TcpStream::connect(address).is_ok(),
            killed_by: Signal::KILL,
            dropped_by: Signal::TERM,
            attempts: 1,
        }
    }
}

impl<K> Server<K> {
    /// Starts a server behind `relay`. `prepare` writes its files; it receives the address and the data
    /// folder.
    pub(crate) fn launch(
        recipe: Recipe,
        relay: Relay,
        kind: K,
        prepare: impl Fn(SocketAddr, &Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        let command = |address: SocketAddr, data: &Path| {
            // The server fails, and says why, if this did.
            let _ = prepare(address, data);
            (recipe.command)(address, data)
        };
        let mut program = Program::start(recipe.name, command, recipe.is_ready)?;
        program.dropped_by = recipe.dropped_by;
        relay.set_upstream(program.address);
        Ok(Self { program, relay, recipe, kind })
    }

    /// Lets clients of the relay connect to another port of the server.
    pub(crate) fn relay_to(&self, port: u16) {
        self.relay.set_upstream((self.address().ip(), port).into());
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Returns the address for clients whose connections may be [cut](Self::cut).
    pub fn relayed_address(&self) -> SocketAddr {
        self.relay.address()
    }

    /// Cuts the connections of clients of [`relayed_address`](Self::relayed_address).
    pub fn cut(&self) {
        self.relay.cut();
    }

    /// Kills the server, as a crash does. That of MQTT ends, and its sessions are stored.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.program.kill(self.recipe.killed_by)
    }

    /// Starts the server again after [`kill`](Self::kill).
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&mut self) -> io::Result<()> {
        let Recipe { name, command, is_ready, attempts, .. } = &self.recipe;
        for _ in 1..*attempts {
            match self.program.restart(name, command, is_ready) {
                Ok(()) => return Ok(()),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        self.program.restart(name, command, is_ready)
    }

    /// Stops the process that accepts connections where it is: its connections stay, and clients wait for an
    /// answer.
    ///
    /// # Errors
    /// If it cannot be stopped.
    pub fn hang(&self) -> io::Result<()> {
        self.program.halt()
    }

    /// Lets the process continue after [`hang`](Self::hang).
    ///
    /// # Errors
    /// If it cannot continue.
    pub fn wake(&self) -> io::Result<()> {
        self.program.signal(Signal::CONT)
    }
}
