//! The connection over which a source acknowledges: it is made again by itself, and gives replies one by one.

use std::time::Instant;

use thalweg_engine::Error;

use crate::connection::{Connection, Servers, pause};
use crate::resp::{Commands, Limits, Reply};

/// The connection of a keeper, if there is one.
pub(super) struct Link {
    pub(super) servers: Servers,
    connection: Option<Connection>,
    failures: u32,
    /// No attempt to connect is made before.
    not_before: Instant,
}

impl Link {
    pub(super) fn new(servers: Servers) -> Self {
        Self { servers, connection: None, failures: 0, not_before: Instant::now() }
    }

    /// Returns the connection, or a new one. `None` if there is none at the moment.
    ///
    /// # Errors
    /// If there will never be one.
    pub(super) async fn connection(&mut self) -> Result<Option<&mut Connection>, Error> {
        if self.connection.is_none() {
            if Instant::now() < self.not_before {
                return Ok(None);
            }
            match self.servers.connect().await {
                Ok(connection) => (self.connection, self.failures) = (Some(connection), 0),
                Err(error) if error.kind().is_temporary() => self.lost(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(self.connection.as_mut())
    }

    /// Drops the connection after an error.
    ///
    /// # Errors
    /// The same, if no retry succeeds.
    pub(super) fn failed(&mut self, error: Error) -> Result<(), Error> {
        if !error.kind().is_temporary() {
            return Err(error);
        }
        self.lost(&error);
        Ok(())
    }

    /// Drops the connection. The next attempt is made after a pause.
    fn lost(&mut self, error: &Error) {
        tracing::debug!("acknowledgements wait for a connection: {}", error.full());
        self.connection = None;
        self.not_before = Instant::now() + pause(self.failures);
        self.failures = self.failures.saturating_add(1);
    }
}

/// The replies to commands, none after an error.
pub(super) struct Replies<'a> {
    connection: &'a mut Connection,
    left: usize,
}

impl<'a> Replies<'a> {
    pub(super) fn new(connection: &'a mut Connection, left: usize) -> Self {
        Self { connection, left }
    }

    pub(super) async fn send(&mut self, commands: &Commands) -> Result<(), Error> {
        let sent = self.connection.send(commands).await;
        if sent.is_err() {
            self.left = 0;
        }
        sent
    }

    pub(super) async fn next(&mut self) -> Result<Reply, Error> {
        if self.left == 0 {
            return Err(Error::temporary("the connection broke"));
        }
        self.left -= 1;
        let reply = self.connection.reply(Limits::SMALL).await;
        if reply.is_err() {
            self.left = 0;
        }
        reply
    }
}
