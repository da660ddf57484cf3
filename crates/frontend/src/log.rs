//! Prints log events of the engine and of libraries, one line each, without garbling the lines of progress.
//! For a source `internal_logs`, log events also become messages.
//!
//! A line of JSON has the time, the level, the component, the message, the module and the fields. The
//! component is the name with which the message begins, if the run has such a component: people read it there
//! too. A span around each task was rejected: a source calls the transforms behind it, so they would log in
//! its name.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use indicatif::MultiProgress;
use serde_json::{Map, Value, json};
use thalweg_engine::Graph;
use thalweg_job::{LoadError, LogCollector, LogEvent, is_for_users};
use thalweg_local::report;
use thalweg_local::sources::internal_logs::LOG_VARIABLE;
use thalweg_redact::for_terminal;
pub use tracing::Level;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::reload;

use crate::paint::Paint;
use crate::print::now;
use crate::repeats::{Passed, Repeats, WINDOW};

/// The lines of progress of the current run.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// The names of the components of the current run.
static COMPONENTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Lets lines of JSON name the components of a run.
pub(crate) fn name_components(graph: &Graph) {
    *COMPONENTS.lock().unwrap_or_else(PoisonError::into_inner) = names_of(graph);
}

/// Adds names of components that a reload has brought.
pub(crate) fn name_also(names: impl Iterator<Item = String>) {
    COMPONENTS.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
}

fn names_of(graph: &Graph) -> BTreeSet<String> {
    let transforms = graph.pipelines.iter().flat_map(|pipeline| &pipeline.transforms);
    let transforms = transforms.map(|transform| transform.name.to_string());
    let sources = graph.sources.iter().map(|source| source.name.to_string());
    let sinks = graph.sinks.iter().map(|sink| sink.name.to_string());
    sources.chain(transforms).chain(sinks).collect()
}

/// The component that a message begins with: `` `out`: … ``.
fn component_of<'m>(message: &'m str, names: &BTreeSet<String>) -> Option<&'m str> {
    let (name, _) = message.strip_prefix('`')?.split_once('`')?;
    names.contains(name).then_some(name)
}

/// Receives a log event instead of the standard error output: its level, and its text with its fields.
pub type Diversion = fn(level: Level, text: String);

/// The warnings of the last seconds.
static REPEATS: Mutex<Repeats> = Mutex::new(Repeats::new());

/// True while a thread waits to print counts. It changes only while [`REPEATS`] is locked.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

/// The target of log events that summarise others.
const SUMMARY: &str = "thalweg_frontend::repeats";

static DIVERSION: OnceLock<Diversion> = OnceLock::new();

/// Selects the log events that are printed, once there is a log.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// True if events that are not for users are printed too.
static SHOWS_ALL: AtomicBool = AtomicBool::new(false);

/// All events are shown at the levels below, and if a filter names a library.
fn show_all(filter: &EnvFilter, wanted: &str) {
    let is_detailed = filter.max_level_hint().is_none_or(|most| most >= LevelFilter::DEBUG);
    SHOWS_ALL.store(is_detailed || wanted.contains("::") || wanted.contains('='), Ordering::Relaxed);
}

/// Passes the log events of this process on, for programs that embed the engine and have a log of their own.
/// It is called before the first [`begin`]. Only the first call has an effect.
pub fn divert(to: Diversion) {
    // Fails only if it was set before.
    let _ = DIVERSION.set(to);
}

/// Begins to print warnings on the standard error output, or errors only if `quietly`. `collects` is true if
/// this or a later graph of the process may have a source that collects logs.
///
/// # Errors
/// If the variable is invalid.
pub fn begin(bars: &MultiProgress, json: bool, quietly: bool, collects: bool) -> Result<(), LoadError> {
    begin_as("warn", bars, json, quietly, collects)
}

/// Begins to print log events of a process without progress. `usual` selects them if the variable is not set.
/// `collects` is that of [`begin`].
///
/// # Errors
/// If the variable is invalid.
pub fn begin_with(usual: &str, json: bool, quietly: bool, collects: bool) -> Result<(), LoadError> {
    begin_as(usual, &MultiProgress::new(), json, quietly, collects)
}

fn begin_as(
    usual: &str,
    bars: &MultiProgress,
    json: bool,
    quietly: bool,
    collects: bool,
) -> Result<(), LoadError> {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = Some(bars.clone());
    report::show_by(match (quietly, json) {
        (true, _) => |_, _| {},
        (_, true) => |_, object| drop(AroundBars.write_all(format!("{object}\n").as_bytes())),
        (_, false) => |text, _| drop(AroundBars.write_all(text.as_bytes())),
    });
    let usual = if quietly { "error" } else { usual };
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|wanted| !wanted.is_empty());
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(usual)).map_err(|error| {
        LoadError::Variable(format!(
            "`{LOG_VARIABLE}` is wrong: {error}; write for example `{LOG_VARIABLE}=debug`"
        ))
    })?;
    // A later run leaves the filter as it is, which a client may have changed.
    if FILTER.get().is_none() {
        show_all(&filter, wanted.as_deref().unwrap_or_default());
    }
    let (filter, changes): (_, reload::Handle<EnvFilter, Registry>) = reload::Layer::new(filter);
    let filter = filter.and(filter_fn(|of| SHOWS_ALL.load(Ordering::Relaxed) || is_for_users(of.target())));
    let printed = || {
        tracing_subscriber::fmt::layer()
            .with_writer(AroundBars)
            .event_format(Line { json, paint: Paint::stderr() })
            .boxed()
    };
    let shown = DIVERSION.get().map_or_else(printed, |&to| Diverted(to).boxed()).with_filter(filter);
    let subscriber = tracing_subscriber::registry().with(shown).with(collects.then(LogCollector::layer));
    // It fails only if a subscriber was already set.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        let _ = FILTER.set(changes);
    }
    Ok(())
}

/// Changes which log events are printed, from now on and until the end of the process.
pub(crate) fn set_level(wanted: &str) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(wanted).map_err(|_| "the text is no level, and no list of levels of modules")?;
    let changes = FILTER.get().ok_or("this process does not print its log itself")?;
    // Before the reload, which makes each place in the code ask its filters again.
    show_all(&filter, wanted);
    changes.reload(filter).map_err(|error| error.to_string())
}

/// Prints how many warnings were only counted: see [`Repeats`].
pub(crate) fn end_repeats() {
    let summaries = REPEATS.lock().unwrap_or_else(PoisonError::into_inner).end();
    for summary in summaries {
        tracing::warn!(target: SUMMARY, "{summary}");
    }
}

/// Returns the texts to print when a log event comes. Only warnings are compared, so `text` is made only of
/// them.
fn passed<T: AsRef<str>>(event: &Event<'_>, text: impl FnOnce() -> T) -> Passed {
    let metadata = event.metadata();
    if *metadata.level() != Level::WARN || metadata.target() == SUMMARY {
        return Passed { before: Vec::new(), is_shown: true };
    }
    let text = text();
    let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
    let passed = repeats.pass(text.as_ref(), Instant::now());
    if !passed.is_shown && !IS_AWAITED.swap(true, Ordering::Relaxed) {
        let started = thread::Builder::new().name("repeats".to_owned()).spawn(print_counts);
        IS_AWAITED.store(started.is_ok(), Ordering::Relaxed);
    }
    passed
}

/// Prints counts when their time is over, until nothing is counted. A service may never end, and may not warn
/// again.
fn print_counts() {
    let mut is_left = true;
    while is_left {
        thread::sleep(WINDOW);
        let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
        let due = repeats.due(Instant::now());
        is_left = repeats.has_counted();
        IS_AWAITED.store(is_left, Ordering::Relaxed);
        drop(repeats);
        for summary in due {
            tracing::warn!(target: SUMMARY, "{summary}");
        }
    }
}

/// Passes log events on.
struct Diverted(Diversion);

impl<S: Subscriber> Layer<S> for Diverted {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = LogEvent::default();
        event.record(&mut seen);
        let text = format!("{}{}", seen.message, Fields(&seen.fields));
        let passed = passed(event, || text.as_str());
        passed.before.into_iter().for_each(|summary| (self.0)(Level::WARN, summary));
        if passed.is_shown {
            (self.0)(*event.metadata().level(), text);
        }
    }
}

/// The fields of a log event, each after a space.
struct Fields<'a>(&'a Map<String, Value>);

impl fmt::Display for Fields<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.0 {
            match value {
                Value::String(value) => write!(to, " {name}={value}")?,
                other => write!(to, " {name}={other}")?,
            }
        }
        Ok(())
    }
}

/// Suspends the lines of progress during a write.
struct AroundBars;

impl MakeWriter<'_> for AroundBars {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

impl Write for AroundBars {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let write = || io::stderr().lock().write_all(text);
        match &*BARS.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bars) => bars.suspend(write)?,
            None => write()?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Line {
    json: bool,
    paint: Paint,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut seen = LogEvent::default();
        event.record(&mut seen);
        let passed = passed(event, || format!("{}{}", seen.message, Fields(&seen.fields)));
        for message in passed.before {
            self.write(to.by_ref(), Level::WARN, SUMMARY, LogEvent { message, ..LogEvent::default() })?;
        }
        match passed.is_shown {
            true => self.write(to, *event.metadata().level(), event.metadata().target(), seen),
            false => Ok(()),
        }
    }
}

impl Line {
    fn write(&self, mut to: Writer<'_>, level: Level, module: &str, seen: LogEvent) -> fmt::Result {
        if self.json {
            let names = COMPONENTS.lock().unwrap_or_else(PoisonError::into_inner);
            let mut line = json!({
                "event": "log",
                "time": now(),
                "level": level.as_str().to_lowercase(),
                "component": component_of(&seen.message, &names),
                "message": seen.message,
                "module": module,
            });
            if let (false, Some(line)) = (seen.fields.is_empty(), line.as_object_mut()) {
                line.insert("fields".to_owned(), Value::Object(seen.fields));
            }
            return writeln!(to, "{line}");
        }
        let level = match level {
            Level::ERROR => self.paint.red("error:"),
            Level::WARN => self.paint.yellow("warning:"),
            Level::INFO => "info:".to_owned(),
            Level::DEBUG => self.paint.dim("debug:"),
            Level::TRACE => self.paint.dim("trace:"),
        };
        let text = format!("{}{}", seen.message, Fields(&seen.fields));
        writeln!(to, "{level} {}", for_terminal(&text, false))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use thalweg_config::Document;
    use thalweg_job::{Configuration, JobRun, Overrides, RunOptions};

    use crate::screen::{Screen, Show};

    /// Runs a configuration as an embedder does.
    fn run(text: &str) {
        let document = Document::parse("c.yaml", text).unwrap();
        let configuration = Configuration::new(document, Path::new(""));
        let job = configuration.job(&thalweg_job::registry(), &Overrides::default()).unwrap();
        let mut screen = Screen::new(Show { quiet: true, warns: true, ..Show::default() });
        let outcome = JobRun::prepare(job, RunOptions::default(), &mut screen).unwrap().run(&mut screen);
        assert_eq!(outcome.unwrap().failure(), None);
    }

    /// Counts the events whose text is made.
    struct Texts(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Texts {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            passed(event, || {
                self.0.fetch_add(1, Ordering::Relaxed);
                "`counted`: a warning"
            });
        }
    }

    #[test]
    fn only_warnings_are_formatted_to_be_compared() {
        let made = Arc::<AtomicUsize>::default();
        let subscriber = tracing_subscriber::registry().with(Texts(made.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!("details");
            tracing::error!("a failure");
            tracing::warn!(target: SUMMARY, "2 more warnings");
            assert_eq!(made.load(Ordering::Relaxed), 0);
            tracing::warn!("a warning");
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    /// They were lost if a run did not return after it was aborted.
    #[test]
    fn counted_warnings_are_printed_also_if_a_run_has_no_outcome() {
        let pass = || {
            let mut repeats = REPEATS.lock().unwrap_or_else(PoisonError::into_inner);
            repeats.pass("`gone`: no answer", Instant::now()).is_shown
        };
        let screen = Screen::new(Show::default());
        pass();
        pass();
        drop(screen);
        assert!(pass());
    }

    #[test]
    fn the_component_of_a_message_is_one_of_the_run() {
        let text = "sources: { in: { generate: { lines: [a] } } }\n\
                    pipelines: { main: { from: in, transforms: [drop: x], to: out } }\n\
                    sinks: { out: discard }\n";
        let document = Document::parse("c.yaml", text).unwrap();
        let graph = thalweg_engine::read(&document, &thalweg_job::registry()).unwrap();
        let names = super::names_of(&graph);
        for (message, component) in [
            ("`out`: no answer", Some("out")),
            ("`main.drop` has no column `x`", Some("main.drop")),
            ("`other`: no answer", None),
            ("`out", None),
            ("out", None),
        ] {
            assert_eq!(super::component_of(message, &names), component, "{message}");
        }
    }

    #[test]
    fn a_later_run_of_a_process_collects_logs_although_the_first_one_did_not() {
        let folder = std::env::temp_dir().join(format!("thalweg-log-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("taken")).unwrap();
        run("sources: { in: { generate: { lines: [a] } } }\n\
             pipelines: { main: { from: in, to: out } }\n\
             sinks: { out: discard }\n");
        // A sink that cannot write to a folder makes the engine log a warning.
        run(&format!(
            "sources: {{ in: {{ generate: {{ lines: [a] }} }}, own: {{ internal_logs: {{ level: warn }} }} }}\n\
             pipelines:\n  main: {{ from: in, to: {{ failover: [broken, out] }} }}\n  diary: {{ from: own, to: log }}\n\
             sinks:\n  broken: {{ file: {{ path: '{folder}/taken' }} }}\n  out: discard\n  \
             log: {{ file: {{ path: '{folder}/log.jsonl', encode: json }} }}\n",
            folder = folder.display(),
        ));
        let log = std::fs::read_to_string(folder.join("log.jsonl")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(log.contains("`broken`"), "{log}");
    }
}
