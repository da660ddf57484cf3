//! Running a program of the system, once, to its end.
//!
//! Nothing is read by a shell: arguments reach the program byte by byte as they are. It gets a process group of its own, so
//! that what it starts ends with it when it takes too long or nobody waits for it any more.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// How much a pipe can hold at most, unless the system's administrator says otherwise.
const PIPE_BYTES: usize = 1 << 20;

/// A program and how it is to be run.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its path, or a name that is looked up in the folders of `PATH`.
    pub program: OsString,
    /// What it is given.
    pub arguments: Vec<OsString>,
    /// What is added to the environment.
    pub environment: Vec<(String, String)>,
    /// Where it runs, if not where we do.
    pub directory: Option<PathBuf>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How many of the last bytes that it writes to its outputs are kept.
    pub max_output: usize,
}

/// Why a program did not do what it was to do.
#[derive(Debug)]
pub struct Failure {
    program: String,
    cause: Cause,
    /// The end of what it wrote.
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
    /// A program with its arguments, in our own folder, for as long as it takes.
    pub fn new(program: impl Into<OsString>, arguments: Vec<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments,
            environment: Vec::new(),
            directory: None,
            timeout: None,
            max_output: 64 << 10,
        }
    }

    /// Runs it to its end. It is killed, with all that it started in its process group, if it takes too long, and when this
    /// future is dropped.
    ///
    /// # Errors
    /// If it cannot be started, takes too long, or ends with another code than 0.
    pub async fn run(&self) -> Result<(), Failure> {
        let (mut running, pipe) = self.start().map_err(|error| self.failure(self.not_started(error), ""))?;
        let mut output =
            Output { pipe: Some(pipe), last: VecDeque::new(), most: self.max_output, cut: false };
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
                    // This ends it, and lets nothing of it be left in the table of processes.
                    let _ = running.child.wait().await;
                    running.group = None;
                    let cause = Cause::TookLonger(self.timeout.unwrap_or_default());
                    return Err(self.failure(cause, &output.finish()));
                }
                () = output.read() => {}
            }
        };
        running.group = None;
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.failure(Cause::Ended(status), &output.finish())),
            Err(error) => Err(self.failure(Cause::NotStarted(error), "")),
        }
    }

    fn start(&self) -> io::Result<(Running, Receiver)> {
        // One pipe for both outputs keeps the order in which they were written.
        let (reader, writer) = io::pipe()?;
        let reader = Receiver::from_owned_fd(reader.into())?;
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok((Running { group, child }, reader))
    }

    /// The system says "not found" of several things.
    fn not_started(&self, error: io::Error) -> Cause {
        let is_path = self.program.as_encoded_bytes().contains(&b'/');
        match &self.directory {
            _ if error.kind() != io::ErrorKind::NotFound => Cause::NotStarted(error),
            Some(directory) if !directory.is_dir() => Cause::NoDirectory(directory.clone()),
            directory if is_path => {
                let place = directory.clone().unwrap_or_default().join(&self.program);
                if place.exists() { Cause::NoInterpreter } else { Cause::NoProgram }
            }
            _ => Cause::NoProgram,
        }
    }

    fn failure(&self, cause: Cause, output: &str) -> Failure {
        Failure { program: self.program.display().to_string(), cause, output: output.to_owned() }
    }
}

impl Failure {
    /// Whether it may do better a little later: the system has no room for another process at the moment.
    pub fn is_temporary(&self) -> bool {
        match &self.cause {
            Cause::NotStarted(error) => {
                thalweg_stream::io_error::io_error("run", &self.program, error).kind()
                    != thalweg_engine::ErrorKind::Permanent
            }
            _ => false,
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
                "`{program}` cannot be run: what its first line says that it is run by does not exist"
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

/// A child, and its group as long as it may be killed: the number of one that has ended may be given to others.
struct Running {
    group: Option<Pid>,
    child: tokio::process::Child,
}

impl Running {
    fn kill(&self) {
        if let Some(group) = self.group {
            // If it has ended by itself, that is what was wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Before the child is dropped, after which the runtime clears it away.
        self.kill();
    }
}

/// The end of what a program writes.
struct Output {
    /// None once it was read to its end.
    pipe: Option<Receiver>,
    last: VecDeque<u8>,
    most: usize,
    /// Whether there was more.
    cut: bool,
}

impl Output {
    /// Waits for some, and keeps it; forever after the end. Nothing is lost if this is dropped.
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
        let more = self.last.len().saturating_sub(self.most);
        self.cut |= more > 0;
        self.last.drain(..more);
    }

    /// What there is after the program has ended, as text. Whoever still has the pipe is not waited for.
    fn finish(mut self) -> String {
        let mut piece = [0; 8 << 10];
        for _ in 0..PIPE_BYTES / piece.len() {
            match self.pipe.as_ref().map(|pipe| pipe.try_read(&mut piece)) {
                Some(Ok(read)) if read > 0 => self.keep(piece.get(..read).unwrap_or_default()),
                _ => break,
            }
        }
        let (last, cut) = (Vec::from(self.last), self.cut);
        let text = String::from_utf8_lossy(&last);
        let text = text.trim();
        if cut && !text.is_empty() { format!("… {text}") } else { text.to_owned() }
    }
}

/// Where a program of this name is in the folders of `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    use rustix::fs::{Access, access};
    let folders = std::env::var_os("PATH")?;
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    std::env::split_paths(&folders).map(|folder| folder.join(OsStr::new(name))).find(|path| runs(path))
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
        assert!(shell("true").run().await.is_ok());
        let told = reason(&shell("echo one; echo two >&2; echo three; exit 3")).await;
        assert_eq!(told, "`sh` ended with exit code 3: one\ntwo\nthree");
        assert_eq!(reason(&shell("exit 1")).await, "`sh` ended with exit code 1");
        assert_eq!(reason(&shell("kill -TERM $$")).await, "`sh` was ended by signal 15");
    }

    #[tokio::test]
    async fn of_much_output_the_end_is_kept_and_the_pipe_never_full() {
        let mut command = shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; exit 1");
        command.max_output = 10;
        // The line feed at the end counts.
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1: … ine 19999");
        command.max_output = 0;
        assert_eq!(reason(&command).await, "`sh` ended with exit code 1");
    }

    #[tokio::test]
    async fn what_cannot_be_run_is_said_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            reason(&Command::new("thalweg-no-such-program", vec![]))
                .await
                .contains("not found in any folder")
        );
        assert!(reason(&Command::new("/no/such/program", vec![])).await.contains("there is no program"));
        let mut lost = shell("true");
        lost.directory = Some("/no/such/folder".into());
        assert!(reason(&lost).await.contains("no such folder"));
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        assert!(reason(&Command::new(&script, vec![])).await.contains("is it executable"));
        let nul = Command::new("sh", vec!["-c".into(), "a\0b".into()]);
        assert!(reason(&nul).await.contains("cannot be run"));
    }

    /// Waits until there is no process of this number.
    async fn is_gone(file: &Path) {
        let id = std::fs::read_to_string(file).unwrap();
        let process = Path::new("/proc").join(id.trim());
        for _ in 0..1000 {
            let state = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            // Where nobody collects the children of others, the killed child of a killed child stays as a zombie.
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
    async fn a_child_that_is_left_behind_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = shell("sleep 1000 & echo $! > child; echo said; exit 2");
        command.directory = Some(folder.path().to_owned());
        assert_eq!(reason(&command).await, "`sh` ended with exit code 2: said");
        let id = std::fs::read_to_string(folder.path().join("child")).unwrap();
        let id = Pid::from_raw(id.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(id, Signal::KILL).unwrap();
    }
}
