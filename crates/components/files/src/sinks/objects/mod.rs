//! `objects`: writes objects to stores, either whole files or sequences of messages.
//!
//! Large objects are uploaded in parts, several at the same time, each from memory that the budget granted
//! first. No reader sees an object before it is complete. The sink records which parts a store has, so that a
//! later run sends only the missing ones. For files, the record is in the journal; for messages, it is in the
//! sink's state, saved with the checkpoints.
//!
//! See docs/decisions/036-uploads-are-our-own-requests.md and
//! docs/decisions/083-no-two-names-have-an-object-in-common.md.

mod by_name;
mod existing;
mod files;
mod messages;
mod name;
mod object;
mod parts;
mod places;
mod sealed;
mod tail;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Component, Context, Cost, Details, Error, FileSink, FileTransform, FileTransformConfig, Journal, Mistake,
    Naming, Sink, SinkConfig, TransformConfig,
};
use thalweg_record::{Budget, File};
use thalweg_runtime::ConcurrencyLimit;
use thalweg_store::{Limits, OnExisting, Store, StoreError, UploadedPart, Writing, part_size};

use crate::directory::names::Names;
use crate::directory::presence::Presence;
use crate::file_template::{FileTemplate, Variable};
use crate::stored::failure;
use name::{ObjectName, ObjectPaths, ShownPaths};
use thalweg_codec::foreign;
use thalweg_codec::template::Template;
use thalweg_stream::encode::EncodeConfig;
use thalweg_stream::table;

pub use existing::Finder;

/// Writes objects to stores: each file as one object, or messages one after the other.
///
/// Files are written below a `url` with a slash at its end. Each keeps its place relative to the folder that
/// the source reads, unless `name` says otherwise. A `url` without a slash is the object itself, for messages
/// or for a single file. With `rotate`, objects of messages are numbered: `all.jsonl` becomes
/// `all-00001.jsonl` and so on.
///
/// Messages may decide the name: `url` and `name` can contain their columns, as in
/// `day={day}/{host}.parquet`. Then each name has objects of its own. A column that is NULL adds nothing. A
/// message whose values make no name leaves by the `errors` output: a part of the name would be empty, be
/// `..`, begin with a dot, or be too long. In a folder of this machine, so does a message whose name leads
/// through a symbolic link below the constant part of the path, or below another file. Up to `max_open_files`
/// objects are open at the same time, within a quarter of `memory`. Beyond either, the object that got no
/// message for longest is completed, and further messages of its name go to an object with the next number.
/// Without `--state`, the sink remembers the number of each name, in at most 80 bytes of memory.
///
/// No two names have an object in common. A name that ends like a numbered one gets a number for its first
/// object as well: `a-00002.jsonl` becomes `a-00002-00001.jsonl`. With `{number}`, a message is rejected if
/// its values have digits beside the number. If values are on both sides of the number, it is rejected as
/// well if they have other digits that could be the number: `{number:5}` avoids most of that.
///
/// An object is visible when it is complete, never in part. Messages are acknowledged when their object is
/// complete. With `--state`, they are acknowledged by the next checkpoint, and a full object becomes visible
/// when a checkpoint covers it: usually within a second. Large objects are uploaded in parts, several at the
/// same time. With `--state`, a run after an interrupted one sends only the missing parts. The result is
/// verified with a checksum (CRC-32C) if the store supports that.
///
/// With `--state`, messages are never written over those of an earlier run, and those of services such as
/// `syslog` also without it. With `--state` and without `rotate`, a run that is asked to stop leaves its
/// object unfinished, and the next run continues it. Once an object is complete, further messages go to
/// `all-00002.jsonl` and so on. A run that is asked to stop completes a Parquet table, and an object in a
/// store whose parts must have equal sizes. With `--state` and columns in the name, the tables of all names
/// are completed together, when one of them is to be: a checkpoint covers all messages of a batch or none. So
/// if a table ends within a batch, as it does behind `limit`, the next checkpoint completes a small one with
/// the rest. A service that never ends needs `rotate`: its objects would otherwise never be complete.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectsSink {
    /// The target: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, or a path. Options of a store
    /// follow as a query (`?region=eu-central-1&endpoint=…`). Credentials come from the environment, or from
    /// where the store's own tools keep them.
    #[schemars(example = &"s3://bucket/archive/")]
    pub url: String,
    /// The name of an object below `url`, a template. For files, the default is `{folder}{name}`: the file
    /// keeps its place relative to the folder that the source reads. For messages, it contains their columns,
    /// as in `{host}/{time:%Y-%m-%d}.jsonl`, and `{number}` or `{number:5}` for the number of the object. The
    /// default is `url` itself.
    #[schemars(example = &"{date}/{name}")]
    pub name: Option<ObjectName>,
    /// The action if the object exists. The default is `replace`; for files of a source that gets them only
    /// once, such as uploads, and beside `remove`, it is `rename`. Without this option, messages of a run
    /// with `--state` replace no object that the state does not know: they go to one with a further number.
    pub existing: Option<Existing>,
    /// The action if a file cannot be written for a reason that may pass, such as a store that does not
    /// answer. The default is `retry`. Messages are always retried.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The content type of the objects, such as `text/csv`. The default is the type of the file, if it is
    /// known.
    pub content_type: Option<String>,
    /// The encoding of messages, for example `json`. By default the payload is written unchanged. `parquet`
    /// writes the fields of messages as Parquet tables. The first messages of an object determine its
    /// columns, unless `columns` lists them. Messages that do not fit leave by the `errors` output, and only
    /// these. So do messages whose fields would make more columns than fit in a quarter of `memory`: each
    /// column takes about 20 KiB beside its values.
    #[serde(default)]
    pub encode: EncodeConfig,
    /// The text after each message. The default is a line feed. A table has none.
    #[serde(default = "line_feed")]
    pub delimiter: String,
    /// When to begin a new object of messages. By default all messages go to one object.
    pub rotate: Option<Rotate>,
    /// The maximum number of objects that are open at the same time, if messages decide the name. The default
    /// is 256.
    #[serde(default = "most_open")]
    #[schemars(range(min = 1))]
    pub max_open_files: usize,
    /// The size of a part in bytes, at most 1 GiB. The default is 1/32 of the memory: at least 1 MiB, and at
    /// most 8 MiB in a store or 4 MiB in a local folder. Objects fetched from a store into a local folder use
    /// up to 16 MiB. Parts are never smaller than the store allows, and become larger if an object would have
    /// too many.
    pub part_size: Option<ByteSize>,
    /// The maximum number of parts or objects to send at the same time. By default the sink adapts the number
    /// to the store, between 8 and 32.
    #[schemars(range(min = 1))]
    pub writers: Option<usize>,
    /// The name of objects of messages, if another component decides it.
    #[serde(skip)]
    #[schemars(skip)]
    of_messages: Option<Template>,
    /// Shared by all workers.
    #[serde(skip)]
    #[schemars(skip)]
    common: Arc<OnceLock<Target>>,
    /// Shared by all workers.
    #[serde(skip)]
    #[schemars(skip)]
    names: Arc<Names>,
    /// Shared by all workers.
    #[serde(skip)]
    #[schemars(skip)]
    finder: Arc<Finder>,
    /// True if the drafts of former runs that no run resumes are removed. Shared by all workers: a later one
    /// must not remove the drafts of this run.
    #[serde(skip)]
    #[schemars(skip)]
    is_tidy: Arc<Mutex<bool>>,
}

/// The action if the object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// Replaces it. Two files of one name do not replace each other: the second becomes `name-2.jpg`. With
    /// `--state`, that also applies to files of different runs.
    Replace,
    /// Files: writes `name-2.jpg`, `name-3.jpg` and so on. Messages: as `replace`.
    Rename,
    /// Files: replaces it if its size differs, or if the file is newer. Messages always replace it.
    Update,
    /// Keeps it. A file then counts as delivered; for messages, the run ends with an error.
    Skip,
    /// Rejects the file. For messages, the run ends with an error.
    Error,
}

/// The action if a file cannot be written for a reason that may pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Retries until the file is written.
    #[default]
    Retry,
    /// Rejects the file after several attempts.
    Reject,
}

impl Existing {
    /// Returns the option for the store.
    fn on_existing(self) -> OnExisting {
        match self {
            Existing::Replace | Existing::Update => OnExisting::Replace,
            Existing::Rename | Existing::Skip | Existing::Error => OnExisting::Keep,
        }
    }
}

/// When to begin a new object: if the object reaches the size or the age.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotate {
    /// The size in bytes, for example `1GiB`. An object may exceed it by up to one batch. Of a Parquet table,
    /// the size of rows that are not compressed yet is estimated. By default the size is unlimited.
    pub size: Option<ByteSize>,
    /// The age since the first message, for example `5m`. By default the age is unlimited.
    pub every: Option<TimeSpan>,
}

/// The bounds of the adaptive number of concurrent requests. The minimum is half of what S3 clients begin
/// with. From a lower number, finding out that more requests help would take several round trips to a distant
/// store.
const REQUESTS: RangeInclusive<usize> = 8..=32;

fn its_name_and_folder() -> FileTemplate {
    FileTemplate::of([Variable::Folder, Variable::Name])
}

fn most_open() -> usize {
    256
}

fn line_feed() -> String {
    "\n".to_owned()
}

/// Counters of all workers together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The number of complete objects, and the CRC-32C of the last one.
    pub(super) written: AtomicU64,
    pub(super) checksum: AtomicU64,
    pub(super) verified: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) skipped: AtomicU64,
}

impl ObjectsSink {
    fn location(&self) -> Result<(Store, String), String> {
        let (store, path) = Store::from_url(&self.url).map_err(|error| error.to_string())?;
        if store.limits().most_parts == 0 {
            return Err(format!("`{}` cannot be written to", store.name(&path)));
        }
        Ok((store, path))
    }

    /// Returns the options in use that apply only to messages.
    pub fn about_messages(&self) -> impl Iterator<Item = &'static str> {
        let given = [("encode", !self.encode.is_raw()), ("rotate", self.rotate.is_some())];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Returns a sink of messages for another component: `url` is a folder, and `name` the name below it.
    pub fn of_messages(
        url: String,
        name: Template,
        encode: EncodeConfig,
        rotate: Option<Rotate>,
        existing: Option<Existing>,
        max_open_files: usize,
    ) -> Self {
        Self {
            url,
            name: None,
            existing,
            on_failure: OnFailure::default(),
            content_type: None,
            encode,
            delimiter: line_feed(),
            rotate,
            max_open_files,
            part_size: None,
            writers: None,
            of_messages: Some(name),
            common: Arc::default(),
            names: Arc::default(),
            finder: Arc::default(),
            is_tidy: Arc::default(),
        }
    }

    /// Returns the path of objects of messages.
    fn paths(&self) -> Result<ObjectPaths, String> {
        let (_, path) = self.location()?;
        if let Some(name) = &self.of_messages {
            return Ok(ObjectPaths::of(path, name.clone()));
        }
        let is_folder = path.is_empty() || path.ends_with('/');
        let name = match &self.name {
            Some(name) if is_folder => name.text().to_owned(),
            Some(name) => format!("/{}", name.text()),
            None if is_folder => {
                return Err(
                    "messages are written to objects, so their `url` must not end with a slash, unless \
                            `name` is given, for example `all.jsonl`"
                        .to_owned(),
                );
            }
            None => String::new(),
        };
        // Only a `url` with braces is a template: the path of a folder may have others before it.
        let parsed = match self.url.contains(['{', '}']) {
            true => ObjectPaths::parse(String::new(), &format!("{path}{name}")),
            false => ObjectPaths::parse(path, &name),
        };
        parsed.map_err(|error| format!("the name of the objects is not a template: {error}"))
    }

    /// Returns the template for the names of files.
    fn file_name(&self) -> Result<FileTemplate, Error> {
        self.name.as_ref().map_or_else(|| Ok(its_name_and_folder()), ObjectName::of_files)
    }

    /// Returns the target that all workers share. Its limit and counters apply to all of them together.
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
        let (store, path) = self.location().map_err(Error::permanent)?;
        let folder = path.rfind('/').and_then(|end| path.get(..end)).unwrap_or_default();
        let presence = store.is_here().then(|| Arc::new(Presence::of(Path::new("/").join(folder))));
        Ok(Target {
            presence,
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
                on_existing: self
                    .existing
                    .filter(|existing| *existing != Existing::Rename)
                    .unwrap_or(Existing::Replace)
                    .on_existing(),
                ..Writing::default()
            },
            limits: store.limits(),
            store,
            path,
            counts: Arc::default(),
        })
    }

    fn wanted(&self, budget: &Budget, store: &Store) -> u64 {
        // A part of a local draft costs no request.
        let most = if store.is_here() { 4 << 20 } else { 8 << 20 };
        self.part_size.map_or((budget.limit() as u64 / 32).clamp(1 << 20, most), ByteSize::bytes)
    }
}

/// Discards uploads that interrupted runs began and did not complete. They are read from the journal of a
/// sink and from its saved state. No later run can resume these uploads.
///
/// # Errors
/// If the store cannot remove an upload.
pub async fn discard_unfinished(url: &str, journal: &Journal, saved: Option<&Value>) -> Result<(), Error> {
    let (store, _) = Store::from_url(url).map_err(|error| Error::permanent(error.to_string()))?;
    let below = store.name("");
    let of_state = saved.and_then(messages::unfinished).map(Ok);
    for begun in parts::unfinished(journal, &below).chain(of_state) {
        store.discard(&begun?).await.map_err(|error| failure(&error))?;
    }
    journal.forget(&below)
}

/// True if the sink that saved this state had all its input: its objects are complete, or the next run
/// completes them.
pub fn is_finished(saved: &Value) -> bool {
    messages::is_finished(saved)
}

fn show(details: &Details, store: &Store, counts: &Arc<Counts>) {
    let shown = store.clone();
    details.show("requests", move || shown.counts().requests());
    let shown = counts.clone();
    // Several objects have several checksums: none is shown then.
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

/// The target of a sink, and how to write to it.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) store: Store,
    pub(super) limits: Limits,
    /// The path of the object, or the common prefix of all paths.
    pub(super) path: String,
    pub(super) writing: Writing,
    pub(super) limit: ConcurrencyLimit,
    pub(super) counts: Arc<Counts>,
    /// The folder of this machine in which the objects are.
    presence: Option<Arc<Presence>>,
    /// The preferred size of a part in bytes.
    wanted: u64,
    /// The maximum size in bytes of a part if reading it costs a request and writing it does not.
    fetched: u64,
}

impl Target {
    /// Checks that a local folder was not removed since an object was written to it.
    ///
    /// # Errors
    /// If it was.
    pub(super) fn check_present(&self) -> Result<(), Error> {
        self.presence.as_ref().map_or(Ok(()), |presence| {
            presence.check()?;
            presence.note();
            Ok(())
        })
    }

    /// Returns the size of the part with this number, in bytes.
    pub(super) fn part_size(&self, total: Option<u64>, number: u32) -> u64 {
        part_size(self.wanted, total, number, &self.limits)
    }

    /// Returns the size in bytes of each part of a file that is fetched from a store. A file should have
    /// several parts, so that the first are written while others are fetched.
    pub(super) fn fetched_part_size(&self, total: u64) -> u64 {
        let fetched = (total / 16).max(self.wanted).min(self.fetched);
        let wanted = if self.store.is_here() { fetched } else { self.wanted };
        part_size(wanted, Some(total), 1, &self.limits)
    }

    /// True if the store is a folder of this machine, and has a folder at this path.
    pub(super) fn is_folder(&self, path: &str) -> bool {
        let found = || Path::new("/").join(path).symlink_metadata();
        self.store.is_here() && found().is_ok_and(|found| found.is_dir())
    }

    /// True if the store has an object at this path, or is a folder of this machine with a folder there.
    pub(super) async fn exists(&self, path: &str) -> Result<bool, Error> {
        if self.is_folder(path) {
            return Ok(true);
        }
        match self.store.stat(path).await {
            Ok(_) => Ok(true),
            Err(StoreError::Absent { .. }) => Ok(false),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Counts a complete object, and keeps its CRC-32C.
    pub(super) fn wrote(&self, crc32c: u32) {
        self.counts.checksum.store(crc32c.into(), Relaxed);
        self.counts.written.fetch_add(1, Relaxed);
    }

    /// Counts a part that this run or an earlier one wrote.
    pub(super) fn note(&self, part: &UploadedPart, is_kept: bool) {
        if part.is_verified {
            self.counts.verified.fetch_add(part.size, Relaxed);
        }
        if is_kept {
            self.counts.kept.fetch_add(part.size, Relaxed);
        }
    }
}

impl Component for ObjectsSink {
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
        let mut mistakes = self.encode.mistakes_with_tables();
        mistakes.extend(self.location().err().map(|why| Mistake::of("url", &why)));
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
}

impl SinkConfig for ObjectsSink {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn files(&self) -> Option<FileSink> {
        Some(FileSink(Arc::new(self.clone())))
    }

    fn fields(&self) -> Vec<String> {
        self.paths().map_or_else(|_| Vec::new(), |paths| paths.fields())
    }

    fn remarks(&self) -> Vec<Mistake> {
        let name = self.name.as_ref().map(|name| ("name", name.text()));
        let texts = [("url", self.url.as_str())].into_iter().chain(name);
        texts.filter_map(|(option, text)| foreign::remark(option, text)).collect()
    }

    fn naming(&self) -> Option<Box<dyn Naming>> {
        let (store, _) = self.location().ok()?;
        Some(Box::new(ShownPaths {
            paths: self.paths().ok()?,
            shown: Box::new(move |path| store.name(path)),
        }))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        let naming = self.paths().map_err(Error::permanent)?;
        let memory = context.memory.budget().limit();
        if memory < messages::LEAST.as_usize() {
            return Err(Error::permanent(format!(
                "messages are collected before they are sent, which takes memory: set `memory` to at least {}",
                messages::LEAST
            )));
        }
        if let Some(why) = self.encode.table().and_then(|options| table::too_small(options, memory)) {
            return Err(Error::permanent(why));
        }
        let mut target = self.target(context)?;
        let path = naming.constant();
        target.path = path.clone().unwrap_or_default();
        if path.is_none() {
            target.store = target.store.without_links(&naming.root());
        }
        let messages = messages::Messages::new(self, naming.numbers(), target, context);
        match path {
            Some(_) => Ok(Box::new(messages)),
            None => Ok(Box::new(by_name::ByName::new(naming, messages, self.max_open_files))),
        }
    }
}

impl FileTransformConfig for ObjectsSink {
    fn cost(&self) -> Cost {
        Cost::Waits
    }

    fn target(&self, file: &mut File) -> Option<String> {
        let (store, path) = self.location().ok()?;
        let is_folder = path.is_empty() || path.ends_with('/');
        let name = if is_folder { self.file_name().ok()?.render(file).ok()? } else { Default::default() };
        Some(store.name(&format!("{path}{}", name.to_string_lossy())))
    }

    fn build(&self, context: &Context) -> Result<Box<dyn FileTransform>, Error> {
        let target = self.target(context)?;
        let name = self.file_name()?;
        if let Some(journal) = context.journal.as_ref().filter(|_| target.store.is_here()) {
            let mut is_tidy = self.is_tidy.lock();
            if !*is_tidy {
                parts::discard_of_gone_files(journal, &target.store)?;
                *is_tidy = true;
            }
        }
        self.names.spill_to(&context.temporary);
        Ok(Box::new(files::Files {
            name: (target.path.is_empty() || target.path.ends_with('/')).then_some(name),
            existing: self.existing.unwrap_or(match context.starts_over {
                true => Existing::Replace,
                false => Existing::Rename,
            }),
            on_failure: self.on_failure,
            memory: context.memory.clone(),
            journal: context.journal.clone(),
            names: self.names.clone(),
            finder: self.finder.clone(),
            target,
        }))
    }
}
