//! The servers to which a connection may be opened, and how one is.
//!
//! A server speaks first: it says what it is. Then the connection is encrypted if it must be, the client
//! introduces itself, and asks whether it is welcome.

use std::net::SocketAddr;
use std::time::Duration;

use thalweg_engine::Error;
use thalweg_net::net::{Address, Dial, Stream};
use thalweg_net::tls::Connector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::user::User;
use crate::options::{ServerOptions, host_and_port};
use crate::wire::{self, Connect, Decoder, Info, Malformed, Operation};

/// How long connecting may take, and how long the server may take to answer then.
const CONNECT: Duration = Duration::from_secs(10);
/// The size of a read while a connection is opened.
const READ: usize = 4 << 10;
/// The most servers of a cluster that are kept, and the longest address of one.
const MOST_LEARNED: usize = 100;
const LONGEST_ADDRESS: usize = 300;
/// The most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 8;

/// The servers of the options.
pub(super) struct Servers {
    /// Each as `HOST:PORT`.
    configured: Vec<String>,
    /// The servers as one text, for messages.
    shown: String,
    requires_tls: bool,
    /// The server may require TLS without being asked.
    connector: Connector,
    user: User,
    client_id: String,
    /// The most bytes of a payload that are kept.
    limit: usize,
}

/// An open connection.
pub(super) struct Opened {
    pub(super) stream: Stream,
    pub(super) decoder: Decoder,
    pub(super) info: Info,
}

/// The reason why a connection could not be opened.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refuses the user.
    Refused(String),
    /// The server does not speak the protocol.
    Malformed(Malformed),
    /// A retry may succeed.
    Later(String),
    /// No retry succeeds.
    Never(Error),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Later(error.to_string())
    }
}

impl Servers {
    /// Prepares to connect. Reads the files of the options.
    ///
    /// # Errors
    /// If one cannot be used.
    pub(super) async fn new(options: &ServerOptions, limit: usize) -> Result<Self, Error> {
        let configured = options.servers.iter().filter_map(|server| host_and_port(server));
        Ok(Self {
            configured: configured.collect(),
            shown: options.shown(),
            requires_tls: options.requires_tls(),
            connector: options.tls.clone().unwrap_or_default().connector()?,
            user: User::new(options.auth.as_ref()).await?,
            client_id: options.client_id.clone(),
            limit,
        })
    }

    /// Returns the servers to try in any order: those of the options, and those that a server has named.
    pub(super) fn to_try(&self, learned: &[String]) -> Vec<String> {
        let learned = learned.iter().filter(|server| server.len() <= LONGEST_ADDRESS);
        let learned = learned.filter_map(|server| host_and_port(server)).take(MOST_LEARNED);
        let mut all: Vec<String> = self.configured.iter().cloned().chain(learned).collect();
        all.sort_unstable();
        all.dedup();
        fastrand::shuffle(&mut all);
        all
    }

    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// If none does, or the user is refused.
    pub(super) async fn open_any(&self) -> Result<Opened, Error> {
        let mut failed = Error::permanent("there is no server to connect to");
        for server in self.to_try(&[]) {
            match self.open(&server).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failed = self.error(&server, failure),
            }
            if !failed.kind().is_temporary() {
                break;
            }
        }
        Err(failed)
    }

    /// Returns why no connection can be used.
    fn error(&self, server: &str, failure: Failure) -> Error {
        let shown = &self.shown;
        match failure {
            Failure::Refused(reason) => {
                Error::permanent(format!("the servers `{shown}` refuse the user: see `auth`"))
                    .caused_by(reason)
            }
            Failure::Malformed(malformed) => {
                Error::temporary(format!("`{server}` does not answer as a server of NATS"))
                    .caused_by(malformed)
            }
            Failure::Later(reason) => {
                Error::temporary(format!("the servers `{shown}` cannot be reached")).caused_by(reason)
            }
            Failure::Never(error) => error,
        }
    }

    /// Connects to a server at `HOST:PORT`: to one of the addresses of the host that answers as a server.
    pub(super) async fn open(&self, server: &str) -> Result<Opened, Failure> {
        let mut failed = Failure::Later(format!("`{server}` has no address"));
        for address in addresses(server).await? {
            let opened = tokio::time::timeout(CONNECT, self.opened(server, address)).await;
            failed = match opened {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(Failure::Later(reason))) => Failure::Later(reason),
                Ok(Err(failure)) => return Err(failure),
                Err(_) => {
                    let seconds = CONNECT.as_secs();
                    Failure::Later(format!("`{server}` did not accept a connection within {seconds} s"))
                }
            };
        }
        Err(failed)
    }

    async fn opened(&self, server: &str, address: SocketAddr) -> Result<Opened, Failure> {
        let address = Address::Tcp(address.to_string());
        let dial = Dial { address, timeout: CONNECT, send_buffer: None, tls: None };
        let mut stream = dial.connect().await.map_err(|error| Failure::Later(error.full()))?;
        let mut decoder = Decoder::new(self.limit);
        let info = match arriving(&mut stream, &mut decoder).await? {
            Operation::Info(info) => *info,
            Operation::Error(reason) => return Err(Failure::Later(reason)),
            _ => return Err(Malformed("something else than `INFO` at first".to_owned()).into()),
        };
        if self.requires_tls || info.tls_required {
            // It would be taken as sent within TLS.
            if !decoder.is_empty() {
                return Err(Malformed("more than `INFO` before TLS".to_owned()).into());
            }
            stream = self.encrypted(server, stream).await?;
        }
        stream.write_all(&self.introduction(&info)?).await?;
        stream.flush().await?;
        self.welcomed(stream, decoder, info).await
    }

    async fn encrypted(&self, server: &str, stream: Stream) -> Result<Stream, Failure> {
        // Only a plain stream was opened.
        let Stream::Tcp(plain) = stream else { return Ok(stream) };
        let encrypted = self.connector.connect(server, plain).await;
        let failed = |error| Failure::Later(format!("TLS with `{server}` failed: {error}"));
        Ok(Stream::Tls(Box::new(encrypted.map_err(failed)?)))
    }

    /// Returns what the client says first.
    fn introduction(&self, info: &Info) -> Result<Vec<u8>, Failure> {
        let mut connect = Connect {
            tls_required: self.requires_tls,
            name: &self.client_id,
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            protocol: 1,
            echo: true,
            headers: true,
            no_responders: true,
            ..Connect::default()
        };
        self.user.introduce(&mut connect, &info.nonce).map_err(Failure::Never)?;
        let mut out = Vec::new();
        wire::connect(&mut out, &connect).map_err(Failure::Never)?;
        out.extend_from_slice(wire::PING);
        Ok(out)
    }

    /// Waits until the server accepts the client.
    async fn welcomed(
        &self,
        mut stream: Stream,
        mut decoder: Decoder,
        mut info: Info,
    ) -> Result<Opened, Failure> {
        loop {
            match arriving(&mut stream, &mut decoder).await? {
                Operation::Pong => return Ok(Opened { stream, decoder, info }),
                Operation::Ok => {}
                Operation::Info(newer) => info = *newer,
                Operation::Ping => stream.write_all(wire::PONG).await?,
                Operation::Error(reason) if reason.eq_ignore_ascii_case("authorization violation") => {
                    return Err(Failure::Refused(reason));
                }
                Operation::Error(reason) => return Err(Failure::Later(reason)),
                Operation::Message(..) => {
                    return Err(Malformed("a message to no subscription".to_owned()).into());
                }
            }
        }
    }
}

/// Returns addresses of a server at `HOST:PORT`, in any order: behind one name, there may be several servers,
/// of which the first may be the one that does not answer.
async fn addresses(server: &str) -> Result<Vec<SocketAddr>, Failure> {
    let found = match tokio::time::timeout(CONNECT, tokio::net::lookup_host(server)).await {
        Ok(found) => found.map(Iterator::collect::<Vec<SocketAddr>>),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    let mut found = found
        .map_err(|error| Failure::Later(format!("`{server}` cannot be resolved to an address: {error}")))?;
    fastrand::shuffle(&mut found);
    found.truncate(MOST_ADDRESSES);
    Ok(found)
}

/// Waits for the next operation.
async fn arriving(stream: &mut Stream, decoder: &mut Decoder) -> Result<Operation, Failure> {
    loop {
        if let Some(operation) = decoder.decode()? {
            return Ok(operation);
        }
        let buffer = decoder.buffer();
        buffer.reserve(READ);
        if stream.read_buf(buffer).await? == 0 {
            return Err(Failure::Later("the server closed the connection".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::options;

    async fn servers(yaml: &str) -> Servers {
        Servers::new(&options::<ServerOptions>(yaml), 10).await.unwrap()
    }

    #[tokio::test]
    async fn a_server_may_name_others_and_not_too_many_and_none_that_is_no_address() {
        let servers = servers("{ servers: ['a', 'nats://b:1', 'tls://[::1]'] }").await;
        let tried = |learned: &[String]| {
            let mut tried = servers.to_try(learned);
            tried.sort_unstable();
            tried
        };
        assert_eq!(tried(&[]), ["[::1]:4222", "a:4222", "b:1"]);
        let learned = ["a:4222", "c:2", "", "x/y:1", "user@d:1"].map(str::to_owned);
        assert_eq!(tried(&learned), ["[::1]:4222", "a:4222", "b:1", "c:2"]);
        let many: Vec<String> = (0..1000).map(|number| format!("h{number}:1")).collect();
        assert_eq!(tried(&many).len(), 103);
        assert_eq!(tried(&["h".repeat(1000)]).len(), 3);
        // One server that wants TLS is enough, so that none leads to a connection without it.
        assert!(servers.requires_tls);
    }
}
