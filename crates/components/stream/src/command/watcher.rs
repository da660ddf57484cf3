//! Kills the processes that programs have started if this process is killed.
//!
//! The system kills only the programs themselves ([`spawn`](super::spawn)). A second process, the watcher,
//! knows the process groups of all running programs. It reads them from a pipe whose other end we hold. The
//! end of the pipe means that this process has ended: the watcher kills the groups and ends. It is a shell,
//! since a copy of this process would keep the memory that we free. Without a shell there is no watcher.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};

use parking_lot::Mutex;
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, getpid};

/// Reads `+ GROUP` when a program starts and `- GROUP` when it has ended.
const SCRIPT: &str = "
groups=' '
while read -r change group; do
    case $change in
        +) groups=\"$groups$group \" ;;
        -) groups=\"${groups%% $group *} ${groups#* $group }\" ;;
    esac
done
for group in $groups; do kill -9 \"-$group\"; done
";

/// The pipe to the watcher of the process with this number, if it could be started. A forked process gets
/// another watcher.
static WATCHER: Mutex<Option<(Pid, Option<ChildStdin>)>> = Mutex::new(None);

/// Starts the watcher, unless it runs already. A program should be known to it before the program can start
/// others.
pub(super) fn prepare() {
    watcher(|_| {});
}

/// Has the process group killed when this process ends.
pub(super) fn add(group: Pid) {
    tell('+', group);
}

/// Revokes [`add`].
pub(super) fn remove(group: Pid) {
    tell('-', group);
}

fn tell(change: char, group: Pid) {
    // A watcher that was killed or stopped must not stop us.
    watcher(|pipe| drop(pipe.write_all(format!("{change} {}\n", group.as_raw_pid()).as_bytes())));
}

/// Calls `with` with the pipe to the watcher of this process.
fn watcher(with: impl FnOnce(&mut ChildStdin)) {
    let mut watcher = WATCHER.lock();
    if watcher.as_ref().is_none_or(|(of, _)| *of != getpid()) {
        let pipe = start().inspect_err(|error| tracing::debug!("no watcher of programs: {error}"));
        *watcher = Some((getpid(), pipe.ok()));
    }
    if let Some((_, Some(pipe))) = watcher.as_mut() {
        with(pipe);
    }
}

fn start() -> io::Result<ChildStdin> {
    let mut command = Command::new("sh");
    // Signals to our process group are not for the watcher.
    command.args(["-c", SCRIPT]).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let pipe = command.stdin(Stdio::piped()).spawn()?.stdin.ok_or(io::ErrorKind::BrokenPipe)?;
    ioctl_fionbio(&pipe, true)?;
    Ok(pipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watcher_kills_the_groups_of_running_programs_alone() {
        let sleep = || Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let (mut first, mut second, mut third) = (sleep(), sleep(), sleep());
        let mut pipe = start().unwrap();
        for (change, of) in [('+', &first), ('+', &second), ('+', &third), ('-', &second)] {
            writeln!(pipe, "{change} {}", of.id()).unwrap();
        }
        drop(pipe);
        assert_eq!(first.wait().unwrap().code(), None);
        assert_eq!(third.wait().unwrap().code(), None);
        assert_eq!(second.try_wait().unwrap(), None);
        second.kill().unwrap();
        second.wait().unwrap();
    }
}
