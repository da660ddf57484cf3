//! The parts of a process that its runs share, and what it does between two of them.
//!
//! Between two runs the process waits, and is asked as during a run: its addresses stay open, `/health` and
//! `/ready` say for what it waits, and so does the status for the service manager. A signal and a client can
//! end it at any time. The socket of the state directory is not there: another process may use the directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, SecondsFormat, Utc};
use thalweg_engine::StateDir;
use thalweg_job::{History, LoadError, Reloads, Signals, pause};
use thalweg_redact::redacted;

use crate::api::{Activity, Listeners, Observed, StopRequest, Token};
use crate::exit::CommandError;
use crate::print;
use crate::pulse::Pulse;
use crate::screen::Show;
use crate::service_manager::ServiceManager;
use crate::timetable::{Timetable, later};

/// The longest time between two looks at the clock of the machine, which may be set.
const LOOK: Duration = Duration::from_secs(30);

/// The event that a process waits for between two runs.
#[derive(Clone)]
pub(crate) enum Awaited {
    /// The end of a pause of this length, and when that is, if the calendar has it.
    Pause(Duration, Option<DateTime<Utc>>),
    /// The next time of a schedule.
    Time(Timetable),
}

impl Awaited {
    /// A pause that begins now.
    pub(crate) fn pause(time: Duration) -> Self {
        Self::Pause(time, later(Utc::now(), time))
    }

    fn is_pause(&self) -> bool {
        matches!(self, Self::Pause(..))
    }

    /// When the next run begins, as text.
    pub(crate) fn next(&self) -> String {
        match self {
            Self::Pause(_, Some(end)) => end.to_rfc3339_opts(SecondsFormat::Secs, true),
            Self::Pause(_, None) => "never".to_owned(),
            Self::Time(timetable) => timetable.next_shown(),
        }
    }

    async fn over(&self) {
        match self {
            Self::Pause(time, _) => tokio::time::sleep(*time).await,
            Self::Time(timetable) => loop {
                let left = timetable.left(Utc::now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK)).await;
            },
        }
    }
}

/// The parts of a process that its runs share.
pub(crate) struct Around<'a> {
    pub(crate) signals: &'a Signals,
    pub(crate) manager: Option<&'a Arc<ServiceManager>>,
    pub(crate) pulse: &'a Pulse,
    pub(crate) stop: &'a StopRequest,
    /// Reloads the configuration while it runs, if that is wanted.
    pub(crate) reloads: Option<&'a Reloads>,
    pub(crate) show: &'a Show,
    pub(crate) listeners: &'a Arc<Listeners>,
    pub(crate) timetable: Option<&'a Timetable>,
    /// The name of the configuration.
    pub(crate) configuration: &'a str,
    /// The state directory, if it is known.
    pub(crate) state_dir: Option<StateDir>,
}

impl Around<'_> {
    /// True if a signal or a client has asked the process to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.signals.has_end() || self.stop.is_set()
    }

    /// Waits between two runs. Returns false if the process is to end.
    ///
    /// # Errors
    /// If no address was bound before the first time of a schedule, and one cannot be bound or the token
    /// cannot be read.
    pub(crate) fn wait(&self, awaited: &Awaited) -> Result<bool, CommandError> {
        let next = awaited.next();
        if matches!(awaited, Awaited::Time(_)) {
            self.tell("waiting", &format!("waiting: the next run begins at {next}"));
        }
        let waited = pause(
            async {
                match self.serve(awaited) {
                    Err(error) if awaited.is_pause() || self.listeners.is_open() => {
                        // The next run may have what is missing here, and says so if not.
                        tracing::warn!("no client is answered until the next run: {error}");
                    }
                    served => served?,
                }
                // An address that is taken is a failed start, so it is known before the process is ready.
                if let Some(manager) = self.manager {
                    manager.waiting(awaited);
                }
                tokio::select! {
                    () = awaited.over() => {}
                    () = self.stop.heeded() => {}
                }
                Ok::<_, LoadError>(())
            },
            self.signals,
        )?;
        let goes_on = waited.transpose()?.is_some() && !self.stop.is_set();
        if let Some(manager) = self.manager.filter(|_| !goes_on) {
            manager.stopping();
        }
        Ok(goes_on)
    }

    /// Answers clients until the runtime ends.
    fn serve(&self, awaited: &Awaited) -> Result<(), LoadError> {
        if self.show.listen.is_empty() {
            return Ok(());
        }
        let token = self.show.api_token_file.as_deref().map(Token::read).transpose()?;
        let state_dir = self.state_dir.as_ref();
        let run = Arc::new(Observed {
            activity: Activity::Waiting(awaited.clone()),
            pulse: self.pulse.clone(),
            begun: Instant::now(),
            configuration: redacted(self.configuration).into_owned(),
            state: state_dir.map(|state_dir| state_dir.folder.clone()).unwrap_or_default(),
            history: state_dir.and_then(history_of),
            timetable: self.timetable.cloned(),
            token,
            stop: self.stop.clone(),
            reloads: self.reloads.cloned(),
            telemetry: None,
            letters: Arc::default(),
        });
        for text in self.listeners.open()? {
            self.tell("listening", &text);
        }
        self.listeners.serve(&run)?;
        Ok(())
    }

    fn tell(&self, event: &str, text: &str) {
        print::err(&print::event(self.show.json, self.show.quiet, event, text));
    }
}

/// The history of a state directory, if runs leave one there.
pub(crate) fn history_of(state_dir: &StateDir) -> Option<History> {
    state_dir.positions.then(|| History::of(&state_dir.folder))
}
