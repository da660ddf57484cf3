//! One file, its origin and its content.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::outputs::shown;
use arrow_buffer::Buffer;
use parking_lot::Mutex;
use thalweg_beneath::{Beneath, CopyOf};

use crate::{Ack, FileState, Lease, Outcome, OwnChange, OwnChanges, Passage};

/// The origin of a file. It never changes, whatever transforms do to the file, except for its
/// [`state`](Self::state) if one of them rewrites the file itself.
#[derive(Debug)]
pub struct Origin {
    /// The name of the source in the configuration.
    pub source: Arc<str>,
    /// The path of the file, if a source found it on this machine.
    pub path: Option<PathBuf>,
    /// The address of the file, if it is stored on another machine or in an object store.
    pub address: Option<Arc<str>>,
    /// The path of the file relative to what the source was configured to read, for a file with an address.
    pub below: Option<PathBuf>,
    /// The path of a file with an address, if it is on this machine.
    pub local: Option<PathBuf>,
    /// The version of the content, such as an entity tag, if the store has one.
    pub version: Option<Arc<str>>,
    /// The same for a file that is built again after a crash, if it is stored nowhere and its source always
    /// builds it again. The copy that a run delivered and did not save is then replaced.
    pub key: Option<Arc<str>>,
    /// The folder that the source was configured to read; it contains [`path`](Self::path).
    pub folder: Option<Arc<Path>>,
    /// How the file at [`path`](Self::path) is opened, if others may put links in its place.
    pub beneath: Option<Beneath>,
    /// The original file name, without folders.
    pub name: OsString,
    /// The original size in bytes.
    pub size: u64,
    /// Times and permissions, if the file has them.
    pub times: Times,
    /// Hears if the run itself changes the file at [`path`](Self::path).
    pub own_changes: Option<Arc<dyn OwnChanges>>,
    /// The state of the file at [`path`](Self::path) as the run knows it.
    state: Mutex<Option<FileState>>,
    id: OnceLock<Box<str>>,
}

/// The metadata that a file system stores for a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// When the content was last written.
    pub modified: Option<SystemTime>,
    /// When the file was last read.
    pub accessed: Option<SystemTime>,
    /// When the content, name or permissions last changed (Unix ctime).
    pub changed: Option<SystemTime>,
    /// The permissions (Unix mode, including the bits above the permission bits).
    pub mode: Option<u32>,
}

impl Origin {
    /// Creates the origin of a file that is not stored anywhere, such as an upload.
    pub fn new(source: Arc<str>, name: OsString, size: u64) -> Self {
        Self {
            source,
            path: None,
            address: None,
            below: None,
            local: None,
            version: None,
            key: None,
            folder: None,
            beneath: None,
            name,
            size,
            times: Times::default(),
            own_changes: None,
            state: Mutex::default(),
            id: OnceLock::new(),
        }
    }

    /// Creates the origin of a file that a source found at `path` while it read `folder`.
    pub fn found(source: Arc<str>, path: PathBuf, folder: Arc<Path>, size: u64, times: Times) -> Self {
        let name = path.file_name().map(OsStr::to_owned).unwrap_or_default();
        Self { path: Some(path), folder: Some(folder), times, ..Self::new(source, name, size) }
    }

    /// Sets how the file is opened.
    #[must_use]
    pub fn beneath(mut self, beneath: Beneath) -> Self {
        self.beneath = Some(beneath);
        self
    }

    /// Sets the state in which the file was found.
    #[must_use]
    pub fn in_state(self, state: FileState) -> Self {
        self.set_state(state);
        self
    }

    /// Begins a change of the file at [`path`](Self::path).
    pub fn begin_change(&self) -> OwnChange<'_> {
        OwnChange::begin(self)
    }

    pub(crate) fn set_state(&self, state: FileState) {
        *self.state.lock() = Some(state);
    }

    /// Returns the state of the file at [`path`](Self::path) as the run knows it. A file in another state was
    /// replaced or changed by others. `None` if no source has noted the state.
    pub fn state(&self) -> Option<FileState> {
        *self.state.lock()
    }

    /// Sets the address.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Returns the path relative to the folder that the source was configured to read, or the name alone if
    /// the file is not stored anywhere.
    pub fn relative(&self) -> &Path {
        if let Some(below) = &self.below {
            return below;
        }
        let below = self.path.as_deref().zip(self.folder.as_deref());
        let below = below.and_then(|(path, folder)| path.strip_prefix(folder).ok());
        below.filter(|below| !below.as_os_str().is_empty()).unwrap_or(Path::new(&self.name))
    }

    /// Returns the file as one that is copied into a folder of this machine, if it is on this machine itself.
    pub fn copy_to(&self, folder: &Path) -> Option<CopyOf> {
        let file = self.path.as_ref().or(self.local.as_ref())?;
        let root = file.ancestors().nth(self.relative().components().count())?;
        Some(CopyOf { file: file.clone(), root: root.to_owned(), to: folder.to_owned() })
    }

    /// Returns how a path is opened: as the file was found, or like any other path.
    pub fn opening(&self, path: &Path) -> Beneath {
        match &self.beneath {
            Some(beneath) if self.path.as_deref() == Some(path) => beneath.clone(),
            _ => Beneath::chosen(),
        }
    }

    /// Returns a string that identifies this file in its original state: its path or address, and its version
    /// or else its size and modification time. Returns `None` for a file that is not stored anywhere.
    pub fn identity(&self) -> Option<String> {
        let place = match (&self.path, &self.address) {
            (Some(path), _) => path.to_string_lossy(),
            (None, Some(address)) => (&**address).into(),
            (None, None) => return None,
        };
        let modified = self.times.modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        Some(match &self.version {
            Some(version) => format!("{place} {version}"),
            None => format!("{place} {} {}", self.size, modified.unwrap_or_default().as_nanos()),
        })
    }

    /// Returns a random name that no other file has: 21 characters of `A-Za-z0-9_-`, 126 random bits. (The
    /// form is that of nanoid.)
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| {
            const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
            let mut random = [0; 21];
            if getrandom::fill(&mut random).is_err() {
                // Without a source of randomness, the names are unique only within the process.
                let here = std::ptr::from_ref(self) as usize as u128;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let seed = (now.as_nanos() << 48) ^ here;
                random.iter_mut().enumerate().for_each(|(at, byte)| *byte = (seed >> (at * 6)) as u8);
            }
            random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect()
        })
    }

    /// Displays the path or address of the file, or else its name, for messages to people.
    pub fn display(&self) -> std::path::Display<'_> {
        let elsewhere = self.address.as_deref().map(Path::new);
        self.path.as_deref().or(elsewhere).unwrap_or(Path::new(&self.name)).display()
    }
}

/// A temporary file of the run. It is removed when its last holder drops it.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    /// Removes the folder of the file when the last file in it is dropped.
    _folder: Option<Arc<dyn fmt::Debug + Send + Sync>>,
}

impl Temporary {
    /// Takes ownership of the file at `path`: it is removed when this value is dropped.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, _folder: None })
    }

    /// As [`new`](Self::new), for a file in a folder that must exist as long as the file.
    pub fn within(path: PathBuf, folder: Arc<dyn fmt::Debug + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { path, _folder: Some(folder) })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The file may have been moved to its destination by now. If it cannot be removed here, it is removed
        // with the run's folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where the bytes of a file are stored.
#[derive(Debug, Clone)]
pub enum Content {
    /// In a file that the run does not own: it is read, never changed.
    Path(PathBuf),
    /// In a temporary file of the run.
    Temporary(Arc<Temporary>),
    /// In memory. The buffer itself holds the lease on that memory.
    Memory(Buffer),
    /// Outside this machine. Ranges are fetched as they are read.
    Ranges(Arc<dyn ReadRanges>),
}

/// Content that can be read at any position, such as a sparse file whose ranges are fetched on demand.
pub trait ReadRanges: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    fn length(&self) -> u64;

    /// Reads from `position` until `into` is full or the end is reached, and returns the number of bytes
    /// read. Blocks the calling thread.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read_at(&self, position: u64, into: &mut [u8]) -> std::io::Result<usize>;

    /// Fills `into` with the bytes from `position` on, without blocking the thread. Several calls may run at
    /// once.
    fn fetch<'a>(&'a self, position: u64, into: &'a mut [u8]) -> Fetching<'a>;

    /// True if [`stream`](Self::stream) makes one request and hands over its bytes as they arrive.
    fn streams(&self) -> bool {
        false
    }

    /// Passes the bytes of `range` to `take` as they arrive, so that the range is never in memory as a whole.
    /// The default implementation fetches the range piece by piece. Several calls may run at once.
    fn stream<'a>(&'a self, range: Range<u64>, take: &'a mut Take<'a>) -> Fetching<'a> {
        Box::pin(async move {
            let mut piece = vec![0; PIECE];
            let mut position = range.start;
            while position < range.end {
                let length = usize::try_from(range.end - position).unwrap_or(usize::MAX).min(PIECE);
                let piece = piece.get_mut(..length).unwrap_or_default();
                self.fetch(position, piece).await?;
                take(position, piece)?;
                position += length as u64;
            }
            Ok(())
        })
    }

    /// Returns the preferred way to read the content as a whole.
    fn pace(&self) -> Pace {
        Pace::default()
    }
}

/// Receives bytes and the position where they begin. Each call continues where the last one ended, or begins
/// earlier. In the second case, all bytes received so far from that position on are invalid.
pub type Take<'a> = dyn FnMut(u64, &[u8]) -> std::io::Result<()> + Send + 'a;

/// The bytes fetched at once by the default implementation of [`ReadRanges::stream`].
const PIECE: usize = 256 << 10;

/// A fetch in progress. It fails if the range cannot be fetched completely.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send + 'a>>;

/// How to read content that is fetched in parts. The reader chooses the values that are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// Bytes per request.
    pub slice: Option<usize>,
    /// Maximum number of requests in flight.
    pub at_once: Option<usize>,
    /// Maximum number of slices in memory, including those that have arrived and are being processed.
    pub window: Option<usize>,
}

impl From<Vec<u8>> for Content {
    /// Wraps bytes that no lease covers. Reserve them first and hold the lease as long as the content, or
    /// keep them few.
    fn from(bytes: Vec<u8>) -> Self {
        Content::Memory(Buffer::from_vec(bytes))
    }
}

/// Why a file was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A code for programs, if the component has one: `FILE_SIZE_IS_TOO_BIG`.
    pub code: Option<&'static str>,
    /// The reason, for people.
    pub reason: String,
    /// The component that rejected the file; empty until the engine sets it.
    pub component: Arc<str>,
}

impl Problem {
    /// Creates a problem without a code.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: None, reason: shown(&reason.into()).into_owned(), component: "".into() }
    }

    /// Sets the code for programs.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }
}

/// The final state of a file, for a caller that waits for the result: see [`File::with_report`].
#[derive(Debug, Clone)]
pub struct Ending {
    /// How the file was settled.
    pub outcome: Outcome,
    /// The file name at the end.
    pub name: OsString,
    /// The size at the end, in bytes.
    pub size: u64,
    /// The MIME type at the end, if it was detected.
    pub mime: Option<Arc<str>>,
    /// Why the file was rejected, if it was.
    pub problem: Option<Problem>,
}

/// Receives the [`Ending`] of a file.
pub type Report = Arc<Mutex<Option<Ending>>>;

/// A file in flight: its origin, its current state, and its ack.
#[derive(Debug)]
pub struct File {
    origin: Arc<Origin>,
    name: OsString,
    content: Content,
    size: u64,
    mime: Option<Arc<str>>,
    notes: BTreeMap<&'static str, String>,
    problem: Option<Box<Problem>>,
    report: Option<Report>,
    lease: Option<Arc<Lease>>,
    passage: Option<Passage>,
    ack: Ack,
}

impl File {
    /// Roughly the bytes that a file needs in memory beside its content, for names and times. Sources reserve
    /// this much for each file.
    pub const WEIGHT: usize = 1024;

    /// Creates a file in the state in which its source found it.
    pub fn new(origin: Origin, content: Content) -> Self {
        Self {
            name: origin.name.clone(),
            size: origin.size,
            origin: Arc::new(origin),
            content,
            mime: None,
            notes: BTreeMap::new(),
            problem: None,
            report: None,
            lease: None,
            passage: None,
            ack: Ack::noop(),
        }
    }

    /// Sets the receiver of the [`Ending`], which is reported just before the ack is settled.
    #[must_use]
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = Some(report);
        self
    }

    /// Attaches the lease that its source reserved, which other files may share.
    #[must_use]
    pub fn with_lease(mut self, lease: Arc<Lease>) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Returns the origin.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Returns the name under which the file will be written: at first its original name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Renames the file.
    pub fn set_name(&mut self, name: impl Into<OsString>) {
        self.name = name.into();
    }

    /// Returns where the bytes are stored.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Replaces the content; `size` is its length in bytes. A temporary file that held the old content is
    /// removed once nothing else uses it.
    pub fn set_content(&mut self, content: Content, size: u64) {
        self.content = content;
        self.size = size;
        self.mime = None;
    }

    /// Returns the size in bytes, as far as it is known without looking at the content again.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the path of the content, if it is a file on this machine.
    pub fn path(&self) -> Option<&Path> {
        match &self.content {
            Content::Path(path) => Some(path),
            Content::Temporary(temporary) => Some(temporary.path()),
            Content::Memory(_) | Content::Ranges(_) => None,
        }
    }

    /// Returns the MIME type, if it was detected: `image/png`, `text/plain; charset=utf-8`.
    pub fn mime(&self) -> Option<&Arc<str>> {
        self.mime.as_ref()
    }

    /// Sets the MIME type.
    pub fn set_mime(&mut self, mime: impl Into<Arc<str>>) {
        self.mime = Some(mime.into());
    }

    /// Returns the note that a transform stored under this name, such as a hash.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }

    /// Stores a note under this name and replaces an earlier one. A note describes the content at that time:
    /// it stays when the content changes.
    pub fn set_note(&mut self, name: &'static str, note: impl Into<String>) {
        self.notes.insert(name, note.into());
    }

    /// Returns why the file was rejected, if it was.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_deref()
    }

    /// Sets why the file is rejected.
    pub fn set_problem(&mut self, problem: Problem) {
        self.problem = Some(Box::new(problem));
    }

    /// Returns the ack.
    pub fn ack(&self) -> &Ack {
        &self.ack
    }

    /// Returns the ack, to change it.
    pub fn ack_mut(&mut self) -> &mut Ack {
        &mut self.ack
    }

    /// Sets when the position of its source moves past it. None if its source has no position.
    pub fn set_passage(&mut self, passage: Option<Passage>) {
        self.passage = passage;
    }

    /// Returns when the position of its source moves past it.
    pub fn passage(&self) -> Option<&Passage> {
        self.passage.as_ref()
    }

    /// Returns a second file over the same content. Both must be settled; only the ending of the first is
    /// reported.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            origin: self.origin.clone(),
            name: self.name.clone(),
            content: self.content.clone(),
            size: self.size,
            mime: self.mime.clone(),
            notes: self.notes.clone(),
            problem: self.problem.clone(),
            report: None,
            lease: self.lease.clone(),
            passage: self.passage.clone(),
            ack: self.ack.split(),
        }
    }

    /// Separates the ack from the file, for example when the file continues as messages.
    pub fn take_ack(&mut self) -> Ack {
        std::mem::replace(&mut self.ack, Ack::noop())
    }

    /// Settles the file. Temporary content is removed before the ack is settled.
    pub fn settle(self, outcome: Outcome) {
        let Self { name, content, size, mime, problem, report, lease, ack, origin: _, notes: _, passage: _ } =
            self;
        drop((content, lease));
        if let Some(report) = report {
            *report.lock() =
                Some(Ending { outcome, name, size, mime, problem: problem.map(|problem| *problem) });
        }
        ack.settle(outcome);
    }

    /// Returns the weight in bytes that the file counts against the capacity of a channel: the memory that it
    /// holds, but at least 16 KiB for the work that it represents. A run that is stopped still processes all
    /// files in flight, so there may be a few hundred of them, but not thousands.
    pub fn weight(&self) -> usize {
        const WORK: usize = 16 << 10;
        let held = if let Content::Memory(buffer) = &self.content { buffer.len() } else { 0 };
        WORK.max(Self::WEIGHT + held)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.display().fmt(f)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn file() -> File {
        let buffer = Buffer::from_slice_ref([1u8, 2, 3]);
        File::new(Origin::new("in".into(), "a.bin".into(), 3), Content::Memory(buffer))
    }

    #[test]
    fn ids_are_of_21_letters_and_stay() {
        let (one, other) = (file(), file());
        assert_eq!(one.origin().id().len(), 21);
        assert!(one.origin().id().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        assert_eq!(one.origin().id(), one.share().origin().id());
        assert_ne!(one.origin().id(), other.origin().id());
    }

    #[test]
    fn another_state_of_a_file_has_another_identity() {
        let origin = |version: Option<&str>, size| {
            let origin = Origin::new("in".into(), "a".into(), size).at("s3://b/a");
            Origin { version: version.map(Into::into), ..origin }.identity().unwrap()
        };
        assert_eq!(origin(Some("x"), 1), origin(Some("x"), 2));
        assert_ne!(origin(Some("x"), 1), origin(Some("y"), 1));
        assert_ne!(origin(None, 1), origin(None, 2));
        assert_eq!(file().origin().identity(), None);
    }

    #[test]
    fn what_is_noted_of_it_stays_when_its_content_changes() {
        let mut file = file();
        file.set_note("hash", "cafe");
        file.set_content(Content::from(vec![1]), 1);
        assert_eq!(
            (file.note("hash"), file.share().note("hash"), file.note("else")),
            (Some("cafe"), Some("cafe"), None)
        );
    }

    #[test]
    fn where_it_was_below_the_folder_that_was_read() {
        let found = |path: &str, folder: &str| {
            let folder: Arc<Path> = Path::new(folder).into();
            Origin::found("in".into(), path.into(), folder, 0, Times::default()).relative().to_owned()
        };
        assert_eq!(found("/in/a/b.jpg", "/in"), Path::new("a/b.jpg"));
        assert_eq!(found("/in/b.jpg", "/in/b.jpg"), Path::new("b.jpg"));
        assert_eq!(found("/else/b.jpg", "/in"), Path::new("b.jpg"));
        assert_eq!(file().origin().relative(), Path::new("a.bin"));
    }

    #[test]
    fn a_temporary_file_goes_with_the_last_that_holds_it_and_before_anybody_is_told() {
        let path = std::env::temp_dir().join(format!("thalweg-record-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let mut file = file();
        let reported = Arc::new(Mutex::new(None));
        let (seen, at) = (reported.clone(), path.clone());
        file.ack_mut().merge(Ack::new("in".into(), move |settlement| {
            *seen.lock() = Some((settlement.outcome, at.exists()));
        }));
        let report = Report::default();
        let mut file = file.with_report(report.clone());
        file.set_content(Content::Temporary(Temporary::new(path.clone())), 1);
        let other = file.share();
        file.set_problem(Problem::new("it is wrong").code("WRONG"));
        file.settle(Outcome::Rejected);
        assert!(path.exists() && reported.lock().is_none());
        let ending = report.lock().take().unwrap();
        assert_eq!((ending.outcome, ending.size), (Outcome::Rejected, 1));
        assert_eq!(ending.problem.unwrap().code, Some("WRONG"));
        other.settle(Outcome::Delivered);
        assert_eq!(*reported.lock(), Some((Outcome::Rejected, false)));
    }
}
