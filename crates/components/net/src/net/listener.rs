//! Sockets on which a source or sink listens.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use thalweg_engine::Error;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::handover::{self, Copied};
use super::{Address, Peer, net_error};
use thalweg_config::FileMode;

/// Announces the address on which a component listens: in the log, and to watchers.
#[derive(Debug, Clone)]
pub struct Announce {
    name: Arc<str>,
    at: Arc<watch::Sender<Option<String>>>,
    /// When the address was first found in use.
    in_use: Arc<OnceLock<Instant>>,
}

/// How long an address may be in use at the start: the program before this one may still be ending. Later,
/// any error may pass.
const MAY_BE_IN_USE: Duration = Duration::from_secs(10);

impl Announce {
    /// Creates the announcement of the component with this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), at: Arc::new(watch::Sender::new(None)), in_use: Arc::default() }
    }

    /// Returns a channel with the address, set once the component listens. It has the actual port if port 0
    /// was configured.
    pub fn watch(&self) -> watch::Receiver<Option<String>> {
        self.at.subscribe()
    }

    /// Turns an error of listening into that of the component.
    fn error(&self, address: &Address, error: &io::Error) -> Error {
        let is_new = self.at.borrow().is_none();
        let since = |in_use: &OnceLock<Instant>| in_use.get_or_init(Instant::now).elapsed();
        if is_in_use(error) && is_new && since(&self.in_use) >= MAY_BE_IN_USE {
            return Error::permanent(format!(
                "cannot listen on `{address}`: another program uses it. Stop that program, or choose another address"
            ));
        }
        net_error("listen on", address, error)
    }

    fn publish(&self, at: String) {
        tracing::info!("`{}` listens on {at}", self.name);
        self.at.send_replace(Some(at));
    }
}

/// How to create a unix socket.
#[derive(Debug, Clone, Copy)]
pub struct UnixSocket {
    /// The permissions of the socket; by default `0770`, for its user and group, without what the umask takes
    /// away.
    pub mode: Option<FileMode>,
    /// True if an abandoned socket at the path is removed first.
    pub remove_old: bool,
}

impl Default for UnixSocket {
    fn default() -> Self {
        Self { mode: None, remove_old: true }
    }
}

impl UnixSocket {
    /// Creates the socket. An abandoned socket at the path is replaced if `remove_old` is set.
    fn make(self, path: &Path, kind: SocketType) -> io::Result<(OwnedFd, Removal)> {
        let made = match self.bind(path, kind) {
            Err(error) if is_in_use(&error) && self.remove_old && is_left_behind(path) => {
                fs::remove_file(path)?;
                self.bind(path, kind)?
            }
            made => made?,
        };
        let removal = Removal(path.to_owned());
        if let Some(mode) = self.mode {
            // Also those that the umask took away.
            fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))?;
        }
        Ok((made, removal))
    }

    /// Creates a socket and binds it to the path. The path has its permissions, or fewer, from the beginning:
    /// the system takes them from the socket when it creates the path.
    fn bind(self, path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        fchmod(&socket, Mode::from_raw_mode(self.mode.map_or(0o770, FileMode::bits)))?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        if kind == SocketType::STREAM {
            listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    }
}

/// The number of connections to a unix socket that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// True if no process listens on the socket at this path. The socket of a running program must not be
/// removed.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused =
        |result: io::Result<()>| result.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    let as_datagram = || std::os::unix::net::UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    is_socket
        && match std::os::unix::net::UnixStream::connect(path) {
            // A datagram socket refuses a stream connection with this error.
            Err(error) if error.raw_os_error() == Some(WRONG_TYPE) => refused(as_datagram()),
            result => refused(result.map(|_| ())),
        }
}

/// `EPROTOTYPE`, which has no name in the standard library.
const WRONG_TYPE: i32 = if cfg!(target_os = "linux") { 91 } else { 41 };

/// Removes the path of a socket when the socket is closed.
#[derive(Debug)]
pub struct Removal(PathBuf);

impl Drop for Removal {
    fn drop(&mut self) {
        // The path may already have been removed, which is fine.
        let _ = fs::remove_file(&self.0);
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrInUse
}

/// Binds a socket to `HOST:PORT`. Without a host, binds it to the first kind of address that is possible.
async fn first<T, F: Future<Output = io::Result<T>>>(at: &str, bind: impl Fn(String) -> F) -> io::Result<T> {
    let mut last: io::Error = ErrorKind::InvalidInput.into();
    for at in Address::to_listen(at) {
        match bind(at).await {
            Ok(bound) => return Ok(bound),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the actual address of a socket, or the configured one if the system does not return it.
fn shown(at: io::Result<SocketAddr>, configured: &Address) -> String {
    at.map_or_else(|_| configured.to_string(), |at| at.to_string())
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener, Copied),
    /// A unix socket.
    Unix(UnixListener, Removal),
}

/// A client's connection, before TLS.
#[derive(Debug)]
pub enum Accepted {
    /// TCP.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// A temporary error if the address is in use, but not for long from the start; a permanent one if it may
    /// not be used.
    pub async fn bind(address: &Address, unix: UnixSocket, announce: &Announce) -> Result<Self, Error> {
        let bound = match address {
            Address::Tcp(at) => Self::tcp(at).await,
            Address::Unix(path) => unix
                .make(path, SocketType::STREAM)
                .and_then(|(made, removal)| Ok(Self::Unix(UnixListener::from_std(made.into())?, removal))),
            Address::Udp(_) | Address::Unixgram(_) => Err(ErrorKind::Unsupported.into()),
        };
        let bound = bound.map_err(|error| announce.error(address, &error))?;
        announce.publish(match &bound {
            Self::Tcp(listener, _) => shown(listener.local_addr(), address),
            Self::Unix(_, path) => path.0.display().to_string(),
        });
        Ok(bound)
    }

    async fn tcp(at: &str) -> io::Result<Self> {
        let listener = match handover::waiting_tcp(at) {
            Some(waiting) => waiting?,
            None => match first(at, TcpListener::bind).await {
                Err(error) if is_in_use(&error) && handover::close_tcp(at) => {
                    first(at, TcpListener::bind).await?
                }
                bound => bound?,
            },
        };
        let copied = Copied::of_tcp(at, &listener);
        Ok(Self::Tcp(listener, copied))
    }

    /// Accepts the next client. Returns its connection, its name for logs and messages, and its address.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn accept(&self) -> io::Result<(Accepted, Arc<str>, Peer)> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are short, and clients wait for them. A failure concerns this client alone.
                let _ = stream.set_nodelay(true);
                Ok((Accepted::Tcp(stream), peer.to_string().into(), Peer::tcp(peer.ip())))
            }
            Self::Unix(listener, path) => {
                let (stream, _) = listener.accept().await?;
                Ok((Accepted::Unix(stream), path.0.to_string_lossy().into(), Peer::Unix))
            }
        }
    }
}

/// A socket that receives datagrams.
#[derive(Debug)]
pub enum Datagrams {
    /// UDP.
    Udp(UdpSocket, Copied),
    /// A unix socket.
    Unix(UnixDatagram, Removal),
}

impl Datagrams {
    /// Starts to listen.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn bind(address: &Address, unix: UnixSocket, announce: &Announce) -> Result<Self, Error> {
        let bound = match address {
            Address::Udp(at) => Self::udp(at).await,
            Address::Unixgram(path) => unix
                .make(path, SocketType::DGRAM)
                .and_then(|(made, removal)| Ok(Self::Unix(UnixDatagram::from_std(made.into())?, removal))),
            Address::Tcp(_) | Address::Unix(_) => Err(ErrorKind::Unsupported.into()),
        };
        let bound = bound.map_err(|error| announce.error(address, &error))?;
        announce.publish(match &bound {
            Self::Udp(socket, _) => shown(socket.local_addr(), address),
            Self::Unix(_, path) => path.0.display().to_string(),
        });
        Ok(bound)
    }

    async fn udp(at: &str) -> io::Result<Self> {
        let socket = match handover::waiting_udp(at) {
            Some(waiting) => waiting?,
            None => match first(at, UdpSocket::bind).await {
                Err(error) if is_in_use(&error) && handover::close_udp(at) => {
                    first(at, UdpSocket::bind).await?
                }
                bound => bound?,
            },
        };
        let copied = Copied::of_udp(at, &socket);
        Ok(Self::Udp(socket, copied))
    }

    /// Waits until there may be a datagram.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn ready(&self) -> io::Result<()> {
        match self {
            Self::Udp(socket, _) => socket.readable().await,
            Self::Unix(socket, _) => socket.readable().await,
        }
    }

    /// Appends the next datagram to `into`, which must have enough spare capacity, and returns the sender.
    ///
    /// # Errors
    /// `WouldBlock` if there is no datagram, or an error of the socket.
    pub fn receive(&self, into: &mut Vec<u8>) -> io::Result<Sender> {
        match self {
            Self::Udp(socket, _) => socket.try_recv_buf_from(into).map(|(_, peer)| Sender::Udp(peer)),
            Self::Unix(socket, _) => socket.try_recv_buf_from(into).map(|_| Sender::Unix),
        }
    }

    /// Returns the name of a sender for logs and messages.
    pub fn name(&self, sender: Sender) -> Arc<str> {
        match (sender, self) {
            (Sender::Udp(peer), _) => peer.to_string().into(),
            (Sender::Unix, Self::Unix(_, path)) => path.0.to_string_lossy().into(),
            (Sender::Unix, Self::Udp(..)) => "unix".into(),
        }
    }
}

/// The sender of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The address of a UDP socket.
    Udp(SocketAddr),
    /// A unix socket. Senders on unix sockets usually have no name.
    Unix,
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::ErrorKind as Kind;

    #[tokio::test(start_paused = true)]
    async fn an_address_may_be_in_use_for_a_while_at_the_start_only() {
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(other.local_addr().unwrap().to_string());
        let announce = Announce::new("in");
        let bind = || Listener::bind(&address, UnixSocket::default(), &announce);
        assert_eq!(bind().await.unwrap_err().kind(), Kind::Temporary);
        tokio::time::advance(MAY_BE_IN_USE).await;
        let error = bind().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Permanent);
        assert!(error.full().ends_with("Stop that program, or choose another address"), "{}", error.full());
        drop(other);
        drop(bind().await.unwrap());
        // It has worked, so another program may only have taken its place for a while.
        let Address::Tcp(at) = &address else { panic!() };
        let _other = TcpListener::bind(at).await.unwrap();
        assert_eq!(bind().await.unwrap_err().kind(), Kind::Temporary);
    }
}
