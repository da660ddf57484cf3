//! Warnings of the engine and of libraries, a line each, without tearing up the line of progress; and, where a source
//! `internal_logs` listens, the same and more as messages.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::MultiProgress;
use serde_json::{Map, Value, json};
use thalweg_local::sources::internal_logs::{LogLevel, Record, record, wants};
use thalweg_local::tell;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{EnvFilter, dynamic_filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::exit::CliError;
use crate::paint::Paint;

/// The variable that says what is told: `error`, `warn`, `info`, `debug`, `trace`, or by module
/// (`warn,thalweg_engine=debug`).
pub const VARIABLE: &str = "THALWEG_LOG";

/// The lines of progress of the run that goes on.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Begins to show warnings on the standard error output; `quietly`, only errors. `listens` says whether the graph has a
/// source that takes what is logged.
pub fn begin(bars: &MultiProgress, json: bool, quietly: bool, listens: bool) -> Result<(), CliError> {
    begin_with("warn", bars, json, quietly, listens)
}

/// The same where more, or less, is shown as a rule.
pub fn begin_with(
    usual: &str,
    bars: &MultiProgress,
    json: bool,
    quietly: bool,
    listens: bool,
) -> Result<(), CliError> {
    *BARS.lock().unwrap_or_else(PoisonError::into_inner) = Some(bars.clone());
    tell::show_by(match (quietly, json) {
        (true, _) => |_, _| {},
        (_, true) => |_, object| drop(AroundBars.write_all(format!("{object}\n").as_bytes())),
        (_, false) => |text, _| drop(AroundBars.write_all(text.as_bytes())),
    });
    let usual = if quietly { "error" } else { usual };
    let wanted = std::env::var(VARIABLE).ok().filter(|wanted| !wanted.is_empty());
    let filter = EnvFilter::try_new(wanted.as_deref().unwrap_or(usual)).map_err(|error| {
        CliError::Usage(format!("`{VARIABLE}` is wrong: {error}; write for example `{VARIABLE}=debug`"))
    })?;
    let shown = tracing_subscriber::fmt::layer()
        .with_writer(AroundBars)
        .event_format(Line { json, paint: Paint::stderr() })
        .with_filter(filter);
    // What is wanted is known when the source begins, so it is asked for each event; and only if there is one.
    let heard = listens.then(|| Listening.with_filter(dynamic_filter_fn(|of, _| wants(level(of.level())))));
    let subscriber = tracing_subscriber::registry().with(shown).with(heard);
    // Fails only if it was done before.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Gives what is logged to the sources `internal_logs`.
struct Listening;

impl<S: Subscriber> Layer<S> for Listening {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let fields = seen.others.into_iter().map(|(name, value)| (name, text(value))).collect();
        let of = event.metadata();
        record(&Record::new(level(of.level()), of.target(), seen.message, fields));
    }
}

fn level(level: &Level) -> LogLevel {
    match *level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    }
}

/// Takes the lines of progress away while something is written.
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
        let mut seen = Seen::default();
        event.record(&mut seen);
        let level = event.metadata().level();
        if self.json {
            let mut line = json!({
                "event": "log",
                "level": level.as_str().to_lowercase(),
                "message": seen.message,
            });
            if let (false, Some(line)) = (seen.others.is_empty(), line.as_object_mut()) {
                line.insert("fields".to_owned(), Value::Object(seen.others));
            }
            return writeln!(to, "{line}");
        }
        let level = match *level {
            Level::ERROR => self.paint.red("error:"),
            Level::WARN => self.paint.yellow("warning:"),
            Level::INFO => "info:".to_owned(),
            Level::DEBUG => self.paint.dim("debug:"),
            Level::TRACE => self.paint.dim("trace:"),
        };
        write!(to, "{level} {}", seen.message)?;
        for (name, value) in &seen.others {
            match value {
                Value::String(value) => write!(to, " {name}={value}")?,
                other => write!(to, " {name}={other}")?,
            }
        }
        writeln!(to)
    }
}

#[derive(Default)]
struct Seen {
    message: String,
    others: Map<String, Value>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            name => {
                self.others.insert(name.to_owned(), text.into());
            }
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
