//! The part of the event loop that each turn passes through.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::handle::{Callback, Handle, TimerHandle};
use super::job::Job;
use super::poller::{Poller, Registered};
use super::queues::{Queues, ended};
use super::system::{Epoll, Event, READ, WRITE, now, os_error};
use super::waits::Wait;
use crate::evaluation::Asyncio;

/// The handles of a descriptor: its reader and its writer.
type Handles = (Option<Py<PyAny>>, Option<Py<PyAny>>);

/// The longest wait of the system, as in asyncio: a day.
const LONGEST: f64 = 24.0 * 3600.0;

/// The base of `thalweg.evaluations.EventLoop`.
#[pyclass(frozen, subclass, weakref, module = "thalweg._thalweg")]
pub struct EventLoopCore {
    queues: Mutex<Queues>,
    poller: Mutex<Option<Poller>>,
    // asyncio's own code reads and writes these as attributes.
    is_closed: AtomicBool,
    is_stopping: AtomicBool,
    is_debug: AtomicBool,
    /// True while the loop waits for the system, so that other threads must wake it.
    sleeps: AtomicBool,
    /// True if the program has readers or writers.
    is_watching: AtomicBool,
    turns: AtomicU32,
    /// True while asyncio's table holds an evaluation that was stepped last.
    has_current: AtomicBool,
    /// The thread that runs turns.
    thread: Mutex<Option<ThreadId>>,
}

impl EventLoopCore {
    /// The queues of the loop.
    pub fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }

    fn check_open(&self) -> PyResult<()> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("Event loop is closed"));
        }
        Ok(())
    }

    /// Schedules something for the next turn.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    #[inline]
    pub fn push(&self, job: Job) -> PyResult<()> {
        self.check_open()?;
        self.queues().ready.push_back(job);
        Ok(())
    }

    /// Makes a wait take place.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn arm(&self, wait: &Bound<'_, Wait>) -> PyResult<()> {
        self.check_open()?;
        self.queues().add(wait, now);
        Ok(())
    }

    /// Removes a wait.
    pub fn disarm(&self, wait: &Bound<'_, Wait>) {
        let removed = self.queues().remove(wait);
        drop(removed);
    }

    /// Calls `work` with the descriptors of the loop.
    fn with_poller<T>(&self, work: impl FnOnce(&mut Poller) -> PyResult<T>) -> PyResult<T> {
        match self.poller.lock().as_mut() {
            Some(poller) => work(poller),
            None => Err(PyRuntimeError::new_err("Event loop is closed")),
        }
    }

    /// The milliseconds for which the system may wait.
    fn patience(&self) -> i32 {
        let queues = self.queues();
        let is_busy = !queues.ready.is_empty() || queues.descriptors.is_asked();
        if is_busy || self.is_stopping.load(Ordering::Relaxed) {
            return 0;
        }
        match queues.timers.next_due() {
            None => -1,
            Some(due) => ((due - now()).clamp(0.0, LONGEST) * 1e3).ceil() as i32,
        }
    }

    /// Waits for descriptors, and schedules what they allow.
    fn poll(slf: &Bound<'_, Self>, patience: i32) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let epoll = this.with_poller(|poller| Ok(Arc::clone(poller.epoll())))?;
        let mut events: Vec<Event> = Vec::new();
        let result = if patience == 0 {
            epoll.wait(&mut events, 0)
        } else {
            this.sleep(py, &epoll, &mut events, patience)?
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => py.check_signals()?,
            result => result.map_err(|error| os_error(&error))?,
        }
        if events.is_empty() {
            return Ok(());
        }
        let (jobs, _) = this.with_poller(|poller| Ok(poller.jobs(py, &events)))?;
        this.queues().ready.extend(jobs);
        Ok(())
    }

    /// Waits for the system. The inner result is that of the system.
    fn sleep(
        &self,
        py: Python<'_>,
        epoll: &Epoll,
        events: &mut Vec<Event>,
        patience: i32,
    ) -> PyResult<io::Result<()>> {
        // Python's handlers of signals run between turns, and one that came before the wait must not be late.
        // The flag is set before: a handler, or a thread that runs meanwhile, may schedule something, and
        // must ring.
        self.sleeps.store(true, Ordering::SeqCst);
        let checked = py.check_signals();
        let result = checked.map(|()| py.detach(|| epoll.wait(events, patience)));
        self.sleeps.store(false, Ordering::SeqCst);
        result
    }

    /// Wakes the waits for descriptors that are over.
    fn wake(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (over, epoll) = {
            let mut queues = this.queues();
            if queues.descriptors.is_idle() {
                return Ok(());
            }
            (queues.over().map_err(|error| os_error(&error))?, queues.descriptors.epoll())
        };
        if let Some(epoll) = epoll {
            this.with_poller(|poller| poller.nest(epoll).map_err(|error| os_error(&error)))?;
        }
        if !over.is_empty() {
            let over = ended(py, over);
            let timers = this.queues().wake(over);
            drop(timers);
        }
        Ok(())
    }

    /// Runs one turn: waits for descriptors, and runs what is ready and what is due.
    fn turn(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        // A wait that is answered needs no sleep.
        Self::wake(slf)?;
        let patience = this.patience();
        if patience != 0 || this.must_poll() {
            Self::poll(slf, patience)?;
            if patience != 0 {
                Self::wake(slf)?;
            }
        }
        let count = {
            let mut queues = this.queues();
            if !queues.timers.is_empty() {
                // As asyncio does: a timer within the resolution of the clock is due.
                let now = if queues.timers.is_timeless() { f64::INFINITY } else { now() + 1e-9 };
                let last = queues.timers.made();
                queues.fire(now, last);
            }
            queues.ready.len()
        };
        let result = this.run_jobs(event_loop, count);
        this.leave_evaluation(event_loop)?;
        result
    }

    fn run_jobs(&self, event_loop: &Bound<'_, PyAny>, count: usize) -> PyResult<()> {
        let is_debug = self.is_debug.load(Ordering::Relaxed);
        for _ in 0..count {
            let Some(job) = self.queues().ready.pop_front() else {
                break;
            };
            if is_debug {
                run_in_debug(job, event_loop)?;
            } else {
                job.run(event_loop, Some(self))?;
            }
        }
        Ok(())
    }

    /// Makes an evaluation the current task until another is, or
    /// [`leave_evaluation`](Self::leave_evaluation). A turn steps many evaluations one after the other, so
    /// the table of current tasks is cleared once.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn enter_evaluation(
        &self,
        asyncio: &Asyncio,
        event_loop: &Bound<'_, PyAny>,
        evaluation: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.has_current.store(true, Ordering::Relaxed);
        asyncio.set_current(event_loop, evaluation)
    }

    /// True if the last job was an evaluation, which is the current task still.
    pub fn is_in_evaluation(&self) -> bool {
        self.has_current.load(Ordering::Relaxed)
    }

    /// Clears the current task, if the last job was an evaluation.
    ///
    /// # Errors
    /// The exceptions of asyncio.
    pub fn leave_evaluation(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_in_evaluation() {
            self.has_current.store(false, Ordering::Relaxed);
            return Asyncio::get(event_loop.py())?.leave(event_loop, None);
        }
        Ok(())
    }

    /// True if descriptors need a look although there is something to run. Without readers and writers, only
    /// signals and other threads use the descriptors of the loop, and a look from time to time is enough.
    fn must_poll(&self) -> bool {
        const TURNS: u32 = 64;
        if self.is_stopping.load(Ordering::Relaxed) || self.is_watching.load(Ordering::Relaxed) {
            return true;
        }
        self.turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(TURNS)
    }

    fn register(
        slf: &Bound<'_, Self>,
        file: &Bound<'_, PyAny>,
        mask: u32,
        callback: Bound<'_, PyAny>,
        arguments: Bound<'_, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.check_open()?;
        let descriptor = descriptor_of(file)?;
        let handle = if this.is_debug.load(Ordering::Relaxed) {
            let made = slf.call_method1(intern!(py, "_debug_handle"), (callback, arguments, py.None()))?;
            Registered::Foreign(made.unbind())
        } else {
            Registered::Own(Py::new(py, Handle::new(Callback::new(callback, arguments, None)?))?)
        };
        let object = handle.object(py);
        let before = this.with_poller(|poller| {
            let before = poller.set(descriptor, mask, handle).map_err(|error| os_error(&error))?;
            // The first descriptor is that of the loop's own socket pair.
            this.is_watching.store(poller.watched().len() > 1, Ordering::Relaxed);
            Ok(before)
        })?;
        cancel(py, before)?;
        Ok(object)
    }

    fn unregister(slf: &Bound<'_, Self>, file: &Bound<'_, PyAny>, mask: u32) -> PyResult<bool> {
        let this = slf.get();
        if this.is_closed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let descriptor = descriptor_of(file)?;
        let before = this.poller.lock().as_mut().and_then(|poller| {
            let before = poller.unset(descriptor, mask);
            this.is_watching.store(poller.watched().len() > 1, Ordering::Relaxed);
            before
        });
        let is_found = before.is_some();
        cancel(slf.py(), before)?;
        Ok(is_found)
    }
}

fn cancel(py: Python<'_>, handle: Option<Registered>) -> PyResult<()> {
    handle.map_or(Ok(()), |handle| handle.object(py).call_method0(py, intern!(py, "cancel")).map(drop))
}

/// Returns the descriptor of a file, with the errors of the module `selectors`.
fn descriptor_of(file: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    let py = file.py();
    let wrong = |file: &Bound<'_, PyAny>| PyValueError::new_err(format!("Invalid file object: {file:?}"));
    let number = match file.extract::<i64>() {
        Ok(number) => number,
        Err(_) => match file.call_method0(intern!(py, "fileno")).and_then(|number| number.extract::<i64>()) {
            Ok(number) => number,
            Err(_) => return Err(wrong(file)),
        },
    };
    match RawFd::try_from(number) {
        Ok(descriptor) if descriptor >= 0 => Ok(descriptor),
        _ => Err(PyValueError::new_err(format!("Invalid file descriptor: {number}"))),
    }
}

/// Runs a job, and tells of one that takes long.
fn run_in_debug(job: Job, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = event_loop.py();
    let object = job.object(py);
    event_loop.setattr(intern!(py, "_current_handle"), &object)?;
    let start = now();
    let result = job.run(event_loop, None);
    event_loop.setattr(intern!(py, "_current_handle"), py.None())?;
    let limit: f64 = event_loop.getattr(intern!(py, "slow_callback_duration"))?.extract()?;
    if now() - start >= limit {
        event_loop.call_method1(intern!(py, "_tell_slow"), (object, now() - start))?;
    }
    result
}

#[pymethods]
impl EventLoopCore {
    #[new]
    #[pyo3(signature = (*_arguments, **_named))]
    fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        Ok(Self {
            queues: Mutex::default(),
            poller: Mutex::new(Some(Poller::new().map_err(|error| os_error(&error))?)),
            is_closed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_debug: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            is_watching: AtomicBool::new(false),
            turns: AtomicU32::new(0),
            has_current: AtomicBool::new(false),
            thread: Mutex::default(),
        })
    }

    /// Schedules a callback for the next turn.
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if this.is_debug.load(Ordering::Relaxed) {
            this.check_open()?;
            slf.call_method0(intern!(py, "_check_thread"))?;
            slf.call_method1(intern!(py, "_check_callback"), (&callback, intern!(py, "call_soon")))?;
            let handle = slf.call_method1(intern!(py, "_debug_handle"), (callback, args, context))?;
            this.push(Job::Foreign(handle.clone().unbind()))?;
            return Ok(handle.unbind());
        }
        let handle = Py::new(py, Handle::new(Callback::new(callback, args, context)?))?;
        this.push(Job::Handle(handle.clone_ref(py)))?;
        Ok(handle.into_any())
    }

    /// As `call_soon`, from any thread.
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon_threadsafe(
        slf: &Bound<'_, Self>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.check_open()?;
        let (job, object) = if this.is_debug.load(Ordering::Relaxed) {
            let name = intern!(py, "call_soon_threadsafe");
            slf.call_method1(intern!(py, "_check_callback"), (&callback, name))?;
            let handle = slf.call_method1(intern!(py, "_debug_handle"), (callback, args, context))?;
            (Job::Foreign(handle.clone().unbind()), handle.unbind())
        } else {
            let handle = Py::new(py, Handle::new(Callback::new(callback, args, context)?))?;
            (Job::Handle(handle.clone_ref(py)), handle.into_any())
        };
        this.push(job)?;
        this.ring();
        this.make_way(py);
        Ok(object)
    }

    /// Schedules a callback for after `delay` seconds.
    #[pyo3(signature = (delay, callback, *args, context = None))]
    fn call_later(
        slf: &Bound<'_, Self>,
        delay: Option<f64>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let Some(delay) = delay else {
            return Err(PyTypeError::new_err("delay must not be None"));
        };
        Self::call_at(slf, Some(now() + delay), callback, args, context)
    }

    /// Schedules a callback for the time `when` of `loop.time()`.
    #[pyo3(signature = (when, callback, *args, context = None))]
    fn call_at(
        slf: &Bound<'_, Self>,
        when: Option<f64>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
        context: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let Some(when) = when else {
            return Err(PyTypeError::new_err("when cannot be None"));
        };
        this.check_open()?;
        if this.is_debug.load(Ordering::Relaxed) {
            slf.call_method0(intern!(py, "_check_thread"))?;
            slf.call_method1(intern!(py, "_check_callback"), (&callback, intern!(py, "call_at")))?;
            let made = slf.call_method1(intern!(py, "_debug_timer"), (when, callback, args, context))?;
            this.queues().timers.add(when, Job::Foreign(made.clone().unbind()));
            return Ok(made.unbind());
        }
        let handle = TimerHandle::new(Callback::new(callback, args, context)?, when, slf.clone().unbind());
        let handle = Bound::new(py, handle)?;
        let key = this.queues().timers.add(when, Job::Timer(handle.clone().unbind()));
        handle.get().set(key);
        Ok(handle.into_any().unbind())
    }

    /// The time of the loop: that of `time.monotonic()`.
    fn time(&self) -> f64 {
        now()
    }

    /// Stops the loop at the end of its current turn.
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// True once the loop is closed.
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// True in debug mode.
    fn get_debug(&self) -> bool {
        self.is_debug.load(Ordering::Relaxed)
    }

    /// Returns a future of this loop.
    fn create_future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Asyncio::get(slf.py())?.create_future(slf.as_any())
    }

    /// Runs one turn.
    fn _run_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::turn(slf, slf.as_any())
    }

    /// Runs turns until the loop is stopped.
    fn _run_turns(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        *this.thread.lock() = Some(std::thread::current().id());
        let result = loop {
            let turned = Self::turn(slf, slf.as_any());
            if turned.is_err() || this.is_stopping.load(Ordering::Relaxed) {
                break turned;
            }
        };
        *this.thread.lock() = None;
        result
    }

    #[pyo3(signature = (fd, callback, *args))]
    fn _add_reader(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        Self::register(slf, fd, READ, callback, args)
    }

    #[pyo3(signature = (fd, callback, *args))]
    fn _add_writer(
        slf: &Bound<'_, Self>,
        fd: &Bound<'_, PyAny>,
        callback: Bound<'_, PyAny>,
        args: Bound<'_, PyTuple>,
    ) -> PyResult<Py<PyAny>> {
        Self::register(slf, fd, WRITE, callback, args)
    }

    fn _remove_reader(slf: &Bound<'_, Self>, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        Self::unregister(slf, fd, READ)
    }

    fn _remove_writer(slf: &Bound<'_, Self>, fd: &Bound<'_, PyAny>) -> PyResult<bool> {
        Self::unregister(slf, fd, WRITE)
    }

    /// Returns the handles for a descriptor: that of its reader, and that of its writer.
    fn _registered(&self, py: Python<'_>, fd: RawFd) -> PyResult<Handles> {
        self.with_poller(|poller| {
            let watched = poller.watched().get(&fd);
            let of = |mask| watched.and_then(|watched| watched.of(mask)).map(|handle| handle.object(py));
            Ok((of(READ), of(WRITE)))
        })
    }

    /// Returns all descriptors that have a reader or a writer.
    fn _descriptors(&self) -> PyResult<Vec<RawFd>> {
        self.with_poller(|poller| Ok(poller.watched().keys().copied().collect()))
    }

    /// Schedules a handle of asyncio's own classes.
    fn _add_callback(&self, py: Python<'_>, handle: Py<PyAny>) -> PyResult<()> {
        let job = match handle.bind(py).cast::<Handle>() {
            Ok(own) => Job::Handle(own.clone().unbind()),
            Err(_) => Job::Foreign(handle),
        };
        self.queues().ready.push_back(job);
        Ok(())
    }

    /// As `_add_callback`, from a handler of a signal.
    fn _add_callback_signalsafe(&self, py: Python<'_>, handle: Py<PyAny>) -> PyResult<()> {
        self._add_callback(py, handle)?;
        self.ring();
        Ok(())
    }

    fn _timer_handle_cancelled(&self, _handle: &Bound<'_, PyAny>) {}

    /// Drops all that is scheduled, and the descriptors of the loop.
    fn _drop_all(&self) {
        let queues = std::mem::take(&mut *self.queues.lock());
        let poller = self.poller.lock().take();
        drop((queues, poller));
    }

    #[getter(_closed)]
    fn closed_flag(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    #[setter(_closed)]
    fn set_closed_flag(&self, value: bool) {
        self.is_closed.store(value, Ordering::Relaxed);
    }

    #[getter(_stopping)]
    fn stopping_flag(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    #[setter(_stopping)]
    fn set_stopping_flag(&self, value: bool) {
        self.is_stopping.store(value, Ordering::Relaxed);
    }

    #[getter(_debug)]
    fn debug_flag(&self) -> bool {
        self.is_debug.load(Ordering::Relaxed)
    }

    #[setter(_debug)]
    fn set_debug_flag(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.is_debug.store(value.is_truthy()?, Ordering::Relaxed);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(queues) = self.queues.try_lock() {
            queues.traverse(&visit)?;
        }
        match self.poller.try_lock().as_deref() {
            Some(Some(poller)) => poller.traverse(&visit),
            _ => Ok(()),
        }
    }

    /// Breaks cycles through what a loop that nothing refers to has scheduled.
    fn __clear__(&self) {
        self._drop_all();
    }
}

impl EventLoopCore {
    /// Waits for a moment if this is not the thread of the loop, and the loop is behind. Threads that
    /// schedule callbacks faster than the loop runs them would make each of its turns longer than the one
    /// before, and timers and descriptors would wait for the end of the turn.
    ///
    /// Rejected: to yield instead, because this thread often gets the interpreter lock again at once; to wait
    /// until the loop is no longer behind, because it may wait for this thread.
    fn make_way(&self, py: Python<'_>) {
        const MANY: usize = 1 << 10;
        const MOMENT: Duration = Duration::from_micros(50);
        let is_behind = self.queues().ready.len() > MANY;
        if is_behind && self.thread.lock().is_some_and(|of| of != std::thread::current().id()) {
            py.detach(|| std::thread::sleep(MOMENT));
        }
    }

    /// Wakes the loop if it waits for the system.
    fn ring(&self) {
        if self.sleeps.load(Ordering::SeqCst)
            && let Some(poller) = self.poller.lock().as_ref()
        {
            poller.ring();
        }
    }
}
