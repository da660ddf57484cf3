//! The program in a process of its own: started, interrupted, measured, and always ended.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;
use thalweg_testbed::Patience;

/// How long a run may take before the test fails, because it hangs.
pub const PATIENCE: Duration = Patience::LIMIT;
/// The name of the state directory of all runs that have one.
pub(crate) const STATE: &str = "state";
/// The time between two looks at a process.
const LOOK: Duration = Duration::from_millis(2);

/// The program and the folder in which it runs. The folder is removed with the value.
pub struct Program {
    binary: PathBuf,
    folder: TempDir,
    /// The environment variables of all runs.
    variables: Mutex<Vec<(String, String)>>,
}

/// How a run is started.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// The configuration's file name.
    pub config: String,
    /// The state directory's name. None for a run without state.
    pub state: Option<String>,
    /// The value of `THALWEG_FAILPOINTS`.
    pub failpoints: String,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Further environment variables.
    pub variables: Vec<(String, String)>,
    /// True if the test writes to its standard input. Otherwise that is empty.
    pub has_stdin: bool,
    /// A file of the folder that is its standard input instead, such as a named pipe.
    pub stdin: Option<String>,
    /// True if its standard output is appended to the file `stdout`. Otherwise it is dropped.
    pub has_stdout: bool,
    /// The largest file that it may write, in bytes, as `ulimit -f`.
    pub max_file: Option<u64>,
    /// The largest address space, in bytes, as `ulimit -v`.
    pub max_memory: Option<u64>,
}

impl Launch {
    /// Returns a run of a configuration with the state directory `state`.
    pub fn of(config: &str) -> Self {
        Self { config: config.to_owned(), state: Some(STATE.to_owned()), ..Self::default() }
    }

    /// Sets the failpoints.
    #[must_use]
    pub fn with_failpoints(mut self, failpoints: impl Into<String>) -> Self {
        self.failpoints = failpoints.into();
        self
    }
}

/// A process. It is killed when the value is dropped, also by a panic.
pub struct Running {
    child: Child,
    /// The name of the program, as the system shows it.
    name: String,
    log: PathBuf,
    started: Instant,
    peak_kib: u64,
    ended: Option<ExitStatus>,
    /// True if it was killed because it took too long.
    hung: bool,
}

/// How a process ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The exit code. None if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The most memory that was resident, in KiB, as far as it was seen.
    pub peak_kib: u64,
    /// The text that it wrote to its standard error.
    pub log: String,
}

/// A message or file that could not be processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Letter {
    /// Its content.
    pub payload: String,
    /// Why it could not be processed.
    pub reason: String,
}

/// A part of the reason of the first message after a kill: it may be torn, and is rejected even if it is
/// whole.
pub const MAYBE_TORN: &str = "a run that was killed may have read its beginning";

impl Letter {
    /// True if it may be a part of a message of a source whose input comes once. A stop or the end of a
    /// connection cuts a message off, maybe just before its delimiter.
    pub fn may_be_torn(&self) -> bool {
        ["is cut off", MAYBE_TORN].iter().any(|reason| self.reason.contains(reason))
    }
}

impl Ended {
    /// True if it ended by itself with exit code 0.
    pub fn is_done(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns how it ended, for people.
    pub fn how(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        }
    }
}

impl Program {
    /// Returns the program with an empty folder.
    ///
    /// # Errors
    /// If no temporary folder can be made.
    pub fn new(binary: &Path) -> io::Result<Self> {
        // In memory if possible: most of the time would be spent in waiting for disks. Written data survives
        // the end of a process in either.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("thalweg-kit-").tempdir_in(parent)?;
        Ok(Self { binary: binary.to_owned(), folder, variables: Mutex::default() })
    }

    /// Adds environment variables to all runs from now on, such as the keys of a server.
    pub fn set(&self, variables: Vec<(&'static str, String)>) {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.variables.lock().unwrap_or_else(PoisonError::into_inner).extend(variables);
    }

    /// Returns the folder in which it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a file into the folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)
    }

    /// Starts a run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, launch: &Launch) -> io::Result<Running> {
        let mut command = self.command(&["run", &launch.config]);
        if let Some(state) = &launch.state {
            command.args(["--state", state]);
        }
        command.args(&launch.arguments).env("THALWEG_LOG", "info");
        // A run takes less than the usual time between two checkpoints.
        command.env("THALWEG_CHECKPOINT_MS", "20");
        if !launch.failpoints.is_empty() {
            command.env("THALWEG_FAILPOINTS", &launch.failpoints);
        }
        command.envs(launch.variables.iter().cloned());
        let log = self.path("log");
        let stdout = match launch.has_stdout {
            true => Stdio::from(File::options().create(true).append(true).open(self.path("stdout"))?),
            false => Stdio::null(),
        };
        let stdin = match &launch.stdin {
            Some(name) => Stdio::from(File::open(self.path(name))?),
            None if launch.has_stdin => Stdio::piped(),
            None => Stdio::null(),
        };
        command.stdin(stdin).stdout(stdout).stderr(File::create(&log)?);
        let child = command.spawn()?;
        let name = shown_name(&self.binary);
        let running =
            Running { child, name, log, started: Instant::now(), peak_kib: 0, ended: None, hung: false };
        running.limit(Resource::Fsize, launch.max_file)?;
        running.limit(Resource::As, launch.max_memory)?;
        Ok(running)
    }

    /// Runs a command of the program to its end, and returns what it printed.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn output(&self, arguments: &[&str]) -> io::Result<std::process::Output> {
        self.command(arguments).output()
    }

    /// Returns the dead letters of `pipeline.yaml` in the state directory, or of its runs without one.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn dead_letters(&self) -> io::Result<Vec<Letter>> {
        let of: &[&str] = match (self.path(STATE).exists(), self.path(".thalweg").exists()) {
            (true, _) => &["--state", STATE],
            (false, true) => &["pipeline.yaml"],
            (false, false) => return Ok(Vec::new()),
        };
        let listed = self.output(&[&["errors", "list"], of, &["--limit", "1000000", "--json"]].concat())?;
        if !listed.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).into_owned()));
        }
        let letters = String::from_utf8_lossy(&listed.stdout).into_owned();
        let letter = |line: &str| {
            let letter: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let text =
                |name: &str| letter.get(name).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
            Letter { payload: text("payload"), reason: text("reason") }
        };
        Ok(letters.lines().map(letter).collect())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(self.folder()).env_clear().env("COLUMNS", "200");
        command.envs(self.variables.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        command.stdin(Stdio::null());
        command
    }
}

impl Running {
    fn limit(&self, resource: Resource, limit: Option<u64>) -> io::Result<()> {
        let Some(limit) = limit else { return Ok(()) };
        let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
        rustix::process::prlimit(Some(self.id()), resource, limit)?;
        Ok(())
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Takes the standard input, to write to it. Dropping it ends the input.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Returns what sends a signal to this process from another thread.
    ///
    /// # Errors
    /// If the system has no descriptors of processes.
    pub fn interrupter(&self) -> io::Result<Interrupter> {
        Ok(Interrupter(pidfd_open(self.id(), PidfdFlags::empty())?))
    }

    /// Returns what it wrote to its standard error so far.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the address that a source or sink listens on, as soon as it does. None if the process ended
    /// before.
    pub fn address(&mut self) -> Option<String> {
        while self.is_running() && self.started.elapsed() < PATIENCE {
            let log = self.log();
            // The whole line: the address may be cut off otherwise.
            let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            if let Some((_, address)) = lines.rev().find_map(|line| line.split_once("listens on ")) {
                return Some(address.trim().trim_start_matches("tcp://").to_owned());
            }
            std::thread::sleep(LOOK);
        }
        None
    }

    /// True until the process has ended. It is killed if it takes longer than [`PATIENCE`].
    pub fn is_running(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.look_at_memory();
        self.ended = self.child.try_wait().ok().flatten();
        if self.ended.is_none() && !self.hung && self.started.elapsed() > PATIENCE {
            // Also ends a client that would send to it for ever.
            self.hung = true;
            let _ = self.child.kill();
        }
        self.ended.is_none()
    }

    /// True if the process counts signals. A signal between the installation of its handler and the moment at
    /// which the handler knows what to do is lost, so this is the handler that the program installs last.
    fn heeds_signals(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (Signal::XFSZ.as_raw() - 1) != 0)
    }

    fn look_at_memory(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        // Until the program runs, the process has the memory of the one that started it.
        if status.lines().next().and_then(|line| line.strip_prefix("Name:\t")) != Some(&*self.name) {
            return;
        }
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.trim().split(' ').next()?.parse().ok()).unwrap_or(0);
        self.peak_kib = self.peak_kib.max(kib);
    }

    /// Sends a signal to the process, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        // No program can heed a signal between `exec` and its first line of code.
        while signal == Signal::TERM && self.is_running() && !self.heeds_signals() {
            std::thread::sleep(LOOK);
        }
        // A process keeps its id until its status is read here, so the signal reaches no other process.
        if self.is_running() {
            let _ = rustix::process::kill_process(self.id(), signal);
        }
    }

    /// Waits for some time, or until it ends. Returns true if it still runs.
    pub fn runs_for(&mut self, time: Duration) -> bool {
        let begun = Instant::now();
        while self.is_running() {
            if begun.elapsed() >= time {
                return true;
            }
            std::thread::sleep(LOOK.min(time));
        }
        false
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// If it did not end within [`PATIENCE`].
    pub fn wait(mut self) -> Result<Ended, String> {
        self.runs_for(Duration::MAX);
        if self.hung {
            let log = self.log();
            return Err(format!("it still ran after {} s; its log:\n{}", PATIENCE.as_secs(), tail(&log)));
        }
        let status = self.ended.ok_or("its status was not read")?;
        Ok(Ended { code: status.code(), signal: status.signal(), peak_kib: self.peak_kib, log: self.log() })
    }
}

/// Sends a signal to one process, never to another one that got its id.
pub struct Interrupter(OwnedFd);

impl Interrupter {
    /// Sends a signal, unless the process has ended.
    pub fn send(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.0, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The name of a program, as the system shows it: at most 15 bytes.
fn shown_name(binary: &Path) -> String {
    let name = binary.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.chars().take(15).collect()
}

/// The last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_value_also_by_a_panic() {
        let program = Program::new(Path::new("/bin/sleep")).unwrap();
        let mut command = Command::new("/bin/sleep");
        let child = command.arg("100").spawn().unwrap();
        let id = Pid::from_child(&child);
        let log = program.path("log");
        let name = "sleep".to_owned();
        let running =
            Running { child, name, log, started: Instant::now(), peak_kib: 0, ended: None, hung: false };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = running;
            panic!("as a test does that fails");
        }));
        assert!(caught.is_err());
        assert!(rustix::process::test_kill_process(id).is_err());
    }
}
