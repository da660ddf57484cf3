//! Tells a service manager, such as systemd, how a run goes: the protocol of `sd_notify`.
//!
//! Each message is a datagram of lines `NAME=VALUE` to the socket that the variable `NOTIFY_SOCKET` names.
//! The protocol is described in sd_notify(3); it is four lines of code, so a library was rejected.
//!
//! A thread of its own sends the messages: also between two runs, and while the threads of the run are busy.
//! It sends no `WATCHDOG=1` while a thread of the run makes no progress (see [`Pulse`]), so that the service
//! manager ends and restarts a process that is stuck. A sink that waits for a server is not stuck.
//!
//! See docs/decisions/097-a-service-is-watched-from-outside.md.

use std::env;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use thalweg_engine::{ComponentCounts, Handle};
use thalweg_job::{ReloadStatus, Reloads};
use thalweg_redact::redacted;

use crate::around::Awaited;
use crate::format::{count, counted};
use crate::health::problems;
use crate::print;
use crate::pulse::Pulse;

/// How often the state of the run is read.
const LOOK: Duration = Duration::from_millis(200);
/// How often a status that only counts is sent again.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How often a draining run asks for more time, and for how much.
const EXTEND_EVERY: Duration = Duration::from_secs(2);
const EXTEND_BY: Duration = Duration::from_secs(20);
/// How long sending may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most characters of a status.
const LONGEST: usize = 240;

/// Tells a service manager how the runs of this process go. Dropped, it ends its thread.
pub(crate) struct ServiceManager {
    shared: Arc<Shared>,
    /// Wakes the thread; dropped, it ends it.
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    pulse: Pulse,
    reloads: Option<Reloads>,
    current: Mutex<Current>,
}

/// The current run.
#[derive(Default)]
struct Current {
    handle: Option<Handle>,
    /// When the next run begins, if that is waited for.
    next_run: Option<String>,
    /// True once the components of a run were built and ran, or a time of a schedule was waited for. A short
    /// job may have ended before the thread looks.
    was_started: bool,
    /// True once a signal asked the process to end.
    is_stopping: bool,
}

impl ServiceManager {
    /// The service manager that started this process, if it wants to know.
    pub(crate) fn of_the_environment(pulse: &Pulse, reloads: Option<&Reloads>, json: bool) -> Option<Self> {
        let socket = match Socket::open(&env::var("NOTIFY_SOCKET").ok()?) {
            Ok(socket) => socket,
            Err(error) => {
                // The log begins with the first run.
                let text =
                    format!("warning: the service manager cannot be reached by NOTIFY_SOCKET: {error}");
                print::err(&print::event(json, false, "warning", &text));
                return None;
            }
        };
        let variable = |name: &str| env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        // The variables of another process, which started this one.
        let is_own = variable("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog = variable("WATCHDOG_USEC").filter(|time| is_own && *time > 0);
        let report = Report::new(watchdog.map(Duration::from_micros));
        let shared =
            Arc::new(Shared { pulse: pulse.clone(), reloads: reloads.cloned(), current: Mutex::default() });
        let (wake, woken) = channel();
        let attending = shared.clone();
        let thread = std::thread::Builder::new().name("service".to_owned());
        let thread = thread.spawn(move || attend(&attending, &socket, report, &woken)).ok()?;
        Some(Self { shared, wake: Some(wake), thread: Some(thread) })
    }

    /// A run begins.
    pub(crate) fn begin(&self, handle: &Handle) {
        let mut current = self.shared.current.lock();
        current.handle = Some(handle.clone());
        current.next_run = None;
    }

    /// The process waits for its next run. Before the first time of a schedule, it is ready for it. A run
    /// that could not begin and is repeated is not.
    pub(crate) fn waiting(&self, awaited: &Awaited) {
        self.change(|current| {
            current.next_run = Some(awaited.next());
            current.was_started |= matches!(awaited, Awaited::Time(_));
        });
    }

    /// A signal asked the process to end.
    pub(crate) fn stopping(&self) {
        self.change(|current| current.is_stopping = true);
    }

    /// The run has ended.
    pub(crate) fn end(&self) {
        self.change(|current| {
            let ended = current.handle.take();
            current.was_started |= ended.is_some_and(|handle| handle.is_started());
        });
    }

    /// Changes what is known, and lets the thread look at it.
    fn change(&self, change: impl FnOnce(&mut Current)) {
        change(&mut self.shared.current.lock());
        if let Some(wake) = &self.wake {
            // The thread ends only after this value is dropped.
            let _ = wake.send(());
        }
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is ignored: the service manager only hears no more.
            let _ = thread.join();
        }
    }
}

/// Sends what is due until the end.
fn attend(shared: &Shared, socket: &Socket, mut report: Report, woken: &Receiver<()>) {
    while !matches!(woken.recv_timeout(report.look_every()), Err(RecvTimeoutError::Disconnected)) {
        let (handle, next_run, was_started, is_stopping) = {
            let current = shared.current.lock();
            (current.handle.clone(), current.next_run.clone(), current.was_started, current.is_stopping)
        };
        let mut view = View::of(handle.as_ref(), next_run, is_stopping, shared.pulse.still_for());
        view.is_started |= was_started;
        if let Some(reloads) = &shared.reloads {
            view.show_reloads(&reloads.status(), monotonic_us());
        }
        let message = report.due(&view, Instant::now());
        if let Err(error) = socket.send(&message) {
            tracing::debug!("the service manager does not hear this process: {error}");
        }
    }
}

/// The socket of the service manager.
struct Socket {
    own: UnixDatagram,
    to: SocketAddr,
}

impl Socket {
    /// Opens a socket to a path, or to an abstract name after `@`.
    fn open(address: &str) -> io::Result<Self> {
        let to = match address.strip_prefix('@') {
            #[cfg(target_os = "linux")]
            Some(name) => {
                use std::os::linux::net::SocketAddrExt;
                SocketAddr::from_abstract_name(name)?
            }
            _ if address.starts_with('/') => SocketAddr::from_pathname(address)?,
            _ => return Err(io::Error::other("it is neither a path nor a name after `@`")),
        };
        let own = UnixDatagram::unbound()?;
        own.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { own, to })
    }

    fn send(&self, message: &str) -> io::Result<()> {
        match message {
            "" => Ok(()),
            _ => self.own.send_to_addr(message.as_bytes(), &self.to).map(drop),
        }
    }
}

/// The state of the process at one moment.
struct View {
    /// True if all components are built and run, or the process waits for a time of its schedule.
    is_started: bool,
    is_stopping: bool,
    /// How long a thread of the run has made no progress.
    still_for: Duration,
    /// Why a component cannot work, or where the run is.
    text: String,
    /// The counters, if nothing is wrong.
    counts: String,
    /// How many reloads have begun, and how many have ended.
    reloads: [u64; 2],
    /// The time of the monotonic clock, if a reload may have begun.
    monotonic_us: u128,
}

/// The time by which a service manager tells reloads apart.
fn monotonic_us() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default().as_micros()
}

impl View {
    fn of(handle: Option<&Handle>, next_run: Option<String>, is_stopping: bool, still_for: Duration) -> Self {
        let is_started = handle.is_some_and(Handle::is_started);
        let counts = handle.map(Handle::counts).unwrap_or_default();
        let problem = handle.and_then(|handle| problems(handle, &counts, still_for).into_iter().next());
        let (text, counts) = match (handle, problem) {
            (_, Some(problem)) => (format!("{}: {}", problem.component, problem.reason), String::new()),
            (None, None) if is_stopping => ("stopped".to_owned(), String::new()),
            (None, None) => match next_run {
                Some(next) => (format!("waiting: the next run begins at {next}"), String::new()),
                None => ("no run is active".to_owned(), String::new()),
            },
            (Some(_), None) if !is_started => ("starting".to_owned(), String::new()),
            (Some(handle), None) => ("running".to_owned(), moved(handle, &counts)),
        };
        let start = if is_stopping && handle.is_some() { "delivering what is in flight; " } else { "" };
        let text = format!("{start}{text}");
        Self { is_started, is_stopping, still_for, text, counts, reloads: [0; 2], monotonic_us: 0 }
    }

    /// Adds how the reloads went.
    fn show_reloads(&mut self, status: &ReloadStatus, monotonic_us: u128) {
        self.reloads = [status.begun, status.ended];
        self.monotonic_us = monotonic_us;
        if status.begun > status.ended {
            self.text = format!("reloading; {}", self.text);
        } else if let Some(failure) = &status.failure {
            // The status is short, and the log has all of it.
            let failure: String = redacted(failure).chars().take(LONGEST / 2).collect();
            self.text = format!("{}; not reloaded: {failure}", self.text);
            self.counts.clear();
        }
    }

    fn status(&self, with_counts: bool) -> String {
        let counts = if with_counts { self.counts.as_str() } else { "" };
        // A line feed would begin another assignment.
        let line = format!("{}{counts}", self.text).replace(['\n', '\r', '\0'], " ");
        line.chars().take(LONGEST).collect()
    }
}

/// The messages that a run has moved: `: 1,204 messages read, 1,200 written, 4 errors`.
fn moved(handle: &Handle, components: &[ComponentCounts]) -> String {
    let sum = |role: &str, of: fn(&ComponentCounts) -> u64| {
        components.iter().filter(|counts| counts.role == role).map(of).sum::<u64>()
    };
    let read = counted(sum("source", |counts| counts.rows_in), handle.item());
    let mut text = format!(": {read} read, {} written", count(sum("sink", |counts| counts.rows_out)));
    let errors = components.iter().map(|counts| counts.errors).sum::<u64>();
    if errors > 0 {
        text += &format!(", {}", counted(errors, "error"));
    }
    text
}

/// The messages that were sent, from which follows which are due.
struct Report {
    watchdog: Option<Duration>,
    is_ready: bool,
    is_stopping: bool,
    /// True once an error said that the watchdog gets no sign of life.
    is_stuck: bool,
    /// The last reload whose beginning was sent, and whether its end is still to be sent.
    reloads: u64,
    is_reloading: bool,
    status: String,
    counted: Option<Instant>,
    alive: Option<Instant>,
    extended: Option<Instant>,
}

impl Report {
    fn new(watchdog: Option<Duration>) -> Self {
        Self {
            watchdog,
            is_ready: false,
            is_stopping: false,
            is_stuck: false,
            reloads: 0,
            is_reloading: false,
            status: String::new(),
            counted: None,
            alive: None,
            extended: None,
        }
    }

    fn look_every(&self) -> Duration {
        self.watchdog.map_or(LOOK, |watchdog| LOOK.min(watchdog / 4))
    }

    /// The lines that are due.
    fn due(&mut self, view: &View, now: Instant) -> String {
        let passed = |since: Option<Instant>, time: Duration| {
            since.is_none_or(|since| now.saturating_duration_since(since) >= time)
        };
        let mut lines = Vec::new();
        if view.is_started && !self.is_ready {
            self.is_ready = true;
            lines.push("READY=1".to_owned());
        }
        let [begun, ended] = view.reloads;
        if self.is_reloading && ended >= self.reloads {
            self.is_reloading = false;
            lines.push("READY=1".to_owned());
        } else if self.is_ready && lines.is_empty() && begun > self.reloads {
            self.reloads = begun;
            self.is_reloading = true;
            lines.push("RELOADING=1".to_owned());
            lines.push(format!("MONOTONIC_USEC={}", view.monotonic_us));
        }
        if view.is_stopping && !self.is_stopping {
            self.is_stopping = true;
            lines.push("STOPPING=1".to_owned());
        }
        if view.is_stopping && view.still_for < EXTEND_BY && passed(self.extended, EXTEND_EVERY) {
            self.extended = Some(now);
            lines.push(format!("EXTEND_TIMEOUT_USEC={}", EXTEND_BY.as_micros()));
        }
        let status = view.status(false);
        if status != self.status || (!view.counts.is_empty() && passed(self.counted, COUNT_EVERY)) {
            self.status = status;
            self.counted = Some(now);
            lines.push(format!("STATUS={}", view.status(true)));
        }
        if let Some(half) = self.watchdog.map(|watchdog| watchdog / 2) {
            let is_alive = view.still_for < half;
            if !is_alive && !self.is_stuck {
                tracing::error!(
                    "a thread of the run has made no progress for {} s, so the service manager gets no sign of life",
                    view.still_for.as_secs()
                );
            }
            self.is_stuck = !is_alive;
            if is_alive && self.is_ready && passed(self.alive, half) {
                self.alive = Some(now);
                lines.push("WATCHDOG=1".to_owned());
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn view(text: &str) -> View {
        View {
            is_started: true,
            is_stopping: false,
            still_for: Duration::ZERO,
            text: text.to_owned(),
            counts: String::new(),
            reloads: [0; 2],
            monotonic_us: 0,
        }
    }

    #[test]
    fn a_reload_is_told_with_its_beginning_and_its_end_and_a_failed_one_stays_in_the_status() {
        let start = Instant::now();
        let mut report = Report::new(None);
        report.due(&view("running"), start);
        let mut reloaded = view("running");
        let failure = Some("the configuration cannot be used".to_owned());
        reloaded.show_reloads(&ReloadStatus { begun: 1, ended: 1, failure, ..ReloadStatus::default() }, 17);
        assert_eq!(
            report.due(&reloaded, start),
            "RELOADING=1\nMONOTONIC_USEC=17\nSTATUS=running; not reloaded: the configuration cannot be used"
        );
        assert_eq!(report.due(&reloaded, start), "READY=1");
        assert_eq!(report.due(&reloaded, start), "");
        let mut again = view("running");
        again.show_reloads(&ReloadStatus { begun: 2, ended: 1, ..ReloadStatus::default() }, 18);
        let begun = "RELOADING=1\nMONOTONIC_USEC=18\nSTATUS=reloading; running";
        assert_eq!(report.due(&again, start), begun);
        assert_eq!(report.due(&again, start), "");
    }

    #[test]
    fn a_service_is_ready_once_all_runs_and_says_what_it_waits_for() {
        let start = Instant::now();
        let mut report = Report::new(None);
        let starting = View { is_started: false, ..view("starting") };
        assert_eq!(report.due(&starting, start), "STATUS=starting");
        let running = View { counts: ": 3 messages read, 3 written".to_owned(), ..view("running") };
        assert_eq!(report.due(&running, start), "READY=1\nSTATUS=running: 3 messages read, 3 written");
        assert_eq!(report.due(&running, start + SECOND), "");
        let more = View { counts: ": 4 messages read, 4 written".to_owned(), ..view("running") };
        assert_eq!(report.due(&more, start + SECOND), "");
        assert_eq!(report.due(&more, start + COUNT_EVERY), "STATUS=running: 4 messages read, 4 written");
        let waits = view("out: connection refused\nWATCHDOG=1");
        assert_eq!(report.due(&waits, start + COUNT_EVERY), "STATUS=out: connection refused WATCHDOG=1");
    }

    #[test]
    fn a_process_that_waits_says_until_when_and_is_not_ready_by_that_alone() {
        let mut view = View::of(None, Some("2026-11-28T02:30:00Z".to_owned()), false, Duration::ZERO);
        let mut report = Report::new(Some(SECOND * 10));
        let start = Instant::now();
        assert_eq!(report.due(&view, start), "STATUS=waiting: the next run begins at 2026-11-28T02:30:00Z");
        view.is_started = true;
        assert_eq!(report.due(&view, start), "READY=1\nWATCHDOG=1");
    }

    #[test]
    fn the_watchdog_gets_a_sign_of_life_twice_in_its_time_unless_a_thread_is_stuck() {
        let start = Instant::now();
        let mut report = Report::new(Some(SECOND * 10));
        assert_eq!(report.due(&View { is_started: false, ..view("starting") }, start), "STATUS=starting");
        assert_eq!(report.due(&view("running"), start), "READY=1\nSTATUS=running\nWATCHDOG=1");
        assert_eq!(report.due(&view("running"), start + SECOND * 4), "");
        assert_eq!(report.due(&view("running"), start + SECOND * 5), "WATCHDOG=1");
        let stuck = View { still_for: SECOND * 5, ..view("running") };
        assert_eq!(report.due(&stuck, start + SECOND * 10), "");
        assert_eq!(report.due(&stuck, start + SECOND * 20), "");
        assert_eq!(report.due(&view("running"), start + SECOND * 21), "WATCHDOG=1");
    }

    #[test]
    fn a_run_that_drains_asks_for_time_as_long_as_it_is_not_stuck() {
        let start = Instant::now();
        let mut report = Report::new(None);
        report.due(&view("running"), start);
        let drains = View { is_stopping: true, ..view("delivering what is in flight; running") };
        assert_eq!(
            report.due(&drains, start),
            "STOPPING=1\nEXTEND_TIMEOUT_USEC=20000000\nSTATUS=delivering what is in flight; running"
        );
        assert_eq!(report.due(&drains, start + SECOND), "");
        assert_eq!(report.due(&drains, start + EXTEND_EVERY), "EXTEND_TIMEOUT_USEC=20000000");
        let stuck = View { still_for: EXTEND_BY, ..drains };
        assert_eq!(report.due(&stuck, start + EXTEND_EVERY * 2), "");
    }

    #[test]
    fn a_socket_has_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        Socket::open(path.to_str().unwrap()).unwrap().send("READY=1").unwrap();
        let mut message = [0; 64];
        let length = listener.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
        assert!(Socket::open("vsock:2:1234").is_err());
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt;
            let name = format!("thalweg-notify-{}", std::process::id());
            let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
            Socket::open(&format!("@{name}")).unwrap().send("STOPPING=1").unwrap();
            let length = listener.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"STOPPING=1");
        }
    }
}
