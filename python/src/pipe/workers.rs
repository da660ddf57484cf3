//! A Python function over batches, called in worker processes.
//!
//! Each worker of the transform has a process. It writes batches to the process as Arrow IPC streams, and
//! reads the results from it. A process that dies is restarted and gets its batch again. If it dies again,
//! the messages of that batch leave by `errors`, and the run continues.
//!
//! See docs/decisions/047-worker-processes-are-driven-from-rust.md.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use async_trait::async_trait;
use thalweg_engine::{Context, Error, Outputs, WaitingTransform, WaitingTransformConfig};
use thalweg_record::{Batch, Budget};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::batches::{Shape, rows_of};
use super::transform::give;

/// The number of times that a batch is sent to a process.
const ATTEMPTS: usize = 2;
/// How long a process may take to exit.
const FAREWELL: Duration = Duration::from_secs(5);

/// The kinds of replies: ready, a result, no more results, failed with a reason.
const READY: u64 = 0;
const RESULT: u64 = 1;
const DONE: u64 = 2;
const FAILED: u64 = 3;

/// A function in `count` processes.
pub struct Workers {
    /// The command line of a process.
    pub command: Vec<String>,
    /// The number of processes.
    pub count: usize,
    /// The form of the batches.
    pub shape: Shape,
}

impl WaitingTransformConfig for Workers {
    fn parallelism(&self) -> Option<usize> {
        Some(self.count)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn WaitingTransform>, Error> {
        Ok(Box::new(Remote {
            command: self.command.clone(),
            shape: self.shape,
            budget: context.memory.budget().clone(),
            worker: None,
        }))
    }
}

struct Remote {
    command: Vec<String>,
    shape: Shape,
    budget: Budget,
    worker: Option<Worker>,
}

#[async_trait]
impl WaitingTransform for Remote {
    async fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let rows = rows_of(&batch, self.shape)?;
        let request = written(&rows)?;
        drop(rows);
        let _held = self.budget.claim(request.len());
        let mut died = String::new();
        for _ in 0..ATTEMPTS {
            let mut worker = match self.worker.take() {
                Some(worker) => worker,
                None => Worker::begin(&self.command).await?,
            };
            match worker.ask(&request).await {
                Ok(made) => {
                    self.worker = Some(worker);
                    return give(batch, made, out);
                }
                Err(_) => died = worker.end().await,
            }
        }
        let reason = format!("the worker process died {ATTEMPTS} times on this batch: {died}");
        give(batch, Err(reason), out)
    }

    async fn finish(&mut self, _: &mut Outputs) -> Result<(), Error> {
        if let Some(worker) = self.worker.take() {
            worker.end().await;
        }
        Ok(())
    }
}

/// A worker process.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Worker {
    /// Starts a process, and waits until it has loaded its function.
    async fn begin(command: &[String]) -> Result<Self, Error> {
        let refused = |why: String| Error::permanent(format!("a worker process cannot start: {why}"));
        let Some((program, arguments)) = command.split_first() else {
            return Err(refused("it has no command line".to_owned()));
        };
        let mut command = Command::new(program);
        // A signal from the terminal goes to all processes of its group, but is meant for the run. The run
        // ends its workers after draining; hence their own group.
        command.args(arguments).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| refused(error.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(refused("it has no pipes".to_owned()));
        };
        let mut worker = Self { child, input, output };
        match worker.frame().await {
            Ok((READY, _)) => Ok(worker),
            Ok((_, why)) => Err(refused(String::from_utf8_lossy(&why).into_owned())),
            Err(_) => Err(refused(format!("it died at once: {}", worker.end().await))),
        }
    }

    /// Calls the function with a batch. Returns its result or the text of its exception.
    ///
    /// # Errors
    /// If the process died.
    async fn ask(&mut self, request: &[u8]) -> io::Result<Result<Vec<RecordBatch>, String>> {
        self.input.write_all(&(request.len() as u64).to_le_bytes()).await?;
        self.input.write_all(request).await?;
        let mut made = Vec::new();
        loop {
            match self.frame().await? {
                (RESULT, body) => match read(body) {
                    Ok(batches) => made.extend(batches),
                    Err(error) => return Err(io::Error::other(error)),
                },
                (DONE, _) => return Ok(Ok(made)),
                (FAILED, why) => return Ok(Err(String::from_utf8_lossy(&why).into_owned())),
                _ => return Err(io::Error::other("the worker process sent an unknown kind of reply")),
            }
        }
    }

    async fn frame(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let sort = self.output.read_u64_le().await?;
        let length = self.output.read_u64_le().await?;
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let mut body = Vec::new();
        body.try_reserve_exact(length).map_err(io::Error::other)?;
        (&mut self.output).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((sort, body)) }
    }

    /// Waits for the process to exit, or kills it. Returns the exit status as text.
    async fn end(self) -> String {
        let Self { mut child, input, output } = self;
        drop((input, output));
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

fn written(rows: &RecordBatch) -> Result<Vec<u8>, Error> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    writer.write(rows)?;
    Ok(writer.into_inner()?)
}

/// Decodes the batches of a stream; they share its memory.
fn read(body: Vec<u8>) -> Result<Vec<RecordBatch>, arrow_schema::ArrowError> {
    let mut buffer = Buffer::from_vec(body);
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !buffer.is_empty() {
        batches.extend(decoder.decode(&mut buffer)?);
    }
    Ok(batches)
}
