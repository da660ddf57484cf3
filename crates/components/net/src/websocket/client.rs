//! The connection of a client to a WebSocket server.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL};
use reqwest::{StatusCode, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{List, TimeSpan};
use thalweg_engine::{Error, Mistake};
use thalweg_redact::{foreign, without_secrets};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebsocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::net::{Address, Dial, Stream, defaults, long_time};
use crate::requests::{Auth, Endpoint, header};
use crate::tls::TlsClient;

/// How many bytes are read at once. Each connection has a buffer of this size.
const AT_ONCE: usize = 32 << 10;

/// How long the server may take to take the last frame.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long the server may take to read the rest of what was sent, and to answer the last frame.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// The most pings of the server during one write. The answers wait in memory while the server reads nothing.
const MOST_PINGS: usize = 10_000;

/// How a client connects to a WebSocket server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct ClientOptions {
    /// The URL of the server: `ws://HOST/PATH`, or `wss://HOST/PATH` with TLS. A URL without a scheme uses
    /// `ws://`.
    #[schemars(example = &"wss://stream.example.com/ticks")]
    url: String,
    /// Additional headers of the handshake, for example `{Origin: "https://example.com"}`.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The credentials of the handshake: `user` and `password`, `bearer`, `api_key` or `token`. By default
    /// those of `url` (`wss://USER:PASSWORD@HOST`) are sent, if it has any.
    #[serde(default)]
    auth: Option<Auth>,
    /// TLS options, for a URL with `wss://`. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// The subprotocols that the client speaks, the preferred one first. The server must choose one of them.
    #[serde(default)]
    protocol: List<String>,
    /// Texts to send after each handshake, for example `{"subscribe": "ticks"}`. Each is a message.
    #[serde(default)]
    send: List<String>,
    /// How long connecting may take, again the handshake, and again the server to take each message that is
    /// sent. The default is 30 s.
    #[serde(default = "defaults::half_a_minute")]
    timeout: TimeSpan,
    /// The time without anything from the server after which a ping is sent. The default is 30 s.
    #[serde(default = "defaults::half_a_minute")]
    ping_interval: TimeSpan,
    /// The time without anything from the server, not even the answer to a ping, after which the client
    /// connects again. A message counts when all of it has come. The default is 90 s.
    #[serde(default = "ninety_seconds")]
    idle_timeout: TimeSpan,
}

fn ninety_seconds() -> TimeSpan {
    TimeSpan::seconds(90)
}

impl ClientOptions {
    /// Returns the mistakes in these options that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let scheme = self.url.split_once("://").map(|(scheme, _)| scheme);
        match scheme.filter(|scheme| !["ws", "wss"].contains(scheme)) {
            Some(scheme) => {
                let mistake = Mistake::new("url", format!("`{scheme}` is not a scheme of WebSocket."));
                mistakes.push(mistake.help("For example `wss://stream.example.com/ticks`."));
            }
            None => mistakes.extend(self.endpoint(&self.http_url()).check()),
        }
        if self.protocol.iter().any(|name| name.is_empty() || header("`protocol`", name).is_err()) {
            let mistake = Mistake::new("protocol", "A subprotocol is a word.");
            mistakes.push(mistake.help("For example `graphql-transport-ws`."));
        }
        if self.ping_interval.is_zero() {
            let mistake = Mistake::new("ping_interval", "`ping_interval` cannot be 0.");
            mistakes.push(mistake.help("Leave it out, or write for example `30s`."));
        }
        if self.idle_timeout <= self.ping_interval {
            let mistake = Mistake::new("idle_timeout", "The answer to a ping must come before it.");
            mistakes.push(mistake.help("Make it at least twice `ping_interval`."));
        }
        mistakes
    }

    /// Returns the remarks on options that are probably not meant so.
    pub(crate) fn remarks(&self) -> Vec<Mistake> {
        let times = [("timeout", self.timeout), ("idle_timeout", self.idle_timeout)];
        times.into_iter().filter_map(|(option, time)| long_time(option, time)).collect()
    }

    /// The URL as one of HTTP, which has the same parts.
    fn http_url(&self) -> String {
        match self.url.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            Some(_) => self.url.clone(),
            None => format!("http://{}", self.url),
        }
    }

    fn endpoint<'a>(&'a self, url: &'a str) -> Endpoint<'a> {
        Endpoint {
            url,
            headers: &self.headers,
            auth: self.auth.as_ref(),
            timeout: self.timeout.duration(),
            tls: &self.tls,
        }
    }

    /// Prepares connections, over which the server may send messages of this size.
    ///
    /// # Errors
    /// As [`Dial::of`].
    pub(crate) fn prepare(&self, most: usize) -> Result<Connect, Error> {
        let http_url = self.http_url();
        let endpoint = self.endpoint(&http_url);
        let mut url = endpoint.url().map_err(Error::permanent)?;
        let mut headers = endpoint.headers(HeaderMap::new()).map_err(Error::permanent)?;
        if let Some(value) = endpoint.authorization().map_err(Error::permanent)? {
            headers.insert(AUTHORIZATION, value);
        }
        if !self.protocol.is_empty() {
            let value = header("`protocol`", &self.protocol.join(", ")).map_err(Error::permanent)?;
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
        }
        // The header has them. A URL with a host can be without them.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
        let is_tls = url.scheme() == "https";
        let dial = Dial {
            address: Address::Tcp(format!("{host}:{port}")),
            timeout: self.timeout.duration(),
            send_buffer: None,
            tls: is_tls.then(|| self.tls.connector()).transpose()?,
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(AT_ONCE)
            .write_buffer_size(AT_ONCE)
            .max_message_size(Some(most))
            .max_frame_size(Some(most));
        let limits = Limits {
            write: self.timeout.duration(),
            ping: self.ping_interval.duration(),
            idle: self.idle_timeout.duration(),
        };
        let texts = self.send.iter().map(|text| Message::text(text.clone())).collect();
        Ok(Connect { dial, url: websocket_url(&url), headers, config, texts, limits })
    }
}

/// Returns a URL of HTTP as one of WebSocket.
fn websocket_url(url: &Url) -> String {
    url.as_str().replacen("http", "ws", 1)
}

/// Connects to a server.
pub(crate) struct Connect {
    dial: Dial,
    url: String,
    headers: HeaderMap,
    config: WebSocketConfig,
    texts: Vec<Message>,
    limits: Limits,
}

/// How long a connection waits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    write: Duration,
    ping: Duration,
    idle: Duration,
}

impl Connect {
    /// Returns the URL without secrets.
    pub(crate) fn path(&self) -> String {
        without_secrets(&self.url)
    }

    /// Connects, performs the handshake, and sends the texts of the options.
    ///
    /// # Errors
    /// A temporary error if the server may accept the next attempt.
    pub(crate) async fn connect(&self) -> Result<Socket, Error> {
        let server = format!("`{}`", self.path());
        let stream = self.dial.connect().await?;
        let handshake = client_async_with_config(self.request()?, stream, Some(self.config));
        let socket = match timeout(self.limits.write, handshake).await {
            Ok(Ok((socket, _))) => socket,
            Ok(Err(error)) => return Err(refused(&server, &error)),
            Err(_) => {
                return Err(Error::overloaded(format!("{server} did not answer the handshake in time")));
            }
        };
        let (sink, stream) = socket.split();
        let now = Instant::now();
        let mut socket = Socket { sink, stream, server, limits: self.limits, heard: now, pinged: now };
        socket.put(self.texts.clone()).await?;
        Ok(socket)
    }

    /// Returns the request of the handshake.
    fn request(&self) -> Result<Request, Error> {
        // The error may have the URL.
        let request = self.url.as_str().into_client_request();
        let mut request = request.map_err(|_| Error::permanent("`url` cannot be the URL of a WebSocket"))?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        Ok(request)
    }
}

/// Returns the error of a handshake.
fn refused(server: &str, error: &WebsocketError) -> Error {
    let WebsocketError::Http(answer) = error else {
        return Error::temporary(format!("{server} cannot be spoken to: {}", foreign(&error.to_string())));
    };
    let status = answer.status();
    let text = format!("{server} answered {status}, not with a WebSocket");
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Error::overloaded(text)
        }
        StatusCode::REQUEST_TIMEOUT => Error::temporary(text),
        status if status.is_server_error() => Error::temporary(text),
        _ => Error::permanent(text),
    }
}

/// A connection. After an error it is of no use.
pub(crate) struct Socket {
    sink: SplitSink<WebSocketStream<Stream>, Message>,
    stream: SplitStream<WebSocketStream<Stream>>,
    /// For messages.
    server: String,
    limits: Limits,
    /// When something came last.
    heard: Instant,
    /// When a ping was sent last.
    pinged: Instant,
}

impl Socket {
    /// Waits for the next message. Answers pings, and sends some. Dropping the future loses nothing.
    ///
    /// # Errors
    /// A temporary error if the connection has ended.
    pub(crate) async fn hear(&mut self) -> Result<Bytes, Error> {
        loop {
            let ping = self.heard.max(self.pinged) + self.limits.ping;
            let idle = self.heard + self.limits.idle;
            tokio::select! {
                biased;
                message = self.stream.next() => {
                    self.heard = Instant::now();
                    let is_ping = matches!(message, Some(Ok(Message::Ping(_))));
                    if let Some(data) = content(&self.server, message)? {
                        return Ok(data);
                    }
                    if is_ping {
                        // The answer leaves before more is read. Otherwise a server that sends pings and
                        // reads nothing would fill the memory with answers.
                        self.put(Vec::new()).await?;
                    }
                }
                () = sleep_until(idle) => {
                    let server = &self.server;
                    let text = format!("{server} sent nothing for `idle_timeout`, not even the answer to a ping");
                    return Err(Error::temporary(text));
                }
                () = sleep_until(ping) => {
                    self.pinged = Instant::now();
                    self.put(vec![Message::Ping(Bytes::new())]).await?;
                }
            }
        }
    }

    /// Moves the time when something came last by a time in which nothing was read.
    pub(crate) fn excuse(&mut self, span: Duration) {
        self.heard = (self.heard + span).min(Instant::now());
    }

    /// Writes messages until the system has all of them. Messages of the server are read and dropped
    /// meanwhile: a server that is not heard may stop listening.
    ///
    /// # Errors
    /// A temporary error if the connection has ended. Some of the messages may have been sent.
    pub(crate) async fn write(&mut self, messages: Vec<Message>) -> Result<(), Error> {
        let begun = Instant::now();
        let (server, limit) = (self.server.as_str(), self.limits.write);
        let (sink, stream, heard) = (&mut self.sink, &mut self.stream, &mut self.heard);
        let hear = async {
            let mut pings = 0_usize;
            while pings < MOST_PINGS {
                let message = stream.next().await;
                pings += usize::from(matches!(message, Some(Ok(Message::Ping(_)))));
                if let Err(error) = content(server, message) {
                    return error;
                }
                *heard = Instant::now();
            }
            Error::temporary(format!("{server} sent {MOST_PINGS} pings while it was sent to"))
        };
        let done = tokio::select! {
            biased;
            done = written(sink, messages, server, limit) => done,
            error = hear => Err(error),
        };
        // No ping was sent meanwhile, so the server had nothing to answer.
        self.excuse(begun.elapsed());
        done
    }

    /// Writes messages without reading.
    async fn put(&mut self, messages: Vec<Message>) -> Result<(), Error> {
        written(&mut self.sink, messages, &self.server, self.limits.write).await
    }

    /// Says that the connection ends.
    pub(crate) async fn close(mut self) {
        // The server may have ended it already.
        let _ = timeout(FAREWELL, self.sink.close()).await;
    }

    /// Says that the connection ends, and reads until the server has answered: it then has read everything.
    /// The system drops what it has not sent yet when a connection is closed that has unread bytes.
    pub(crate) async fn finish(mut self) {
        let (sink, stream) = (&mut self.sink, &mut self.stream);
        let answered = async {
            while let Some(Ok(message)) = stream.next().await {
                if message.is_close() {
                    break;
                }
            }
        };
        // The server may have ended it already.
        let _ = timeout(LAST_ANSWER, async { tokio::join!(sink.close(), answered) }).await;
    }
}

/// Writes messages. The time limit is of each: a large batch may take long on a slow connection, and would be
/// sent again without end.
async fn written(
    sink: &mut SplitSink<WebSocketStream<Stream>, Message>,
    messages: Vec<Message>,
    server: &str,
    limit: Duration,
) -> Result<(), Error> {
    for message in messages {
        taken(sink.feed(message), server, limit).await?;
    }
    taken(sink.flush(), server, limit).await
}

/// Waits until a part of what is sent is taken.
async fn taken(
    part: impl Future<Output = Result<(), WebsocketError>>,
    server: &str,
    limit: Duration,
) -> Result<(), Error> {
    match timeout(limit, part).await {
        Ok(taken) => taken.map_err(|error| broken(server, &error)),
        Err(_) => Err(Error::overloaded(format!("{server} did not take what is sent in time"))),
    }
}

/// Returns the content of a message; None for pings and their answers.
///
/// # Errors
/// If the connection has ended.
fn content(server: &str, message: Option<Result<Message, WebsocketError>>) -> Result<Option<Bytes>, Error> {
    match message {
        Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => Ok(Some(message.into_data())),
        Some(Ok(Message::Close(frame))) => Err(closed(server, frame.as_ref())),
        Some(Ok(_)) => Ok(None),
        Some(Err(error)) => Err(broken(server, &error)),
        None => Err(closed(server, None)),
    }
}

fn closed(server: &str, frame: Option<&CloseFrame>) -> Error {
    let reason = frame.map(|frame| format!(": {} {}", u16::from(frame.code), foreign(&frame.reason)));
    let reason = reason.unwrap_or_default();
    Error::temporary(format!("{server} closed the connection{}", reason.trim_end()))
}

fn broken(server: &str, error: &WebsocketError) -> Error {
    match error {
        WebsocketError::Capacity(_) => {
            Error::temporary(format!("{server} sent a message that is too large: {error}"))
        }
        _ => Error::temporary(format!("the connection to {server} broke: {}", foreign(&error.to_string()))),
    }
}
