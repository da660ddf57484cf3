//! `objects`: objects in stores.

mod known;

use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thalweg_config::{ByteSize, List, TimeSpan};
use thalweg_engine::{
    Checkpoint, Component, Context, Error, Flow, Mistake, Source, SourceConfig, SourceOutput,
};
use thalweg_record::{Content, File, Lease, Origin as Found, Pace, Problem, Times};
use thalweg_store::{Counts, Entry, Listing, Object, Store, StoreError};

use self::known::Known;
use crate::group::Group;
use crate::stored::{Reads, StoredObject, failure};
use thalweg_codec::pattern::{self, Root, Wanted};
use thalweg_stream::links::LinksOut;

/// Reads objects from stores, each as a file: a single object, or all objects below a prefix.
///
/// A large object is read in slices, many at the same time. Each slice is requested only after its memory is
/// available. If an object changes while it is read, that is an error: its ETag, or else its size and
/// modification time, shows it. A listing of millions of objects needs no more memory than one of ten.
///
/// With `--state`, an interrupted run resumes where it stopped. The run after a completed one sends only new
/// and changed objects, by the modification times of the store and the ETags of recent objects: see
/// `max_delay`. Files in local folders are sent again in each run, because a new file may have an old
/// modification time.
///
/// A server cannot make a listing endless: a page that repeats is an error, and so are 1,000 pages in a row
/// without a name, and an answer of more than 8 MiB; for a folder of a WebDAV server that is 32 MiB, or about
/// 50,000 names. Names that are not below the listed one, and folders more than 128 deep, leave by the
/// `errors` output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectsSource {
    /// The objects to read: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `https://…`,
    /// `webdavs://…` or a path, or a list of these. A URL with a slash at its end means all objects below it.
    /// `*` and `**` make it a pattern: `s3://logs/2026/**/*.csv`. Options of a store follow as a query
    /// (`?region=eu-central-1&endpoint=…`). Credentials come from the environment, or from where the store's
    /// own tools keep them.
    #[schemars(example = &"s3://bucket/logs/**/*.csv")]
    pub url: List<String>,
    /// Patterns; an object must match at least one. A pattern without `/` applies to the last part of the
    /// object's name, one with `/` to the whole name below the prefix. The default is no patterns: all
    /// objects match.
    #[serde(default)]
    pub include: List<String>,
    /// Patterns; an object must match none. The default is no patterns.
    #[serde(default)]
    pub exclude: List<String>,
    /// The size of a request in bytes, at most 1 GiB. The default is a sixteenth of the memory, at most 8
    /// MiB.
    pub slice_size: Option<ByteSize>,
    /// The maximum number of slices to request at the same time. By default the source adapts the number to
    /// the store.
    #[schemars(range(min = 1))]
    pub readers: Option<usize>,
    /// The maximum number of slices of an object that have arrived and wait to be processed, in addition to
    /// those being read. By default only the memory limits it.
    pub queue: Option<usize>,
    /// With `--state`: how much later than its modification time an object may become visible, including the
    /// difference of clocks. The default is `10m`. The modification time of an object that is uploaded in
    /// parts to S3 is that of the beginning of the upload: if uploads take longer, set it to the time that
    /// they take, for example `24h`. The source remembers the first 1000 objects of that time; further ones
    /// are sent again by the next run.
    #[serde(default = "ten_minutes")]
    pub max_delay: TimeSpan,
    /// The action for symbolic links in a folder of this machine. The default is `inside`.
    #[serde(default)]
    pub symlinks: ObjectLinks,
}

/// The action for symbolic links in a folder of this machine. Links to folders are never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectLinks {
    /// Reads files through links that stay in the folder that is read. Skips links that lead out of it.
    #[default]
    Inside,
    /// Reads files through all links. A user who may write into the folder can then have any file read that
    /// this process may read.
    Files,
}

fn ten_minutes() -> TimeSpan {
    TimeSpan(Duration::from_mins(10))
}

impl Component for ObjectsSource {
    const NAME: &'static str = "objects";
    const EXAMPLE: &'static str = r#"
sources:
  tables: { objects: { url: "tables/**/*.csv" } }
pipelines:
  main: { from: tables, transforms: [csv: {}], to: all }
sinks:
  all: { file: { path: out/all.jsonl, encode: json } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for url in &self.url {
            mistakes.extend(Location::new(url).err().map(|why| Mistake::of("url", &why)));
        }
        for (option, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            mistakes.extend(patterns.iter().filter_map(|text| pattern::mistake(option, text)));
        }
        if self.slice_size.is_some_and(|slice| slice.bytes() == 0 || slice > ByteSize::gib(1)) {
            let message = "A slice must have between 1 byte and 1 GiB.";
            mistakes.push(Mistake::new("slice_size", message));
        }
        mistakes
    }
}

impl SourceConfig for ObjectsSource {
    fn blocks(&self) -> bool {
        false
    }

    fn reads(&self) -> Vec<thalweg_engine::Reads> {
        let local = self.url.iter().map(|url| url.strip_prefix("file://").unwrap_or(url));
        let all = local.filter(|url| !url.contains("://")).flat_map(thalweg_engine::Reads::of);
        all.map(|reads| reads.filtered(&self.include, &self.exclude)).collect()
    }

    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let pace = Pace {
            slice: self.slice_size.map(ByteSize::as_usize),
            at_once: self.readers,
            window: self.queue.map(|queue| queue.saturating_add(self.readers.unwrap_or(1))),
        };
        let locations = self.url.iter().map(|url| Location::new(url)).collect::<Result<Vec<_>, _>>();
        let locations: Arc<[Location]> = locations.map_err(Error::permanent)?.into();
        let show = |name, count: fn(&Counts) -> u64| {
            let locations = locations.clone();
            context
                .details
                .show(name, move || locations.iter().map(|location| count(location.store.counts())).sum());
        };
        show("requests", Counts::requests);
        show("retries", Counts::retries);
        show("fetched_bytes", Counts::read);
        Ok(Box::new(Objects {
            locations,
            names: Wanted::new(&self.include, &self.exclude)
                .map_err(|error| Error::permanent(error.to_string()))?,
            done: 0,
            tolerance: self.max_delay.duration(),
            follows_links: self.symlinks == ObjectLinks::Files,
            reads: Reads::new(self.readers, pace, context.memory.budget()),
        }))
    }
}

/// The target of one URL.
struct Location {
    store: Store,
    wanted: Selection,
    /// The partition of its positions.
    partition: Arc<str>,
}

enum Selection {
    One(String),
    /// All objects below a prefix, which may end in the middle of a name.
    Below {
        prefix: String,
        folder: String,
        pattern: Option<Root>,
    },
}

impl Selection {
    /// True if `below`, a path relative to the folder, matches.
    fn finds(&self, below: &Path) -> bool {
        match self {
            Self::Below { pattern: Some(pattern), .. } => pattern.finds(below, false),
            _ => true,
        }
    }
}

/// Finds out what there is to read, without reading it.
impl ObjectsSource {
    /// Creates a source with these options, and the defaults for the others.
    pub fn new(url: &str, include: Vec<String>, exclude: Vec<String>) -> Self {
        let url = vec![url.to_owned()].into();
        Self {
            url,
            include: include.into(),
            exclude: exclude.into(),
            slice_size: None,
            readers: None,
            queue: None,
            max_delay: ten_minutes(),
            symlinks: ObjectLinks::default(),
        }
    }

    /// True if the source may read more than one object.
    ///
    /// # Errors
    /// The mistake in a URL.
    pub fn is_many(&self) -> Result<bool, String> {
        let mut count = 0;
        for url in &self.url {
            count += if matches!(Location::new(url)?.wanted, Selection::One(_)) { 1 } else { 2 };
        }
        Ok(count > 1)
    }

    /// Follows links in folders of this machine, or skips those that lead out.
    #[must_use]
    pub fn symlinks(self, symlinks: ObjectLinks) -> Self {
        Self { symlinks, ..self }
    }

    /// Lists the objects that a first run would send. Calls `each` with the name relative to the folder and
    /// the object, until `each` returns `false`. Returns the first link that a run would skip.
    ///
    /// # Errors
    /// If a store cannot be listed, or an object does not exist.
    pub async fn look(
        &self,
        each: &mut (dyn FnMut(&str, &Object) -> bool + Send),
    ) -> Result<Option<String>, Error> {
        let mut link = None;
        let names =
            Wanted::new(&self.include, &self.exclude).map_err(|error| Error::permanent(error.to_string()))?;
        for url in &self.url {
            let location = Location::new(url).map_err(Error::permanent)?;
            match &location.wanted {
                Selection::One(path) => {
                    let object = location.state(path).await?;
                    if !each(path.rsplit('/').next().unwrap_or(path), &object) {
                        return Ok(link);
                    }
                }
                Selection::Below { prefix, folder, .. } => {
                    let mut listing =
                        location.store.list(prefix).following_links(self.symlinks == ObjectLinks::Files);
                    while let Some(entry) = listing.next_entry().await.map_err(|error| failure(&error))? {
                        let object = match entry {
                            Entry::Object(object) => object,
                            Entry::Unreadable { .. } => continue,
                            Entry::LinkOut { name } => {
                                link.get_or_insert(name);
                                continue;
                            }
                        };
                        let below = object.path().get(folder.len()..).unwrap_or_default();
                        let is_wanted =
                            names.allows(Path::new(below)) && location.wanted.finds(Path::new(below));
                        if is_wanted && !each(below, &object) {
                            return Ok(link);
                        }
                    }
                }
            }
        }
        Ok(link)
    }

    /// True if the source would read the object at `url` if it existed.
    ///
    /// # Errors
    /// The mistake in a URL.
    pub fn reads(&self, url: &str) -> Result<bool, String> {
        let names = Wanted::new(&self.include, &self.exclude).map_err(|error| error.to_string())?;
        let (store, path) = Store::from_url(url).map_err(|error| error.to_string())?;
        for url in &self.url {
            let location = Location::new(url)?;
            if location.store.origin("").key() != store.origin("").key() {
                continue;
            }
            let is_read = match &location.wanted {
                Selection::One(one) => *one == path,
                Selection::Below { prefix, folder, .. } => {
                    let below = path.strip_prefix(folder.as_str()).map(Path::new);
                    path.starts_with(prefix.as_str())
                        && below.is_some_and(|below| names.allows(below) && location.wanted.finds(below))
                }
            };
            if is_read {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Location {
    fn new(url: &str) -> Result<Self, String> {
        let (store, path) = Store::from_url(url).map_err(|error| error.to_string())?;
        let partition = store.name(&path).into();
        let first = path.find(['*', '[']).filter(|_| store.can_list());
        let wanted = match first {
            Some(first) => {
                let plain = path.get(..first).unwrap_or_default();
                let folder =
                    plain.rfind('/').map_or("", |end| path.get(..=end).unwrap_or_default()).to_owned();
                let prefix = if store.lists_in_order() { plain.to_owned() } else { folder.clone() };
                let below = path.get(folder.len()..).unwrap_or_default();
                let pattern = Root::new(below).map_err(|error| error.to_string())?;
                Selection::Below { prefix, folder, pattern: Some(pattern) }
            }
            None if store.can_list() && (path.is_empty() || path.ends_with('/')) => {
                Selection::Below { prefix: path.clone(), folder: path, pattern: None }
            }
            None => Selection::One(path),
        };
        Ok(Self { store, wanted, partition })
    }

    /// Returns the state of one object.
    async fn state(&self, path: &str) -> Result<Object, Error> {
        match self.store.stat(path).await {
            Ok(object) => Ok(object),
            Err(StoreError::Absent { name }) => {
                let hint = match self.store.can_list() {
                    true => format!(". To read all objects below that name, add a slash: `{name}/`"),
                    false => String::new(),
                };
                Err(Error::permanent(format!("there is no `{name}`{hint}")))
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

/// The position of a run in a listing, and the objects that earlier runs listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Position {
    /// The last name that was sent. `None` between two runs.
    after: Option<String>,
    /// The objects that the last complete listing had.
    known: Known,
    /// The objects that this listing had so far. `None` before it began.
    seen: Option<Known>,
}

struct Objects {
    locations: Arc<[Location]>,
    names: Wanted,
    reads: Reads,
    tolerance: Duration,
    follows_links: bool,
    /// The number of locations that are done.
    done: usize,
}

#[async_trait]
impl Source for Objects {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        while let Some(location) = self.locations.get(self.done) {
            match &location.wanted {
                Selection::One(path) => self.one(location, path, out).await?,
                Selection::Below { .. } => self.below(location, out).await?,
            }
            if out.is_stopping() {
                return Ok(());
            }
            self.done += 1;
        }
        Ok(())
    }
}

impl Objects {
    async fn one(&self, location: &Location, path: &str, out: &mut SourceOutput) -> Result<(), Error> {
        let position: Position = saved(location, out);
        let object = location.state(path).await?;
        if position.known.covers(&object) {
            return Ok(());
        }
        let mut known = Known::default();
        known.note(&object);
        out.add_expected(object.size());
        let lease = Arc::new(out.reserve(File::WEIGHT).await);
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let file = self.file(out, object, PathBuf::from(name)).with_lease(lease);
        out.send_files(vec![file], checkpoint(location, &Position { known, ..Position::default() })).await
    }

    async fn below(&self, location: &Location, out: &mut SourceOutput) -> Result<(), Error> {
        let Selection::Below { prefix, folder, .. } = &location.wanted else { return Ok(()) };
        let mut position: Position = saved(location, out);
        let in_order = location.store.lists_in_order();
        position.seen.get_or_insert_with(|| Known::listing_now(self.tolerance));
        let mut listing: Listing =
            location.store.list(prefix).after(position.after.clone().filter(|_| in_order));
        listing = listing.following_links(self.follows_links);
        let mut group = Group::default();
        let (mut found, mut links) = (0_u64, LinksOut::default());
        while !out.is_stopping()
            && let Some(entry) = listing.next_entry().await.map_err(|error| failure(&error))?
        {
            found += 1;
            let object = match entry {
                Entry::Object(object) => object,
                Entry::Unreadable { name, why } => {
                    let lease = group.lease(out).await;
                    self.reject(out, &name, &why, lease).await?;
                    continue;
                }
                Entry::LinkOut { name } => {
                    links.add(name);
                    continue;
                }
            };
            let below = object.path().get(folder.len()..).unwrap_or_default().to_owned();
            if !self.is_new(location, &object, &below, &mut position) {
                continue;
            }
            let lease = group.lease(out).await;
            if !is_sendable(&below) {
                let problem = Problem::new("its name leads out of its folder, or has an empty part");
                let file = self.file(out, object, PathBuf::from("object"));
                out.reject_file(file.with_lease(lease), problem, None).await?;
                continue;
            }
            out.add_expected(object.size());
            group.add(self.file(out, object, PathBuf::from(below)).with_lease(lease));
            if group.is_full(out) {
                let resume = checkpoint(location, &position).filter(|_| in_order);
                out.send_files(group.take(), resume).await?;
            }
        }
        if !group.is_empty() {
            let resume = checkpoint(location, &position).filter(|_| in_order);
            out.send_files(group.take(), resume).await?;
        }
        links.report(out.name(), "`symlinks: files`, or `--symlinks files` of `copy`,");
        if listing.repeated() > 0 {
            let name = location.store.name(prefix);
            tracing::warn!(
                "`{}`: the store listed {} names below `{name}` more than once; each is read once",
                out.name(),
                listing.repeated()
            );
        }
        if found == 0 {
            tracing::warn!("`{}`: no object is below `{}`", out.name(), location.store.name(prefix));
        }
        if !out.is_stopping() && in_order {
            out.checkpoint(complete(location, position)?);
        }
        Ok(())
    }

    /// True if an object is to be sent: it matches, and no earlier run has sent it. Notes that the listing
    /// has come to it. `below` is its name relative to the folder.
    fn is_new(&self, location: &Location, object: &Object, below: &str, position: &mut Position) -> bool {
        position.after = Some(object.path().to_owned());
        let below = Path::new(below);
        if !self.names.allows(below) || !location.wanted.finds(below) {
            return false;
        }
        if !location.store.is_here() {
            position.seen.get_or_insert_with(|| Known::listing_now(self.tolerance)).note(object);
        }
        !position.known.covers(object)
    }

    /// Rejects a name that cannot be listed.
    async fn reject(
        &self,
        out: &mut SourceOutput,
        name: &str,
        why: &str,
        lease: Arc<Lease>,
    ) -> Result<(), Error> {
        let last = name.rsplit('/').next().unwrap_or(name).to_owned();
        let origin = Found::new(out.name().clone(), last.into(), 0).at(name);
        let file = File::new(origin, Content::from(Vec::new())).with_lease(lease);
        let problem = Problem::new(format!("it cannot be listed: {why}")).code("FILE_CAN_NOT_BE_OPENED");
        out.reject_file(file, problem, None).await
    }

    fn file(&self, out: &SourceOutput, object: Object, below: PathBuf) -> File {
        let name = below.file_name().unwrap_or_default().to_owned();
        let mut found = Found::new(out.name().clone(), name, object.size()).at(&object.name());
        let since_1970 = |nanos: i64| u64::try_from(nanos).ok().map(Duration::from_nanos);
        let modified = object.state().modified.and_then(since_1970);
        found.times = Times {
            modified: modified.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since)),
            mode: object.mode(),
            ..Times::default()
        };
        found.version = object.state().etag.as_deref().map(Into::into);
        found.below = Some(below);
        found.local = object.store().is_here().then(|| Path::new("/").join(object.path()));
        File::new(found, Content::Ranges(StoredObject::new(object, &self.reads, out.meter())))
    }
}

/// True if a name relative to the folder can be that of a file below a folder. Other objects are rejected.
pub fn is_sendable(below: &str) -> bool {
    let is_plain = Path::new(below).components().all(|part| matches!(part, path::Component::Normal(_)));
    is_plain && !below.contains("//")
}

/// Returns the checkpoint after a complete listing.
fn complete(location: &Location, position: Position) -> Result<Checkpoint, Error> {
    // A new local file may have an old modification time.
    let known = position.seen.filter(|_| !location.store.is_here()).unwrap_or_default();
    let position = Position { known, ..Position::default() };
    let offset = serde_json::to_value(position).map_err(|error| Error::permanent(error.to_string()))?;
    Ok(Checkpoint { partition: location.partition.clone(), offset })
}

fn saved(location: &Location, out: &SourceOutput) -> Position {
    let saved = out.saved(&location.partition);
    saved.and_then(|saved| serde_json::from_value(saved).ok()).unwrap_or_default()
}

fn checkpoint(location: &Location, position: &Position) -> Option<Checkpoint> {
    Some(Checkpoint { partition: location.partition.clone(), offset: serde_json::to_value(position).ok()? })
}
