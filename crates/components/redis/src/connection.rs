//! A connection to a server, and the servers to which one may be opened.
//!
//! Commands are written and their replies read in order. After an error no client knows to which command the
//! next reply belongs. So the connection is of no use any more: its holder drops it and connects again. The
//! same holds for a connection whose holder stopped waiting for a reply ([`Connection::is_usable`]).

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
    /// The number of commands whose replies were not read.
    owed: usize,
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
                // A server that is away for now may be the one that lets the user in.
                Err(_) if failed.kind().is_temporary() => {}
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

    /// Connects elsewhere from now on, if the error of a server says so: to the node that has the key, or to
    /// the next server, because this one is a replica.
    pub(crate) fn follow(&mut self, error: &str) {
        if let Some(moved) = Redirect::read(error) {
            self.node = self.options.dial_node(moved.at).ok();
        } else if kind(error) == "READONLY" && !self.dials.is_empty() {
            self.node = None;
            self.dials.rotate_left(1);
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

/// Returns the first word of the error of a server.
fn kind(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// True if the command that had this error may succeed later.
pub(crate) fn is_temporary(error: &str) -> bool {
    TEMPORARY.contains(&kind(error)) || error.starts_with("ERR max number of clients")
}

/// Returns the error of a server as one of the component. A server whose memory is full also refuses to move
/// an element, until others have made room.
pub(crate) fn refused(what: &str, error: &str) -> Error {
    let message = format!("{what}: {}", foreign(error));
    match is_temporary(error) || kind(error) == "OOM" || Redirect::read(error).is_some() {
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
        let mut connection = Self { stream, decoder, input: Vec::new(), start: 0, owed: 0, timeout, shown };
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
        // A user may lack the right to name itself, or to ask whether the server is there.
        let needed = commands.count();
        commands.push(&[b"CLIENT", b"SETNAME", options.client_id.as_bytes()]);
        commands.push(&[b"PING"]);
        self.send(&commands).await?;
        for number in 0..commands.count() {
            match self.reply(Limits::SMALL).await? {
                Reply::Error(error) if number < needed || kind(&error) != "NOPERM" => {
                    return Err(self.refusal(&error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns why the connection cannot be used.
    fn refusal(&self, error: &str) -> Error {
        let shown = &self.shown;
        match kind(error) {
            "WRONGPASS" | "NOAUTH" => Error::permanent(format!("`{shown}` refuses the user: see `auth`"))
                .caused_by(foreign(error).into_owned()),
            _ => refused(&format!("`{shown}` refuses the connection"), error),
        }
    }

    /// True if the connection is open, and the server owes nothing and has nothing more to say, as far as can
    /// be seen without waiting.
    pub(crate) async fn is_usable(&mut self) -> bool {
        self.owed == 0 && self.start == self.input.len() && self.stream.is_silent().await
    }

    /// Writes commands.
    ///
    /// # Errors
    /// If the server does not take them in time, or has sent a reply to no command: it would be taken as that
    /// of the next one.
    pub(crate) async fn send(&mut self, commands: &Commands) -> Result<(), Error> {
        if self.owed == 0 && self.start < self.input.len() {
            return Err(Error::temporary(format!("`{}` sent a reply to no command", self.shown)));
        }
        // Also if the caller stops waiting, the server may have them.
        self.owed = self.owed.saturating_add(commands.count());
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
        if let Ok(Some(_)) = decoded {
            // The messages of channels belong to no command.
            self.owed = self.owed.saturating_sub(1);
        }
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
    use thalweg_engine::testing::options;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Connects to a server that answers the greeting so. Returns also the other end.
    async fn connected(more: &str, greeting: &str) -> (Result<Connection, Error>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let yaml = format!("{{ servers: '{}'{more} }}", listener.local_addr().unwrap());
        let mut servers = Servers::new(&options::<ServerOptions>(&yaml)).unwrap();
        let server = async {
            let (mut server, _) = listener.accept().await.unwrap();
            server.write_all(greeting.as_bytes()).await.unwrap();
            server
        };
        tokio::join!(servers.connect(), server)
    }

    #[tokio::test]
    async fn a_connection_that_owes_a_reply_is_not_used_again() {
        let (connection, _server) = connected("", "+OK\r\n+PONG\r\n").await;
        let mut connection = connection.unwrap();
        assert!(connection.is_usable().await);
        let words: [&[u8]; 2] = [b"GET", b"a"];
        tokio::select! {
            biased;
            reply = connection.call(&words, Limits::SMALL) => panic!("{reply:?}"),
            // The caller stops waiting.
            () = async {} => {}
        }
        assert!(!connection.is_usable().await);
    }

    #[tokio::test]
    async fn a_reply_to_no_command_is_not_that_of_the_next_one() {
        let (connection, mut server) = connected("", "+OK\r\n+PONG\r\n").await;
        let mut connection = connection.unwrap();
        server.write_all(b":1\r\n:2\r\n").await.unwrap();
        let reply = connection.call(&[b"INCR", b"a"], Limits::SMALL).await.unwrap();
        assert_eq!(reply, Reply::Number(1));
        let error = connection.call(&[b"INCR", b"b"], Limits::SMALL).await.unwrap_err();
        assert!(error.kind().is_temporary());
        assert!(error.full().ends_with("sent a reply to no command"), "{}", error.full());
    }

    #[tokio::test]
    async fn a_user_need_not_have_the_right_to_a_name_but_to_the_database() {
        let no = "-NOPERM this user has no permissions\r\n";
        let (connection, _server) = connected("", &format!("{no}{no}")).await;
        assert!(connection.is_ok());
        let greeting = format!("{no}+OK\r\n+PONG\r\n");
        let (connection, _server) = connected(", database: 3", &greeting).await;
        let Err(error) = connection else { panic!("the database is another one") };
        assert!(!error.kind().is_temporary(), "{}", error.full());
    }

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
        // A message is refused then, and a source waits.
        assert!(refused("x", "OOM command not allowed").kind().is_temporary());
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
