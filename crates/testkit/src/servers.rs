//! The program's peers: servers that sinks send to. They record what they accepted, and can fail on purpose.
//!
//! Blocking sockets and a thread for each connection: a test has a few connections, and a server that cuts a
//! connection at a certain byte is simpler without a library that buffers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use thalweg_testbed::S3;
use tokio_tungstenite::tungstenite;

use crate::brokers::Topic;
pub use crate::systems::System;

/// How often a server looks whether it was dropped.
const LOOK: Duration = Duration::from_millis(5);
/// How long a connection waits for bytes between two such looks.
const WAIT: Duration = Duration::from_millis(100);

/// How long it hangs: longer than the timeouts of the sinks that are tested with it.
const HANG: Duration = Duration::from_secs(1);

/// How a server treats what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// It accepts everything.
    Well,
    /// It fails in turn, about every fifth time: an error before or after it accepted, a cut connection
    /// before or after it accepted. After [`OFTEN`] items it fails rarely, so that many come through.
    Failing,
    /// As failing, and it also hangs: it accepts nothing for a second, and then cuts the connection.
    Hanging,
}

/// The fate of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Accepted,
    Refused,
    CutBefore,
    CutAfter,
    Hangs,
}

/// The number of items after which a failing server fails rarely: a pause after each fault of a soak's
/// hundred thousand items would take minutes.
const OFTEN: u64 = 2000;

/// Of this number of lines, one may have another fate than to be accepted. A fault for about every twentieth
/// line would leave hardly anything in flight.
const LINES: u64 = 16;

impl Mood {
    /// Returns the fate of an item. Faults are rare from number `often` on.
    fn fate(self, number: u64, often: u64) -> Fate {
        let period = if number < often { 20 } else { OFTEN };
        match (self, number % period) {
            (Mood::Failing | Mood::Hanging, 3) => Fate::Refused,
            (Mood::Failing | Mood::Hanging, 8) => Fate::CutBefore,
            (Mood::Failing | Mood::Hanging, 13) => Fate::CutAfter,
            (Mood::Hanging, 16) => Fate::Hangs,
            _ => Fate::Accepted,
        }
    }
}

/// The answer of a server to a line that it accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// `OK` and a line feed.
    Ok,
    /// The line.
    Echo,
}

/// A server in this process, or an object store in one of its own. Dropping it ends it.
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    store: Option<S3>,
    topic: Option<Topic>,
}

/// The bucket of a server of objects.
pub const BUCKET: &str = "bucket";

#[derive(Default)]
pub(crate) struct State {
    received: Mutex<Vec<u8>>,
    /// How many items it decided about.
    items: AtomicU64,
    is_dropped: AtomicBool,
}

impl State {
    pub(crate) fn accept(&self, bytes: &[u8]) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }

    pub(crate) fn accepted(&self) -> Vec<u8> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fate(&self, mood: Mood) -> Fate {
        mood.fate(self.items.fetch_add(1, Ordering::Relaxed), OFTEN)
    }

    fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }
}

impl Server {
    /// Starts an HTTP server that accepts the bodies of requests.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn http(mood: Mood) -> io::Result<Self> {
        Self::tcp(move |stream, state| serve_http(stream, state, mood))
    }

    /// Starts a server that plays a system: it accepts the records in the bodies of requests, and answers as
    /// the system does.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn system(system: System, mood: Mood) -> io::Result<Self> {
        Self::tcp(move |stream, state| serve_system(stream, state, system, mood))
    }

    /// Starts a server that accepts lines and answers each.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn lines(reply: Reply, mood: Mood) -> io::Result<Self> {
        Self::tcp(move |stream, state| serve_lines(stream, state, reply, mood))
    }

    /// Starts a WebSocket server that accepts messages, each followed by a line feed.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn websocket() -> io::Result<Self> {
        Self::tcp(serve_websocket)
    }

    /// Starts a server that records datagrams, each followed by a line feed.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn datagrams() -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(WAIT))?;
        let address = socket.local_addr()?;
        Ok(Self::start(address, move |state| {
            let mut buffer = vec![0; 1 << 16];
            while !state.is_dropped() {
                if let Ok(length) = socket.recv(&mut buffer) {
                    state.accept(&buffer[..length]);
                    state.accept(b"\n");
                }
            }
        }))
    }

    /// Starts an S3 server with the bucket [`BUCKET`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn s3() -> io::Result<Self> {
        let store = S3::start()?;
        store.create_bucket(BUCKET)?;
        Ok(Self {
            address: store.address(),
            state: Arc::default(),
            thread: None,
            store: Some(store),
            topic: None,
        })
    }

    /// Returns a topic of Kafka.
    ///
    /// # Errors
    /// If the broker cannot be started.
    pub fn topic() -> io::Result<Self> {
        Self::of_topic(Topic::new()?)
    }

    /// Returns a stream of NATS.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn stream() -> io::Result<Self> {
        Self::of_topic(Topic::of_nats()?)
    }

    /// Returns a topic of MQTT.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn session() -> io::Result<Self> {
        Self::of_topic(Topic::of_mqtt()?)
    }

    /// Returns a queue of AMQP.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn queue() -> io::Result<Self> {
        Self::of_topic(Topic::of_amqp()?)
    }

    /// Returns a stream of Redis.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn redis_stream() -> io::Result<Self> {
        Self::of_topic(Topic::of_redis()?)
    }

    /// Returns a list of Redis.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn redis_list() -> io::Result<Self> {
        Self::of_topic(Topic::of_redis_list()?)
    }

    /// Returns a table of PostgreSQL.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn table() -> io::Result<Self> {
        Self::of_topic(Topic::of_postgres()?)
    }

    /// Returns a queue of SQS.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn sqs_queue() -> io::Result<Self> {
        Self::of_topic(Topic::of_sqs()?)
    }

    /// Returns a topic of SNS.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn sns_topic() -> io::Result<Self> {
        Self::of_topic(Topic::of_sns()?)
    }

    /// Returns a stream of Kinesis.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn kinesis_stream() -> io::Result<Self> {
        Self::of_topic(Topic::of_kinesis()?)
    }

    /// Returns a delivery stream of Firehose.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn delivery_stream() -> io::Result<Self> {
        Self::of_topic(Topic::of_firehose()?)
    }

    /// Returns a log group and a log stream of CloudWatch Logs.
    ///
    /// # Errors
    /// If the server cannot be started.
    pub fn log_stream() -> io::Result<Self> {
        Self::of_topic(Topic::of_logs()?)
    }

    fn of_topic(topic: Topic) -> io::Result<Self> {
        let address = topic.address().parse().map_err(io::Error::other)?;
        Ok(Self { address, state: Arc::default(), thread: None, store: None, topic: Some(topic) })
    }

    /// Returns the name of the topic, if it is one.
    pub fn topic_name(&self) -> &str {
        self.topic.as_ref().map_or("", |topic| &topic.name)
    }

    fn tcp(serve: impl Fn(TcpStream, &State) -> io::Result<()> + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let serve = Arc::new(serve);
        Ok(Self::start(address, move |state| {
            while !state.is_dropped() {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(LOOK);
                    continue;
                };
                let (serve, state) = (serve.clone(), state.clone());
                // A connection that breaks is the program's to notice.
                std::thread::spawn(move || prepared(&stream).and_then(|()| serve(stream, &state)));
            }
        }))
    }

    fn start(address: SocketAddr, run: impl FnOnce(Arc<State>) + Send + 'static) -> Self {
        let state: Arc<State> = Arc::default();
        let shared = state.clone();
        let thread = Some(std::thread::spawn(move || run(shared)));
        Self { address, state, thread, store: None, topic: None }
    }

    /// Returns `HOST:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns the environment variables that clients need.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        self.store.as_ref().map(S3::env).unwrap_or_default()
    }

    /// Returns the folder of the objects of a server of objects, each a file.
    pub fn objects(&self) -> Option<PathBuf> {
        Some(self.store.as_ref()?.folder().join(BUCKET))
    }

    /// Returns what it accepted so far.
    ///
    /// # Errors
    /// If a broker does not answer.
    pub fn received(&self) -> io::Result<Vec<u8>> {
        match &self.topic {
            Some(topic) => topic.lines(),
            None => Ok(self.state.accepted()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_dropped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn prepared(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT))
}

/// Reads a line, waiting for as long as the server lives. Returns None at the end of the connection, also
/// within a line: that is not whole.
fn line(reader: &mut BufReader<TcpStream>, state: &State) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => return Ok(Some(line)),
            Ok(_) => return Ok(None),
            Err(error) if is_wait(&error) && !state.is_dropped() => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn serve_lines(stream: TcpStream, state: &State, reply: Reply, mood: Mood) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(line) = line(&mut reader, state)? {
        let fate = match state.items.fetch_add(1, Ordering::Relaxed) {
            number if number % LINES == 7 => mood.fate(number / LINES, OFTEN / LINES),
            _ => Fate::Accepted,
        };
        match fate {
            Fate::Accepted => state.accept(&line),
            Fate::Refused | Fate::CutBefore => return Ok(()),
            Fate::Hangs => return hang(),
            Fate::CutAfter => {
                state.accept(&line);
                return Ok(());
            }
        }
        match reply {
            Reply::Ok => writer.write_all(b"OK\n")?,
            Reply::Echo => writer.write_all(&line)?,
        }
    }
    Ok(())
}

fn serve_websocket(stream: TcpStream, state: &State) -> io::Result<()> {
    // The connection ends with the program.
    stream.set_read_timeout(None)?;
    let accepted = tungstenite::accept(stream);
    let mut socket = accepted.map_err(|error| io::Error::other(error.to_string()))?;
    while let Ok(message) = socket.read() {
        if message.is_text() || message.is_binary() {
            state.accept(&message.into_data());
            state.accept(b"\n");
        }
    }
    Ok(())
}

fn hang() -> io::Result<()> {
    std::thread::sleep(HANG);
    Ok(())
}

fn serve_http(stream: TcpStream, state: &State, mood: Mood) -> io::Result<()> {
    serve_system(stream, state, System::Lines, mood)
}

fn serve_system(stream: TcpStream, state: &State, system: System, mood: Mood) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(body) = request(&mut reader, state)? {
        // Without a body, a client asks whether there is a server.
        let fate = if body.is_empty() { Fate::Accepted } else { state.fate(mood) };
        let (status, answer) = match fate {
            Fate::Accepted => ("200 OK", system.take(&body, mood, state)),
            Fate::Refused => ("500 Internal Server Error", String::new()),
            Fate::CutBefore => return Ok(()),
            Fate::Hangs => return hang(),
            Fate::CutAfter => {
                system.take(&body, mood, state);
                return Ok(());
            }
        };
        write!(writer, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())?;
    }
    Ok(())
}

/// Reads a request and returns its body. None at the end of the connection.
fn request(reader: &mut BufReader<TcpStream>, state: &State) -> io::Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut is_first = true;
    loop {
        let Some(line) = line(reader, state)? else { return Ok(None) };
        let line = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
        if line.is_empty() && !is_first {
            break;
        }
        is_first = false;
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = Vec::with_capacity(length);
    while body.len() < length {
        match reader.take((length - body.len()) as u64).read_to_end(&mut body) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if is_wait(&error) && !state.is_dropped() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_server_answers_what_it_recorded_and_records_some_that_it_does_not_answer() {
        let server = Server::lines(Reply::Ok, Mood::Failing).unwrap();
        let mut answered = Vec::new();
        for number in 0..2000 {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            writeln!(stream, "{number}").unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            if answer == "OK\n" {
                answered.push(number.to_string());
            }
        }
        let received = String::from_utf8(server.received().unwrap()).unwrap();
        let received: Vec<&str> = received.lines().collect();
        assert!(answered.iter().all(|number| received.contains(&number.as_str())));
        assert!(answered.len() < received.len() && received.len() < 2000, "{}", answered.len());
    }
}
