//! Helpers for tests of sinks that send requests: a server that plays the answers of a system.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, StringViewArray};
use arrow_schema::{DataType, Field};
use parking_lot::Mutex;
use thalweg_engine::testing::{context, options};
use thalweg_engine::{Component, ErrorKind, Rejects, Sink, SinkConfig};
use thalweg_record::Batch;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::net::testing::within;

/// A request as the server received it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    /// The method and the target.
    pub(crate) line: String,
    /// By their names in small letters.
    pub(crate) headers: HashMap<String, String>,
    /// The body, decompressed, as text.
    pub(crate) body: String,
    /// The same, if it may be no text.
    pub(crate) bytes: Vec<u8>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the lines of the body.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.body.lines().collect()
    }
}

/// The answer of the server to a request.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    pause: Duration,
    is_cut: bool,
}

impl Play {
    pub(crate) fn answer(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), pause: Duration::ZERO, is_cut: false }
    }

    /// Closes the connection without an answer.
    pub(crate) fn cut() -> Self {
        Self { is_cut: true, ..Self::answer(0, "") }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Answers after a pause.
    pub(crate) fn after(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }
}

/// A server that answers requests with a body as a function says, and all others with 200, or with 401 if
/// their credentials are `WRONG`.
pub(crate) struct Fake {
    pub(crate) address: String,
    got: Arc<Mutex<Vec<Got>>>,
}

/// How a server treats requests without a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gets {
    /// They ask whether it can be used.
    Checks,
    /// They are played as all others.
    Played,
}

impl Fake {
    /// Starts the server. The function receives the number of each request with a body, from 0.
    pub(crate) async fn start(play: impl FnMut(usize, &Got) -> Play + Send + 'static) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.unwrap(), play)
    }

    /// Starts a server that answers all requests as the function says.
    pub(crate) async fn pages(play: impl FnMut(usize, &Got) -> Play + Send + 'static) -> Self {
        Self::serving(TcpListener::bind("127.0.0.1:0").await.unwrap(), Gets::Played, play)
    }

    pub(crate) fn at(listener: TcpListener, play: impl FnMut(usize, &Got) -> Play + Send + 'static) -> Self {
        Self::serving(listener, Gets::Checks, play)
    }

    fn serving(
        listener: TcpListener,
        gets: Gets,
        play: impl FnMut(usize, &Got) -> Play + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (seen, play) = (got.clone(), Arc::new(Mutex::new(play)));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, play) = (seen.clone(), play.clone());
                let decide = move |got: Got| {
                    if gets == Gets::Checks && got.line.starts_with("GET") {
                        let is_wrong = got.header("authorization").contains("WRONG");
                        return Play::answer(if is_wrong { 401 } else { 200 }, "");
                    }
                    let mut seen = seen.lock();
                    seen.push(got.clone());
                    let mut play = play.lock();
                    (*play)(seen.len() - 1, &got)
                };
                tokio::spawn(serve(stream, decide));
            }
        });
        Self { address, got }
    }

    /// Returns the requests that were played.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().clone()
    }
}

async fn serve(stream: TcpStream, decide: impl Fn(Got) -> Play) {
    let mut stream = BufReader::new(stream);
    while let Some(got) = request(&mut stream).await {
        let Play { status, headers, body, pause, is_cut } = decide(got);
        tokio::time::sleep(pause).await;
        if is_cut {
            return;
        }
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn request(stream: &mut BufReader<TcpStream>) -> Option<Got> {
    let mut got = Got::default();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            first if got.line.is_empty() => {
                got.line = first.trim_end_matches(" HTTP/1.1").to_owned();
            }
            other => {
                let (name, value) = other.split_once(':')?;
                got.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }
    let length = got.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    got.bytes = match got.header("content-encoding") {
        "gzip" => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
            plain
        }
        "zstd" => zstd::stream::decode_all(&body[..]).unwrap(),
        "snappy" => snap::raw::Decoder::new().decompress_vec(&body).unwrap(),
        _ => body,
    };
    got.body = String::from_utf8_lossy(&got.bytes).into_owned();
    Some(got)
}

/// Builds and opens a sink.
pub(crate) async fn open<C: Component + SinkConfig>(yaml: &str) -> Box<dyn Sink> {
    opened(&options::<C>(yaml)).await
}

/// Builds and opens a writer of a sink.
pub(crate) async fn opened<C: Component + SinkConfig>(config: &C) -> Box<dyn Sink> {
    assert_eq!(config.check(), []);
    let mut sink = config.build(&context()).unwrap();
    within(sink.open(None)).await.unwrap();
    sink
}

/// Writes a batch until the write succeeds, as the engine does. Returns the rejected messages and the kinds
/// of errors that occurred.
pub(crate) async fn write(sink: &mut Box<dyn Sink>, batch: &Batch) -> (Vec<(u32, String)>, Vec<ErrorKind>) {
    let mut errors = Vec::new();
    loop {
        let mut rejects = Rejects::default();
        match within(sink.write(batch, &mut rejects)).await {
            Ok(_) => return (rejects.take(), errors),
            Err(error) if error.kind() == ErrorKind::Permanent => panic!("{}", error.full()),
            Err(error) => errors.push(error.kind()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Numbered documents, as messages.
pub(crate) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{{\"n\":{number}}}")).collect()
}

/// Adds a field with these texts.
pub(crate) fn with_text(batch: Batch, name: &str, texts: &[Option<&str>]) -> Batch {
    let column: ArrayRef = Arc::new(StringViewArray::from(texts.to_vec()));
    batch.set_fields([(Field::new(name, DataType::Utf8View, true), column)]).unwrap()
}
