//! Starts programs that do not outlive this process.
//!
//! The system sends a signal to the program when the *thread* that started it ends (Linux's
//! `PR_SET_PDEATHSIG`). The threads of the runtime may end before the program does, so a thread that lives as
//! long as the process starts all programs. Only the program itself gets the signal: for the processes that
//! it has started, see [`watcher`](super::watcher).

#![allow(unsafe_code)]

use std::io;
use std::sync::mpsc::{Sender, channel};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Running, watcher};

type Work = Box<dyn FnOnce() + Send>;

/// Starts a program that is killed when this process ends, with its process group.
pub(super) async fn spawn(mut command: Command) -> io::Result<Running> {
    let us = getpid();
    // SAFETY: the closure runs in the new process between fork and exec. It makes two system calls, which are
    // safe there, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || end_with(us));
    }
    let (done, running) = oneshot::channel();
    let runtime = Handle::current();
    let work: Work = Box::new(move || {
        let _runtime = runtime.enter();
        watcher::prepare();
        // If the caller is gone, the program is killed when it is dropped.
        drop(done.send(command.spawn().map(Running::new)));
    });
    starter()?.send(work).map_err(|_| io::ErrorKind::BrokenPipe)?;
    running.await.map_err(io::Error::other)?
}

/// Has the calling process killed when its parent ends.
fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Returns the queue of the thread that starts programs. A forked process has none of our threads, and gets
/// another one.
fn starter() -> io::Result<Sender<Work>> {
    static STARTER: Mutex<Option<(Pid, Sender<Work>)>> = Mutex::new(None);
    let mut starter = STARTER.lock();
    if let Some((_, queue)) = starter.as_ref().filter(|(of, _)| *of == getpid()) {
        return Ok(queue.clone());
    }
    let (queue, work) = channel::<Work>();
    std::thread::Builder::new()
        .name("programs".to_owned())
        .spawn(move || work.iter().for_each(|work| work()))?;
    *starter = Some((getpid(), queue.clone()));
    Ok(queue)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_outlives_the_thread_and_the_runtime_that_asked_for_it_but_is_bound_to_the_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asked = std::thread::spawn(move || {
            let mut command = Command::new("sh");
            // Field 9 of the status is not it: the signal shows only by its effect, so the thread ends here.
            command.args(["-c", "sleep 0.3; exit 7"]).process_group(0);
            let running = runtime.block_on(spawn(command)).unwrap();
            (runtime, running)
        });
        let (runtime, mut running) = asked.join().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let status = runtime.block_on(running.child.wait()).unwrap();
        assert_eq!(status.code(), Some(7));
    }
}
