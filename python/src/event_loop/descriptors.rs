//! The evaluations that wait for descriptors.
//!
//! They have an epoll of their own, whose descriptor the event loop watches like any other. So they never
//! meet the readers and writers that a program registers on its loop, of which a descriptor can have only one
//! each.
//!
//! Most waits are for descriptors that are ready. So a new wait is a question first, and all questions of one
//! turn are one call of poll. Only a wait for which the answer is no goes to epoll, which takes a call to add
//! and one to remove.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;

use pyo3::prelude::*;

use super::system::{self, Epoll, Event, READ, WRITE, allows};
use super::waits::Wait;

/// The aim of a wait: a descriptor, and `READ` or `WRITE`.
pub type Wanted = (RawFd, u32);

/// A wait that is over, and the error of the system if there is one.
pub type Over = (Py<Wait>, Option<io::Error>);

/// The waits of one event loop.
#[derive(Default)]
pub struct Descriptors {
    questions: Vec<(Wanted, Py<Wait>)>,
    /// The waits that are in epoll, by descriptor.
    watched: HashMap<RawFd, Vec<(u32, Py<Wait>)>>,
    epoll: Option<Epoll>,
}

impl Descriptors {
    /// Adds a wait. The next [`check`](Self::check) asks whether it is over already.
    pub fn add(&mut self, wanted: Wanted, wait: Py<Wait>) {
        self.questions.push((wanted, wait));
    }

    /// True if a wait was added since the last check.
    pub fn is_asked(&self) -> bool {
        !self.questions.is_empty()
    }

    /// True if nothing waits for a descriptor.
    pub fn is_idle(&self) -> bool {
        self.questions.is_empty() && self.watched.is_empty()
    }

    /// The descriptor of the epoll, once there is one.
    pub fn epoll(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(Epoll::descriptor)
    }

    /// Appends the waits that are over.
    ///
    /// # Errors
    /// The system has no memory or no descriptors left.
    pub fn check(&mut self, over: &mut Vec<Over>) -> io::Result<()> {
        self.ask(over)?;
        self.collect(over)
    }

    /// Answers the questions. Waits for which the answer is no are watched.
    fn ask(&mut self, over: &mut Vec<Over>) -> io::Result<()> {
        if self.questions.is_empty() {
            return Ok(());
        }
        // Many often wait for the same descriptor, and a question is asked once.
        let mut wanted: Vec<Wanted> = self.questions.iter().map(|(wanted, _)| *wanted).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let answers = system::possible(&wanted)?;
        for (wanted_here, wait) in std::mem::take(&mut self.questions) {
            let answer = wanted.binary_search(&wanted_here).ok().and_then(|at| answers.get(at));
            match answer {
                Some(Ok(false)) | None => {
                    if let Err((wait, error)) = self.watch(wanted_here, wait) {
                        over.push((wait, Some(error)));
                    }
                }
                Some(Ok(true)) => over.push((wait, None)),
                Some(Err(error)) => {
                    let number = error.raw_os_error().unwrap_or_default();
                    over.push((wait, Some(io::Error::from_raw_os_error(number))));
                }
            }
        }
        Ok(())
    }

    fn watch(&mut self, (descriptor, mask): Wanted, wait: Py<Wait>) -> Result<(), (Py<Wait>, io::Error)> {
        let epoll = match &self.epoll {
            Some(epoll) => epoll,
            None => match Epoll::new() {
                Ok(epoll) => self.epoll.insert(epoll),
                Err(error) => return Err((wait, error)),
            },
        };
        let waits = self.watched.entry(descriptor).or_default();
        let before = mask_of(waits);
        // Even if it is watched already: its number may be that of a file that was closed meanwhile.
        if let Err(error) = epoll.watch(descriptor, before | mask, before != 0) {
            if waits.is_empty() {
                self.watched.remove(&descriptor);
            }
            return Err((wait, error));
        }
        waits.push((mask, wait));
        Ok(())
    }

    /// Takes the events of epoll.
    fn collect(&mut self, over: &mut Vec<Over>) -> io::Result<()> {
        let Some(epoll) = self.epoll.as_ref().filter(|_| !self.watched.is_empty()) else {
            return Ok(());
        };
        let mut events = Vec::new();
        match epoll.wait(&mut events, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for Event { descriptor, found } in events {
            let Some(waits) = self.watched.remove(&descriptor) else {
                continue;
            };
            let (ended, rest): (Vec<_>, Vec<_>) =
                waits.into_iter().partition(|(mask, _)| allows(found, *mask));
            over.extend(ended.into_iter().map(|(_, wait)| (wait, None)));
            self.keep(descriptor, rest);
        }
        Ok(())
    }

    /// Watches a descriptor only for the waits that are left.
    fn keep(&mut self, descriptor: RawFd, rest: Vec<(u32, Py<Wait>)>) {
        if let Some(epoll) = &self.epoll {
            // It fails if the descriptor was closed, and then there is nothing to undo.
            let _ = epoll.watch(descriptor, mask_of(&rest), true);
        }
        if !rest.is_empty() {
            self.watched.insert(descriptor, rest);
        }
    }

    /// Removes a wait, and returns it if it was still there.
    pub fn remove(&mut self, descriptor: RawFd, wait: &Py<Wait>) -> Option<Py<Wait>> {
        if let Some(at) = self.questions.iter().position(|(_, other)| other.is(wait)) {
            return Some(self.questions.remove(at).1);
        }
        let mut waits = self.watched.remove(&descriptor)?;
        let found = waits.iter().position(|(_, other)| other.is(wait)).map(|at| waits.remove(at).1);
        self.keep(descriptor, waits);
        found
    }

    /// All waits, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Py<Wait>> {
        let watched = self.watched.values().flatten().map(|(_, wait)| wait);
        self.questions.iter().map(|(_, wait)| wait).chain(watched)
    }
}

fn mask_of(waits: &[(u32, Py<Wait>)]) -> u32 {
    waits.iter().fold(0, |all, (mask, _)| all | mask) & (READ | WRITE)
}
