//! Shows a job on a terminal or line by line: progress, log, notices, summaries.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use thalweg_engine::{FileWatcher, Handle};
use thalweg_job::{FileEvents, LoadError, Notice, Observer, Outcome, Phase};

use crate::log;
use crate::metrics_server::MetricsServer;
use crate::paint::Paint;
use crate::print;
use crate::progress::{Progress, Watching};
use crate::run::Report;

/// The output that a user wants.
#[derive(Debug, Clone, Default)]
pub struct Show {
    /// True if everything is printed as JSON.
    pub json: bool,
    /// True if only errors are printed.
    pub quiet: bool,
    /// The address at which metrics are served over HTTP.
    pub listen: Option<SocketAddr>,
    /// True if warnings are printed even with `quiet`.
    pub warns: bool,
}

/// An observer that prints to the standard error output.
pub struct Screen {
    show: Show,
    events: Option<Arc<FileEvents>>,
    report: Option<Report>,
    progress: Option<Progress>,
    watching: Option<Watching>,
}

impl Screen {
    /// Shows nothing yet.
    #[must_use]
    pub fn new(show: Show) -> Self {
        Self { show, events: None, report: None, progress: None, watching: None }
    }

    /// Prints the events of files.
    #[must_use]
    pub fn with_events(mut self, events: Option<Arc<FileEvents>>) -> Self {
        self.events = events;
        self
    }

    /// Prints a text at the end of each phase.
    #[must_use]
    pub(crate) fn reporting(mut self, report: Report) -> Self {
        self.report = Some(report);
        self
    }

    fn end_progress(&mut self) {
        if let Some(watching) = self.watching.take() {
            watching.end();
        }
    }

    /// Prints a notice: an event for programs, or a text whose part before a colon is coloured.
    fn tell(&self, event: &str, text: &str) {
        let say = |text: &str| match &self.watching {
            Some(watching) => watching.say(text),
            None => print::err(text),
        };
        if self.show.json {
            say(&format!("{}\n", json!({ "event": event, "message": text })));
        } else if !self.show.quiet {
            let paint = Paint::stderr();
            let (word, rest) = text.split_once(':').unwrap_or((text, ""));
            // The terminal has echoed `^C` on this line.
            let start = if paint.is_on() { "\r" } else { "" };
            say(&format!("{start}{}{rest}\n", paint.yellow(&format!("{word}:"))));
        }
    }
}

impl Observer for Screen {
    fn prepare(&mut self, phase: &Phase) -> Result<(), LoadError> {
        let progress = Progress::new(&phase.graph, &self.show);
        let collects = phase.graph.sources.iter().any(|source| source.config.collects_logs());
        let quiet = self.show.quiet && !self.show.warns;
        log::begin(progress.bars(), self.show.json, quiet, collects)?;
        self.progress = Some(progress);
        if let Some(events) = &self.events {
            events.begin(phase);
        }
        Ok(())
    }

    fn watcher(&self) -> Option<Arc<dyn FileWatcher>> {
        self.events.clone().map(|events| -> Arc<dyn FileWatcher> { events })
    }

    fn begin(&mut self, _: &Phase, handle: &Handle) -> Result<(), LoadError> {
        self.watching = self.progress.take().map(|progress| progress.watch(handle.clone()));
        if let Some(address) = self.show.listen {
            let server = MetricsServer::bind(address, handle.clone())?;
            self.tell("listening", &format!("listening: http://{}/metrics", server.address()?));
            tokio::spawn(server.run());
        }
        Ok(())
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Stopping => self.tell(
                "stopping",
                "stopping: data in flight is delivered first; signal again to stop at once",
            ),
            Notice::Reopening => self.tell("rolling", "reopening: sinks continue in new files"),
            Notice::Abandoned => {
                self.tell("stopped", "stopped: a component was still waiting for something");
                self.end_progress();
            }
        }
    }

    fn end(&mut self, _: &Phase, outcome: &Outcome) {
        self.end_progress();
        if outcome.nobody_reads() {
            return;
        }
        if let Some(report) = &self.report {
            print::err(&report(outcome));
        }
    }
}
