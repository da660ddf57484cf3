//! `journald`: entries of systemd's journal, as `journalctl` writes them.
//!
//! [`crate::program`] runs `journalctl`, and [`entries`] finds the entries in its output. Reading the files
//! of the journal was rejected: their format may change, and they need systemd's library. `journalctl` also
//! knows how to merge the files of several boots and users.
//!
//! A checkpoint is the cursor of an entry. A run continues at its cursor, and skips the entry that it has.
//! `--after-cursor` was rejected: if the entry was deleted, it leaves out the one behind it as well.

mod entries;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::framing::{DEFAULT_LIMIT, check_limit};
use thalweg_codec::syslog::SEVERITIES;
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig, SourceOutput,
};
use thalweg_stream::command::{Command, Errors};

use crate::program::Run;
use entries::{Entries, PARTITION};

/// Reads systemd's journal, and follows it.
///
/// The source runs `journalctl`, which must be installed. Each message is an entry in the journal's export
/// format: the transform `parse_journal` makes fields of it. The user that runs thalweg sees the entries of
/// all users if it is in the group `systemd-journal`.
///
/// With `--state`, a run continues exactly behind the last entry that was delivered, also after it was
/// killed. It then reads the entries of earlier boots too, whatever `current_boot_only` and `since` say:
/// nothing is left out. If `journalctl` ends, it is started again behind the last entry. If it fails before
/// the first entry, the run fails. The standard error output of `journalctl` is logged.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JournaldSource {
    /// The units whose entries are read, such as `sshd` or `nginx.service`, or patterns. The default is all.
    units: List<String>,
    /// The units whose entries are left out, by their full names. `.service` is added to a name without a
    /// dot.
    exclude_units: List<String>,
    /// The programs whose entries are read, as they call themselves (`SYSLOG_IDENTIFIER`). The default is
    /// all.
    identifiers: List<String>,
    /// The lowest priority of entries that are read, such as `warning` or `4`, or a range, such as `0..4`.
    /// The default is all.
    priority: Option<String>,
    /// The values that fields must have: `{_TRANSPORT: [kernel, audit]}`. An entry must have one of the
    /// values of each field.
    matches: BTreeMap<String, List<String>>,
    /// Whether a run that does not continue a former one reads the entries since the system was booted only.
    /// The default is `true`.
    current_boot_only: bool,
    /// The time from which a run reads that does not continue a former one, in the forms that `journalctl`
    /// knows: `2026-01-31 12:00:00`, `today`, `-1h` or `now`. `-1h` and `now` count from the start of the
    /// run, also if `journalctl` is started again. The default is the beginning.
    since: Option<String>,
    /// The folder of the journal. The default is the journal of the system.
    directory: Option<PathBuf>,
    /// Whether the source waits for more entries. With `false`, it ends with the last entry. The default is
    /// `true`.
    follow: bool,
    /// The program `journalctl`: a path, or a name that is looked up in the folders of `PATH`. The default is
    /// `journalctl`.
    program: PathBuf,
    /// The pause before `journalctl` is started again if it has ended. The default is 1 second.
    restart_delay: TimeSpan,
    /// How long `journalctl` may take to end when the run is stopped. Then it is killed. The default is 5
    /// seconds.
    stop_timeout: TimeSpan,
    /// The maximum size of an entry, at most 1 GiB. The default is 1 MiB. Of a longer entry, the first 4 KiB
    /// leave by the `errors` output.
    max_message_bytes: ByteSize,
}

impl Default for JournaldSource {
    fn default() -> Self {
        Self {
            units: List::default(),
            exclude_units: List::default(),
            identifiers: List::default(),
            priority: None,
            matches: BTreeMap::new(),
            current_boot_only: true,
            since: None,
            directory: None,
            follow: true,
            program: "journalctl".into(),
            restart_delay: TimeSpan::seconds(1),
            stop_timeout: TimeSpan::seconds(5),
            max_message_bytes: DEFAULT_LIMIT,
        }
    }
}

impl Component for JournaldSource {
    const NAME: &'static str = "journald";
    const EXAMPLE: &'static str = "\
# Runs until it is stopped. `journalctl` must be installed.
sources:
  system: { journald: { units: [sshd, nginx], priority: warning } }

pipelines:
  main:
    from: system
    transforms:
      - parse_journal: {}
    to: warnings

sinks:
  warnings: { file: { path: out/warnings.jsonl, encode: json } }
";

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> = check_limit(self.max_message_bytes).into_iter().collect();
        if let Some(priority) = &self.priority
            && !is_range(priority)
        {
            let mistake = Mistake::new("priority", format!("`{priority}` is not a priority."));
            mistakes.push(mistake.help("Write for example `warning`, `4` or `0..4`."));
        }
        let is_name = |name: &str| {
            let is_valid = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            !name.is_empty() && name.bytes().all(is_valid)
        };
        let wrong = self.matches.keys().filter(|name| !is_name(name));
        mistakes.extend(wrong.map(|name| {
            let mistake = Mistake::new("matches", format!("`{name}` cannot be a field of the journal."));
            mistake.help("Names have capital letters, digits and `_` only, such as `_TRANSPORT`.")
        }));
        mistakes
    }
}

/// True if a text is a priority, or two with dots between them.
fn is_range(text: &str) -> bool {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    is_priority(first) && is_priority(last)
}

fn is_priority(text: &str) -> bool {
    SEVERITIES.contains(&text) || text.parse::<usize>().is_ok_and(|number| number < SEVERITIES.len())
}

impl JournaldSource {
    /// Returns the command that writes the entries from a cursor on, or else from a time on.
    fn command(&self, cursor: Option<&str>, since: Option<&str>) -> Command {
        let mut arguments = vec!["--output=export".to_owned(), "--quiet".to_owned(), "--no-pager".to_owned()];
        if self.follow {
            arguments.extend(["--follow".to_owned(), "--no-tail".to_owned()]);
        }
        match cursor {
            Some(cursor) => arguments.push(format!("--cursor={cursor}")),
            None => {
                arguments.extend(since.map(|since| format!("--since={since}")));
                arguments.extend(self.current_boot_only.then(|| "--boot".to_owned()));
            }
        }
        arguments.extend(self.units.iter().map(|unit| format!("--unit={unit}")));
        arguments.extend(self.identifiers.iter().map(|identifier| format!("--identifier={identifier}")));
        arguments.extend(self.priority.iter().map(|priority| format!("--priority={priority}")));
        let values =
            self.matches.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        arguments.extend(values.map(|(name, value)| format!("{name}={value}")));
        let mut arguments: Vec<_> = arguments.into_iter().map(Into::into).collect();
        if let Some(directory) = &self.directory {
            let mut argument = std::ffi::OsString::from("--directory=");
            argument.push(directory);
            arguments.insert(0, argument);
        }
        Command::new(&self.program, arguments)
    }

    /// Returns the full names of the units that are left out.
    fn excluded(&self) -> Vec<String> {
        let full = |name: &String| match name.contains('.') {
            true => name.clone(),
            false => format!("{name}.service"),
        };
        self.exclude_units.iter().map(full).collect()
    }
}

impl SourceConfig for JournaldSource {
    fn endless(&self) -> Option<Endless> {
        Endless::by("follow", self.follow)
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Running {
            config: self.clone(),
            batch_bytes: context.batch_bytes,
            cursor: None,
            began: None,
        }))
    }
}

struct Running {
    config: JournaldSource,
    batch_bytes: usize,
    /// The cursor of the last entry that was read.
    cursor: Option<String>,
    /// When `journalctl` was started for the first time.
    began: Option<Began>,
}

/// A moment, by the clock of the machine, and by one that is never set back.
#[derive(Clone, Copy)]
struct Began(SystemTime, Instant);

/// Returns a time of the option `since` for a `journalctl` that starts a while after the run began.
/// `journalctl` would count from its own start, and leave out entries of the time between.
fn since_began(since: &str, began: SystemTime, while_ago: Duration) -> String {
    let since = since.trim();
    let more = while_ago.as_micros();
    if since == "now" {
        let time = began.duration_since(UNIX_EPOCH).unwrap_or_default();
        return format!("@{}.{:06}", time.as_secs(), time.subsec_micros());
    }
    match since.strip_suffix(" ago") {
        _ if more == 0 => since.to_owned(),
        Some(span) => format!("{span} {more}us ago"),
        None if since.starts_with('-') => format!("{since} {more}us"),
        None => since.to_owned(),
    }
}

impl Running {
    /// Returns the time from which a `journalctl` reads that starts now.
    fn since(&mut self) -> Option<String> {
        let while_ago = self.began.map_or(Duration::ZERO, |began| began.1.elapsed());
        let Began(began, _) = *self.began.get_or_insert_with(|| Began(SystemTime::now(), Instant::now()));
        self.config.since.as_deref().map(|since| since_began(since, began, while_ago))
    }
}

#[async_trait]
impl Source for Running {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let saved = || out.saved(PARTITION).and_then(|saved| saved.as_str().map(str::to_owned));
        self.cursor = self.cursor.take().or_else(saved);
        let mut has_begun = false;
        loop {
            let since = self.since();
            let Self { config, batch_bytes, cursor, .. } = self;
            let run = Run {
                command: config.command(cursor.as_deref(), since.as_deref()),
                errors: Errors::Apart,
                patience: config.stop_timeout.duration(),
                path: config.program.to_string_lossy().into(),
                batch_bytes: *batch_bytes,
            };
            let mut entries =
                Entries::new(config.max_message_bytes, config.excluded(), cursor.clone(), &run.path);
            let ended = run.run(&mut entries, out).await;
            has_begun |= entries.has_begun;
            *cursor = entries.cursor;
            match ended? {
                Err(failure) if !has_begun || !config.follow => return Err(failure.into_error()),
                Ok(()) if !config.follow || out.is_stopping() => return Ok(()),
                Err(failure) => tracing::error!("`{}`: {failure}; it is started again", out.name()),
                Ok(()) => tracing::warn!("`{}`: `{}` has ended; it is started again", out.name(), run.path),
            }
            if out.sleep(config.restart_delay.duration()).await {
                return Ok(());
            }
        }
    }
}
