//! A connection to the server.
//!
//! TLS is negotiated here and not by the client's library, so that [`guard`](crate::guard) reads the messages
//! of encrypted connections too. The price is SCRAM's channel binding, which the library knows only of its
//! own TLS streams: the certificate of the server protects the password, as for all our other clients.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use thalweg_engine::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, CopyInSink, CopyOutStream, NoTls, SimpleQueryMessage, Statement};

use crate::failure::{Failure, Moment};
use crate::guard::{Allowance, Guarded, Watch};
use crate::options::ServerOptions;
use crate::sql::literal;

/// The message that asks for TLS: its length, and a number that stands for the request (section "Message
/// Formats" of PostgreSQL's documentation).
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// The settings of a session: texts of points in time, and of floats, that are read back as they were.
const SESSION: &str = "SET client_min_messages = warning; SET DateStyle = ISO; SET IntervalStyle = postgres; \
                       SET TimeZone = UTC; SET extra_float_digits = 3; SET bytea_output = hex";

/// The most rows of a query of the catalogue: a table has at most 1600 columns.
const ROWS: usize = 4096;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A connection. Dropping it closes it.
pub(crate) struct Connection {
    client: Client,
    allowance: Allowance,
    timeout: Duration,
    /// Why the connection ended.
    ended: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Connects to the server. A row has at most `row` bytes, and a statement takes at most `statement`: the
    /// server ends it then.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses the user.
    pub(crate) async fn open(
        options: &ServerOptions,
        row: u64,
        statement: Option<Duration>,
        moment: Moment,
    ) -> Result<Self, Error> {
        let server = &options.server;
        let timeout = options.timeout.duration();
        let connecting = tokio::time::timeout(timeout, Self::connect(options, row, moment));
        let connection = connecting.await.map_err(|_| {
            let seconds = timeout.as_secs_f64();
            Error::overloaded(format!("the server `{server}` did not accept a connection within {seconds} s"))
        })??;
        let limit = statement.map_or(0, |limit| limit.as_millis().min(i32::MAX as u128));
        // The transaction of a client that vanished holds its locks no longer than a statement.
        let session = format!(
            "{SESSION}; SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit}"
        );
        let set = connection.run(&session).await;
        set.map_err(|failure| failure.error(format!("cannot set up a session of `{server}`"), moment))?;
        Ok(connection)
    }

    async fn connect(options: &ServerOptions, row: u64, moment: Moment) -> Result<Self, Error> {
        let server = &options.server;
        let stream = dial(options).await?;
        let allowance = Allowance::default();
        allowance.renew();
        let guarded = Guarded::new(stream, Watch::new(allowance.clone(), row));
        let opened = config(options).connect_raw(guarded, NoTls).await;
        let (client, connection) = opened.map_err(|error| {
            let failure = allowance.excess().map_or_else(|| error.into(), Failure::Excess);
            failure.error(format!("cannot open a session of `{server}`"), moment)
        })?;
        let ended = Arc::<Mutex<Option<String>>>::default();
        let noted = ended.clone();
        let task = tokio::spawn(async move {
            let mut connection = pin!(connection);
            let result = connection.as_mut().await;
            // Noted before the connection is dropped, which fails what waits for it.
            *noted.lock() = Some(match result {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => Failure::from(error).reason(),
            });
        });
        Ok(Self { client, allowance, timeout: options.timeout.duration(), ended, task })
    }

    /// Waits for an answer.
    async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        self.answer_within(self.timeout, answer).await
    }

    async fn answer_within<T>(
        &self,
        time: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(time, answer).await {
            Ok(answer) => answer.map_err(|error| self.failure(error)),
            Err(_) => Err(Failure::Silent(time)),
        }
    }

    /// Returns the failure, and why the connection ended if it has.
    pub(crate) fn failure(&self, error: tokio_postgres::Error) -> Failure {
        match (self.allowance.excess(), self.ended.lock().clone().filter(|_| error.is_closed())) {
            (Some(reason), _) => Failure::Excess(reason),
            (None, Some(reason)) => Failure::Broken(reason),
            (None, None) => error.into(),
        }
    }

    /// Executes statements without results.
    ///
    /// # Errors
    /// If the server refuses one. Those before it were executed, unless a transaction was begun.
    pub(crate) async fn run(&self, statements: &str) -> Result<(), Failure> {
        self.allowance.renew();
        self.answer(self.client.batch_execute(statements)).await
    }

    /// Executes a query with a small result. Returns the values of its rows as text.
    ///
    /// # Errors
    /// If the server refuses it, or the result is large.
    pub(crate) async fn rows(&self, query: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        self.allowance.renew();
        let mut answers = pin!(self.answer(self.client.simple_query_raw(query)).await?);
        let mut rows = Vec::new();
        loop {
            // None is the end of the result.
            let next = self.answer(async { answers.as_mut().next().await.transpose() }).await?;
            match next {
                Some(SimpleQueryMessage::Row(row)) if rows.len() < ROWS => {
                    let value = |at: usize| row.try_get(at).ok().flatten().map(str::to_owned);
                    rows.push((0..row.len()).map(value).collect());
                }
                Some(SimpleQueryMessage::Row(_)) => {
                    return Err(Failure::Excess(format!("the server sent more than {ROWS} rows")));
                }
                Some(_) => {}
                None => return Ok(rows),
            }
        }
    }

    /// Returns the columns of the primary key of a table, whose name is as SQL has it. A table without one
    /// has none.
    ///
    /// # Errors
    /// If there is no such table.
    pub(crate) async fn primary_key(&self, table: &str) -> Result<Vec<String>, Failure> {
        // The index has the columns of `INCLUDE` too, which are not of the key.
        let query = format!(
            "SELECT a.attname FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_attribute a \
             ON a.attrelid = c.conrelid AND a.attnum = ANY(c.conkey) \
             WHERE c.contype = 'p' AND c.conrelid = {}::regclass",
            literal(table)
        );
        let rows = self.rows(&query).await?;
        Ok(rows.into_iter().filter_map(|mut row| row.pop().flatten()).collect())
    }

    /// Prepares a statement: its columns are then known.
    ///
    /// # Errors
    /// If the server refuses it.
    pub(crate) async fn prepare(&self, statement: &str) -> Result<Statement, Failure> {
        self.allowance.renew();
        self.answer(self.client.prepare(statement)).await
    }

    /// Begins a `COPY … TO STDOUT`. The server sends its answer with the first rows, which may take as long
    /// as `time`.
    ///
    /// # Errors
    /// If the server refuses it.
    pub(crate) async fn copy_out(
        &self,
        statement: &str,
        time: Duration,
    ) -> Result<Pin<Box<CopyOutStream>>, Failure> {
        let prepared = self.prepare(statement).await?;
        self.allowance.renew();
        Ok(Box::pin(self.answer_within(time, self.client.copy_out(&prepared)).await?))
    }

    /// Executes a `COPY … FROM STDIN` with these bytes, and waits until the server has taken them.
    ///
    /// # Errors
    /// If the server refuses the statement or the bytes.
    pub(crate) async fn copy_in(
        &self,
        statement: &Statement,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), Failure> {
        self.allowance.renew();
        let mut sink: Pin<Box<CopyInSink<Bytes>>> =
            Box::pin(self.answer(self.client.copy_in(statement)).await?);
        for piece in pieces {
            self.answer(sink.as_mut().send(piece)).await?;
        }
        self.answer(sink.as_mut().finish()).await.map(drop)
    }
}

fn config(options: &ServerOptions) -> Config {
    let mut config = Config::new();
    let user = &options.auth.user;
    config.user(user.as_str()).dbname(options.database.as_ref().unwrap_or(user).as_str());
    config.application_name(options.client_id.as_str()).ssl_mode(SslMode::Disable);
    if let Some(password) = &options.auth.password {
        config.password(password.as_bytes());
    }
    config
}

/// Opens a stream to the server, with TLS if it is wanted.
async fn dial(options: &ServerOptions) -> Result<Box<dyn Duplex>, Error> {
    let server = &options.server;
    let Some((host, port)) = options.address() else {
        return Err(Error::permanent("the server of `postgres` is no host with a port"));
    };
    let unreachable = |error: io::Error| {
        Error::temporary(format!("the server `{server}` cannot be reached")).caused_by(error)
    };
    let mut stream = TcpStream::connect((host, port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(tls) = &options.tls else { return Ok(Box::new(stream)) };
    let connector = tls.connector()?;
    stream.write_all(&SSL_REQUEST).await.map_err(unreachable)?;
    match stream.read_u8().await.map_err(unreachable)? {
        b'S' => {}
        b'N' => {
            let message =
                format!("the server `{server}` has no TLS: remove `tls`, or set the server up for it");
            return Err(Error::permanent(message));
        }
        // It lacks memory, for example. Its text is not shown: without TLS, it may be that of another.
        _ => {
            let message = format!("the server `{server}` answered the request for TLS with an error");
            return Err(Error::temporary(message));
        }
    }
    let encrypted = connector.connect(&format!("{host}:{port}"), stream).await;
    let encrypted = encrypted.map_err(|error| {
        Error::temporary(format!("TLS with the server `{server}` failed")).caused_by(error)
    })?;
    Ok(Box::new(encrypted))
}
