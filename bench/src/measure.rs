//! Runs a program and measures its time and resources from outside, as the system reports them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The resources of one run of a program.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The time from start to end.
    pub wall: Duration,
    /// The CPU time on all cores, in user and kernel mode.
    pub cpu: Duration,
    /// The part of it in user mode.
    pub user: Duration,
    /// The peak resident memory, in bytes.
    pub peak_rss: u64,
}

/// Runs a command to its end and discards its output.
///
/// # Errors
/// Returns an error if the command cannot be started or fails.
#[allow(unsafe_code)]
pub fn run(command: &mut Command) -> Result<Run, String> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let mut stderr = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut pipe, &mut stderr);
    }
    let mut status = 0;
    // SAFETY: all zero bytes are a valid value of this plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right types; the child is ours and was not waited for.
    let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) };
    let wall = start.elapsed();
    if waited < 0 || status != 0 {
        return Err(format!("{command:?} ended with status {status}: {}", stderr.trim()));
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(Run {
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        user: time(usage.ru_utime),
        peak_rss: usage.ru_maxrss as u64 * 1024,
    })
}

/// Returns the run with the median time.
pub fn median(mut runs: Vec<Run>) -> Option<Run> {
    runs.sort_by_key(|run| run.wall);
    runs.get(runs.len() / 2).copied()
}

/// Returns the CPU time of this thread, in user and kernel mode.
#[allow(unsafe_code)]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live value of the right type. The clock exists, so it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the resident bytes of this process.
///
/// # Errors
/// Returns an error if the system has no `/proc`, or its format differs.
pub fn resident() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| std::io::Error::other("`/proc/self/status` has no `VmRSS`"))
}
