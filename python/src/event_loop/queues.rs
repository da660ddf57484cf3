//! The queues of an event loop, of ours and of those of others.

use std::collections::VecDeque;
use std::io;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::descriptors::{Descriptors, Over};
use super::job::Job;
use super::timers::Timers;
use super::waits::Wait;

/// The queues of one event loop. They are locked briefly, while no Python code runs.
#[derive(Default)]
pub struct Queues {
    /// To run in the order of scheduling.
    pub ready: VecDeque<Job>,
    /// To run when it is due.
    pub timers: Timers<Job>,
    /// Waits for descriptors.
    pub descriptors: Descriptors,
}

impl Queues {
    /// Adds a wait that begins now.
    pub fn add(&mut self, wait: &Bound<'_, Wait>, clock: impl FnOnce() -> f64) {
        let this = wait.get();
        let own = || wait.clone().unbind();
        let timer = match (this.descriptor, this.seconds) {
            (None, Some(seconds)) if seconds > 0.0 => {
                Some(self.timers.add(clock() + seconds, Job::Wake(own())))
            }
            (None, _) => Some(self.timers.add_due(clock, Job::Wake(own()))),
            (Some(wanted), limit) => {
                self.descriptors.add(wanted, own());
                limit.map(|limit| self.timers.add(clock() + limit, Job::Expire(own())))
            }
        };
        if let Some(timer) = timer {
            this.set_timer(timer);
        }
    }

    /// Removes a wait. The caller drops what is returned after it has unlocked the queues.
    #[must_use]
    pub fn remove(&mut self, wait: &Bound<'_, Wait>) -> (Option<Job>, Option<Py<Wait>>) {
        let this = wait.get();
        let timer = this.take_timer().and_then(|timer| self.timers.remove(timer));
        let descriptor = this
            .descriptor
            .and_then(|(descriptor, _)| self.descriptors.remove(descriptor, wait.as_unbound()));
        (timer, descriptor)
    }

    /// Finds the waits for descriptors that are over.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn over(&mut self) -> io::Result<Vec<Over>> {
        let mut over = Vec::new();
        self.descriptors.check(&mut over)?;
        Ok(over)
    }

    /// Puts waits that are over before all else. The caller drops the timers that are returned.
    #[must_use]
    pub fn wake(&mut self, waits: Vec<Py<Wait>>) -> Vec<Option<Job>> {
        let mut timers = Vec::with_capacity(waits.len());
        for wait in waits.into_iter().rev() {
            timers.push(wait.get().take_timer().and_then(|timer| self.timers.remove(timer)));
            self.ready.push_front(Job::Wake(wait));
        }
        timers
    }

    /// Moves what is due behind what is ready, except for what was added after `last`.
    pub fn fire(&mut self, now: f64, last: u64) {
        while let Some(job) = self.timers.fire(now, last) {
            self.ready.push_back(job);
        }
    }

    /// Visits the objects in the queues.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        for job in self.ready.iter().chain(self.timers.iter()) {
            job.traverse(visit)?;
        }
        for wait in self.descriptors.iter() {
            visit.call(wait)?;
        }
        Ok(())
    }
}

/// Marks waits as ended. Their event loop wakes them.
pub fn ended(py: Python<'_>, over: Vec<Over>) -> Vec<Py<Wait>> {
    let end = |(wait, error): Over| {
        wait.get().end(py, error);
        wait
    };
    over.into_iter().map(end).collect()
}
