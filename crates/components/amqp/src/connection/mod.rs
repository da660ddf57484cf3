//! A connection to a server, with one channel.
//!
//! A client of a crate was rejected (docs/decisions/103-amqp-by-a-client-of-ours.md). This one does little:
//! it opens a connection, reads one event after the other when it is asked to, and writes what it is given. A
//! component that does not read leaves messages with the server. Meanwhile a task of the connection tells the
//! server now and then that the client is there, so that the server does not end the connection.
//!
//! An error of the channel ends the channel on the server. The component connects again then: both are
//! equally rare, and one way back is simpler than two.

mod reader;

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_broker::halves::ToServer;
use thalweg_engine::Error;
use thalweg_net::net::{Dial, Stream};
use tokio::io::WriteHalf;
use tokio::task::JoinHandle;

use crate::options::{ServerOptions, Target};
use crate::wire::{self, Close, Event, Method, OVERHEAD, StartOk, Tune};
pub(crate) use reader::Reader;

/// How long connecting may take, and how long the server may take to answer then.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may take for a question about a queue or an exchange.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(5);
/// The largest frame that is read and written, in bytes. The server may want smaller ones.
pub(crate) const FRAME: u32 = 128 << 10;
/// The specification has no smaller limit than this.
const SMALLEST_FRAME: u32 = 4096;

/// Writes the frames of a connection.
pub(crate) type Writer = ToServer<WriteHalf<Stream>>;

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    /// The most bytes of a payload in a frame.
    pub(crate) part: usize,
    pub(crate) reader: Reader,
    pub(crate) writer: Arc<Writer>,
    heartbeats: JoinHandle<()>,
}

/// Why a server has not done what it was asked for.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It has closed the channel.
    Refused(Close),
    /// The connection broke, or there was no answer.
    Broken(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

impl Failed {
    /// Returns the error. `message` says what could not be done.
    pub(crate) fn into_error(self, message: impl Into<String>) -> Error {
        match self {
            Self::Refused(close) if close.is_lasting() => Error::permanent(message).caused_by(close),
            Self::Refused(close) => Error::temporary(message).caused_by(close),
            Self::Broken(error) => error,
        }
    }

    /// As [`into_error`](Self::into_error), for a refusal that may end by itself.
    pub(crate) fn into_temporary(self, message: impl Into<String>) -> Error {
        match self {
            Self::Refused(close) => Error::temporary(message).caused_by(close),
            Self::Broken(error) => error,
        }
    }
}

/// Returns the error of a connection that is refused after others were not. It may end by itself: a server
/// says with the same code that the virtual host is not there, and that it has too many connections.
pub(crate) fn temporary(error: Error) -> Error {
    match error.kind().is_temporary() {
        true => error,
        false => Error::temporary("the server refuses another connection").caused_by(error),
    }
}

impl Connection {
    /// Connects to the first server that answers. Of each message, at most `payload_limit` bytes are kept.
    ///
    /// # Errors
    /// If none does, or the connection is refused. Refusals that a retry may change are temporary.
    pub(crate) async fn open(options: &ServerOptions, payload_limit: usize) -> Result<Self, Error> {
        let mut last = Error::permanent("there is no server to connect to");
        for target in options.targets()? {
            let opening = Self::open_one(options, &target, payload_limit);
            match tokio::time::timeout(4 * CONNECT, opening).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) if !error.kind().is_temporary() => return Err(error),
                Ok(Err(error)) => last = error,
                Err(_) => last = silent(&target.dial),
            }
        }
        Err(last)
    }

    async fn open_one(options: &ServerOptions, target: &Target, limit: usize) -> Result<Self, Error> {
        let dial = &target.dial;
        let stream = dial.connect().await?;
        let (read, write) = tokio::io::split(stream);
        let (mut reader, writer) = (Reader::new(read, limit), Writer::new(write));
        writer.write(wire::HEADER).await?;
        let mut out = Vec::new();
        match expect(&mut reader, dial).await? {
            Method::Start(mechanisms) => log_in(options, &mechanisms, dial, &mut out)?,
            _ => return Err(foreign(dial)),
        }
        writer.write(&out).await?;
        let tune = match expect(&mut reader, dial).await? {
            Method::Tune(tune) => tune,
            Method::Secure => {
                let message =
                    format!("the server `{}` asks for more than a user and a password", dial.address);
                return Err(Error::permanent(message));
            }
            _ => return Err(foreign(dial)),
        };
        let (frame, heartbeat) = agreed(tune, options.heartbeat_interval.duration());
        if frame < SMALLEST_FRAME {
            return Err(foreign(dial));
        }
        out.clear();
        wire::tune_ok(frame, heartbeat, &mut out);
        wire::open(&target.virtual_host, &mut out);
        writer.write(&out).await?;
        let Method::OpenOk = expect(&mut reader, dial).await? else { return Err(foreign(dial)) };
        let writer = Arc::new(writer);
        let heartbeat = Duration::from_secs(u64::from(heartbeat));
        reader.expect_heartbeats(heartbeat);
        let heartbeats = tokio::spawn(beat(writer.clone(), heartbeat / 2));
        let part = (frame as usize).saturating_sub(OVERHEAD);
        let mut connection = Self { part, reader, writer, heartbeats };
        out.clear();
        wire::channel_open(&mut out);
        let opened = connection.call(&out, |method| *method == Method::ChannelOpenOk).await;
        opened.map_err(|failed| failed.into_error("the server has not opened a channel"))?;
        Ok(connection)
    }

    /// Sends a method, and waits for the answer. Nothing else may be expected: it would be lost.
    ///
    /// # Errors
    /// If the server closes the channel, or does not answer.
    pub(crate) async fn call(
        &mut self,
        request: &[u8],
        is_answer: impl Fn(&Method) -> bool,
    ) -> Result<Method, Failed> {
        self.writer.write(request).await?;
        let begun = Instant::now();
        while begun.elapsed() < ANSWER {
            match self.reader.next(ANSWER.saturating_sub(begun.elapsed())).await? {
                Some(Event::Method(Method::ChannelClose(close))) => return Err(Failed::Refused(close)),
                Some(Event::Method(method)) if is_answer(&method) => return Ok(method),
                _ => {}
            }
        }
        Err(Error::temporary("the server does not answer any more").into())
    }

    /// Ends the channel and the connection, once the server has taken all that was written before. Messages
    /// that it sends meanwhile are dropped.
    pub(crate) async fn close(mut self) {
        let ended = async {
            let (mut channel, mut connection) = (Vec::new(), Vec::new());
            wire::channel_close(&mut channel);
            wire::close(&mut connection);
            self.call(&channel, |method| *method == Method::ChannelCloseOk).await?;
            self.call(&connection, |method| *method == Method::CloseOk).await?;
            Ok::<(), Failed>(())
        };
        // The server notices the end of the connection anyway.
        let _ = tokio::time::timeout(CLOSE, ended).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.heartbeats.abort();
    }
}

/// Returns the next method while a connection is opened.
async fn expect(reader: &mut Reader, dial: &Dial) -> Result<Method, Error> {
    let begun = Instant::now();
    while begun.elapsed() < CONNECT {
        let event = reader.next(CONNECT.saturating_sub(begun.elapsed())).await;
        match event.map_err(|error| error.context(format!("cannot connect to `{}`", dial.address)))? {
            Some(Event::Method(method)) => return Ok(method),
            Some(Event::Heartbeat) => {}
            Some(Event::Delivery(_) | Event::Returned(_)) => return Err(foreign(dial)),
            None => break,
        }
    }
    Err(silent(dial))
}

/// Appends the user, as one of the mechanisms of the server wants it.
fn log_in(
    options: &ServerOptions,
    mechanisms: &[String],
    dial: &Dial,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let (mechanism, response) = options.login();
    if !mechanisms.iter().any(|offered| offered == mechanism) {
        let offered = mechanisms.join(", ");
        let message = format!("the server `{}` takes no user by {mechanism}", dial.address);
        return Err(Error::permanent(message).caused_by(format!("it offers {offered}; see `auth`")));
    }
    let (name, version) = ("thalweg", env!("CARGO_PKG_VERSION"));
    wire::start_ok(&StartOk { mechanism, response: &response, name, version }, out);
    Ok(())
}

/// Returns the size of frames and the seconds of the heartbeat that both sides can live with. A server that
/// wants none gets ours: it would be noticed too late that it is gone.
fn agreed(tune: Tune, wanted: Duration) -> (u32, u16) {
    let least = |ours: u32, theirs: u32| if theirs == 0 { ours } else { theirs.min(ours) };
    let wanted = u32::try_from(wanted.as_secs()).unwrap_or(u32::MAX);
    let heartbeat = least(wanted, u32::from(tune.heartbeat)).max(1);
    (least(FRAME, tune.frame_max), u16::try_from(heartbeat).unwrap_or(u16::MAX))
}

fn foreign(dial: &Dial) -> Error {
    Error::temporary(format!("`{}` is no server of AMQP 0.9.1", dial.address))
}

fn silent(dial: &Dial) -> Error {
    Error::temporary(format!("the server `{}` does not answer", dial.address))
}

/// Returns the error of a connection that the server has ended.
fn ended(close: &Close) -> Error {
    let message = "the server has ended the connection";
    let (error, help) = match close.code {
        403 => (Error::permanent(message), "; see `auth`"),
        530 => (Error::permanent(message), "; see the virtual host in `servers`"),
        // A resource of the server is used up.
        506 => (Error::overloaded(message), ""),
        _ => (Error::temporary(message), ""),
    };
    error.caused_by(format!("{close}{help}"))
}

/// Tells the server now and then that the client is there, until the connection breaks.
async fn beat(writer: Arc<Writer>, every: Duration) {
    let mut beat = Vec::new();
    wire::heartbeat(&mut beat);
    loop {
        tokio::time::sleep(every).await;
        if writer.write(&beat).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_the_smaller_limit_and_heartbeats_are_never_off() {
        let minute = Duration::from_secs(60);
        for (frame_max, heartbeat, expected) in
            [(0, 0, (128 << 10, 60)), (4096, 10, (4096, 10)), (1 << 20, 600, (128 << 10, 60))]
        {
            assert_eq!(agreed(Tune { frame_max, heartbeat }, minute), expected);
        }
    }

    #[test]
    fn the_end_of_a_connection_says_what_to_do() {
        let end = |code, text: &str| ended(&Close { code, text: text.to_owned() });
        let refused = end(403, "ACCESS_REFUSED - Login was refused");
        assert!(!refused.kind().is_temporary());
        assert_eq!(
            refused.full(),
            "the server has ended the connection: ACCESS_REFUSED - Login was refused (403); see `auth`"
        );
        assert!(end(320, "CONNECTION_FORCED - shutdown").kind().is_temporary());
    }
}
