//! What is told of each file while a processor of capyfile's runs, in its words.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_dialects::capyfile::events::{Printer, Status, message, not_targeted};
use thalweg_dialects::capyfile::{Phase, Step, codes};
use thalweg_engine::{FileEvent, FileWatcher, Graph};
use thalweg_record::{File, Problem};

use crate::service::steps;

/// Prints a line for each event, and notes which files failed.
pub struct Lines {
    printer: Printer,
    speaks: bool,
    /// Whether somebody looks on.
    is_live: bool,
    state: Mutex<State>,
}

struct State {
    out: BufWriter<Stdout>,
    /// Nobody reads it any more.
    is_broken: bool,
    reading: Option<Step>,
    /// The operations, by the names of their transforms.
    steps: Vec<(Arc<str>, Step)>,
    failures: Vec<(String, String)>,
}

impl Lines {
    /// Prints, if it is to speak, with colours or without.
    pub fn new(speaks: bool, colours: bool) -> Self {
        let state = State {
            out: BufWriter::new(io::stdout()),
            is_broken: false,
            reading: None,
            steps: Vec::new(),
            failures: Vec::new(),
        };
        let is_live = io::stdout().is_terminal();
        Self { printer: Printer { colours }, speaks, is_live, state: Mutex::new(state) }
    }

    /// Prints a line.
    pub fn say(&self, line: &str) {
        self.print(&mut self.state.lock(), line);
    }

    fn print(&self, state: &mut State, line: &str) {
        if !self.speaks || state.is_broken {
            return;
        }
        let written = writeln!(state.out, "{line}");
        let written = if self.is_live { written.and_then(|()| state.out.flush()) } else { written };
        state.is_broken = written.is_err();
    }

    /// From now on, the events are those of this phase, which runs as this graph.
    pub fn begin(&self, graph: &Graph, phase: &Phase) {
        let mut state = self.state.lock();
        state.reading = Some(phase.reading.clone());
        state.steps = steps(graph, phase);
    }

    /// Says that it is done, and which files failed. Gives whether any did.
    ///
    /// # Errors
    /// If nobody reads it any more.
    pub fn end(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let failures = std::mem::take(&mut state.failures);
        let each = failures.iter().map(|(original, text)| (original.as_str(), text.as_str()));
        let line = self.printer.completed(each);
        self.print(&mut state, &line);
        if state.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.out.flush()?;
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

impl FileWatcher for Lines {
    fn saw(&self, component: &Arc<str>, file: &File, event: FileEvent) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let found = state.steps.iter().enumerate().find(|(_, (name, _))| name == component);
        let Some((is_first, step)) = found.map(|(at, (_, step))| (at == 0, step.clone())) else {
            self.saw_the_end(state, component, file, event);
            return;
        };
        if is_first && matches!(event, FileEvent::Started | FileEvent::WentPast) {
            self.saw_it_read(state, file);
        }
        let code = file.problem().and_then(|problem| problem.code);
        let operation = step.operation;
        match event {
            FileEvent::Started => {
                self.event(state, file, &step, Status::Started, message(operation, Status::Started, None));
            }
            FileEvent::WentOn | FileEvent::Ended(_) => {
                let status = Status::at_end(operation, None);
                self.event(state, file, &step, status, message(operation, status, None));
            }
            FileEvent::Rejected => {
                let code = code.unwrap_or_default();
                let status = Status::at_end(operation, Some(code));
                self.event(state, file, &step, status, message(operation, status, Some(code)));
            }
            FileEvent::WentPast => {
                let policy = if file.problem().is_some() { "without_errors" } else { "with_errors" };
                self.event(state, file, &step, Status::Skipped, Some(&not_targeted(policy)));
            }
        }
    }
}

impl Lines {
    /// A processor without operations after the first shows its files at its sink.
    fn saw_the_end(&self, state: &mut State, component: &Arc<str>, file: &File, event: FileEvent) {
        if event != FileEvent::Started {
            return;
        }
        if state.steps.is_empty() && **component == *"done" {
            self.saw_it_read(state, file);
        }
        if let Some(problem) = file.problem() {
            state.failures.push((file.origin().display().to_string(), text_of(problem)));
        }
    }

    fn saw_it_read(&self, state: &mut State, file: &File) {
        if let Some(reading) = state.reading.clone() {
            let text = message(reading.operation, Status::Finished, None);
            self.event(state, file, &reading, Status::Finished, text);
        }
    }
}

/// What is said of a failure: capyfile's words, and what else is known of it.
fn text_of(problem: &Problem) -> String {
    match problem.code.map(codes::text) {
        Some(text) => format!("{text}: {}", problem.reason),
        None => problem.reason.clone(),
    }
}
