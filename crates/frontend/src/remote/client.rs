//! A client of the API of a run, for the commands of a terminal.
//!
//! A request of HTTP/1.0 gets an answer that ends with its connection, so no library is needed to read one.
//! All that comes is bounded: another program may have the port.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_redact::foreign;

use crate::api::{Token, socket};
use crate::exit::CommandError;

/// How long a run may take to answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Why a service may have no run.
pub(super) const BETWEEN_RUNS: &str =
    "A configuration with a `schedule` answers only while one of its runs is active.";
/// A stream has a line at least every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest head of an answer, in bytes.
const LONGEST_HEAD: u64 = 64 << 10;
/// At most this much of an answer is read, in bytes.
const LONGEST_ANSWER: u64 = 16 << 20;

/// Where a run answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its address (`--listen`): as it was given, and what it is.
    Address(String, Vec<SocketAddr>),
    /// Its state directory.
    Folder(PathBuf),
}

impl Place {
    /// Reads an address or a path.
    pub(crate) fn parse(text: &str) -> Result<Self, CommandError> {
        let folder = Path::new(text);
        if folder.is_dir() || !text.contains(':') {
            return Ok(Self::Folder(folder.to_owned()));
        }
        let name = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let found = name.to_socket_addrs().map_err(|error| {
            CommandError::Usage(format!(
                "`{text}` is neither a state directory nor an address with a port, such as `127.0.0.1:9598`: {error}"
            ))
        })?;
        Ok(Self::Address(name.to_owned(), found.collect()))
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Address(name, _) => name.clone(),
            Self::Folder(folder) => folder.display().to_string(),
        }
    }
}

/// A client of one run.
pub(crate) struct Client {
    pub(crate) place: Place,
    pub(crate) token: Option<Token>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    /// Sends a request. The whole answer may take `timeout`: another program may have the port, and send a
    /// byte now and then.
    pub(crate) fn ask(&self, method: &str, path: &str, timeout: Duration) -> io::Result<Answer> {
        let end = Instant::now() + timeout;
        let (status, reader) = self.begin(method, path, Patience::Until(end))?;
        let mut body = Vec::new();
        reader.take(LONGEST_ANSWER).read_to_end(&mut body)?;
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Sends a request, and returns the value that is its answer.
    pub(crate) fn value(&self, method: &str, path: &str) -> Result<Value, CommandError> {
        let answer = self.ask(method, path, TIMEOUT).map_err(|error| self.silent(&error))?;
        accepted(answer.status, &answer.body)?;
        serde_json::from_str(&answer.body).map_err(|error| self.foreign(&error))
    }

    /// Begins a stream of lines.
    pub(crate) fn lines(&self, path: &str) -> Result<impl BufRead + use<>, CommandError> {
        let (status, reader) =
            self.begin("GET", path, Patience::Each(SILENCE)).map_err(|error| self.silent(&error))?;
        if status != 200 {
            let mut body = String::new();
            // Without the reason, the status is known.
            let _ = reader.take(LONGEST_HEAD).read_to_string(&mut body);
            return Err(refused(status, &body));
        }
        Ok(reader)
    }

    /// Sends a request, and reads the head of its answer.
    fn begin(&self, method: &str, path: &str, patience: Patience) -> io::Result<(u16, BufReader<Patient>)> {
        let mut patient = Patient { connection: self.connect()?, patience };
        let host = match &self.place {
            Place::Address(name, _) => name,
            Place::Folder(_) => "localhost",
        };
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n");
        // A socket needs none, and may be that of a stranger who made a folder here.
        if let (Place::Address(..), Some(token)) = (&self.place, &self.token) {
            head += &format!("Authorization: Bearer {}\r\n", token.as_str());
        }
        if method == "POST" {
            head += "Content-Type: application/json\r\nContent-Length: 0\r\n";
        }
        head += "\r\n";
        patient.send(head.as_bytes())?;
        let mut reader = BufReader::new(patient);
        let status = read_head(&mut reader)?;
        Ok((status, reader))
    }

    fn connect(&self) -> io::Result<Connection> {
        match &self.place {
            Place::Folder(folder) => socket::connect(folder).map(Connection::Local),
            Place::Address(_, addresses) => {
                let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
                for address in addresses {
                    match TcpStream::connect_timeout(address, TIMEOUT) {
                        Ok(stream) => return Ok(Connection::Network(stream)),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn silent(&self, error: &io::Error) -> CommandError {
        let name = self.place.name();
        let is_folder = matches!(self.place, Place::Folder(_));
        CommandError::Failed(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused if is_folder => format!(
                "the run at `{name}` does not answer: none is active there. {BETWEEN_RUNS} `thalweg runs list` \
                 shows the runs that have ended"
            ),
            _ => format!("the run at `{name}` does not answer: {error}"),
        })
    }

    fn foreign(&self, error: &serde_json::Error) -> CommandError {
        let name = self.place.name();
        CommandError::Failed(format!("`{name}` does not answer as a run of thalweg does: {error}"))
    }
}

/// Returns an error unless a request was carried out.
fn accepted(status: u16, body: &str) -> Result<(), CommandError> {
    if status == 200 { Ok(()) } else { Err(refused(status, body)) }
}

fn refused(status: u16, body: &str) -> CommandError {
    let answer: Option<Value> = serde_json::from_str(body).ok();
    let reason = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
    CommandError::Failed(match (status, reason) {
        (401, _) => "the run needs a token: `--token-file FILE`".to_owned(),
        // Another program may have the port.
        (_, Some(reason)) => foreign(reason).into_owned(),
        (_, None) => format!("the answer is {status}, and not that of a run of thalweg"),
    })
}

/// Reads the head of an answer, and returns its status.
fn read_head(reader: &mut impl BufRead) -> io::Result<u16> {
    let mut head = reader.by_ref().take(LONGEST_HEAD);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let status =
        line.split(' ').nth(1).filter(|_| line.starts_with("HTTP/")).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the answer is not HTTP"))?;
    while !line.trim().is_empty() {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(status)
}

#[derive(Debug)]
enum Connection {
    Network(TcpStream),
    Local(UnixStream),
}

/// How long reads may take.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// All together.
    Until(Instant),
    /// Each.
    Each(Duration),
}

/// A connection whose reads and writes take a limited time.
#[derive(Debug)]
struct Patient {
    connection: Connection,
    patience: Patience,
}

impl Patient {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = match self.patience {
            Patience::Until(end) => end.saturating_duration_since(Instant::now()),
            Patience::Each(time) => time,
        };
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left()?;
        match &mut self.connection {
            Connection::Network(stream) => {
                stream.set_write_timeout(left)?;
                stream.write_all(bytes)
            }
            Connection::Local(stream) => {
                stream.set_write_timeout(left)?;
                stream.write_all(bytes)
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        match &mut self.connection {
            Connection::Network(stream) => {
                stream.set_read_timeout(left)?;
                stream.read(bytes)
            }
            Connection::Local(stream) => {
                stream.set_read_timeout(left)?;
                stream.read(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_folder_without_an_active_run_is_told_as_one() {
        let client = Client { place: Place::Folder("state".into()), token: None };
        let CommandError::Failed(said) = client.silent(&ErrorKind::NotFound.into()) else {
            panic!("another kind of error")
        };
        assert!(said.contains("none is active there. A configuration with a `schedule`"), "{said}");
    }

    fn client(listener: &TcpListener) -> Client {
        let address = listener.local_addr().unwrap();
        Client { place: Place::Address(address.to_string(), vec![address]), token: None }
    }

    #[test]
    fn an_answer_without_an_end_is_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = client(&listener);
        let drips = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = client.ask("GET", "/metrics", Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        drips.join().unwrap();
    }

    #[test]
    fn the_answer_of_another_program_is_an_error() {
        for answer in ["", "SSH-2.0-x\r\n", "HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\nA: b\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = client(&listener);
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).unwrap() > 0);
                stream.write_all(answer.as_bytes()).unwrap();
            });
            assert!(client.ask("GET", "/", Duration::from_secs(60)).is_err(), "{answer:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_refusal_of_another_program_is_one_line() {
        let shown = refused(500, r#"{"error":"no\n\u001b[2J"}"#);
        assert!(matches!(shown, CommandError::Failed(reason) if reason == r"no\n\u{1b}[2J"));
    }

    #[test]
    fn a_place_is_an_address_or_a_folder() {
        let address = |text: &str| match Place::parse(text).unwrap() {
            Place::Address(name, found) => (name, found.first().unwrap().port()),
            Place::Folder(folder) => panic!("{folder:?}"),
        };
        assert_eq!(address("127.0.0.1:80"), ("127.0.0.1:80".to_owned(), 80));
        assert_eq!(address("http://[::1]:81/"), ("[::1]:81".to_owned(), 81));
        assert_eq!(Place::parse("state").unwrap(), Place::Folder("state".into()));
        assert!(matches!(Place::parse("127.0.0.1:x"), Err(CommandError::Usage(_))));
    }
}
