//! A connection to a server, and the servers to which one may be opened.
//!
//! Commands are written and their replies read in order. After an error no client knows to which command the
//! next reply belongs. So the connection is of no use any more: its holder drops it and connects again.

use std::time::Duration;

use thalweg_engine::Error;
use thalweg_net::net::{Dial, Stream, net_error};
use thalweg_redact::foreign;
use tokio::io::AsyncReadExt;

use crate::options::ServerOptions;
use crate::resp::{Commands, Decoder, Limits, Reply};

/// The number of bytes that are read at once.
const READ: usize = 64 << 10;
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The errors after which a retry may succeed: the server is starting, is no master at the moment, or cannot
/// store anything now.
const TEMPORARY: [&str; 10] = [
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "BUSY",
    "NOREPLICAS",
    "MISCONF",
    "NOGROUP",
    "UNBLOCKED",
];

/// A connection.
pub(crate) struct Connection {
    stream: Stream,
    decoder: Decoder,
    /// The bytes that were read, of which those before `start` are decoded.
    input: Vec<u8>,
    start: usize,
    timeout: Duration,
    /// The address, for messages.
    shown: String,
}

/// The servers of a component.
#[derive(Clone)]
pub(crate) struct Servers {
    options: ServerOptions,
    dials: Vec<Dial>,
    /// The node of the cluster that has the key of the component, if a server named one.
    node: Option<Dial>,
}

impl Servers {
    /// Reads the files of the options.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(crate) fn new(options: &ServerOptions) -> Result<Self, Error> {
        Ok(Self { dials: options.dials()?, options: options.clone(), node: None })
    }

    /// Connects to the node that [`Self::follow`] learned, or to the first server that answers.
    ///
    /// # Errors
    /// If none answers, or the user is refused.
    pub(crate) async fn connect(&mut self) -> Result<Connection, Error> {
        if let Some(node) = self.node.take()
            && let Ok(connection) = Connection::open(&node, &self.options).await
        {
            self.node = Some(node);
            return Ok(connection);
        }
        let mut failed = Error::permanent("there is no server to connect to");
        for dial in &self.dials {
            match Connection::open(dial, &self.options).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connects to a node of the cluster, at `HOST:PORT`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub(crate) async fn connect_to(&self, at: &str) -> Result<Connection, Error> {
        Connection::open(&self.options.dial_node(at)?, &self.options).await
    }

    /// Connects to another node from now on, if the error of a server names the one that has the key.
    pub(crate) fn follow(&mut self, error: &str) {
        if let Some(moved) = Redirect::read(error) {
            self.node = self.options.dial_node(moved.at).ok();
        }
    }
}

/// Where the key of a command is: `MOVED SLOT HOST:PORT` or `ASK SLOT HOST:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redirect<'a> {
    pub(crate) slot: u16,
    pub(crate) at: &'a str,
    /// True if only this command goes there, after `ASKING`.
    pub(crate) is_once: bool,
}

impl<'a> Redirect<'a> {
    /// Reads the error of a server. `None` if it names no other node. A node without a host, which is the
    /// same host as that of the server, is not understood: it is a mistake in the cluster's configuration.
    pub(crate) fn read(error: &'a str) -> Option<Self> {
        let mut words = error.split(' ');
        let is_once = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse::<u16>().ok().filter(|slot| *slot < 16384)?;
        let at = words.next().filter(|at| at.rsplit_once(':').is_some_and(|(host, _)| !host.is_empty()))?;
        Some(Self { slot, at, is_once })
    }
}

/// True if the command that had this error may succeed later.
pub(crate) fn is_temporary(error: &str) -> bool {
    let kind = error.split(' ').next().unwrap_or_default();
    TEMPORARY.contains(&kind) || error.starts_with("ERR max number of clients")
}

/// Returns the error of a server as one of the component.
pub(crate) fn refused(what: &str, error: &str) -> Error {
    let message = format!("{what}: {}", foreign(error));
    match is_temporary(error) || Redirect::read(error).is_some() {
        true => Error::temporary(message),
        false => Error::permanent(message),
    }
}

/// Returns a pause before the next attempt to reach a server. Pauses grow and differ, so that clients do not
/// come all at once when a server is back.
pub(crate) fn pause(failures: u32) -> Duration {
    let longest = Duration::from_millis(50) * 2_u32.pow(failures.min(10));
    longest.min(LONGEST_PAUSE).mul_f64(0.5 + fastrand::f64() / 2.0)
}

impl Connection {
    async fn open(dial: &Dial, options: &ServerOptions) -> Result<Self, Error> {
        let stream = dial.connect().await?;
        let shown = dial.address.to_string();
        let (decoder, timeout) = (Decoder::default(), options.timeout());
        let mut connection = Self { stream, decoder, input: Vec::new(), start: 0, timeout, shown };
        connection.greet(options).await?;
        Ok(connection)
    }

    /// Says who the client is. The server answers the last command only if it is ready.
    async fn greet(&mut self, options: &ServerOptions) -> Result<(), Error> {
        let mut commands = Commands::default();
        let database = options.database.to_string();
        if let Some(auth) = &options.auth {
            let password = auth.password.as_deref().unwrap_or_default().as_bytes();
            match &auth.user {
                Some(user) => commands.push(&[b"AUTH", user.as_bytes(), password]),
                None => commands.push(&[b"AUTH", password]),
            }
        }
        if options.database > 0 {
            commands.push(&[b"SELECT", database.as_bytes()]);
        }
        commands.push(&[b"CLIENT", b"SETNAME", options.client_id.as_bytes()]);
        commands.push(&[b"PING"]);
        self.send(&commands).await?;
        for _ in 0..commands.count() {
            if let Reply::Error(error) = self.reply(Limits::SMALL).await? {
                self.refuse(&error)?;
            }
        }
        Ok(())
    }

    /// A user may lack the right to name itself, or to ask whether the server is there. Any other error means
    /// that the connection cannot be used.
    fn refuse(&self, error: &str) -> Result<(), Error> {
        let shown = &self.shown;
        match error.split(' ').next().unwrap_or_default() {
            "NOPERM" => Ok(()),
            "WRONGPASS" | "NOAUTH" => {
                Err(Error::permanent(format!("`{shown}` refuses the user: see `auth`"))
                    .caused_by(foreign(error).into_owned()))
            }
            _ => Err(refused(&format!("`{shown}` refuses the connection"), error)),
        }
    }

    /// True if the connection is open and the server has nothing more to say, as far as can be seen without
    /// waiting.
    pub(crate) async fn is_usable(&mut self) -> bool {
        self.start == self.input.len() && self.stream.is_silent().await
    }

    /// Writes commands.
    ///
    /// # Errors
    /// If the server does not take them in time.
    pub(crate) async fn send(&mut self, commands: &Commands) -> Result<(), Error> {
        let written = self.stream.write_within(commands.bytes(), self.timeout).await;
        written.map_err(|error| net_error("write to", &self.shown, &error))
    }

    /// Reads the reply to the next command. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If nothing arrives in time, or what arrives is no reply.
    pub(crate) async fn reply(&mut self, limits: Limits) -> Result<Reply, Error> {
        loop {
            match tokio::time::timeout(self.timeout, self.arriving(limits)).await {
                Ok(Ok(Some(reply))) => return Ok(reply),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let (shown, seconds) = (&self.shown, self.timeout.as_secs_f64());
                    return Err(Error::overloaded(format!("`{shown}` did not answer within {seconds} s")));
                }
            }
        }
    }

    /// Reads what arrives. Returns `None` if it is not all of a reply.
    async fn arriving(&mut self, limits: Limits) -> Result<Option<Reply>, Error> {
        if let Some(reply) = self.decode(limits)? {
            return Ok(Some(reply));
        }
        self.input.clear();
        self.start = 0;
        self.input.reserve(READ);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Error::temporary(format!("`{}` closed the connection", self.shown))),
            Ok(_) => self.decode(limits),
            Err(error) => Err(net_error("read from", &self.shown, &error)),
        }
    }

    fn decode(&mut self, limits: Limits) -> Result<Option<Reply>, Error> {
        let mut rest = self.input.get(self.start..).unwrap_or_default();
        let decoded = self.decoder.decode(&mut rest, limits);
        self.start = self.input.len() - rest.len();
        decoded.map_err(|error| {
            Error::temporary(format!("`{}` cannot be understood", self.shown)).caused_by(error)
        })
    }

    /// Returns the next reply if it has been read already.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub(crate) fn buffered(&mut self, limits: Limits) -> Result<Option<Reply>, Error> {
        self.decode(limits)
    }

    /// Sends a command, and reads its reply.
    ///
    /// # Errors
    /// As [`reply`](Self::reply). An error of the server is a reply.
    pub(crate) async fn call(&mut self, words: &[&[u8]], limits: Limits) -> Result<Reply, Error> {
        let mut commands = Commands::default();
        commands.push(words);
        self.send(&commands).await?;
        self.reply(limits).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pauses_grow_and_differ_up_to_a_limit() {
        for (failures, most) in [(0, 50), (1, 100), (6, 3200), (7, 4000), (u32::MAX, 4000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = pause(failures);
                assert!(pause <= most && pause >= most / 2, "{failures}: {pause:?}");
            }
        }
    }

    #[test]
    fn an_error_says_whether_to_wait_to_go_elsewhere_or_to_end() {
        for (error, expected) in [
            ("LOADING Redis is loading the dataset in memory", true),
            ("READONLY You can't write against a read only replica.", true),
            ("MASTERDOWN Link with MASTER is down", true),
            ("TRYAGAIN Multiple keys request during rehashing of slot", true),
            ("ERR max number of clients reached", true),
            ("OOM command not allowed when used memory > 'maxmemory'.", false),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", false),
            ("", false),
        ] {
            assert_eq!(is_temporary(error), expected, "{error}");
        }
        let moved = Redirect { slot: 3999, at: "127.0.0.1:6381", is_once: false };
        assert_eq!(Redirect::read("MOVED 3999 127.0.0.1:6381"), Some(moved));
        assert_eq!(Redirect::read("ASK 3999 127.0.0.1:6381"), Some(Redirect { is_once: true, ..moved }));
        for wrong in ["", "MOVED", "MOVED 16384 h:1", "MOVED 1 :6381", "MOVED 1 h", "ERR MOVED 1 h:1"] {
            assert_eq!(Redirect::read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_error_is_read(error in "(MOVED |ASK )?\\PC*") {
            let _ = (Redirect::read(&error), is_temporary(&error), refused("x", &error));
        }
    }
}
