//! One file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use arrow_buffer::Buffer;
use parking_lot::Mutex;

use crate::{Ack, Lease, Outcome};

/// Where a file came from. This never changes, whatever is done with the file.
#[derive(Debug)]
pub struct Origin {
    /// The name of the source in the configuration.
    pub source: Arc<str>,
    /// Where it lies, if a source found it on this machine.
    pub path: Option<PathBuf>,
    /// Its address, if it lies elsewhere.
    pub address: Option<Arc<str>>,
    /// Where that is below what the source was told to read.
    pub below: Option<PathBuf>,
    /// What tells this state of it from another, where its store gives that: an entity tag.
    pub version: Option<Arc<str>>,
    /// The folder that the source was told to read, which [`path`](Self::path) is in.
    pub folder: Option<Arc<Path>>,
    /// How it was called there: without folders.
    pub name: OsString,
    /// Its bytes, as the source found it.
    pub size: u64,
    /// Times and permissions, where it has them.
    pub times: Times,
    id: OnceLock<Box<str>>,
}

/// What a file system knows of a file beside its content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// When its content was last written.
    pub modified: Option<SystemTime>,
    /// When it was last read.
    pub accessed: Option<SystemTime>,
    /// When its content, name or permissions last changed (Unix's ctime).
    pub changed: Option<SystemTime>,
    /// Its permissions (Unix's, with the bits above them).
    pub mode: Option<u32>,
}

impl Origin {
    /// A file of this name and size that lies nowhere: an upload, say.
    pub fn new(source: Arc<str>, name: OsString, size: u64) -> Self {
        Self {
            source,
            path: None,
            address: None,
            below: None,
            version: None,
            folder: None,
            name,
            size,
            times: Times::default(),
            id: OnceLock::new(),
        }
    }

    /// A file that lies at `path`, found when reading `folder`.
    pub fn found(source: Arc<str>, path: PathBuf, folder: Arc<Path>, size: u64, times: Times) -> Self {
        let name = path.file_name().map(OsStr::to_owned).unwrap_or_default();
        Self { path: Some(path), folder: Some(folder), times, ..Self::new(source, name, size) }
    }

    /// Notes its address.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Its path below the folder that the source was told to read; its name alone if it lies nowhere.
    pub fn relative(&self) -> &Path {
        if let Some(below) = &self.below {
            return below;
        }
        let below = self.path.as_deref().zip(self.folder.as_deref());
        let below = below.and_then(|(path, folder)| path.strip_prefix(folder).ok());
        below.filter(|below| !below.as_os_str().is_empty()).unwrap_or(Path::new(&self.name))
    }

    /// What tells it, as it was found, from all others, and from other states of itself: where it is, and its tag, or its
    /// size and the time when it was changed last. None if it lies nowhere.
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

    /// A name that no other file has: 21 characters of `A-Za-z0-9_-`, 126 random bits. (The form is that of nanoid.)
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| {
            const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
            let mut random = [0; 21];
            if getrandom::fill(&mut random).is_err() {
                // Without a source of randomness, names that differ within the process.
                let here = std::ptr::from_ref(self) as usize as u128;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let seed = (now.as_nanos() << 48) ^ here;
                random.iter_mut().enumerate().for_each(|(at, byte)| *byte = (seed >> (at * 6)) as u8);
            }
            random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect()
        })
    }

    /// How people are told which file is meant: its path or address, or else its name.
    pub fn display(&self) -> std::path::Display<'_> {
        let elsewhere = self.address.as_deref().map(Path::new);
        self.path.as_deref().or(elsewhere).unwrap_or(Path::new(&self.name)).display()
    }
}

/// A file of the run's own, which removes itself when nobody holds it any more.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
}

impl Temporary {
    /// From here on, the file at `path` goes with this.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have been moved to where it was to go. One that cannot be removed now goes with the run's folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where the bytes of a file are.
#[derive(Debug, Clone)]
pub enum Content {
    /// In a file that is somebody else's: it is read, never changed.
    Path(PathBuf),
    /// In a file of the run's own.
    Temporary(Arc<Temporary>),
    /// In memory, which is paid for by the buffer itself.
    Memory(Buffer),
    /// Elsewhere, and brought here in parts as they are read.
    Ranges(Arc<dyn ReadRanges>),
}

/// Something that is read in parts, wherever one likes: a sparse file whose ranges are fetched when they are asked for, say.
pub trait ReadRanges: fmt::Debug + Send + Sync {
    /// How many bytes it has.
    fn length(&self) -> u64;

    /// Reads from a position on until `into` is full or the end is reached. Blocks the thread meanwhile.
    ///
    /// # Errors
    /// If they cannot be had.
    fn read_at(&self, position: u64, into: &mut [u8]) -> std::io::Result<usize>;

    /// Fills `into` with what is there from a position on. Waits meanwhile, and several may wait for parts at once.
    fn fetch<'a>(&'a self, position: u64, into: &'a mut [u8]) -> Fetching<'a>;

    /// Whether [`stream`](Self::stream) gives the bytes of one request as they come.
    fn streams(&self) -> bool {
        false
    }

    /// Gives what is in a range as it comes, so that it needs no memory as a whole; piece after piece, where it does not come so. Waits
    /// meanwhile, and several may wait for ranges at once.
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

    /// How it is best read as a whole.
    fn pace(&self) -> Pace {
        Pace::default()
    }
}

/// Takes bytes that stand at a position. They follow those before them, or begin before their end: what was taken from there on
/// is void then.
pub type Take<'a> = dyn FnMut(u64, &[u8]) -> std::io::Result<()> + Send + 'a;

/// How much is fetched at once where nothing is known of how the bytes come.
const PIECE: usize = 256 << 10;

/// A part of a file on its way; ends in failure if it cannot be had whole.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send + 'a>>;

/// How something that is fetched in parts is read as a whole. What is not said is chosen by who reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// How many bytes to ask for at once.
    pub slice: Option<usize>,
    /// How many such slices to ask for at the same time, at most.
    pub at_once: Option<usize>,
    /// How many slices may be held at the same time, those among them that came and are worked on.
    pub window: Option<usize>,
}

impl From<Vec<u8>> for Content {
    /// Bytes in memory that nobody has paid for yet: reserve them before, and hold the lease as long, or keep them few.
    fn from(bytes: Vec<u8>) -> Self {
        Content::Memory(Buffer::from_vec(bytes))
    }
}

/// Why a file was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A word for programs, where the component has one: `FILE_SIZE_IS_TOO_BIG`.
    pub code: Option<&'static str>,
    /// What is wrong, for people.
    pub reason: String,
    /// The component that rejected it; empty until the engine notes it.
    pub component: Arc<str>,
}

impl Problem {
    /// A problem without a code.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { code: None, reason: reason.into(), component: "".into() }
    }

    /// Gives it a word for programs.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }
}

/// What became of a file, for whoever has to answer for it: see [`File::with_report`].
#[derive(Debug, Clone)]
pub struct Ending {
    /// How it ended.
    pub outcome: Outcome,
    /// The name that it had then.
    pub name: OsString,
    /// Its bytes then.
    pub size: u64,
    /// Its type then, if anybody looked.
    pub mime: Option<Arc<str>>,
    /// Why it was rejected, if it was.
    pub problem: Option<Problem>,
}

/// Receives the [`Ending`] of a file.
pub type Report = Arc<Mutex<Option<Ending>>>;

/// A file on its way: what it was, what it is now, and the duty to acknowledge.
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
    ack: Ack,
}

impl File {
    /// What a file costs beside its content: its names and times, roughly. Sources reserve as much for each.
    pub const WEIGHT: usize = 1024;

    /// A file as its source found it.
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
            ack: Ack::noop(),
        }
    }

    /// Has it told what became of it, just before it is acknowledged.
    #[must_use]
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = Some(report);
        self
    }

    /// Has it hold what its source reserved for it, with others perhaps.
    #[must_use]
    pub fn with_lease(mut self, lease: Arc<Lease>) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Where it came from.
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The name under which it will be written: at first the one that it was found with.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Renames it.
    pub fn set_name(&mut self, name: impl Into<OsString>) {
        self.name = name.into();
    }

    /// Where its bytes are.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Gives it other bytes, so many. What held the former ones, if it was the run's own, goes.
    pub fn set_content(&mut self, content: Content, size: u64) {
        self.content = content;
        self.size = size;
        self.mime = None;
    }

    /// How many bytes it has, as far as is known without looking at it again.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where it lies, if it does.
    pub fn path(&self) -> Option<&Path> {
        match &self.content {
            Content::Path(path) => Some(path),
            Content::Temporary(temporary) => Some(temporary.path()),
            Content::Memory(_) | Content::Ranges(_) => None,
        }
    }

    /// Its type, if anybody has looked: `image/png`, `text/plain; charset=utf-8`.
    pub fn mime(&self) -> Option<&Arc<str>> {
        self.mime.as_ref()
    }

    /// Notes its type.
    pub fn set_mime(&mut self, mime: impl Into<Arc<str>>) {
        self.mime = Some(mime.into());
    }

    /// What a transform has noted of it under this name: its hash, say.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }

    /// Notes something of it, in the place of what was noted under this name before. It stays when the content changes: it is
    /// of the content that the file had then.
    pub fn set_note(&mut self, name: &'static str, note: impl Into<String>) {
        self.notes.insert(name, note.into());
    }

    /// Why it was rejected, if it was.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_deref()
    }

    /// Notes why it is rejected.
    pub fn set_problem(&mut self, problem: Problem) {
        self.problem = Some(Box::new(problem));
    }

    /// The duty to acknowledge.
    pub fn ack(&self) -> &Ack {
        &self.ack
    }

    /// The duty to acknowledge, to change it.
    pub fn ack_mut(&mut self) -> &mut Ack {
        &mut self.ack
    }

    /// A second one over the same content. Both must be settled; what is told of its ending is what is told of the first.
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
            ack: self.ack.split(),
        }
    }

    /// Parts the duty to acknowledge from the file, which goes on as messages, say.
    pub fn take_ack(&mut self) -> Ack {
        std::mem::replace(&mut self.ack, Ack::noop())
    }

    /// Settles it. What was the run's own goes before anybody is told.
    pub fn settle(self, outcome: Outcome) {
        let Self { name, content, size, mime, problem, report, lease, ack, origin: _, notes: _ } = self;
        drop((content, lease));
        if let Some(report) = report {
            *report.lock() =
                Some(Ending { outcome, name, size, mime, problem: problem.map(|problem| *problem) });
        }
        ack.settle(outcome);
    }

    /// What it counts in the bound of a channel: the memory that it holds, and work that waits. A run that is told to stop still does
    /// what is on its way, so a few hundred files may be, and not thousands.
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
        let told = Arc::new(Mutex::new(None));
        let (seen, at) = (told.clone(), path.clone());
        file.ack_mut().merge(Ack::new("in".into(), move |settlement| {
            *seen.lock() = Some((settlement.outcome, at.exists()));
        }));
        let report = Report::default();
        let mut file = file.with_report(report.clone());
        file.set_content(Content::Temporary(Temporary::new(path.clone())), 1);
        let other = file.share();
        file.set_problem(Problem::new("it is wrong").code("WRONG"));
        file.settle(Outcome::Rejected);
        assert!(path.exists() && told.lock().is_none());
        let ending = report.lock().take().unwrap();
        assert_eq!((ending.outcome, ending.size), (Outcome::Rejected, 1));
        assert_eq!(ending.problem.unwrap().code, Some("WRONG"));
        other.settle(Outcome::Delivered);
        assert_eq!(*told.lock(), Some((Outcome::Rejected, false)));
    }
}
