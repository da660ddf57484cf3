//! Shows a job on a terminal or line by line: progress, log, notices, summaries.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use chrono::Utc;
use indicatif::MultiProgress;
use thalweg_engine::{FileWatcher, Handle};
use thalweg_job::{FileEvents, LoadError, Notice, Observer, Outcome, Phase, Reloads};
use thalweg_redact::redacted;
use tokio::task::AbortHandle;

use crate::api::socket::{NAME, SocketFile};
use crate::api::{Activity, Listeners, Observed, StopRequest, Token, serve_socket};
use crate::around::{Around, history_of};
use crate::log;
use crate::print;
use crate::progress::{Progress, Watching};
use crate::pulse::Pulse;
use crate::run::Report;
use crate::service_manager::ServiceManager;
use crate::telemetry::{Counts, Exporter, Telemetry};
use crate::timetable::Timetable;

/// The output that a user wants.
#[derive(Debug, Clone, Default)]
pub struct Show {
    /// True if everything is printed as JSON.
    pub json: bool,
    /// True if only errors are printed.
    pub quiet: bool,
    /// The addresses at which metrics and the API are served over HTTP.
    pub listen: Vec<SocketAddr>,
    /// The file with the token that clients of the API must have.
    pub api_token_file: Option<PathBuf>,
    /// Where telemetry is sent to, if it is.
    pub telemetry: Option<Telemetry>,
    /// True if warnings are printed even with `quiet`.
    pub warns: bool,
    /// True if the summary also has what only developers of thalweg need.
    pub verbose: bool,
}

impl Show {
    /// Begins the log of phases. It is set up once per process: embedders, and a configuration that
    /// `changes`, may collect logs later.
    pub(crate) fn begin_log(
        &self,
        bars: &MultiProgress,
        phases: &[Phase],
        changes: bool,
    ) -> Result<(), LoadError> {
        let mut sources = phases.iter().flat_map(|phase| &phase.graph.sources);
        let collects = self.warns || changes || sources.any(|source| source.config.collects_logs());
        log::begin(bars, self.json, self.quiet && !self.warns, collects)
    }
}

/// An observer that prints to the standard error output.
pub struct Screen {
    show: Show,
    events: Option<Arc<FileEvents>>,
    report: Option<Report>,
    progress: Option<Progress>,
    watching: Option<Watching>,
    pulse: Pulse,
    manager: Option<Arc<ServiceManager>>,
    /// The name of the configuration, if clients may control the run.
    configuration: Option<String>,
    stop: StopRequest,
    reloads: Option<Reloads>,
    /// The number of reloads that were shown.
    shown_reloads: u64,
    listeners: Arc<Listeners>,
    timetable: Option<Timetable>,
    /// True once it was said that the run stops.
    has_said_stopping: bool,
    /// The servers of metrics and the API, which end with the run. Its runtime may last longer.
    servers: Vec<AbortHandle>,
    socket: Option<SocketFile>,
    exporter: Option<Exporter>,
    /// The run that is shown, while there is one.
    handle: Option<Handle>,
}

impl Screen {
    /// Shows nothing yet.
    #[must_use]
    pub fn new(show: Show) -> Self {
        let listeners = Arc::new(Listeners::new(&show.listen));
        Self {
            show,
            listeners,
            timetable: None,
            events: None,
            report: None,
            progress: None,
            watching: None,
            pulse: Pulse::default(),
            manager: None,
            configuration: None,
            stop: StopRequest::default(),
            reloads: None,
            shown_reloads: 0,
            has_said_stopping: false,
            servers: Vec::new(),
            socket: None,
            exporter: None,
            handle: None,
        }
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

    /// Shows the run as one of a process: to the service manager, and to clients, which may control it.
    #[must_use]
    pub(crate) fn within(mut self, around: &Around<'_>) -> Self {
        self.manager = around.manager.cloned();
        self.pulse = around.pulse.clone();
        self.configuration = Some(redacted(around.configuration).into_owned());
        self.stop = around.stop.clone();
        self.reloads = around.reloads.cloned();
        self.listeners = around.listeners.clone();
        self.timetable = around.timetable.cloned();
        self
    }

    /// Starts the servers of a phase, and its telemetry.
    fn serve(&mut self, phase: &Phase, handle: &Handle) -> Result<(), LoadError> {
        let token = self.show.api_token_file.as_deref().map(Token::read).transpose()?;
        let telemetry = self.show.telemetry.as_ref().map(|telemetry| (telemetry, Arc::<Counts>::default()));
        let run = Arc::new(Observed {
            activity: Activity::Running(handle.clone()),
            pulse: self.pulse.clone(),
            begun: Instant::now(),
            configuration: self.configuration.clone().unwrap_or_default(),
            state: phase.state_dir.folder.clone(),
            history: history_of(&phase.state_dir),
            timetable: self.timetable.clone(),
            token,
            stop: self.stop.clone(),
            reloads: self.reloads.clone(),
            telemetry: telemetry.as_ref().map(|(_, counts)| Arc::clone(counts)),
            letters: Arc::default(),
        });
        if let Some((telemetry, counts)) = &telemetry {
            self.exporter = Some(Exporter::begin(telemetry, &run, counts, handle)?);
        }
        for line in self.listeners.open()? {
            self.tell("listening", &line);
        }
        self.servers.extend(self.listeners.serve(&run)?);
        if self.configuration.is_some() && phase.state_dir.positions {
            self.serve_socket(&run);
        }
        Ok(())
    }

    /// Starts the server of the state directory. Without it, the run works as well.
    fn serve_socket(&mut self, run: &Arc<Observed>) {
        let created = SocketFile::create(&run.state)
            .and_then(|(file, listener)| Ok((file, tokio::net::UnixListener::from_std(listener)?)));
        match created {
            Ok((file, listener)) => {
                self.socket = Some(file);
                self.servers.push(tokio::spawn(serve_socket(listener, run.clone())).abort_handle());
            }
            Err(error) => tracing::warn!(
                "`{}` cannot be made: {error}. Commands such as `thalweg top` need `--listen`",
                run.state.join(NAME).display()
            ),
        }
    }

    fn say_stopping(&mut self) {
        self.has_said_stopping = true;
        if let Some(manager) = &self.manager {
            manager.stopping();
        }
        self.tell("stopping", "stopping: data in flight is delivered first; signal again to stop at once");
    }

    /// Says that the configuration was reloaded. The log says that it was not.
    fn show_reloads(&mut self, handle: &Handle) {
        let Some(status) = self.reloads.as_ref().map(Reloads::status) else { return };
        if status.ended == self.shown_reloads {
            return;
        }
        self.shown_reloads = status.ended;
        log::name_also(handle.counts().into_iter().map(|counts| counts.name));
        if let (None, Some(difference)) = (&status.failure, &status.difference) {
            self.tell("reloaded", &format!("reloaded: {difference}"));
        }
    }

    /// Sends the last figures of the run, if it sends any. A user who ends it at once does not wait for that.
    fn end_telemetry(&mut self) {
        let handle = self.handle.take();
        if let Some(exporter) = self.exporter.take()
            && handle.is_none_or(|handle| !handle.is_aborted())
        {
            exporter.end();
        }
    }

    fn end_progress(&mut self) {
        self.servers.drain(..).for_each(|server| server.abort());
        self.socket = None;
        if let Some(watching) = self.watching.take() {
            watching.end();
        }
    }

    /// Prints a notice between the lines of progress.
    fn tell(&self, event: &str, text: &str) {
        let line = print::event(self.show.json, self.show.quiet, event, text);
        match &self.watching {
            Some(watching) => watching.say(&line),
            None => print::err(&line),
        }
    }
}

/// A run that could not begin, or did not return, has no outcome to end with.
impl Drop for Screen {
    fn drop(&mut self) {
        self.end_progress();
        log::end_repeats();
    }
}

impl Observer for Screen {
    fn prepare(&mut self, phase: &Phase) -> Result<(), LoadError> {
        let progress = Progress::new(&phase.graph, &self.show);
        log::name_components(&phase.graph);
        self.show.begin_log(progress.bars(), slice::from_ref(phase), self.reloads.is_some())?;
        self.progress = Some(progress);
        if let Some(events) = &self.events {
            events.begin(phase);
        }
        Ok(())
    }

    fn watcher(&self) -> Option<Arc<dyn FileWatcher>> {
        self.events.clone().map(|events| -> Arc<dyn FileWatcher> { events })
    }

    fn begin(&mut self, phase: &Phase, handle: &Handle) -> Result<(), LoadError> {
        self.pulse.begin();
        if let Some(manager) = &self.manager {
            manager.begin(handle);
        }
        self.watching = self.progress.take().map(|progress| progress.watch(handle.clone()));
        self.handle = Some(handle.clone());
        if self.stop.is_set() {
            // The request came at the end of the last phase.
            handle.stop();
        }
        self.serve(phase, handle)
    }

    fn tick(&mut self, handle: &Handle) {
        self.pulse.tick();
        self.show_reloads(handle);
        if let Some(timetable) = &self.timetable {
            timetable.look(Utc::now());
        }
        if self.stop.is_set() && !self.has_said_stopping {
            self.say_stopping();
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Stopping => self.say_stopping(),
            Notice::Reopening => self.tell("reopening", "reopening: sinks continue in new files"),
            Notice::Abandoned => self.end_progress(),
        }
    }

    fn end(&mut self, _: &Phase, outcome: &Outcome) {
        if self.stop.is_set() && !self.has_said_stopping {
            self.say_stopping();
        }
        self.pulse.end();
        if let Some(manager) = &self.manager {
            manager.end();
        }
        self.end_progress();
        self.end_telemetry();
        log::end_repeats();
        if outcome.reader_is_gone() {
            return;
        }
        if let Some(report) = &self.report {
            match self.show.json {
                true => print::err_json(&report(outcome)),
                false => print::err(&report(outcome)),
            }
        }
    }
}
