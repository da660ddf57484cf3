//! A server in a separate process: starts it, waits until it is ready, stops it.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Patience;

/// Time limit until a server answers. On a machine with ten times its capacity of work, azurite took twenty
/// seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Time that a server has to stop before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The number of ports to try, if another process takes a port that was free a moment before.
const ATTEMPTS: usize = 5;

/// A running server. Dropping it stops the process and removes its folder.
pub(crate) struct Program {
    child: Child,
    pub address: SocketAddr,
    /// The signal that stops the process when the value is dropped.
    pub dropped_by: Signal,
    // Declared after the child: it writes there until it has stopped.
    folder: TempDir,
}

impl Program {
    /// Starts the command that `command` returns for an address and a data folder. Waits until `ready`
    /// returns true; it receives the address and the output of the server.
    pub fn start(
        name: &str,
        command: impl Fn(SocketAddr, &Path) -> Command,
        ready: impl Fn(SocketAddr, &str) -> bool,
    ) -> io::Result<Self> {
        let mut attempt = 1;
        loop {
            let mut program = Self::spawn(name, &command)?;
            let Err(why) = program.wait_for(&ready) else { return Ok(program) };
            let output = program.output();
            let taken = output.to_lowercase().contains("address already in use");
            if !taken || attempt == ATTEMPTS {
                return Err(io::Error::other(format!("`{name}` {why}; its output:\n{output}")));
            }
            attempt += 1;
        }
    }

    fn spawn(name: &str, command: &impl Fn(SocketAddr, &Path) -> Command) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("thalweg-{name}-")).tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        // Bound and released: no server can take over a socket.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = launch(command(address, &data), folder.path())?;
        Ok(Self { child, address, dropped_by: Signal::TERM, folder })
    }

    fn wait_for(&mut self, ready: &impl Fn(SocketAddr, &str) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("ended before it was ready ({status})"));
            }
            if ready(self.address, &self.output()) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("was not ready after {} seconds", PATIENCE.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the server by a signal, and waits for it. Its data and its address stay.
    pub fn kill(&mut self, signal: Signal) -> io::Result<()> {
        self.signal(signal)?;
        self.child.wait().map(drop)
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)?)
    }

    /// Stops the process where it is. Waits until all its threads have stopped: on a busy machine they run on
    /// for a while after the signal, and may answer.
    pub fn halt(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let patience = Patience::begin();
        while !has_stopped(self.child.id())? {
            patience.check(|| "a server runs on after SIGSTOP".to_owned());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Starts a killed server again, at its address and with its data.
    pub fn restart(
        &mut self,
        name: &str,
        command: impl Fn(SocketAddr, &Path) -> Command,
        ready: impl Fn(SocketAddr, &str) -> bool,
    ) -> io::Result<()> {
        self.child = launch(command(self.address, &self.data()), self.folder.path())?;
        self.wait_for(&ready)
            .map_err(|why| io::Error::other(format!("`{name}` {why}; its output:\n{}", self.output())))
    }

    /// Returns the folder of the server's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the output of the server so far.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// Starts a server that writes its output into the folder, after that of an earlier one. True if all threads
/// of a process are stopped, or if the system does not show them.
fn has_stopped(id: u32) -> io::Result<bool> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{id}/task")) else { return Ok(true) };
    for thread in threads {
        // A thread may end meanwhile.
        let Ok(stat) = std::fs::read_to_string(thread?.path().join("stat")) else { continue };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn launch(mut command: Command, folder: &Path) -> io::Result<Child> {
    let output = File::options().create(true).append(true).open(folder.join("output"))?;
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    command.spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("`{}` does not start: {error}", command.get_program().display()))
    })
}

impl Drop for Program {
    fn drop(&mut self) {
        // A process keeps its id until its exit status is read here, so the signal reaches no other process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let _ = self.signal(self.dropped_by);
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str) -> impl Fn(SocketAddr, &Path) -> Command {
        move |_, folder| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).current_dir(folder);
            command
        }
    }

    fn is_running(id: u32) -> bool {
        let id = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
        rustix::process::test_kill_process(id).is_ok()
    }

    #[test]
    fn what_ends_before_it_is_ready_is_an_error_with_what_it_said() {
        let error =
            Program::start("broken", shell("echo no such thing; exit 3"), |_, _| false).err().unwrap();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_with_its_name() {
        let nothing = |_: SocketAddr, _: &Path| Command::new("/there/is/none");
        let error = Program::start("none", nothing, |_, _| true).err().unwrap();
        assert!(error.to_string().contains("/there/is/none"), "{error}");
    }

    #[test]
    fn a_port_that_was_taken_leads_to_another_attempt() {
        let ports = std::cell::RefCell::new(Vec::new());
        let command = |address: SocketAddr, folder: &Path| {
            ports.borrow_mut().push(address.port());
            let script = match ports.borrow().len() {
                1 => "echo bind: Address already in use; exit 1",
                _ => "echo ready; exec sleep 100",
            };
            shell(script)(address, folder)
        };
        let program = Program::start("taken", command, |_, output| output.contains("ready")).unwrap();
        assert_eq!(ports.borrow().len(), 2);
        assert_eq!(Some(&program.address.port()), ports.borrow().last());
    }

    #[test]
    fn with_the_value_go_the_process_and_the_folder() {
        let script = "trap 'echo stopped; exit' TERM; echo ready; while :; do sleep 0.01; done";
        let program = Program::start("kind", shell(script), |_, output| output.contains("ready")).unwrap();
        let (id, folder) = (program.id(), program.data());
        assert!(is_running(id) && folder.is_dir());
        drop(program);
        assert!(!is_running(id) && !folder.exists());
    }

    #[test]
    fn what_does_not_stop_is_killed() {
        let script = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let program =
            Program::start("stubborn", shell(script), |_, output| output.contains("ready")).unwrap();
        let id = program.id();
        drop(program);
        assert!(!is_running(id));
    }

    #[test]
    fn a_panic_stops_it_as_well() {
        let program = Program::start("panic", shell("echo ready; exec sleep 100"), |_, output| {
            output.contains("ready")
        })
        .unwrap();
        let id = program.id();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = program;
            panic!("as a test does that fails");
        }));
        assert!(caught.is_err());
        assert!(!is_running(id));
    }
}
