//! Evaluations on the event loop of another library.
//!
//! A handle of asyncio's own loop costs more than the step of an evaluation that it starts. So the
//! evaluations of a turn share one: what is scheduled joins the last handle if no other was scheduled since,
//! which keeps the order. For waits there is one timer, which is due with the first of them.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;

use super::job::Job;
use super::queues::{Queues, ended};
use super::system::os_error;
use super::waits::Wait;
use crate::evaluation::ask;

/// The evaluations on one event loop.
#[pyclass(frozen, module = "thalweg._thalweg")]
#[derive(Default)]
pub struct Guest {
    queues: Mutex<Queues>,
    plan: Mutex<Plan>,
}

/// The calls that the loop was asked for.
#[derive(Default)]
struct Plan {
    /// The jobs of each call of `run`.
    batches: VecDeque<usize>,
    /// The handle of the last of these calls.
    handle: Option<Py<PyAny>>,
    /// The handle of the call of `flush`, and when it is due.
    timer: Option<(Py<PyAny>, f64)>,
    is_watching: bool,
}

impl Guest {
    /// Returns the guest of an event loop.
    ///
    /// # Errors
    /// `AttributeError` if the loop refuses attributes.
    pub fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let py = event_loop.py();
        let name = intern!(py, "_thalweg_guest");
        if let Some(known) = event_loop.getattr_opt(name)? {
            return Ok(known.cast_into()?);
        }
        let guest = Bound::new(py, Self::default())?;
        event_loop.setattr(name, &guest).map_err(|error| {
            let wrong = PyAttributeError::new_err(format!(
                "{event_loop:?} cannot run evaluations: it takes no attributes"
            ));
            wrong.set_cause(py, Some(error));
            wrong
        })?;
        Ok(guest)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }

    /// Schedules something for the next turn.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn push(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, job: Job) -> PyResult<()> {
        let this = slf.get();
        if this.joins(event_loop)? {
            let mut plan = this.plan.lock();
            if let Some(last) = plan.batches.back_mut() {
                *last += 1;
            }
        } else {
            Self::call_soon(slf, event_loop, 1)?;
        }
        this.queues().ready.push_back(job);
        Ok(())
    }

    /// True if the last handle of the loop is ours, so that more jobs can run in it.
    fn joins(&self, event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = event_loop.py();
        let handle = {
            let plan = self.plan.lock();
            plan.handle.as_ref().filter(|_| !plan.batches.is_empty()).map(|handle| handle.clone_ref(py))
        };
        let Some(handle) = handle else {
            return Ok(false);
        };
        let Some(ready) = event_loop.getattr_opt(intern!(py, "_ready"))? else {
            return Ok(false);
        };
        Ok(ready.get_item(-1).is_ok_and(|last| last.is(&handle)))
    }

    fn call_soon(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, jobs: usize) -> PyResult<()> {
        let py = slf.py();
        let run = slf.getattr(intern!(py, "run"))?;
        let handle = event_loop.call_method1(intern!(py, "call_soon"), (run, event_loop))?;
        let before = {
            let mut plan = slf.get().plan.lock();
            plan.batches.push_back(jobs);
            plan.handle.replace(handle.unbind())
        };
        drop(before);
        Ok(())
    }

    /// True if nothing is scheduled, so that a wait for a turn is the only one.
    pub fn is_idle(&self) -> bool {
        let queues = self.queues();
        self.plan.lock().batches.is_empty() && queues.timers.is_empty() && !queues.descriptors.is_asked()
    }

    /// Makes a wait take place.
    ///
    /// # Errors
    /// `RuntimeError` if the loop is closed.
    pub fn arm(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, wait: &Bound<'_, Wait>) -> PyResult<()> {
        let now = time(event_loop)?;
        let due = {
            let mut queues = slf.get().queues();
            queues.add(wait, || now);
            // A question about a descriptor is answered at once.
            if queues.descriptors.is_asked() {
                Some(now)
            } else {
                queues.timers.next_due().map(|due| due.max(now))
            }
        };
        Self::call_at(slf, event_loop, due)
    }

    /// Makes sure that `flush` is called when the first wait is due.
    fn call_at(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, due: Option<f64>) -> PyResult<()> {
        let py = slf.py();
        let Some(due) = due else {
            return Ok(());
        };
        let before = {
            let mut plan = slf.get().plan.lock();
            if plan.timer.as_ref().is_some_and(|(_, planned)| *planned <= due) {
                return Ok(());
            }
            plan.timer.take()
        };
        if let Some((handle, _)) = before {
            handle.call_method0(py, intern!(py, "cancel"))?;
        }
        let flush = slf.getattr(intern!(py, "flush"))?;
        let handle = event_loop.call_method1(intern!(py, "call_at"), (due, flush, event_loop))?;
        slf.get().plan.lock().timer = Some((handle.unbind(), due));
        Ok(())
    }

    /// Removes a wait.
    pub fn disarm(&self, wait: &Bound<'_, Wait>) {
        let removed = self.queues().remove(wait);
        drop(removed);
    }

    fn watch(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.get();
        let epoll = this.queues().descriptors.epoll();
        let Some(epoll) = epoll.filter(|_| !this.plan.lock().is_watching) else {
            return Ok(());
        };
        let flush = slf.getattr(intern!(py, "flush"))?;
        event_loop.call_method1(intern!(py, "add_reader"), (epoll, flush, event_loop))?;
        this.plan.lock().is_watching = true;
        Ok(())
    }
}

/// Runs jobs until there is none, or one ends the program.
fn run_all(event_loop: &Bound<'_, PyAny>, mut next: impl FnMut() -> Option<Job>) -> PyResult<()> {
    while let Some(job) = next() {
        job.run(event_loop, None)?;
    }
    Ok(())
}

/// The loop calls a little early, within the resolution of its clock: seconds.
const CLOCK: f64 = 1e-6;

fn time(event_loop: &Bound<'_, PyAny>) -> PyResult<f64> {
    ask(event_loop, intern!(event_loop.py(), "time"))?.extract()
}

#[pymethods]
impl Guest {
    /// Runs the jobs of one handle.
    fn run(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let this = slf.get();
        let mut left = this.plan.lock().batches.pop_front().unwrap_or_default();
        let result = run_all(event_loop, || {
            left = left.checked_sub(1)?;
            this.queues().ready.pop_front()
        });
        if result.is_err() && left > 0 {
            Self::call_soon(slf, event_loop, left)?;
        }
        result
    }

    /// Runs the waits that are over.
    fn flush(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let planned = this.plan.lock().timer.take();
        let mut now = time(event_loop)?;
        if let Some((handle, due)) = planned {
            if due <= now + CLOCK {
                now = now.max(due);
            } else {
                // A descriptor is the reason for this call, and the timer is set again below.
                handle.call_method0(py, intern!(py, "cancel"))?;
            }
        }
        let (over, last) = {
            let mut queues = this.queues();
            (queues.over().map_err(|error| os_error(&error))?, queues.timers.made())
        };
        let mut over: VecDeque<Py<Wait>> = ended(py, over).into();
        for wait in &over {
            let timer = wait.get().take_timer().and_then(|timer| this.queues().timers.remove(timer));
            drop(timer);
        }
        let result = run_all(event_loop, || {
            over.pop_front().map(Job::Wake).or_else(|| this.queues().timers.fire(now, last))
        });
        let next = {
            let mut queues = this.queues();
            // Only if the program ends: what is over stays so.
            for wait in over {
                queues.timers.add_due(|| now, Job::Wake(wait));
            }
            if queues.descriptors.is_asked() {
                Some(now)
            } else {
                queues.timers.next_due().map(|due| due.max(now))
            }
        };
        Self::watch(slf, event_loop)?;
        Self::call_at(slf, event_loop, next)?;
        result
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(queues) = self.queues.try_lock() {
            queues.traverse(&visit)?;
        }
        if let Some(plan) = self.plan.try_lock() {
            visit.call(&plan.handle)?;
            if let Some((handle, _)) = &plan.timer {
                visit.call(handle)?;
            }
        }
        Ok(())
    }

    /// Breaks cycles through evaluations of a loop that will not run again.
    fn __clear__(&self) {
        let queues = std::mem::take(&mut *self.queues.lock());
        let plan = std::mem::take(&mut *self.plan.lock());
        drop((queues, plan));
    }
}
