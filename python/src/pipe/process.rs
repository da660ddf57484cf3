//! The process in which a worker calls Python.
//!
//! Rust starts the process and writes requests to it: batches as Arrow IPC streams, or the bytes of a file.
//! It replies with batches. A process that dies is replaced when the worker makes its next request.
//! `thalweg/_worker.py` is the other side.
//!
//! A process has died when the system says so. The end of its output does not tell: a child that the
//! component forked has inherited it, and may live for long.
//!
//! See docs/decisions/047-worker-processes-are-driven-from-rust.md.

use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use serde_json::Value;
use thalweg_engine::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::starter;

/// How long a process may take to exit.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a process that has exited is read from. Its last bytes are in the pipe already.
const REMAINDER: Duration = Duration::from_secs(1);

/// The kinds of replies: ready, a batch, no more batches with the number of bytes used, failed with a reason,
/// and failed for now with a reason.
const READY: u64 = 0;
const RESULT: u64 = 1;
const DONE: u64 = 2;
const FAILED: u64 = 3;
const AGAIN: u64 = 4;

/// The reply to a request.
pub enum Reply {
    /// The batches, and the number of bytes that a reader used.
    Made(Vec<RecordBatch>, u64),
    /// The text of the exception.
    Failed(String),
    /// The text of a `TemporaryError`.
    Again(String),
    /// The process died, with this exit status, before it replied.
    Died(String),
}

/// A worker that calls Python in a process of its own.
pub struct Worker {
    /// The command line, with the options of the component as its last argument.
    command: Vec<String>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    pipes: Pipes,
    /// True once it has loaded its component.
    is_ready: bool,
}

struct Pipes {
    input: ChildStdin,
    output: ChildStdout,
}

impl Worker {
    /// Returns a worker without a process. `options` are the keyword arguments for the component.
    pub fn new(command: &[String], options: &Value) -> Self {
        let command = command.iter().cloned().chain([options.to_string()]).collect();
        Self { command, process: None }
    }

    /// True if the process was started and has not died.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Starts the process if there is none. It loads its component meanwhile.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(&mut self) -> Result<(), Error> {
        if self.process.is_none() {
            self.process = Some(Process::start(&self.command).await?);
        }
        Ok(())
    }

    /// Makes a request. The meaning of `mark` depends on the component.
    ///
    /// # Errors
    /// If the process cannot be started, or cannot load its component.
    pub async fn ask(&mut self, mark: u64, request: &[u8]) -> Result<Reply, Error> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.command).await?,
        };
        if !process.is_ready {
            process = process.ready().await?;
        }
        match process.ask(mark, request).await {
            Ok(reply) => {
                self.process = Some(process);
                Ok(reply)
            }
            Err(_) => Ok(Reply::Died(process.end().await)),
        }
    }

    /// Makes a request for a batch. If the process dies, a new one gets the same request. If that dies too,
    /// the reply is a sentence about it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub async fn ask_twice(&mut self, mark: u64, request: &[u8]) -> Result<Reply, Error> {
        let mut reply = self.ask(mark, request).await?;
        if let Reply::Died(_) = reply {
            reply = self.ask(mark, request).await?;
        }
        Ok(match reply {
            Reply::Died(how) => Reply::Died(format!("the worker process died 2 times on this batch: {how}")),
            reply => reply,
        })
    }

    /// Waits for the process to exit, or kills it.
    pub async fn end(&mut self) {
        if let Some(process) = self.process.take() {
            process.end().await;
        }
    }
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::permanent(format!("a worker process cannot start: {why}"))
}

impl Process {
    async fn start(command: &[String]) -> Result<Self, Error> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(refused("it has no command line"));
        };
        let mut command = Command::new(program);
        // A signal from the terminal goes to all processes of its group, but is meant for the run. The run
        // ends its workers after draining; hence their own group.
        command.args(arguments).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = starter::start(command).await.map_err(refused)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(refused("it has no pipes"));
        };
        Ok(Self { child, pipes: Pipes { input, output }, is_ready: false })
    }

    /// Waits until the process has loaded its component.
    async fn ready(mut self) -> Result<Self, Error> {
        match until_exit(&mut self.child, self.pipes.frame()).await {
            Ok((READY, _)) => {
                self.is_ready = true;
                Ok(self)
            }
            Ok((_, why)) => Err(refused(String::from_utf8_lossy(&why))),
            Err(_) => Err(refused(format!("it died at once: {}", self.end().await))),
        }
    }

    /// # Errors
    /// If the process died.
    async fn ask(&mut self, mark: u64, request: &[u8]) -> io::Result<Reply> {
        until_exit(&mut self.child, self.pipes.ask(mark, request)).await
    }

    /// Waits for the process to exit, or kills it. Returns the exit status as text.
    async fn end(self) -> String {
        let Self { mut child, pipes, .. } = self;
        drop(pipes);
        let ended = match tokio::time::timeout(FAREWELL, child.wait()).await {
            Ok(ended) => ended,
            Err(_) => {
                // If the process cannot be killed, it has already exited.
                let _ = child.start_kill();
                child.wait().await
            }
        };
        ended.map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

/// Returns what a process replies.
///
/// # Errors
/// If the process has exited without this reply.
async fn until_exit<T>(child: &mut Child, reply: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut reply = pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => return reply,
        _ = child.wait() => {}
    }
    let rest = tokio::time::timeout(REMAINDER, reply).await;
    rest.unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))
}

impl Pipes {
    async fn ask(&mut self, mark: u64, request: &[u8]) -> io::Result<Reply> {
        self.input.write_all(&mark.to_le_bytes()).await?;
        self.input.write_all(&(request.len() as u64).to_le_bytes()).await?;
        self.input.write_all(request).await?;
        let mut made = Vec::new();
        let text = |why: Vec<u8>| String::from_utf8_lossy(&why).into_owned();
        loop {
            match self.frame().await? {
                (RESULT, body) => made.extend(decoded(body).map_err(io::Error::other)?),
                (DONE, used) => {
                    let used = used.try_into().map(u64::from_le_bytes);
                    let used = used.map_err(|_| io::Error::other("the number of used bytes is missing"))?;
                    return Ok(Reply::Made(made, used));
                }
                (FAILED, why) => return Ok(Reply::Failed(text(why))),
                (AGAIN, why) => return Ok(Reply::Again(text(why))),
                _ => return Err(io::Error::other("the worker process sent an unknown kind of reply")),
            }
        }
    }

    async fn frame(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let kind = self.output.read_u64_le().await?;
        let length = self.output.read_u64_le().await?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut body = Vec::new();
        body.try_reserve_exact(length).map_err(io::Error::other)?;
        (&mut self.output).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((kind, body)) }
    }
}

/// Returns rows as a request.
///
/// # Errors
/// If Arrow cannot encode them.
pub fn encoded(rows: &RecordBatch) -> Result<Vec<u8>, Error> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// Decodes the batches of a stream; they share its memory.
fn decoded(body: Vec<u8>) -> Result<Vec<RecordBatch>, arrow_schema::ArrowError> {
    let mut buffer = Buffer::from_vec(body);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !buffer.is_empty() {
        batches.extend(decoder.decode(&mut buffer)?);
    }
    Ok(batches)
}
