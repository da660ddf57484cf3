//! The options of the sink `file`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use chrono::NaiveTime;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Component, Context, Error, Mistake, Naming, Sink, SinkConfig, TransformConfig};

use super::files::{Keep, Settings, most_open};
use super::link::Link;
use super::names::{Names, Numbers, Style};
use super::piece::PieceOptions;
use super::{Compression, FileSink, names, table};
use thalweg_codec::compress::level_mistake;
use thalweg_codec::safe_path::{is_reserved, safe};
use thalweg_codec::template::{Template, explain};
use thalweg_config::FileMode;
use thalweg_record::Batch;
use thalweg_stream::encode::EncodeConfig;

/// Writes messages to files.
///
/// Each message is written as it is, or as `encode` says, followed by `delimiter`. Missing folders of `path`
/// are created.
///
/// A file that is being written has a name that ends in `.part`. (It ends in `.continued.part` if the file
/// existed and messages are appended to it.) The file is renamed when it is finished, so a file without
/// `.part` is complete. `atomic: false` turns this off.
///
/// A message with an impossible path is rejected: it leaves by the `errors` output with the reason. A path is
/// impossible if a field's value leads out of the folder, is empty where a name is needed, is too long, or
/// makes a name begin with a dot. NULL adds nothing to a path.
///
/// With `encode: parquet`, each file is a Parquet table, and the sink `objects` writes it: the file has a
/// hidden name until it is complete, and its messages are acknowledged then. With `--state`, that is when a
/// checkpoint covers it. Further messages of a name go to a file with the next number. `rotate` has only
/// `size` and `every`. Messages that do not fit the columns leave by the `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileConfig {
    /// The path of the file (`out/all.jsonl`), or of one file for each value of a field and each time span
    /// (`out/{service}/{time:%Y-%m-%d}.jsonl`). A value may contain `/` but not `..`, and links below the
    /// constant folder at the beginning of the path are not followed, so messages cannot write outside it.
    /// Each name stays in memory until its file is finished: set `idle_timeout` if there are very many names.
    pub path: Template,
    /// The format in which messages are written, for example `json`. By default the payload is written as it
    /// is. `parquet` makes each file a table.
    #[serde(default)]
    pub encode: EncodeConfig,
    /// The text written after each message. The default is a line feed.
    #[serde(default = "line_feed")]
    pub delimiter: String,
    /// The compression of the files. It does not change their names: put `.gz` or `.zst` into `path`.
    #[serde(default)]
    pub compression: Compression,
    /// The compression level: 0 to 9 for `gzip` (default 6), 1 to 22 for `zstd` (default 3). A higher level
    /// makes smaller files and takes more time and memory: for `zstd` 4 MiB a file at level 3, 69 MiB at
    /// level 15, for `gzip` 0.4 MiB. All files together take at most half of the budget (`memory`). Beyond
    /// it, the file that got no message for longest ends its compressed part, which makes files larger.
    #[serde(default)]
    pub compression_level: Option<i32>,
    /// When to start a new file. The files are numbered: `out.jsonl` becomes `out-00001.jsonl`,
    /// `out-00002.jsonl` and so on. The highest number is the newest. By default there is one file.
    #[serde(default)]
    pub rotate: Option<Rotate>,
    /// Whether a file is called `NAME.part` until it is finished. With `false` it has its final name from the
    /// start. The default is `true`.
    #[serde(default = "yes")]
    pub atomic: bool,
    /// How to treat a file that existed before the run. The default is `auto`.
    #[serde(default)]
    pub existing: Existing,
    /// When to wait until the data is on the disk. This protects against a power failure of the machine. If
    /// only the process is killed, acknowledged messages are never lost, whatever this is set to. The default
    /// is `finish`.
    #[serde(default)]
    pub fsync: Fsync,
    /// The permissions of new files in octal, for example `"0640"`. By default the system decides (`umask`).
    #[serde(default)]
    pub mode: Option<FileMode>,
    /// The permissions of new folders in octal, for example `"0755"`. By default the system decides
    /// (`umask`).
    #[serde(default)]
    pub folder_mode: Option<FileMode>,
    /// The maximum number of files that are open at the same time, where `path` depends on the message. The
    /// least recently used file is closed, and opened again when it gets another message. The default is 256,
    /// and never more than a quarter of what the system allows (`ulimit -n`).
    #[serde(default = "default_most_open")]
    #[schemars(range(min = 1))]
    pub max_open_files: usize,
    /// Finishes a file that has received no message for this time, for example `10m`. A later message
    /// continues the file. By default files are finished at the end of the run.
    #[serde(default)]
    pub idle_timeout: Option<TimeSpan>,
}

/// When to start a new file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// The maximum size of a file in bytes, for example `100MiB`. A message is never divided; a larger
    /// message gets a file of its own. Compressed files can exceed the limit by up to one batch.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// The maximum age of a file, for example `1h`.
    #[serde(default)]
    pub every: Option<TimeSpan>,
    /// The local time of day at which to start a new file, for example `"03:00"`. A file that is still empty
    /// is kept.
    #[serde(default)]
    pub at: Option<TimeOfDay>,
    /// A time format (`strftime`, local time) to insert before the number. It is filled in with the time at
    /// which the file was started: with `%Y-%m-%d_%H`, `out.log` becomes `out-2026-01-31_17-00001.log`. The
    /// numbers still increase from file to file.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// The text before the time stamp and before the number. The default is `-`; with `_`, `out.log` becomes
    /// `out_00001.log`.
    #[serde(default = "hyphen")]
    pub separator: String,
    /// Which files have a number in their names: `always` (the default), or `if_taken`. With `if_taken` and
    /// the timestamp `%Y-%m-%d_%H`, a file is called `out-2026-01-31_17.log`, and the next one of the same
    /// hour `out-2026-01-31_17-1.log`. Numbers of files that exist are skipped, and where `path` depends on
    /// the message also those that look like a time stamp, which another name could have.
    #[serde(default)]
    pub numbers: Numbers,
    /// The minimum number of digits of the number, padded with zeros. The default is 5, and 1 with `numbers:
    /// if_taken`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10))]
    pub digits: Option<u8>,
    /// The name of a symbolic link, beside the files, that leads to the file being written, for example
    /// `current`. `{stem}` and `{extension}` are the parts of the name in `path`: with
    /// `{stem}-current{extension}`, `out.log` has the link `out-current.log`. When a file is finished, the
    /// link leads to it until the next one is started. By default there is no link.
    #[serde(default)]
    pub link: Option<String>,
    /// The compression of finished files: `out-00001.log` becomes `out-00001.log.gz` or `.zst`. The current
    /// file stays uncompressed, unlike with the `compression` of the sink. By default files are not
    /// compressed.
    #[serde(default)]
    pub compression: Compression,
    /// The maximum number of finished files to keep. The oldest are removed. By default all are kept.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub keep: Option<usize>,
    /// The maximum age of finished files, for example `7d`. Older files are removed whenever a file is
    /// finished. By default all are kept.
    #[serde(default)]
    pub keep_age: Option<TimeSpan>,
    /// The maximum size in bytes of all finished files together, for example `10GiB`. The oldest are removed.
    /// By default all are kept.
    #[serde(default)]
    pub keep_bytes: Option<ByteSize>,
}

impl Rotate {
    fn style(&self) -> Style {
        let digits = match self.numbers {
            Numbers::Always => 5,
            Numbers::IfTaken => 1,
        };
        Style {
            separator: self.separator.clone(),
            numbers: self.numbers,
            digits: self.digits.unwrap_or(digits).into(),
            timestamp: self.timestamp.clone(),
            pack: self.compression,
        }
    }

    /// Returns the mistakes in the options that name files.
    fn name_mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(format) = self.timestamp.as_ref().filter(|format| !names::is_timestamp(format)) {
            let mistake = Mistake::new("rotate", format!("`{format}` cannot be part of a file name."));
            mistakes.push(mistake.help("Write a `strftime` format without `/`, for example `%Y-%m-%d`."));
        }
        if self.numbers == Numbers::IfTaken && self.timestamp.is_none() {
            let mistake = Mistake::new("rotate", "`numbers: if_taken` needs a `timestamp`.");
            mistakes.push(mistake.help("Add one, for example `%Y-%m-%d`, or remove `numbers`."));
        }
        if self.separator.is_empty() || self.separator.contains(['/', '\0']) {
            let mistake = Mistake::new("rotate", format!("`{}` cannot separate a number.", self.separator));
            mistakes.push(mistake.help("Write a text without `/`, for example `_`."));
        }
        if let Some(link) = self.link.as_ref().filter(|link| !Link::is_name(link)) {
            let mistake = Mistake::new("rotate", format!("`{link}` cannot be the name of a link."));
            let help = "Write a name without `/`, for example `current` or `{stem}-current{extension}`.";
            mistakes.push(mistake.help(help));
        }
        mistakes
    }
}

fn hyphen() -> String {
    "-".to_owned()
}

/// A time of day, written as in `03:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay(pub(super) NaiveTime);

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        match NaiveTime::parse_from_str(&text, "%H:%M") {
            Ok(time) => Ok(Self(time)),
            Err(_) => Err(serde::de::Error::custom("a time of the day is written as in `03:00` or `23:59`")),
        }
    }
}

impl JsonSchema for TimeOfDay {
    fn schema_name() -> Cow<'static, str> {
        "TimeOfDay".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([01]?[0-9]|2[0-3]):[0-5][0-9]$", "examples": ["03:00"] })
    }
}

/// How to treat a file that existed before the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// `append` in a run that keeps checkpoints (`--state`), or with a source that takes messages as a
    /// service does (`http`, `socket`, `pipe` and others): the messages of earlier runs never come again.
    /// Otherwise `replace`.
    #[default]
    Auto,
    /// Write a new file. The old file stays until the new one is finished.
    Replace,
    /// Append to the file. The unfinished file of an interrupted run is continued as well. With `rotate`, a
    /// new numbered file is started.
    Append,
    /// Stop with an error.
    Error,
    /// Keep the file, and put a number into the name of the new one: `out-00001.jsonl`.
    Rename,
}

impl Existing {
    /// True if the new file depends on the content or the name of the old one.
    pub(super) fn adds(self) -> bool {
        matches!(self, Existing::Append | Existing::Rename)
    }
}

/// When to wait for the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Never: the operating system decides when to write to the disk.
    Never,
    /// Before a file gets its final name.
    #[default]
    Finish,
    /// Before messages are acknowledged. This is the safest choice, and slow.
    Flush,
}

/// Returns the folder that all names have in common.
pub(super) fn constant_folder(prefix: &str) -> &str {
    prefix.rfind('/').map_or("", |at| &prefix[..=at])
}

fn line_feed() -> String {
    "\n".to_owned()
}

fn yes() -> bool {
    true
}

fn default_most_open() -> usize {
    256
}

impl Component for FileConfig {
    const NAME: &'static str = "file";
    const EXAMPLE: &'static str = r#"
sources:
  messages:
    generate: { message: '{"service": "%1b", "name": "%12s"}', count: 1000 }
pipelines:
  main: { from: messages, transforms: [parse_json: {}], to: by_service }
sinks:
  by_service:
    file:
      path: "out/{service}/{meta.time:%Y-%m-%d}.jsonl.gz"
      encode: json
      compression: gzip
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes_with_tables();
        if self.encode.table().is_some() {
            mistakes.extend(table::mistakes(self));
        }
        if self.path.is_constant() {
            let path = self.path.prefix();
            if path.is_empty() || path.ends_with('/') {
                let mistake = Mistake::new("path", format!("`{path}` names no file."));
                mistakes.push(mistake.help("Add the name of a file, for example `out.jsonl`."));
            }
            if path.contains('\0') {
                mistakes.push(Mistake::new("path", "A path cannot hold a NUL byte."));
            }
            if self.atomic && is_reserved(path) {
                let mistake =
                    Mistake::new("path", format!("`{path}` ends like the name of an unfinished file."));
                mistakes.push(mistake.help("Choose another name, or set `atomic: false`."));
            }
        }
        mistakes.extend(level_mistake(self.compression, self.compression_level));
        if let Some(rotate) = &self.rotate {
            if rotate.size.is_none() && rotate.every.is_none() && rotate.at.is_none() {
                let help = "Give it a `size`, for example `100MiB`, `every`, for example `1h`, or `at`, for example `\"03:00\"`.";
                mistakes.push(
                    Mistake::new("rotate", "`rotate` does not say when to start a new file.").help(help),
                );
            }
            if rotate.size.is_some_and(|size| size.bytes() == 0) {
                mistakes.push(Mistake::new("rotate", "The `size` of a file cannot be 0."));
            }
            if rotate.every.is_some_and(|every| every.duration().is_zero()) {
                mistakes.push(Mistake::new("rotate", "`every` cannot be 0."));
            }
            mistakes.extend(rotate.name_mistakes());
            if rotate.compression != Compression::None && self.compression != Compression::None {
                let mistake = Mistake::new(
                    "rotate",
                    "`rotate.compression` is not needed: `compression` already compresses the files.",
                );
                mistakes.push(mistake.help("Remove one of the two."));
            }
        }
        if self.idle_timeout.is_some_and(|span| span.duration().is_zero()) {
            mistakes.push(Mistake::new("idle_timeout", "`idle_timeout` cannot be 0."));
        }
        mistakes
    }
}

/// The paths of messages, for a dry run.
struct Paths(Template);

impl Naming for Paths {
    fn names(&mut self, batch: &Batch) -> Vec<String> {
        let fixed = self.0.prefix().to_owned();
        let (mut rendered, mut rejected) = (Vec::new(), Vec::new());
        let mut bound = self.0.bind(batch);
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        let path = |row| {
            rendered.clear();
            bound.render(row as usize, &mut rendered);
            safe(&rendered, &fixed).map_or_else(
                |reason| {
                    rejected.push((row, reason));
                    String::new()
                },
                str::to_owned,
            )
        };
        let mut names: Vec<String> = (0..rows).map(path).collect();
        drop(bound);
        explain([&self.0], batch, &mut rejected);
        for (row, reason) in rejected {
            if let Some(name) = names.get_mut(row as usize) {
                *name = format!("nowhere: {reason}");
            }
        }
        names
    }
}

impl SinkConfig for FileConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn writes(&self) -> Option<PathBuf> {
        let path = Path::new(self.path.prefix());
        // Several writers may share a device, such as `/dev/stdout`.
        (self.path.is_constant() && !path.starts_with("/dev")).then(|| path.to_owned())
    }

    fn check_memory(&self, memory: ByteSize) -> Vec<Mistake> {
        let needed = self.compression.encoder_memory(self.compression_level) as u64;
        if needed <= memory.bytes() {
            return Vec::new();
        }
        let needed = ByteSize::kib(needed.div_ceil(1 << 10));
        let message = format!("`compression` needs {needed} of memory for a file, but `memory` is {memory}.");
        vec![Mistake::new("compression", message).help("Lower `compression_level`, or raise `memory`.")]
    }

    fn naming(&self) -> Option<Box<dyn Naming>> {
        Some(Box::new(Paths(self.path.clone())))
    }

    fn fields(&self) -> Vec<String> {
        self.path.fields()
    }

    fn remarks(&self) -> Vec<Mistake> {
        self.path.remark("path").into_iter().collect()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        if self.encode.table().is_some() {
            return table::build(self, context);
        }
        let memory = ByteSize(context.memory.budget().limit() as u64);
        if let Some(Mistake { message, help, .. }) = self.check_memory(memory).pop() {
            return Err(Error::permanent(format!("{message} {}", help.unwrap_or_default())));
        }
        let rotate = self.rotate.as_ref();
        let settings = Settings {
            pieces: PieceOptions {
                compression: self.compression,
                level: self.compression_level,
                atomic: self.atomic,
                mode: self.mode.map(FileMode::bits),
                folder_mode: self.folder_mode.map(FileMode::bits),
                style: rotate.map_or_else(Style::default, Rotate::style),
                delimiter: self.delimiter.as_bytes().to_vec(),
                budget: context.memory.budget().clone(),
                root: (!self.path.is_constant()).then(|| constant_folder(self.path.prefix()).into()),
                names: (!self.path.is_constant()).then(|| Names {
                    prefix: self.path.prefix().to_owned(),
                    suffix: self.path.suffix().to_owned(),
                }),
            },
            existing: match self.existing {
                Existing::Auto if context.resumes || !context.starts_over => Existing::Append,
                Existing::Auto => Existing::Replace,
                other => other,
            },
            fsync: self.fsync,
            rotates: rotate.is_some(),
            link: rotate.and_then(|rotate| rotate.link.as_deref()).map(Link::new),
            size: rotate.and_then(|rotate| rotate.size).map(ByteSize::bytes),
            every: rotate.and_then(|rotate| rotate.every).map(|every| every.duration()),
            at: rotate.and_then(|rotate| rotate.at).map(|at| at.0),
            keep: rotate.map_or_else(Keep::default, |rotate| Keep {
                count: rotate.keep,
                bytes: rotate.keep_bytes.map(ByteSize::bytes),
                time: rotate.keep_age.map(TimeSpan::duration),
            }),
            most_open: most_open(self.max_open_files),
            idle: self.idle_timeout.map(|span| span.duration()),
            resends: context.resends,
            journal: context.journal.clone(),
        };
        Ok(Box::new(FileSink::new(self.path.clone(), self.encode.clone(), settings)))
    }
}
