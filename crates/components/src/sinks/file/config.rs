//! The options of the sink `file`.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{BuildTransform, Context, Error, Mistake, Sink, SinkConfig, TransformConfig};

use super::files::Settings;
use super::piece::Manner;
use super::{Compression, FileSink, names};
use crate::shared::mode::Mode;
use crate::shared::template::Template;
use crate::transforms::encode::EncodeConfig;

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
    pub mode: Option<Mode>,
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
    /// How many finished files to keep: older ones are removed. By default all are kept.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub keep: Option<usize>,
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
        match (self.compression_level, self.compression.levels()) {
            (Some(_), None) => {
                let message = "There is a `compression_level`, but no `compression`.";
                let mistake = Mistake::new("compression_level", message);
                mistakes.push(mistake.help("Set `compression` to `gzip` or `zstd`."));
            }
            (Some(level), Some(levels)) if !levels.contains(&level) => {
                let mistake = Mistake::new("compression_level", format!("There is no level {level}."));
                let help = format!("Its levels are {} to {}.", levels.start(), levels.end());
                mistakes.push(mistake.help(help));
            }
            _ => {}
        }
        if let Some(rotate) = &self.rotate {
            if rotate.size.is_none() && rotate.every.is_none() {
                let help = "Give it a `size`, for example `100MiB`, or `every`, for example `1h`.";
                mistakes.push(Mistake::new("rotate", "`rotate` does not say when.").help(help));
            }
            if rotate.size.is_some_and(|size| size.bytes() == 0) {
                mistakes.push(Mistake::new("rotate", "The `size` of a file cannot be 0."));
            }
            if rotate.every.is_some_and(|every| every.duration().is_zero()) {
                mistakes.push(Mistake::new("rotate", "`every` cannot be 0."));
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
            manner: Manner {
                compression: self.compression,
                level: self.compression_level,
                atomic: self.atomic,
                mode: self.mode.map(Mode::bits),
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
            keep: rotate.and_then(|rotate| rotate.keep),
            most_open: self.max_open_files.max(1),
            idle: self.idle_timeout.map(|span| span.duration()),
        };
        Ok(Box::new(FileSink::new(self.path.clone(), self.encode.clone(), settings)))
    }
}
