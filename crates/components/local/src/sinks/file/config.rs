//! The options of the sink `file`.

use std::borrow::Cow;

use chrono::NaiveTime;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{BuildTransform, Context, Error, Mistake, Sink, SinkConfig, TransformConfig};

use super::files::{Keep, Settings};
use super::names::Style;
use super::piece::PieceOptions;
use super::{Compression, FileSink, names};
use thalweg_codec::compress::level_mistake;
use thalweg_codec::template::Template;
use thalweg_config::FileMode;
use thalweg_stream::encode::EncodeConfig;

/// Writes messages to files.
///
/// Each message is written as it is, or as `encode` says, followed by `delimiter`. The folders that `path` names
/// are created.
///
/// While a file is being written its name ends in `.part` (`.continued.part`, if it existed and is added to); it gets
/// its own name when it is finished. So a file without `.part` is complete. Turn this off with `atomic: false`.
///
/// A message whose path cannot be (the value of a field leads out of the folder, is empty where a name is needed,
/// is too long, or begins a name with a dot) is rejected: it leaves by `errors` with the reason.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileConfig {
    /// Where to write: one file (`out/all.jsonl`), or one for each value of fields and for each span of time
    /// (`out/{service}/{time:%Y-%m-%d}.jsonl`). A value may hold `/` but no `..`, so that messages cannot
    /// write outside of the folder that stands here. Each name is remembered until its file is finished, so set
    /// `idle_timeout` where there come very many.
    pub path: Template,
    /// The form in which messages are written, for example `json`. By default they are written as they are.
    #[serde(default)]
    pub encode: EncodeConfig,
    /// What is written after each message: by default a line feed.
    #[serde(default = "line_feed")]
    pub delimiter: String,
    /// Whether files are compressed, and how. The name of the file is not changed: put `.gz` or `.zst` into `path`.
    #[serde(default)]
    pub compression: Compression,
    /// How hard to compress: 0 to 9 for `gzip` (by default 6), 1 to 22 for `zstd` (by default 3).
    #[serde(default)]
    pub compression_level: Option<i32>,
    /// When to begin a new file. The files are numbered: `out.jsonl` becomes `out-00001.jsonl`,
    /// `out-00002.jsonl` and so on, the last being the newest. By default there is one file.
    #[serde(default)]
    pub rotate: Option<Rotate>,
    /// Whether a file is called `NAME.part` until it is finished. With `false` it has its name from the beginning.
    #[serde(default = "yes")]
    pub atomic: bool,
    /// What to do with a file that exists before the run.
    #[serde(default)]
    pub on_exists: OnExists,
    /// When to wait until data is on the disk itself. This is for the case that the machine loses power; if
    /// only the process is killed, nothing that was acknowledged is lost in any case.
    #[serde(default)]
    pub fsync: Fsync,
    /// The permissions of new files in octal, for example `"0640"`. By default the system decides (`umask`).
    #[serde(default)]
    pub mode: Option<FileMode>,
    /// The permissions of new folders in octal, for example `"0755"`. By default the system decides (`umask`).
    #[serde(default)]
    pub folder_mode: Option<FileMode>,
    /// How many files to hold open at the same time, where `path` depends on the message. Others are opened again when
    /// something is to be added to them.
    #[serde(default = "most_open")]
    #[schemars(range(min = 1))]
    pub max_open_files: usize,
    /// Finish a file that got no message for so long, for example `10m`. If there comes one later, the file
    /// is continued. By default files are finished at the end of the run.
    #[serde(default)]
    pub idle_timeout: Option<TimeSpan>,
}

/// When to begin a new file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// Before a file would get larger than this, for example `100MiB`. A message is never divided, and one that is
    /// larger gets a file of its own. Compressed files get somewhat larger: up to a batch more.
    #[serde(default)]
    pub size: Option<ByteSize>,
    /// When a file is so old, for example `1h`.
    #[serde(default)]
    pub every: Option<TimeSpan>,
    /// When it is this time of the day in local time, for example `"03:00"`. A file without messages is gone on with.
    #[serde(default)]
    pub at: Option<TimeOfDay>,
    /// The moment when a file was begun, to be put before its number: with `%Y-%m-%d_%H` (as `strftime` has it, in local
    /// time) `out.log` becomes `out-2026-01-31_17-00001.log`. The numbers go on from file to file all the same.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// How many digits the numbers have, filled up with noughts.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 10))]
    pub digits: u8,
    /// Whether finished files are compressed, and how: `out-00001.log` becomes `out-00001.log.gz` or `.zst`. The one that is
    /// being written is not, other than with the `compression` of the sink.
    #[serde(default)]
    pub compress: Compression,
    /// How many finished files to keep: older ones are removed. By default all are kept.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub keep: Option<usize>,
    /// How long to keep finished files, for example `7d`. It is looked at when a file is finished.
    #[serde(default)]
    pub keep_for: Option<TimeSpan>,
    /// How many bytes finished files may take together, for example `10GiB`: the oldest are removed.
    #[serde(default)]
    pub keep_bytes: Option<ByteSize>,
}

fn five() -> u8 {
    5
}

/// A time of the day, written `03:00`.
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

/// What to do with a file that exists before the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExists {
    /// `append` in a run that keeps positions (`--state`), `replace` in any other.
    #[default]
    Auto,
    /// Write a new file. The old one is there until the new one is finished.
    Replace,
    /// Add to it. A run that broke off before is added to as well. With `rotate` a new numbered file is begun.
    Append,
    /// Stop with an error.
    Fail,
    /// Leave it, and put a number into the name of the new one: `out-00001.jsonl`.
    Number,
}

/// When to wait for the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Leave it to the system.
    Never,
    /// Before a file is given its name.
    #[default]
    Finish,
    /// Before messages are acknowledged: the safest, and slow.
    Flush,
}

fn line_feed() -> String {
    "\n".to_owned()
}

fn yes() -> bool {
    true
}

fn most_open() -> usize {
    256
}

impl SinkConfig for FileConfig {
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
        let of_encode = TransformConfig::check(&self.encode).into_iter();
        let mut mistakes: Vec<Mistake> =
            of_encode.map(|mistake| Mistake { option: "encode", ..mistake }).collect();
        if self.path.is_constant() {
            let path = self.path.prefix();
            if path.is_empty() || path.ends_with('/') {
                let mistake = Mistake::new("path", format!("`{path}` names no file."));
                mistakes.push(mistake.help("Add the name of a file, for example `out.jsonl`."));
            }
            if path.contains('\0') {
                mistakes.push(Mistake::new("path", "A path cannot hold a NUL byte."));
            }
            if self.atomic && names::is_reserved(path) {
                let mistake = Mistake::new("path", format!("`{path}` ends as names of unfinished files do."));
                mistakes.push(mistake.help("Choose another name, or set `atomic: false`."));
            }
        }
        mistakes.extend(level_mistake(self.compression, self.compression_level));
        if let Some(rotate) = &self.rotate {
            if rotate.size.is_none() && rotate.every.is_none() && rotate.at.is_none() {
                let help = "Give it a `size`, for example `100MiB`, `every`, for example `1h`, or `at`, for example `\"03:00\"`.";
                mistakes.push(Mistake::new("rotate", "`rotate` does not say when.").help(help));
            }
            if rotate.size.is_some_and(|size| size.bytes() == 0) {
                mistakes.push(Mistake::new("rotate", "The `size` of a file cannot be 0."));
            }
            if rotate.every.is_some_and(|every| every.duration().is_zero()) {
                mistakes.push(Mistake::new("rotate", "`every` cannot be 0."));
            }
            if let Some(format) = rotate.timestamp.as_ref().filter(|format| !names::is_timestamp(format)) {
                let mistake = Mistake::new("rotate", format!("`{format}` makes no part of a file's name."));
                mistakes.push(
                    mistake.help("It is written as for `strftime` and holds no `/`, for example `%Y-%m-%d`."),
                );
            }
            if rotate.compress != Compression::None && self.compression != Compression::None {
                let mistake =
                    Mistake::new("rotate", "What is compressed while it is written needs no `compress`.");
                mistakes.push(mistake.help("Remove it, or `compression`."));
            }
        }
        if self.idle_timeout.is_some_and(|span| span.duration().is_zero()) {
            mistakes.push(Mistake::new("idle_timeout", "It cannot be 0."));
        }
        mistakes
    }

    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        self.encode.encoder()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let rotate = self.rotate.as_ref();
        let settings = Settings {
            manner: PieceOptions {
                compression: self.compression,
                level: self.compression_level,
                atomic: self.atomic,
                mode: self.mode.map(FileMode::bits),
                folder_mode: self.folder_mode.map(FileMode::bits),
                style: rotate.map_or_else(Style::default, |rotate| Style {
                    digits: rotate.digits.into(),
                    timestamp: rotate.timestamp.clone(),
                    pack: rotate.compress,
                }),
                delimiter: self.delimiter.as_bytes().to_vec(),
            },
            on_exists: match self.on_exists {
                OnExists::Auto if context.resumes => OnExists::Append,
                OnExists::Auto => OnExists::Replace,
                other => other,
            },
            fsync: self.fsync,
            rotates: rotate.is_some(),
            size: rotate.and_then(|rotate| rotate.size).map(ByteSize::bytes),
            every: rotate.and_then(|rotate| rotate.every).map(|every| every.duration()),
            at: rotate.and_then(|rotate| rotate.at).map(|at| at.0),
            keep: rotate.map_or_else(Keep::default, |rotate| Keep {
                count: rotate.keep,
                bytes: rotate.keep_bytes.map(ByteSize::bytes),
                time: rotate.keep_for.map(TimeSpan::duration),
            }),
            most_open: self.max_open_files.max(1),
            idle: self.idle_timeout.map(|span| span.duration()),
        };
        Ok(Box::new(FileSink::new(self.path.clone(), self.encode.clone(), settings)))
    }
}
