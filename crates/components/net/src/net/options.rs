//! Options that several sources or sinks have in common. Their configurations flatten these structs.
//!
//! A source with sockets flattens both [`ListenOptions`] and [`SocketOptions`]. The second does not contain
//! the first: serde does not notice unknown options if a flattened struct flattens another one.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, FileMode, TimeSpan};
use thalweg_engine::{Endless, Error, Mistake};

use super::{Address, Connection, Limits, UnixSocket, defaults};
use crate::tls::{Acceptor, TlsClient, TlsServer};

/// The options of all listening sources.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListenOptions {
    /// The largest number of connected clients. Further clients wait until another one disconnects or loses
    /// its place. That is first one that never sent a message with content, then one of the address with the
    /// most connections: the one without a message for the longest time. It must have been without a message
    /// for 10 seconds, or for a second if its address has at least two connections more than the waiting
    /// client's. If no connection was, such an address gives up a busy one. Messages that have arrived from
    /// it are still delivered and answered; an HTTP request that has not arrived a second later is cut off
    /// without an answer. A sender without acknowledgements may lose the next message that it sends into a
    /// closed connection, so make this number larger than that of the senders. It is smaller, with a warning,
    /// if the process may have too few files open (`ulimit -n`).
    #[schemars(range(min = 1))]
    max_connections: usize,
    /// Serve TLS with this certificate; for HTTP sources that is HTTPS. Only for TCP. By default connections
    /// are not encrypted.
    tls: Option<TlsServer>,
    /// End the source after this time without data from clients, unless a message, request or answer is in
    /// progress. By default it listens until the run is stopped.
    end_after_idle: Option<TimeSpan>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { max_connections: defaults::connections(), tls: None, end_after_idle: None }
    }
}

impl ListenOptions {
    /// Returns why a source with these options never ends by itself, if it does not.
    pub fn endless(&self) -> Option<Endless> {
        Endless::unless("end_after_idle", self.end_after_idle.is_some())
    }

    /// Returns the files without which a run cannot begin.
    pub fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.tls.as_ref().map(TlsServer::files).unwrap_or_default()
    }

    /// Returns the mistake in these options that the schema cannot find.
    pub fn check(&self, address: &Address) -> Option<Mistake> {
        check_tls(self.tls.is_some(), address)
    }

    /// Returns the limits for [`serve`](super::serve).
    pub fn limits(&self) -> Limits {
        Limits { max_connections: self.max_connections, end_after_idle: self.end_after_idle() }
    }

    /// Returns the time without activity after which the source ends.
    pub fn end_after_idle(&self) -> Option<Duration> {
        self.end_after_idle.map(TimeSpan::duration)
    }

    /// Reads the files of `tls`; `None` without TLS.
    ///
    /// # Errors
    /// As [`TlsServer::acceptor`].
    pub fn acceptor(&self) -> Result<Option<Acceptor>, Error> {
        self.tls.as_ref().map(TlsServer::acceptor).transpose()
    }
}

/// The options of sources that receive messages from TCP or unix sockets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SocketOptions {
    /// The largest message, in bytes, at most 1 GiB. Of a larger one, the first 4 KiB leave by the `errors`
    /// output.
    pub max_message_bytes: ByteSize,
    /// How long a client may take to send a message, from its first byte to its last. After that its
    /// connection is closed, and the partial message leaves by `errors`. Time in which messages are delivered
    /// too slowly for more to be read does not count.
    read_timeout: TimeSpan,
    /// Close a connection after this time without data. By default connections are kept open.
    idle_timeout: Option<TimeSpan>,
    /// The permissions of a unix socket, in octal, for example `0660`. The default is `0770` without what the
    /// umask of the process takes away.
    mode: Option<FileMode>,
    /// Whether a unix socket is removed first if no process listens on it any more. A socket in use is never
    /// removed.
    remove_old_socket: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            max_message_bytes: defaults::limit(),
            read_timeout: defaults::half_a_minute(),
            idle_timeout: None,
            mode: None,
            remove_old_socket: true,
        }
    }
}

impl SocketOptions {
    /// Returns how to create a unix socket.
    pub fn unix(&self) -> UnixSocket {
        UnixSocket { mode: self.mode, remove_old: self.remove_old_socket }
    }

    /// Returns the options of a connection without acknowledgements, whose `write_timeout` is `read_timeout`.
    pub fn connection(&self) -> Connection {
        Connection {
            limit: self.max_message_bytes,
            read_timeout: self.read_timeout.duration(),
            idle_timeout: self.idle_timeout.map(TimeSpan::duration),
            quiet: None,
            acknowledge: None,
            write_timeout: self.read_timeout.duration(),
        }
    }
}

/// The options of sinks that connect to a stream socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DialOptions {
    /// How long connecting may take.
    pub(super) connect_timeout: TimeSpan,
    /// The size of the system's send buffer for TCP, in bytes. By default the system chooses it.
    pub(super) send_buffer_size: Option<ByteSize>,
    /// Use TLS. `{}` accepts certificates that the system trusts. Only for TCP. By default the connection is
    /// not encrypted.
    pub(super) tls: Option<TlsClient>,
}

impl Default for DialOptions {
    fn default() -> Self {
        Self { connect_timeout: TimeSpan::seconds(5), send_buffer_size: None, tls: None }
    }
}

impl DialOptions {
    /// Returns the mistakes in these options that the schema cannot find.
    pub fn check(&self, address: &Address) -> Vec<Mistake> {
        let misplaced = check_tls(self.tls.is_some(), address);
        misplaced.into_iter().chain(self.tls.as_ref().and_then(TlsClient::check)).collect()
    }
}

fn check_tls(is_given: bool, address: &Address) -> Option<Mistake> {
    let is_misplaced = is_given && !matches!(address, Address::Tcp(_));
    is_misplaced.then(|| Mistake::new("tls", "TLS is for TCP.").help("Leave it out, or use `tcp://`."))
}
