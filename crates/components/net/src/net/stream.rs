//! Connections: TCP, TCP with TLS, or a unix socket, as one type.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use thalweg_engine::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UdpSocket, UnixStream};
use tokio_rustls::TlsStream;

use super::{Address, DialOptions};
use crate::tls::{Connector, TlsClient};

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// TCP with TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// A unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Waits until there may be something to read. A TLS stream may hold decrypted data that the socket does
    /// not show. Therefore call this only after [`fill`](Self::fill) found no more data.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn ready(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            // A message that came with the end of the handshake is decrypted already, or the end of the
            // stream.
            Stream::Tls(stream) if !stream.get_ref().1.wants_read() => Ok(()),
            Stream::Tls(stream) => stream.get_ref().0.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    /// Reads the waiting data into the spare capacity of `into`, without waiting. Returns `None` if there is
    /// no data, `Some(0)` at the end of the stream.
    ///
    /// # Errors
    /// Those of the socket, and of TLS.
    pub async fn fill(&mut self, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
        poll_fn(|context| match pin!(self.read_buf(into)).poll(context) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => Poll::Ready(Ok(None)),
            Poll::Ready(read) => Poll::Ready(read.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        })
        .await
    }

    /// Writes all of `bytes` within the time `limit`.
    ///
    /// # Errors
    /// Those of the socket; `TimedOut` if it takes longer.
    pub async fn write_within(&mut self, bytes: &[u8], limit: Duration) -> io::Result<()> {
        let write = async {
            self.write_all(bytes).await?;
            self.flush().await
        };
        tokio::time::timeout(limit, write).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    /// True if the connection is open and the peer has sent nothing, as far as can be seen without waiting.
    pub async fn is_silent(&mut self) -> bool {
        matches!(self.fill(&mut Vec::with_capacity(512)).await, Ok(None))
    }

    /// True if the peer has closed the connection, or it is broken, as far as can be seen without waiting.
    /// Data from the peer is read and dropped.
    pub async fn is_closed(&mut self) -> bool {
        let mut dropped = Vec::with_capacity(512);
        loop {
            match self.fill(&mut dropped).await {
                Ok(None) => return false,
                Ok(Some(0)) | Err(_) => return true,
                Ok(Some(_)) => dropped.clear(),
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// How a sink connects to a stream.
#[derive(Debug, Clone)]
pub struct Dial {
    /// The address of a stream socket.
    pub address: Address,
    /// How long connecting may take, including TLS.
    pub timeout: Duration,
    /// The size of the system's send buffer, in bytes; by default the system chooses it.
    pub send_buffer: Option<u32>,
    /// The TLS connector; `None` for connections without TLS.
    pub tls: Option<Connector>,
}

impl Dial {
    /// Prepares connecting to `address`: reads the files of `tls`.
    ///
    /// # Errors
    /// As [`TlsClient::config`].
    pub fn of(address: &Address, options: &DialOptions) -> Result<Self, Error> {
        Ok(Self {
            address: address.clone(),
            timeout: options.connect_timeout.duration(),
            send_buffer: options.send_buffer_size.map(|size| u32::try_from(size.bytes()).unwrap_or(u32::MAX)),
            tls: options.tls.as_ref().map(TlsClient::connector).transpose()?,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// Usually a temporary error, since a server that is down may come back.
    pub async fn connect(&self) -> Result<Stream, Error> {
        let failed = |error: io::Error| net_error("connect to", &self.address, &error);
        match tokio::time::timeout(self.timeout, self.connected()).await {
            Ok(connected) => connected.map_err(failed),
            Err(_) => Err(Error::temporary(format!(
                "cannot connect to `{}`: there was no answer within {:?}.",
                self.address, self.timeout
            ))),
        }
    }

    async fn connected(&self) -> io::Result<Stream> {
        match &self.address {
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
            Address::Tcp(at) => {
                let stream = self.tcp(&Address::to_connect(at)).await?;
                stream.set_nodelay(true)?;
                match &self.tls {
                    Some(tls) => Ok(Stream::Tls(Box::new(tls.connect(at, stream).await?))),
                    None => Ok(Stream::Tcp(stream)),
                }
            }
            Address::Udp(_) | Address::Unixgram(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    async fn tcp(&self, at: &str) -> io::Result<TcpStream> {
        let Some(send_buffer) = self.send_buffer else { return TcpStream::connect(at).await };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in tokio::net::lookup_host(at).await? {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_send_buffer_size(send_buffer)?;
            match socket.connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Returns a UDP socket connected to `HOST:PORT`.
///
/// # Errors
/// If the name has no address.
pub async fn connect_udp(at: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(Address::to_connect(at).as_ref()).await? {
        let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Turns a network error into a component's error: the failed action, the address, and the reason. It is
/// temporary, since servers come back and ports become free, unless it concerns permissions or something
/// unsupported.
pub fn net_error(action: &str, address: impl std::fmt::Display, error: &io::Error) -> Error {
    let sentence = |reason: &str| format!("cannot {action} `{address}`: {reason}");
    match error.kind() {
        ErrorKind::PermissionDenied => Error::permanent(sentence(
            "permission was denied (ports below 1024 need a privilege, a unix socket needs access to its folder)",
        )),
        ErrorKind::AddrInUse => Error::temporary(sentence("another program uses it")),
        ErrorKind::ConnectionRefused => Error::temporary(sentence("no process listens there")),
        ErrorKind::NotFound => Error::temporary(sentence("it does not exist (yet)")),
        ErrorKind::InvalidInput | ErrorKind::Unsupported => Error::permanent(sentence(&error.to_string())),
        _ => Error::temporary(sentence(&error.to_string())),
    }
}
