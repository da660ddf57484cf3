//! Prints a line for each event of a file, in capyfile's wording.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dialects::capyfile::events::{Printer, Status, message, not_targeted, running};
use thalweg_dialects::capyfile::{DONE, Operations, Step, codes};
use thalweg_engine::{FileEvent, FileWatcher, Graph};
use thalweg_record::{File, Problem};

use crate::job::{Job, Phase};

/// Prints the events of files, and collects the files that failed.
pub struct FileEvents {
    printer: Printer,
    /// True if each line is flushed, because the output is a terminal.
    is_live: bool,
    /// True if files that an operation skips are reported, as capyfile's concurrent modes do.
    reports_skipped: bool,
    state: Mutex<State>,
}

struct State {
    /// `None` if nothing is printed.
    out: Option<Box<dyn Write + Send>>,
    /// True once a write has failed.
    is_broken: bool,
    reading: Option<Step>,
    /// The operations, by the names of their transforms.
    steps: Vec<(Arc<str>, Step)>,
    failures: Vec<(String, String)>,
}

impl Job {
    /// Returns a printer of file events, if the job's dialect has them. It prints to `out`, if given, with or
    /// without colours. `is_live` flushes each line. `reports_skipped` reports the files that an operation is
    /// not for.
    #[must_use]
    pub fn file_events(
        &self,
        out: Option<Box<dyn Write + Send>>,
        colours: bool,
        is_live: bool,
        reports_skipped: bool,
    ) -> Option<Arc<FileEvents>> {
        let (service, processor) = (self.service.as_ref()?, self.processor.as_ref()?);
        let state = State { out, is_broken: false, reading: None, steps: Vec::new(), failures: Vec::new() };
        let events =
            FileEvents { printer: Printer { colours }, is_live, reports_skipped, state: Mutex::new(state) };
        events.print(&mut events.state.lock(), &running(&service.name, processor));
        Some(Arc::new(events))
    }
}

/// The operations behind the transforms of a pipeline, with the names of the transforms.
#[must_use]
pub fn steps(graph: &Graph, pipeline: &str, steps: &[Step]) -> Vec<(Arc<str>, Step)> {
    let transforms = graph.pipeline(pipeline).map(|pipeline| pipeline.transforms.as_slice());
    let names = transforms.unwrap_or_default().iter().map(|transform| transform.name.clone());
    names.zip(steps.iter().cloned()).collect()
}

impl FileEvents {
    fn print(&self, state: &mut State, line: &str) {
        let Some(out) = state.out.as_mut().filter(|_| !state.is_broken) else { return };
        let written = writeln!(out, "{line}");
        let written = if self.is_live { written.and_then(|()| out.flush()) } else { written };
        state.is_broken = written.is_err();
    }

    /// Begins a phase: later events belong to it.
    pub fn begin(&self, phase: &Phase) {
        let Some(Operations { pipeline, reading, steps: operations }) = &phase.operations else { return };
        let mut state = self.state.lock();
        state.reading = Some(reading.clone());
        state.steps = steps(&phase.graph, pipeline, operations);
    }

    /// Prints that the job is done, with the files that failed. Returns whether any did.
    ///
    /// # Errors
    /// If the output could not be written.
    pub fn end(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let failures = std::mem::take(&mut state.failures);
        let each = failures.iter().map(|(original, text)| (original.as_str(), text.as_str()));
        let line = self.printer.completed(each);
        self.print(&mut state, &line);
        if state.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.out.as_mut().map_or(Ok(()), |out| out.flush())?;
        Ok(!failures.is_empty())
    }

    fn event(&self, state: &mut State, file: &File, step: &Step, status: Status, text: Option<&str>) {
        if let Some(text) = text {
            let original = file.origin().display().to_string();
            let line = self.printer.event(Some(&original), step.operation, status, text);
            self.print(state, &line);
        }
    }
}

impl FileWatcher for FileEvents {
    fn saw(&self, component: &Arc<str>, file: &File, event: FileEvent) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let found = state.steps.iter().enumerate().find(|(_, (name, _))| name == component);
        let Some((is_first, step)) = found.map(|(at, (_, step))| (at == 0, step.clone())) else {
            self.report_end(state, component, file, event);
            return;
        };
        if is_first && matches!(event, FileEvent::Started | FileEvent::Skipped) {
            self.report_read(state, file);
        }
        let code = file.problem().and_then(|problem| problem.code);
        let operation = step.operation;
        match event {
            FileEvent::Started => {
                self.event(state, file, &step, Status::Started, message(operation, Status::Started, None));
            }
            FileEvent::Passed | FileEvent::Ended(_) if !step.reports_end => {}
            FileEvent::Passed | FileEvent::Ended(_) => {
                let status = Status::at_end(operation, None);
                self.event(state, file, &step, status, message(operation, status, None));
            }
            FileEvent::Rejected => {
                let code = code.unwrap_or_default();
                let status = Status::at_end(operation, Some(code));
                self.event(state, file, &step, status, message(operation, status, Some(code)));
            }
            FileEvent::Skipped if !self.reports_skipped => {}
            FileEvent::Skipped => {
                let policy = if file.problem().is_some() { "without_errors" } else { "with_errors" };
                self.event(state, file, &step, Status::Skipped, Some(&not_targeted(policy)));
            }
        }
    }
}

impl FileEvents {
    /// Reports a file at a sink. If the processor only reads, its files are reported as read here.
    fn report_end(&self, state: &mut State, component: &Arc<str>, file: &File, event: FileEvent) {
        if event != FileEvent::Started {
            return;
        }
        if state.steps.is_empty() && **component == *DONE {
            self.report_read(state, file);
        }
        if let Some(problem) = file.problem() {
            let original = file.origin().display().to_string();
            if problem.code.is_some() {
                // capyfile's lines have no reasons, so scripts do not expect them there.
                tracing::warn!("{original}: {}", problem.reason);
            }
            state.failures.push((original, text_of(problem)));
        }
    }

    fn report_read(&self, state: &mut State, file: &File) {
        if let Some(reading) = state.reading.clone() {
            let text = message(reading.operation, Status::Finished, None);
            self.event(state, file, &reading, Status::Finished, text);
        }
    }
}

/// The text of a failure: capyfile's words, or the reason if it has none for it.
fn text_of(problem: &Problem) -> String {
    problem.code.map_or_else(|| problem.reason.clone(), |code| codes::text(code).to_owned())
}
