//! A connection to a server.
//!
//! A client of a crate was rejected (docs/decisions/095-mqtt-by-a-client-of-ours.md). This one does little:
//! it opens a connection, reads one packet after the other when it is asked to, and writes what it is given.
//! A component that does not read leaves packets with the server. Meanwhile a task of the connection asks the
//! server now and then whether it is there, so that the server does not end the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thalweg_broker::halves::{FromServer, ToServer};
use thalweg_engine::Error;
use thalweg_net::net::{Dial, Stream};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use crate::options::ServerOptions;
use crate::wire::{
    self, ConnAck, Connect, Disconnect, Frames, Malformed, Packet, Properties, Reason, Remedy, Version,
    property,
};

/// How long connecting may take, and how long the server may take to answer then.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(1);
/// The bytes of a packet beside the payload of a message: its topic and its properties. The longest topic
/// fits.
const HEAD: usize = 128 << 10;

/// The session of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) client_id: &'a str,
    /// True to begin a new session.
    pub(crate) is_clean: bool,
    /// How long the server keeps the session after the connection.
    pub(crate) expiry: Duration,
    /// How many messages the server may send without an answer.
    pub(crate) receive_maximum: Option<u16>,
    /// The largest payload that is read as a whole.
    pub(crate) payload_limit: usize,
}

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    /// The address of the server.
    pub(crate) server: String,
    /// True if the server has the session of an earlier connection.
    pub(crate) has_session: bool,
    pub(crate) limits: ServerLimits,
    pub(crate) reader: Reader,
    pub(crate) writer: Arc<Writer>,
    pings: JoinHandle<()>,
}

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerLimits {
    /// The number of messages that it takes without having answered.
    pub(crate) pending: usize,
    /// The largest packet that it takes, in bytes.
    pub(crate) packet: usize,
    /// The highest QoS, as a number.
    pub(crate) qos: u8,
    pub(crate) takes_retained: bool,
}

impl Connection {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// If none does, or the connection is refused. Refusals that a retry may change are temporary.
    pub(crate) async fn open(options: &ServerOptions, session: &Session<'_>) -> Result<Self, Error> {
        let mut last = Error::permanent("there is no server to connect to");
        for dial in options.dials()? {
            let opened = tokio::time::timeout(2 * CONNECT, Self::open_one(options, &dial, session)).await;
            match opened {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) if !error.kind().is_temporary() => return Err(error),
                Ok(Err(error)) => last = error,
                Err(_) => last = Error::temporary(format!("the server `{}` does not answer", dial.address)),
            }
        }
        Err(last)
    }

    async fn open_one(options: &ServerOptions, dial: &Dial, session: &Session<'_>) -> Result<Self, Error> {
        let stream = dial.connect().await?;
        let (read, write) = tokio::io::split(stream);
        let version = options.version();
        let writer = Writer { version, half: ToServer::new(write), asked: AtomicU64::new(0) };
        let wanted = options.keep_alive_interval.duration();
        let mut reader = Reader {
            // It answers questions.
            half: FromServer::new(read, wanted.saturating_mul(2).max(CONNECT)),
            frames: Frames::new(session.payload_limit.saturating_add(HEAD)),
            version,
            answered: 0,
        };
        writer.write(&connect_packet(options, session)).await?;
        let Some(packet) = reader.next(CONNECT).await? else {
            return Err(Error::temporary(format!("the server `{}` does not answer", dial.address)));
        };
        let Packet::ConnAck(answer) = packet else {
            return Err(Error::temporary(format!("`{}` is no server of MQTT", dial.address)));
        };
        check(&answer.reason, dial)?;
        let writer = Arc::new(writer);
        let pings = tokio::spawn(ask(writer.clone(), keep_alive(wanted, &answer) / 2));
        let limits = ServerLimits::of(&answer);
        let server = dial.address.to_string();
        Ok(Self { server, has_session: answer.has_session, limits, reader, writer, pings })
    }

    /// Ends the connection as a client does that is done. The session stays, as long as it was asked for.
    pub(crate) async fn close(self) {
        let mut out = Vec::new();
        wire::disconnect(&mut out);
        // The server notices the end of the connection anyway.
        let _ = tokio::time::timeout(CLOSE, self.writer.half.write_and_close(&out)).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.pings.abort();
    }
}

impl ServerLimits {
    fn of(answer: &ConnAck) -> Self {
        let properties = Properties::of(&answer.properties);
        let number = |identifier| properties.number(identifier).map(|number| number as usize);
        Self {
            pending: number(property::RECEIVE_MAXIMUM).unwrap_or(usize::from(u16::MAX)).max(1),
            packet: number(property::MAXIMUM_PACKET_SIZE).unwrap_or(usize::MAX),
            qos: number(property::MAXIMUM_QOS).map_or(2, |qos| qos.min(2) as u8),
            takes_retained: number(property::RETAIN_AVAILABLE) != Some(0),
        }
    }
}

/// Returns how long the connection may be silent. A server may want less than the options, and no more: it
/// would be noticed too late that a server is gone, or not at all if it wants zero, which is for ever.
fn keep_alive(wanted: Duration, answer: &ConnAck) -> Duration {
    match Properties::of(&answer.properties).number(property::SERVER_KEEP_ALIVE) {
        Some(seconds @ 1..) => wanted.min(Duration::from_secs(u64::from(seconds))),
        _ => wanted,
    }
}

fn connect_packet(options: &ServerOptions, session: &Session<'_>) -> Vec<u8> {
    let auth = options.auth.clone().unwrap_or_default();
    let connect = Connect {
        client_id: session.client_id,
        user: auth.user.as_deref(),
        password: auth.password.as_deref(),
        keep_alive: u16::try_from(options.keep_alive_interval.duration().as_secs()).unwrap_or(u16::MAX),
        is_clean: session.is_clean,
        session_expiry: u32::try_from(session.expiry.as_secs()).unwrap_or(u32::MAX),
        receive_maximum: session.receive_maximum,
    };
    let mut out = Vec::new();
    wire::connect(options.version(), &connect, &mut out);
    out
}

/// Checks the answer to a connection.
fn check(reason: &Reason, dial: &Dial) -> Result<(), Error> {
    let message = format!("the server `{}` refuses the connection", dial.address);
    let help = match reason.code {
        Reason::UNSUPPORTED_VERSION => "; set `protocol: mqtt3.1.1`",
        0x85 => "; see `client_id`",
        0x86 | 0x87 => "; see `auth`",
        _ => "",
    };
    let refused = match reason.remedy() {
        Remedy::None => return Ok(()),
        // Of a message that is refused so another attempt is in vain. A server that fails so may recover.
        Remedy::Change if matches!(reason.code, Reason::UNSPECIFIED | Reason::IMPLEMENTATION) => {
            Error::temporary(message)
        }
        Remedy::Retry => Error::temporary(message),
        Remedy::Wait => Error::overloaded(message),
        Remedy::Change => Error::permanent(message),
    };
    Err(refused.caused_by(format!("{reason}{help}")))
}

/// Returns the error of a connection that the server has ended.
fn ended(end: &Disconnect) -> Error {
    let message = "the server has ended the connection";
    let error = match end.reason.code {
        // Two programs that take a session from each other would do so for ever.
        Reason::TAKEN_OVER => Error::permanent(format!(
            "{message}: another client has connected with the same `client_id`; give each its own"
        )),
        _ if end.reason.remedy() == Remedy::Wait => Error::overloaded(message),
        _ => Error::temporary(message),
    };
    match &end.other {
        Some(other) => error.caused_by(format!("{}; it names the server `{other}`", end.reason)),
        None => error.caused_by(end.reason.to_string()),
    }
}

/// Asks now and then whether the server is there, until the connection breaks.
async fn ask(writer: Arc<Writer>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if writer.ask().await.is_err() {
            return;
        }
    }
}

/// Reads packets of a connection.
pub(crate) struct Reader {
    half: FromServer<ReadHalf<Stream>>,
    frames: Frames,
    version: Version,
    /// The number of times that the server has answered that it is there.
    answered: u64,
}

impl Reader {
    /// Returns the next packet, none after `wait`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the connection broke, or the server has ended it, sends what is no packet, or is silent for too
    /// long.
    pub(crate) async fn next(&mut self, wait: Duration) -> Result<Option<Packet>, Error> {
        let begun = Instant::now();
        loop {
            if let Some(packet) = self.arrived()? {
                return Ok(Some(packet));
            }
            let left = wait.saturating_sub(begun.elapsed());
            if !self.half.fill(self.frames.buffer(), begun, left).await? {
                return Ok(None);
            }
        }
    }

    /// True if the server has answered the question with this number.
    pub(crate) fn has_answered(&self, number: u64) -> bool {
        self.answered >= number
    }

    /// Returns the next packet of those that were read.
    fn arrived(&mut self) -> Result<Option<Packet>, Error> {
        let malformed =
            |error: Malformed| Error::temporary("the server has sent what is no packet").caused_by(error);
        let Some(frame) = self.frames.cut().map_err(malformed)? else { return Ok(None) };
        match wire::parse(self.version, frame).map_err(malformed)? {
            Packet::Disconnect(end) => Err(ended(&end)),
            packet => {
                self.answered += u64::from(packet == Packet::PingResp);
                Ok(Some(packet))
            }
        }
    }
}

/// Writes packets of a connection, whole ones.
pub(crate) struct Writer {
    pub(crate) version: Version,
    half: ToServer<WriteHalf<Stream>>,
    /// The number of times that the server was asked whether it is there.
    asked: AtomicU64,
}

impl Writer {
    /// Writes packets.
    ///
    /// # Errors
    /// If the connection broke, or takes nothing for some time. It is of no use then.
    pub(crate) async fn write(&self, packets: &[u8]) -> Result<(), Error> {
        self.half.write(packets).await
    }

    /// Asks the server whether it is there. Returns the number of the answer, which comes after the server
    /// has taken all that was written before.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) async fn ask(&self) -> Result<u64, Error> {
        let mut packet = Vec::new();
        wire::ping(&mut packet);
        self.half.write_noted(&packet, || self.asked.fetch_add(1, Relaxed) + 1).await
    }

    /// True if nothing can be written any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.half.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::net::Address;

    fn answer(properties: &[u8]) -> ConnAck {
        ConnAck { has_session: false, reason: Reason::new(0), properties: properties.to_vec() }
    }

    #[test]
    fn a_server_may_want_to_hear_more_often_from_a_client_but_not_never() {
        let minute = Duration::from_secs(60);
        for (properties, expected) in
            [(&b""[..], 60), (b"\x13\0\x0a", 10), (b"\x13\0\0", 60), (b"\x13\x0e\x10", 60)]
        {
            assert_eq!(keep_alive(minute, &answer(properties)), Duration::from_secs(expected));
        }
    }

    #[test]
    fn a_server_that_fails_without_a_reason_may_recover_and_one_that_refuses_a_user_does_not() {
        let dial =
            Dial { address: Address::Tcp("h:1".to_owned()), timeout: CONNECT, send_buffer: None, tls: None };
        for (code, expected) in [(0x80, true), (0x83, true), (0x88, true), (0x9c, true), (0x87, false)] {
            let error = check(&Reason::new(code), &dial).unwrap_err();
            assert_eq!(error.kind().is_temporary(), expected, "{code:#x}");
        }
    }

    #[test]
    fn the_limits_of_a_server_are_those_of_its_answer() {
        let all = ServerLimits { pending: 65_535, packet: usize::MAX, qos: 2, takes_retained: true };
        assert_eq!(ServerLimits::of(&answer(b"")), all);
        let few = ServerLimits { pending: 20, packet: 1000, qos: 1, takes_retained: false };
        let properties = b"\x21\0\x14\x27\0\0\x03\xe8\x24\x01\x25\0";
        assert_eq!(ServerLimits::of(&answer(properties)), few);
    }

    #[test]
    fn the_end_of_a_connection_says_what_to_do() {
        let end = |code, other: Option<&str>| Disconnect {
            reason: Reason::new(code),
            other: other.map(str::to_owned),
        };
        let taken = ended(&end(0x8e, None));
        assert!(!taken.kind().is_temporary() && taken.full().contains("`client_id`"), "{}", taken.full());
        let moved = ended(&end(0x9c, Some("b")));
        assert!(moved.kind().is_temporary());
        assert_eq!(
            moved.full(),
            "the server has ended the connection: use another server (0x9c); it names the server `b`"
        );
    }
}
