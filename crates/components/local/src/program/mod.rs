//! One run of a program: reads its output to the end, and ends the program on request.
//!
//! The source that runs the program says how its output becomes messages: see [`Messages`].

mod errors;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use thalweg_codec::framing::After;
use thalweg_engine::{Error, SourceOutput};
use thalweg_stream::arenas::Arenas;
use thalweg_stream::command::{Command, Errors, Failure, Opened, Process, ProcessOutput};
use tokio::sync::watch;

use self::errors::log;

/// Why the beginning of a message at the end of the output is rejected.
pub(crate) const TORN: &str = "a signal ended the program before the end of this message";

/// Makes messages of the output of one run.
pub(crate) trait Messages: Send {
    /// Returns the time without output after which the last message is complete.
    fn quiet(&self) -> Option<Duration> {
        None
    }

    /// Sends the messages in a buffer of output.
    ///
    /// # Errors
    /// If the messages cannot be sent, or the output cannot be used.
    fn send(
        &mut self,
        buffer: &Buffer,
        after: After,
        out: &mut SourceOutput,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns the number of bytes of the buffer that are done. The next buffer begins after them.
    fn advance(&mut self) -> usize;

    /// Rejects the beginning of a message that the program did not finish.
    ///
    /// # Errors
    /// If the message cannot be sent.
    fn reject_rest(
        &mut self,
        rest: &[u8],
        out: &mut SourceOutput,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A program, and how its output is read.
pub(crate) struct Run {
    pub(crate) command: Command,
    pub(crate) errors: Errors,
    /// How long the program may take to end when it is asked to.
    pub(crate) patience: Duration,
    /// The program, as the origin of the messages.
    pub(crate) path: Arc<str>,
    pub(crate) batch_bytes: usize,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its output is whole.
    Whole,
    /// A signal ended it: its last message may be torn.
    Cut,
}

impl Run {
    /// Runs the program to its end, and sends its output. The inner result is a failure of the program.
    ///
    /// # Errors
    /// If the messages cannot be sent.
    pub(crate) async fn run(
        &self,
        messages: &mut impl Messages,
        out: &mut SourceOutput,
    ) -> Result<Result<(), Failure>, Error> {
        let Opened { mut process, output, errors } = match self.command.open(self.errors).await {
            Ok(opened) => opened,
            Err(failure) => return Ok(Err(failure)),
        };
        let (ended, end) = watch::channel(None);
        let stop = out.clone();
        let name = out.name().clone();
        let watched = async {
            let outcome = self.watch(&mut process, &stop).await;
            let is_cut = matches!(outcome, Ok((true, _)) | Err(_));
            ended.send_replace(Some(if is_cut { End::Cut } else { End::Whole }));
            Ok::<_, Error>(outcome)
        };
        let logged = async {
            match errors {
                Some(errors) => Ok::<_, Error>(log(errors, &name).await),
                None => Ok(String::new()),
            }
        };
        // Only reading can fail here, so no message is dropped while it is sent. Its error drops the others,
        // and with them the program.
        let (outcome, (), last) = tokio::try_join!(watched, self.read(output, end, messages, out), logged)?;
        match outcome {
            Ok((_, failure)) => Ok(failure.map_or(Ok(()), |failure| Err(failure.with_output(last)))),
            Err(error) => {
                let message = format!("cannot wait for `{}`", self.path);
                Err(Error::permanent(message).caused_by(error))
            }
        }
    }

    /// Waits for the end of the program, and asks it to end if the run stops or its time is over. Returns
    /// whether a signal ended it, and the failure.
    async fn watch(&self, process: &mut Process, out: &SourceOutput) -> io::Result<(bool, Option<Failure>)> {
        use std::os::unix::process::ExitStatusExt;
        let timeout = async {
            match self.command.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = process.wait() => {
                let status = status?;
                Ok((status.signal().is_some(), process.failure(status)))
            }
            // A program that was asked to end has not failed.
            () = out.stopping() => {
                let status = process.end_within(self.patience).await?;
                Ok((status.signal().is_some(), None))
            }
            () = timeout => {
                let status = process.end_within(self.patience).await?;
                let failure = process.timed_out(self.command.timeout.unwrap_or_default());
                Ok((status.signal().is_some(), Some(failure)))
            }
        }
    }

    /// Reads more output. Returns the number of bytes, and what follows them. Without bytes, the output has
    /// ended, or paused for the time `quiet`.
    async fn more(
        &self,
        output: &mut ProcessOutput,
        into: &mut [u8],
        quiet: Option<Duration>,
        end: &mut watch::Receiver<Option<End>>,
    ) -> Result<(usize, After), Error> {
        let came = tokio::select! {
            came = output.read(into) => came,
            () = tokio::time::sleep(quiet.unwrap_or_default()), if quiet.is_some() => {
                return Ok((0, After::Quiet));
            }
        };
        match came {
            Ok(0) => Ok((0, how(end).await)),
            Ok(read) => Ok((read, After::More)),
            Err(error) => {
                let message = format!("cannot read the output of `{}`", self.path);
                Err(Error::permanent(message).caused_by(error))
            }
        }
    }

    /// Reads the output to its end, and sends the messages.
    async fn read(
        &self,
        mut output: ProcessOutput,
        mut end: watch::Receiver<Option<End>>,
        messages: &mut impl Messages,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let mut arenas = Arenas::new(self.batch_bytes);
        let mut carry = Vec::new();
        loop {
            let mut memory = arenas.take(carry.len(), out).await;
            let carried = carry.len();
            if let Some(front) = memory.get_mut(..carried) {
                front.copy_from_slice(&carry);
            }
            let quiet = messages.quiet().filter(|_| carried > 0);
            let free = memory.get_mut(carried..).unwrap_or_default();
            let (read, after) = self.more(&mut output, free, quiet, &mut end).await?;
            let is_end = read == 0 && after != After::Quiet;
            let buffer = arenas.freeze(memory, carried + read);
            messages.send(&buffer, after, out).await?;
            let done = messages.advance();
            carry.clear();
            carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
            if is_end {
                // A stopped run ends the program in the middle of a message: the rest of it was never there.
                if after == After::More && out.is_stopping() {
                    return Ok(());
                }
                return messages.reject_rest(&carry, out).await;
            }
        }
    }
}

/// Waits until the program has ended. Returns whether its last message is complete.
async fn how(end: &mut watch::Receiver<Option<End>>) -> After {
    let ended = end.wait_for(Option::is_some).await.map(|end| *end);
    match ended {
        Ok(Some(End::Whole)) => After::End,
        _ => After::More,
    }
}
