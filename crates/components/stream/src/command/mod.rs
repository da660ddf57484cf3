//! Runs a program of the operating system once, until it ends: for its effect ([`Command::run`]), or to read
//! its output ([`Command::open`]).
//!
//! No shell is involved: the program receives its arguments byte for byte. The program gets its own process
//! group. When the program ends, on a timeout, or if the caller stops waiting, the whole group is killed,
//! including the processes that the program started. If this process is killed, the system kills the program
//! (see [`spawn`]), and a small process kills the group (see [`watcher`]).

mod process;
mod spawn;
mod watcher;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use thalweg_engine::{Error, FileError, Mistake};
use thalweg_redact::{longest_secret_or_address, redacted_end};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

pub use process::{Errors, Opened, Process, ProcessOutput};

/// The maximum capacity of a pipe in bytes, unless the administrator has changed it.
const PIPE_BYTES: usize = 1 << 20;

/// A program and how to run it.
#[derive(Debug, Clone)]
pub struct Command {
    /// A path, or a name to look up in the folders of `PATH`.
    pub program: OsString,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// Variables to add to the environment.
    pub environment: Vec<(String, String)>,
    /// The working directory. `None`: that of this process.
    pub directory: Option<PathBuf>,
    /// The maximum run time. `None`: unlimited.
    pub timeout: Option<Duration>,
    /// How many bytes of output to keep, counted from the end.
    pub max_output_bytes: usize,
}

/// Why a program failed.
#[derive(Debug)]
pub struct Failure {
    program: String,
    cause: Cause,
    /// The end of the program's output.
    output: String,
}

#[derive(Debug)]
enum Cause {
    NoProgram,
    NoInterpreter,
    NoDirectory(PathBuf),
    NotStarted(io::Error),
    Ended(ExitStatus),
    TookLonger(Duration),
}

impl Command {
    /// Creates a command that runs in our own working directory, without a timeout.
    pub fn new(program: impl Into<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments,
            environment: Vec::new(),
            directory: None,
            timeout: None,
            max_output_bytes: 64 << 10,
        }
    }

    /// Runs the program until it ends. Its process group is killed then, on a timeout, and when this future
    /// is dropped.
    ///
    /// # Errors
    /// If the program cannot be started, takes too long, or ends with an exit code other than 0.
    pub async fn run(&self) -> Result<(), Failure> {
        let (mut running, pipe) =
            self.start().await.map_err(|error| self.failure(self.not_started(error), ""))?;
        let mut output = Output {
            pipe: Some(pipe),
            last: VecDeque::new(),
            most: self.max_output_bytes,
            secret: longest_secret_or_address(),
        };
        let timeout = async {
            match self.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timeout);
        let ended = loop {
            tokio::select! {
                ended = running.child.wait() => break ended,
                () = &mut timeout => {
                    running.kill();
                    // Reaps the child, so that no zombie is left in the process table.
                    let _ = running.child.wait().await;
                    let cause = Cause::TookLonger(self.timeout.unwrap_or_default());
                    return Err(self.failure(cause, &output.finish()));
                }
                () = output.read() => {}
            }
        };
        running.kill();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failure(Cause::Ended(status), &output.finish())),
            Err(error) => Err(self.failure(Cause::NotStarted(error), "")),
        }
    }

    async fn start(&self) -> io::Result<(Running, Receiver)> {
        // One pipe for both outputs preserves the order in which they were written.
        let (reader, writer) = io::pipe()?;
        let reader = Receiver::from_owned_fd(reader.into())?;
        let errors = writer.try_clone()?;
        Ok((self.spawn(writer.into(), errors.into()).await?, reader))
    }

    async fn spawn(&self, output: Stdio, errors: Stdio) -> io::Result<Running> {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        spawn::spawn(command).await
    }

    /// Finds out what is missing: the system reports "not found" for several causes.
    fn not_started(&self, error: io::Error) -> Cause {
        let is_path = self.program.as_encoded_bytes().contains(&b'/');
        match &self.directory {
            _ if error.kind() != io::ErrorKind::NotFound => Cause::NotStarted(error),
            Some(directory) if !directory.is_dir() => Cause::NoDirectory(directory.clone()),
            directory if is_path => {
                let path = directory.clone().unwrap_or_default().join(&self.program);
                if path.exists() { Cause::NoInterpreter } else { Cause::NoProgram }
            }
            _ => Cause::NoProgram,
        }
    }

    fn failure(&self, cause: Cause, output: &str) -> Failure {
        Failure { program: self.program.display().to_string(), cause, output: output.to_owned() }
    }
}

impl Failure {
    /// True if a retry may succeed: the system cannot create another process at the moment.
    pub fn is_temporary(&self) -> bool {
        match &self.cause {
            Cause::NotStarted(error) => {
                crate::io_error::io_error("run", &self.program, error).kind()
                    != thalweg_engine::ErrorKind::Permanent
            }
            _ => false,
        }
    }

    /// Converts the failure into an error of the component.
    pub fn into_error(self) -> Error {
        match self.is_temporary() {
            true => Error::temporary(self.to_string()),
            false => Error::permanent(self.to_string()),
        }
    }

    /// Adds the end of the output that the caller has read.
    #[must_use]
    pub fn with_output(self, output: String) -> Self {
        Self { output, ..self }
    }

    /// Converts the failure into an error of the file. Temporary failures are retried.
    pub fn into_file_error(self, code: &'static str) -> FileError {
        match self.is_temporary() {
            true => FileError::Failed(Error::temporary(self.to_string())),
            false => FileError::coded(code, self.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, cause, output } = self;
        match cause {
            Cause::NoProgram if program.contains('/') => write!(f, "there is no program `{program}`")?,
            Cause::NoProgram => {
                write!(f, "`{program}` was not found in any folder of `PATH`; install it, or give its path")?
            }
            Cause::NoInterpreter => write!(
                f,
                "`{program}` cannot be run: the interpreter that its first line names does not exist"
            )?,
            Cause::NoDirectory(directory) => {
                let directory = directory.display();
                write!(f, "`{program}` cannot be run in `{directory}`: there is no such folder")?;
            }
            Cause::NotStarted(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "`{program}` cannot be run: permission was denied; is it executable (`chmod +x`)?"
                )?;
            }
            Cause::NotStarted(error) => write!(f, "`{program}` cannot be run: {error}")?,
            Cause::Ended(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "`{program}` ended with exit code {code}")?,
                (None, Some(signal)) => write!(f, "`{program}` was ended by signal {signal}")?,
                (None, None) => write!(f, "`{program}` did not end well")?,
            },
            Cause::TookLonger(timeout) => {
                let timeout = thalweg_config::TimeSpan(*timeout);
                write!(f, "`{program}` took longer than {timeout} and was killed")?;
            }
        }
        if output.is_empty() { Ok(()) } else { write!(f, ": {output}") }
    }
}

/// A child process, and its process group until that is killed. Afterwards, the system may give the group's
/// number to another process.
struct Running {
    group: Option<Pid>,
    child: tokio::process::Child,
}

impl Running {
    /// Takes a child that has just been started, in a process group of its own.
    fn new(child: tokio::process::Child) -> Self {
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            watcher::add(group);
        }
        Self { group, child }
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // An error means that the group has already ended, which is the goal.
            let _ = kill_process_group(group, Signal::KILL);
            watcher::remove(group);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Kills the group before the child is dropped: after that the runtime reaps the child.
        self.kill();
    }
}

/// The end of a program's output.
struct Output {
    /// `None` after the end was read.
    pipe: Option<Receiver>,
    last: VecDeque<u8>,
    /// The most bytes that are shown.
    most: usize,
    /// The bytes that are kept before these, in which a secret or its address may begin that ends in them.
    secret: usize,
}

impl Output {
    /// Waits for output and keeps it. After the end of the output, this never completes. Dropping the future
    /// loses no output.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        let mut piece = [0; 8 << 10];
        match pipe.read(&mut piece).await {
            Ok(read) if read > 0 => self.keep(piece.get(..read).unwrap_or_default()),
            _ => self.pipe = None,
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        self.last.extend(piece);
        // One more byte shows that there is more.
        let kept = self.most.saturating_add(self.secret + 1);
        self.last.drain(..self.last.len().saturating_sub(kept));
    }

    /// Returns the remaining output as text after the program has ended. Does not wait for other processes
    /// that still have the pipe open.
    fn finish(mut self) -> String {
        let mut piece = [0; 8 << 10];
        for _ in 0..PIPE_BYTES / piece.len() {
            match self.pipe.as_ref().map(|pipe| pipe.try_read(&mut piece)) {
                Some(Ok(read)) if read > 0 => self.keep(piece.get(..read).unwrap_or_default()),
                _ => break,
            }
        }
        let is_cut = self.last.len() > self.most;
        let last = Vec::from(self.last);
        let text = redacted_end(&String::from_utf8_lossy(&last), self.most);
        let text = text.trim();
        if is_cut && !text.is_empty() { format!("… {text}") } else { text.to_owned() }
    }
}

/// Returns the mistake in the names of the option `env`, if there is one.
pub fn check_environment<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<Mistake> {
    let name = names.find(|name| name.is_empty() || name.contains(['=', '\0']))?;
    Some(Mistake::new("env", format!("`{name}` is not a valid name of an environment variable.")))
}

/// Returns the path of a program of this name in the folders of `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    let folders = std::env::var_os("PATH")?;
    let runs = |path: &std::path::Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| runs(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new("sh", vec!["-c".into(), script.into()])
    }

    async fn reason(command: &Command) -> String {
        command.run().await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn both_outputs_are_told_in_their_order() {
        shell("true").run().await.unwrap();
        let shown = reason(&shell("echo one; echo two >&2; echo three; exit 3")).await;
        assert_eq!(shown, "`sh` ended with exit code 3: one\ntwo\nthree");
        assert_eq!(reason(&shell("exit 1")).await, "`sh` ended with exit code 1");
        assert_eq!(reason(&shell("kill -TERM $$")).await, "`sh` was ended by signal 15");
    }

    #[tokio::test]
    async fn of_much_output_the_end_is_kept_and_the_pipe_never_full() {
        let mut command = shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 1");
        command.max_output_bytes = 10;
        // The line feed at the end counts as a byte.
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1: … ine 19999");
        command.max_output_bytes = 0;
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1");
    }

    #[tokio::test]
    async fn a_secret_at_the_beginning_of_the_kept_output_is_replaced_as_a_whole() {
        thalweg_redact::keep("swordfish-is-the-word", Some("${WORD}"));
        let mut command = shell("echo begin swordfish-is-the-word end; exit 1");
        command.max_output_bytes = 12;
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1: … ${WORD} end");
    }

    #[tokio::test]
    async fn a_password_is_replaced_although_its_address_begins_before_the_kept_output() {
        let mut command = shell("printf 'https://%0900d:letmein@host/a/long/path' 0; exit 1");
        command.max_output_bytes = 20;
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1: … …@host/a/long/path");
    }

    #[tokio::test]
    async fn what_cannot_be_run_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            reason(&Command::new("thalweg-no-such-program", vec![])).await,
            "`thalweg-no-such-program` was not found in any folder of `PATH`; install it, or give its path"
        );
        assert_eq!(
            reason(&Command::new("/no/such/program", vec![])).await,
            "there is no program `/no/such/program`"
        );
        let mut lost = shell("true");
        lost.directory = Some("/no/such/folder".into());
        assert_eq!(reason(&lost).await, "`sh` cannot be run in `/no/such/folder`: there is no such folder");
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        assert!(reason(&Command::new(&script, vec![])).await.contains("is it executable"));
        let nul = Command::new("sh", vec!["-c".into(), "a\0b".into()]);
        assert_eq!(reason(&nul).await, "`sh` cannot be run: nul byte found in provided data");
    }

    /// Waits until the process whose number is in `file` is gone.
    async fn is_gone(file: &std::path::Path) {
        let id = std::fs::read_to_string(file).unwrap();
        let process = std::path::Path::new("/proc").join(id.trim());
        for _ in 0..1000 {
            let state = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // Where no init process reaps orphans, the killed child of a killed child stays as a zombie.
            if state.is_empty() || state.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it still runs");
    }

    #[tokio::test]
    async fn what_takes_too_long_is_killed_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! > child; echo started; wait";
        let mut command = shell(script);
        command.directory = Some(folder.path().to_owned());
        command.timeout = Some(Duration::from_secs(3));
        assert_eq!(reason(&command).await, "`sh` took longer than 3s and was killed: started");
        is_gone(&folder.path().join("child")).await;
    }

    #[tokio::test]
    async fn it_is_killed_when_nobody_waits_for_it_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = shell("echo $$ > self; sleep 1000 & echo $! > child; touch ready; wait");
        command.directory = Some(folder.path().to_owned());
        let task = tokio::spawn(async move { command.run().await.is_ok() });
        while !folder.path().join("ready").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        is_gone(&folder.path().join("self")).await;
        is_gone(&folder.path().join("child")).await;
    }

    #[tokio::test]
    async fn a_child_that_is_left_behind_is_not_waited_for_but_killed() {
        for (end, reason) in [("exit 2", Some("`sh` ended with exit code 2: said")), ("exit 0", None)] {
            let folder = tempfile::tempdir().unwrap();
            let mut command = shell(&format!("sleep 1000 & echo $! > child; echo said; {end}"));
            command.directory = Some(folder.path().to_owned());
            let failure = command.run().await.err().map(|failure| failure.to_string());
            assert_eq!(failure.as_deref(), reason);
            is_gone(&folder.path().join("child")).await;
        }
    }
}
