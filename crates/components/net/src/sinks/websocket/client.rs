//! One client of a WebSocket server.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_tungstenite::accept_hdr_async_with_config;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket};

use crate::web::repeated_header;

/// The largest message accepted from a client, in bytes. Its content is ignored.
const MOST_HEARD: usize = 64 << 10;
/// How many bytes are read from a client at once. Each connected client has a buffer of this size.
const HEARD_AT_ONCE: usize = 4 << 10;

/// Performs handshakes: decides which clients are admitted.
pub(super) struct Handshake {
    pub(super) path: String,
    pub(super) origins: Vec<String>,
    pub(super) timeout: Duration,
}

/// A socket that returns `WouldBlock` instead of waiting, as tungstenite requires.
pub(super) struct NonBlocking(pub(super) TcpStream);

impl Read for NonBlocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for NonBlocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(HEARD_AT_ONCE)
        .max_message_size(Some(MOST_HEARD))
        .max_frame_size(Some(MOST_HEARD))
}

impl Handshake {
    /// Performs the WebSocket handshake with a client.
    pub(super) async fn perform(&self, stream: TcpStream) -> Result<WebSocket<NonBlocking>, Error> {
        #[allow(clippy::result_large_err)]
        let decide = |request: &Request, response: Response| match self.refusal(request) {
            None => Ok(response),
            Some(status) => {
                let mut refused = ErrorResponse::new(Some(format!("{status}\n")));
                *refused.status_mut() = status;
                Err(refused)
            }
        };
        let accept = accept_hdr_async_with_config(stream, decide, Some(config()));
        let accepted = match tokio::time::timeout(self.timeout, accept).await {
            Ok(accepted) => accepted?,
            Err(_) => return Err(Error::Io(ErrorKind::TimedOut.into())),
        };
        // A client sends no frames before the handshake is answered, so no buffered bytes are lost here.
        Ok(WebSocket::from_raw_socket(NonBlocking(accepted.into_inner()), Role::Server, Some(config())))
    }

    fn refusal(&self, request: &Request) -> Option<StatusCode> {
        if repeated_header(request.headers()).is_some() {
            return Some(StatusCode::BAD_REQUEST);
        }
        if request.uri().path() != self.path {
            return Some(StatusCode::NOT_FOUND);
        }
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let origin = header("origin")?;
        let is_own = || {
            let host = origin.split_once("://").map_or(origin, |(_, host)| host);
            header("host").is_some_and(|own| own.eq_ignore_ascii_case(host))
        };
        let is_allowed = match self.origins.is_empty() {
            true => is_own(),
            false => {
                self.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
            }
        };
        (!is_allowed).then_some(StatusCode::FORBIDDEN)
    }
}

/// Returns true if the operation would block; `Err` if the client has disconnected.
fn waits(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(false),
        Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Sends messages to a client until it disconnects or the messages end.
pub(super) async fn serve(
    mut socket: WebSocket<NonBlocking>,
    mut messages: UnboundedReceiver<Message>,
    behind: &AtomicUsize,
) {
    // A client that disconnects is not an error.
    if talk(&mut socket, &mut messages, behind).await.is_ok() {
        let _ = close(&mut socket).await;
    }
}

async fn talk(
    socket: &mut WebSocket<NonBlocking>,
    messages: &mut UnboundedReceiver<Message>,
    behind: &AtomicUsize,
) -> Result<(), Error> {
    let mut is_waiting = false;
    loop {
        // Nothing is read from a client that does not read: each ping would add an answer to what waits.
        let interest = if is_waiting { Interest::WRITABLE } else { Interest::READABLE };
        tokio::select! {
            message = messages.recv(), if !is_waiting => {
                let Some(message) = message else { return Ok(()) };
                let length = message.len();
                is_waiting = waits(socket.write(message).and_then(|()| socket.flush()))?;
                behind.fetch_sub(length, Ordering::Relaxed);
            }
            ready = socket.get_ref().0.ready(interest) => {
                let ready = ready?;
                if is_waiting {
                    is_waiting = waits(socket.flush())?;
                }
                if ready.is_readable() {
                    is_waiting = hear(socket)?;
                }
            }
        }
    }
}

/// Reads all that has arrived. The content of a client's messages is ignored. `read` also answers pings and
/// notices a close frame. Returns true if an answer waits for the client to read.
fn hear(socket: &mut WebSocket<NonBlocking>) -> Result<bool, Error> {
    loop {
        if waits(socket.flush())? {
            return Ok(true);
        }
        if waits(socket.read().map(|_| ()))? {
            return Ok(false);
        }
    }
}

/// Closes the connection after all messages have been sent.
async fn close(socket: &mut WebSocket<NonBlocking>) -> Result<(), Error> {
    let mut is_waiting = waits(socket.close(None).and_then(|()| socket.flush()))?;
    while is_waiting {
        socket.get_ref().0.writable().await?;
        is_waiting = waits(socket.flush())?;
    }
    // The client answers the close frame and disconnects.
    loop {
        match hear(socket)? {
            true => socket.get_ref().0.writable().await?,
            false => socket.get_ref().0.readable().await?,
        }
    }
}
