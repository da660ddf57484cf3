//! A program whose output is read while it runs.
//!
//! The pipe is the only buffer: a program whose output is not read waits in its write. A process that has
//! left the program's group may hold the pipe open for ever. So the output ends with the program: what is in
//! the pipe then is read, and nothing is waited for.

use std::io::{self, ErrorKind};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use super::{Cause, Command, Failure, PIPE_BYTES, Running};

/// The destination of a program's standard error output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// A pipe of its own.
    Apart,
    /// The pipe of the standard output, in the order in which both were written.
    Joined,
    /// Nowhere.
    Dropped,
}

/// A program that was started, and its outputs.
pub struct Opened {
    /// The running program.
    pub process: Process,
    /// Its standard output.
    pub output: ProcessOutput,
    /// Its standard error output, if it is apart.
    pub errors: Option<ProcessOutput>,
}

/// A running program. It is killed with its process group when this value is dropped.
pub struct Process {
    running: Running,
    command: Command,
    /// Tells the readers that the program has ended.
    ended: watch::Sender<bool>,
}

/// An output of a running program.
pub struct ProcessOutput {
    pipe: Receiver,
    ended: watch::Receiver<bool>,
    /// The number of bytes that may still be read after the program has ended.
    left: usize,
}

impl Command {
    /// Starts the program, to read its output.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub async fn open(&self, errors: Errors) -> Result<Opened, Failure> {
        self.try_open(errors).await.map_err(|error| self.failure(self.not_started(error), ""))
    }

    async fn try_open(&self, errors: Errors) -> io::Result<Opened> {
        let (ended, is_ended) = watch::channel(false);
        let pipe = || -> io::Result<(ProcessOutput, io::PipeWriter)> {
            let (reader, writer) = io::pipe()?;
            let pipe = Receiver::from_owned_fd(reader.into())?;
            Ok((ProcessOutput { pipe, ended: is_ended.clone(), left: PIPE_BYTES }, writer))
        };
        let (output, writer) = pipe()?;
        let (errors, errors_to) = match errors {
            Errors::Apart => {
                let (errors, writer) = pipe()?;
                (Some(errors), Stdio::from(writer))
            }
            Errors::Joined => (None, Stdio::from(writer.try_clone()?)),
            Errors::Dropped => (None, Stdio::null()),
        };
        let running = self.spawn(writer.into(), errors_to).await?;
        Ok(Opened { process: Process { running, command: self.clone(), ended }, output, errors })
    }
}

impl Process {
    /// Waits until the program has ended. Then kills the processes that it left behind. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// If the system cannot say how it ended.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.running.child.wait().await;
        self.running.kill();
        self.ended.send_replace(true);
        status
    }

    /// Asks the program and the processes that it started to end (SIGTERM). Kills them if they have not ended
    /// after `patience`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn end_within(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        if let Some(group) = self.running.group {
            // An error means that the group has already ended, which is the goal.
            let _ = kill_process_group(group, Signal::TERM);
        }
        if let Ok(status) = tokio::time::timeout(patience, self.wait()).await {
            return status;
        }
        self.running.kill();
        self.wait().await
    }

    /// Returns the failure of a program that ended so. `None` if it ended well.
    pub fn failure(&self, status: ExitStatus) -> Option<Failure> {
        (!status.success()).then(|| self.command.failure(Cause::Ended(status), ""))
    }

    /// Returns the failure of a program that was ended because it took longer than this.
    pub fn timed_out(&self, timeout: Duration) -> Failure {
        self.command.failure(Cause::TookLonger(timeout), "")
    }
}

impl ProcessOutput {
    /// Reads bytes. Waits for them while the program runs. Returns 0 at the end. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// If the pipe cannot be read.
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !*self.ended.borrow() {
            tokio::select! {
                biased;
                read = self.pipe.read(into) => return read,
                _ = self.ended.changed() => {}
            }
        }
        let most = into.len().min(self.left);
        // The runtime may not know yet that the pipe has bytes, so the system is asked.
        match rustix::io::read(&self.pipe, into.get_mut(..most).unwrap_or_default()) {
            Ok(read) => {
                self.left -= read;
                Ok(read)
            }
            Err(error) if io::Error::from(error).kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(output: &mut ProcessOutput) -> String {
        let (mut found, mut piece) = (Vec::new(), [0; 7]);
        loop {
            match output.read(&mut piece).await.unwrap() {
                0 => return String::from_utf8(found).unwrap(),
                read => found.extend_from_slice(&piece[..read]),
            }
        }
    }

    fn shell(script: &str) -> Command {
        Command::new("sh", vec!["-c".into(), script.into()])
    }

    #[tokio::test]
    async fn outputs_are_apart_joined_or_dropped() {
        let script = shell("echo one; echo two >&2; echo three");
        for (errors, output, apart) in [
            (Errors::Apart, "one\nthree\n", Some("two\n")),
            (Errors::Joined, "one\ntwo\nthree\n", None),
            (Errors::Dropped, "one\nthree\n", None),
        ] {
            let mut opened = script.open(errors).await.unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!(text(&mut opened.output).await, output);
            let status = opened.process.wait().await.unwrap();
            assert!(opened.process.failure(status).is_none());
            match &mut opened.errors {
                Some(errors) => assert_eq!(Some(&*text(errors).await), apart),
                None => assert!(apart.is_none()),
            }
        }
    }

    #[tokio::test]
    async fn the_output_ends_with_the_program_though_another_process_holds_the_pipe() {
        let script = shell("setsid sleep 1000 & echo $!; sleep 0.1");
        let mut opened = script.open(Errors::Dropped).await.unwrap_or_else(|failure| panic!("{failure}"));
        let (id, status) = tokio::join!(text(&mut opened.output), opened.process.wait());
        assert!(status.unwrap().success());
        let left = rustix::process::Pid::from_raw(id.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(left, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_when_it_is_asked_to_is_killed() {
        for (trap, ending) in [("exit 3", "ended with exit code 3"), ("", "was ended by signal 9")] {
            let script = shell(&format!("trap '{trap}' TERM; echo on; while :; do sleep 0.05; done"));
            let mut opened = script.open(Errors::Dropped).await.unwrap_or_else(|failure| panic!("{failure}"));
            let mut piece = [0; 3];
            opened.output.read(&mut piece).await.unwrap();
            let patience = if trap.is_empty() { Duration::from_millis(50) } else { Duration::from_secs(100) };
            let status = opened.process.end_within(patience).await.unwrap();
            assert_eq!(opened.process.failure(status).unwrap().to_string(), format!("`sh` {ending}"));
        }
    }
}
