//! Prints a line for each event of a file, in capyfile's wording.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dialects::capyfile::events::{Printer, Status, message, not_targeted, running};
use thalweg_dialects::capyfile::{DONE, Operation, Operations, Step, codes};
use thalweg_engine::{FileEvent, FileWatcher, Graph};
use thalweg_record::{File, Problem};
use thalweg_redact::foreign;

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
    failures: Vec<Failure>,
    /// The paths of the pictures being converted, by the ids of their files.
    pictures: HashMap<String, Option<PathBuf>>,
}

/// A file that failed.
struct Failure {
    original: String,
    /// In capyfile's words.
    text: String,
    reason: String,
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
        let state = State {
            out,
            is_broken: false,
            reading: None,
            steps: Vec::new(),
            failures: Vec::new(),
            pictures: HashMap::new(),
        };
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

    /// Prints that the job is done, with the files that failed. Returns the reason of each failure:
    /// capyfile's lines have no reasons, so scripts do not expect them there.
    ///
    /// # Errors
    /// If the output could not be written.
    pub fn end(&self) -> io::Result<Vec<String>> {
        let mut state = self.state.lock();
        let failures = std::mem::take(&mut state.failures);
        let each = failures.iter().map(|failure| (failure.original.as_str(), failure.text.as_str()));
        let line = self.printer.completed(each);
        self.print(&mut state, &line);
        if state.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.out.as_mut().map_or(Ok(()), |out| out.flush())?;
        Ok(failures.iter().map(|failure| format!("[{}] {}", failure.original, failure.reason)).collect())
    }

    fn event(&self, state: &mut State, file: &File, step: &Step, status: Status, text: Option<&str>) {
        // Without an output, the line is not formatted: it takes about as long as opening a file.
        if let Some(text) = text.filter(|_| state.out.is_some()) {
            let original = file.origin().display().to_string();
            // A terminal obeys characters of a name; a program gets the name as it is.
            let shown = if self.is_live { foreign(&original) } else { original.as_str().into() };
            let line = self.printer.event(Some(&shown), step.operation, status, text);
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
                if operation == Operation::ImageConvert {
                    state.pictures.insert(file.origin().id().to_owned(), file.path().map(Path::to_owned));
                }
                self.event(state, file, &step, Status::Started, message(operation, Status::Started, None));
            }
            FileEvent::Passed | FileEvent::Ended(_) if !step.reports_end => {}
            FileEvent::Passed | FileEvent::Ended(_) => {
                // A picture that had the type already is the same file afterwards.
                let before = state.pictures.remove(file.origin().id());
                let is_same = before.is_some_and(|before| before.as_deref() == file.path());
                let status = if is_same { Status::Skipped } else { Status::at_end(operation, None) };
                self.event(state, file, &step, status, message(operation, status, None));
            }
            FileEvent::Rejected => {
                let code = code.unwrap_or_default();
                let status = Status::at_end(operation, Some(code));
                state.pictures.remove(file.origin().id());
                if let Some(problem) = file.problem().filter(|_| status == Status::Failed) {
                    let line = self.printer.failed(operation, &problem.reason);
                    self.print(state, &line);
                }
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
            state.failures.push(Failure { original, text: text_of(problem), reason: problem.reason.clone() });
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
