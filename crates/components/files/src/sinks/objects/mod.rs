//! Objects in stores: files as they are, messages one after the other.
//!
//! What is large goes in parts, several at the same time, each from memory that the budget gave before. Nobody sees an object
//! before it is complete. Which parts a store has is noted, so that a run after one that was cut off sends only the
//! others: of files in the journal, of messages in what the sink keeps beside the positions.

mod files;
mod messages;
mod parts;
mod table;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    BuildFileTransform, BuildTransform, Context, Cost, Details, Error, FileSink, FileTransform, Journal,
    Mistake, Sink, SinkConfig, TransformConfig,
};
use thalweg_record::Budget;
use thalweg_runtime::ConcurrencyLimit;
use thalweg_store::{Limits, OnExisting, Store, UploadedPart, Writing, part_size};

use crate::file_template::{FileTemplate, Variable};
use crate::stored::failure;
use thalweg_stream::encode::EncodeConfig;

/// Writes objects to stores: each file as one, messages one after the other.
///
/// `url` with a slash at its end is what files are written below, each where it was below what was read, or as `name` says. Without
/// one it is the object itself: for messages, or for one file. With `rotate`, objects of messages are numbered:
/// `all.jsonl` becomes `all-00001.jsonl` and so on.
///
/// An object is seen when it is complete, never in part: messages are acknowledged when their object is complete, or, with
/// `--state`, when the store has the part that they are in. What is large goes in parts, several at the same time; a run
/// that was cut off and is continued with `--state` sends only what is missing. What the store got is compared by a
/// checksum (CRC-32C), where the store knows that.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectsSink {
    /// Where to write: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, or a path. Options of a store follow as a query
    /// (`?region=eu-central-1&endpoint=…`); its credentials are found in the environment, or where its own tools keep
    /// them.
    #[schemars(example = &"s3://bucket/archive/")]
    pub url: String,
    /// The name of a file below `url`. At first that is where it was below what was read.
    #[serde(default = "its_name_and_folder")]
    #[schemars(example = &"{date}/{name}")]
    pub name: FileTemplate,
    /// What to do where there is such an object already.
    #[serde(default)]
    pub on_exists: OnExists,
    /// The content type of the objects. By default that of the file, if it is known.
    pub content_type: Option<String>,
    /// The form in which messages are written, for example `json`. By default they are written as they are.
    #[serde(default)]
    pub encode: EncodeConfig,
    /// What is written after each message: by default a line feed.
    #[serde(default = "line_feed")]
    pub delimiter: String,
    /// Write the fields of messages as tables in the format Parquet, in the place of `encode`. The first messages of an object say which
    /// columns it has; what does not fit leaves by `errors`.
    pub parquet: Option<table::Parquet>,
    /// When to begin a new object of messages. By default there is one.
    pub rotate: Option<Rotate>,
    /// How many bytes a part has. By default a thirty-second of the memory, at most 8 MiB (16 where objects are fetched
    /// into a folder), and at least what the store takes. It grows
    /// where an object would have too many parts.
    pub part_size: Option<ByteSize>,
    /// How many parts or objects to send at the same time. By default as many as do good.
    #[schemars(range(min = 1))]
    pub writers: Option<usize>,
    /// What all copies have in common.
    #[serde(skip)]
    #[schemars(skip)]
    common: Arc<OnceLock<Target>>,
}

pub use files::URL;

/// What to do where there is an object already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExists {
    /// Replace it.
    #[default]
    Replace,
    /// Of files: replace it if it has another size, or is older than the file. Messages replace it.
    Update,
    /// Leave it alone. A file counts as delivered then; where messages are to be written, the run ends with an error.
    Skip,
    /// Reject the file. Where messages are to be written, the run ends with an error.
    Error,
}

/// When to begin a new object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// When it has so many bytes, for example `1GiB`. It gets somewhat larger: up to a batch more.
    pub size: Option<ByteSize>,
    /// When it is so old, for example `5m`.
    pub every: Option<TimeSpan>,
}

/// How many requests may be on their way at once: never fewer than half of what clients of S3 begin with, since to find out that
/// more do good takes turns of a distant store.
const REQUESTS: RangeInclusive<usize> = 8..=32;

fn its_name_and_folder() -> FileTemplate {
    FileTemplate::of([Variable::Folder, Variable::Name])
}

fn line_feed() -> String {
    "\n".to_owned()
}

/// What is counted, over all copies.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Objects that are complete, and the CRC-32C of the last.
    pub(super) written: AtomicU64,
    pub(super) checksum: AtomicU64,
    pub(super) verified: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) skipped: AtomicU64,
}

impl ObjectsSink {
    fn place(&self) -> Result<(Store, String), String> {
        let (store, path) = Store::from_url(&self.url).map_err(|error| error.to_string())?;
        if store.limits().most_parts == 0 {
            return Err(format!("`{}` cannot be written to", store.name(&path)));
        }
        Ok((store, path))
    }

    /// The options that were given and say nothing about files.
    pub fn about_messages(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("encode", self.encode.encoder().is_some()),
            ("rotate", self.rotate.is_some()),
            ("parquet", self.parquet.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    fn is_folder(&self) -> bool {
        self.place().is_ok_and(|(_, path)| path.is_empty() || path.ends_with('/'))
    }

    /// What all copies write to: its limit and its counters are those of all together.
    fn target(&self, context: &Context) -> Result<Target, Error> {
        let target = match self.common.get() {
            Some(target) => target,
            None => {
                let target = self.new_target(context.memory.budget())?;
                self.common.get_or_init(|| target)
            }
        };
        show(&context.details, &target.store, &target.counts);
        Ok(target.clone())
    }

    fn new_target(&self, budget: &Budget) -> Result<Target, Error> {
        let (store, path) = self.place().map_err(Error::permanent)?;
        Ok(Target {
            wanted: self.wanted(budget, &store),
            fetched: match self.part_size {
                Some(size) => size.bytes(),
                None => (budget.limit() as u64 / 4).clamp(1 << 20, 16 << 20),
            },
            limit: match self.writers {
                Some(writers) => ConcurrencyLimit::fixed(writers),
                None => ConcurrencyLimit::adaptive(REQUESTS),
            },
            writing: Writing {
                content_type: self.content_type.clone(),
                on_existing: match self.on_exists {
                    OnExists::Replace | OnExists::Update => OnExisting::Replace,
                    OnExists::Skip | OnExists::Error => OnExisting::Keep,
                },
            },
            limits: store.limits(),
            store,
            path,
            counts: Arc::default(),
        })
    }

    fn wanted(&self, budget: &Budget, store: &Store) -> u64 {
        // A part of a draft costs no request.
        let most = if store.is_here() { 4 << 20 } else { 8 << 20 };
        self.part_size.map_or((budget.limit() as u64 / 32).clamp(1 << 20, most), ByteSize::bytes)
    }
}

/// Removes from a store what runs that were cut off had begun there and not made complete: what the journal of a sink
/// says, and what the sink saved. Nobody can go on with that afterwards.
///
/// # Errors
/// If the store does not remove it.
pub async fn discard_unfinished(url: &str, journal: &Journal, saved: Option<&Value>) -> Result<(), Error> {
    let (store, _) = Store::from_url(url).map_err(|error| Error::permanent(error.to_string()))?;
    let mut unfinished = parts::unfinished(journal)?;
    unfinished.extend(saved.and_then(messages::unfinished));
    for begun in unfinished {
        store.discard(&begun).await.map_err(|error| failure(&error))?;
    }
    journal.forget("")
}

fn show(details: &Details, store: &Store, counts: &Arc<Counts>) {
    let shown = store.clone();
    details.show("requests", move || shown.counts().requests());
    let shown = counts.clone();
    // Of several objects, each has one of its own.
    details.show("crc32c", move || match shown.written.load(Relaxed) {
        1 => shown.checksum.load(Relaxed),
        _ => 0,
    });
    let shown = store.clone();
    details.show("retries", move || shown.counts().retries());
    let shown = store.clone();
    details.show("sent_bytes", move || shown.counts().written());
    let shown = counts.clone();
    details.show("verified_bytes", move || shown.verified.load(Relaxed));
    let shown = counts.clone();
    details.show("kept_bytes", move || shown.kept.load(Relaxed));
    let shown = counts.clone();
    details.show("skipped_files", move || shown.skipped.load(Relaxed));
}

/// Where a sink writes, and how.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) store: Store,
    pub(super) limits: Limits,
    /// The path of the object, or what the paths of all begin with.
    pub(super) path: String,
    pub(super) writing: Writing,
    pub(super) limit: ConcurrencyLimit,
    pub(super) counts: Arc<Counts>,
    /// How many bytes a part should have.
    wanted: u64,
    /// How many it should have at most where it costs a request to read it, and none to write it.
    fetched: u64,
}

impl Target {
    /// How many bytes the part of a number has.
    pub(super) fn part_size(&self, total: Option<u64>, number: u32) -> u64 {
        part_size(self.wanted, total, number, &self.limits)
    }

    /// How many bytes each part of a file has that is fetched from a store. There must be some of them, since the first ones are
    /// written while others are fetched.
    pub(super) fn fetched_part_size(&self, total: u64) -> u64 {
        let fetched = (total / 16).max(self.wanted).min(self.fetched);
        let wanted = if self.store.is_here() { fetched } else { self.wanted };
        part_size(wanted, Some(total), 1, &self.limits)
    }

    /// An object is complete, and has this CRC-32C.
    pub(super) fn wrote(&self, crc32c: u32) {
        self.counts.checksum.store(crc32c.into(), Relaxed);
        self.counts.written.fetch_add(1, Relaxed);
    }

    /// A part is there: by this run, or by a former one.
    pub(super) fn note(&self, part: &UploadedPart, is_kept: bool) {
        if part.is_verified {
            self.counts.verified.fetch_add(part.size, Relaxed);
        }
        if is_kept {
            self.counts.kept.fetch_add(part.size, Relaxed);
        }
    }
}

impl SinkConfig for ObjectsSink {
    const NAME: &'static str = "objects";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"at": "%20s"}', count: 1000 } }
pipelines:
  main: { from: messages, to: archive }
sinks:
  archive: { objects: { url: "archive/all.jsonl", rotate: { size: 10KiB } } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let of_encode = TransformConfig::check(&self.encode).into_iter();
        let mut mistakes: Vec<Mistake> =
            of_encode.map(|mistake| Mistake { option: "encode", ..mistake }).collect();
        if self.parquet.is_some() && self.encode.encoder().is_some() {
            let mistake =
                Mistake::new("parquet", "Messages are written as tables or as `encode` says, not both.");
            mistakes.push(mistake.help("Remove one of them."));
        }
        mistakes.extend(self.place().err().map(|why| Mistake::new("url", format!("{why}."))));
        if let Some(rotate) = &self.rotate {
            if rotate.size.is_none() && rotate.every.is_none() {
                let help = "Give it a `size`, for example `1GiB`, or `every`, for example `5m`.";
                mistakes.push(Mistake::new("rotate", "`rotate` does not say when.").help(help));
            }
            if rotate.size.is_some_and(|size| size.bytes() == 0)
                || rotate.every.is_some_and(|every| every.duration().is_zero())
            {
                mistakes.push(Mistake::new("rotate", "`size` and `every` cannot be 0."));
            }
        }
        if self.part_size.is_some_and(|size| size.bytes() == 0 || size > ByteSize::gib(1)) {
            mistakes.push(Mistake::new("part_size", "A part must have between 1 byte and 1 GiB."));
        }
        mistakes
    }

    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        self.encode.encoder()
    }

    fn files(&self) -> Option<FileSink> {
        Some(FileSink(Arc::new(self.clone())))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        if self.is_folder() {
            let why = "messages are written to an object, so its `url` must not end with a slash";
            return Err(Error::permanent(why));
        }
        Ok(Box::new(messages::Messages::new(self, self.target(context)?, context)))
    }
}

impl BuildFileTransform for ObjectsSink {
    fn kind(&self) -> &'static str {
        <Self as SinkConfig>::NAME
    }

    fn check(&self) -> Vec<Mistake> {
        SinkConfig::check(self)
    }

    fn cost(&self) -> Cost {
        Cost::Waits
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let target = self.target(context)?;
        Ok(Box::new(files::Files {
            name: (target.path.is_empty() || target.path.ends_with('/')).then(|| self.name.clone()),
            on_exists: self.on_exists,
            memory: context.memory.clone(),
            journal: context.journal.clone(),
            target,
        }))
    }
}
