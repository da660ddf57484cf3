//! Writes files to a store.
//!
//! See docs/decisions/033-bytes-go-where-they-belong-as-they-arrive.md.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use arrow_buffer::Buffer;
use async_trait::async_trait;
use thalweg_engine::{Disposition, FileError, FileTransform, Journal};
use thalweg_record::{Arena, Content, File, Lease, ReadRanges, Share};
use thalweg_runtime::Failpoint;
use thalweg_runtime::lasting::User;
use thalweg_store::{Begun, PartWriter, StoreError, Stored, Upload, UploadedPart, Verified};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use super::existing::Finder;
use super::parts::{Former, Noted, check, complete, held, put, send};
use super::{Existing, OnFailure, Target};
use crate::content::{open_found, unreadable};
use crate::directory::names::{Claim, Names, numbered};
use crate::file_template::FileTemplate;
use crate::stored::file_error;

/// Writes files to a store, one after the other. The parts of a file are sent at the same time.
pub(super) struct Files {
    pub(super) target: Target,
    /// The name of files below the target. `None` if the target is the object itself.
    pub(super) name: Option<FileTemplate>,
    pub(super) existing: Existing,
    pub(super) on_failure: OnFailure,
    pub(super) memory: Share,
    pub(super) journal: Option<Journal>,
    /// The names that the run has written, shared by all workers.
    pub(super) names: Arc<Names>,
    /// The objects that the target had, shared by all workers.
    pub(super) finder: Arc<Finder>,
}

/// The content to read parts from.
#[derive(Clone)]
enum From {
    Local(Arc<fs::File>),
    Memory(Buffer),
    Ranges(Arc<dyn ReadRanges>),
}

impl From {
    fn of(file: &File) -> Result<Self, FileError> {
        Ok(match file.content() {
            Content::Path(path) => From::Local(Arc::new(open_found(file, path)?)),
            Content::Temporary(temporary) => {
                let opened = fs::File::open(temporary.path()).map_err(|error| unreadable(&error))?;
                From::Local(Arc::new(opened))
            }
            Content::Memory(buffer) => From::Memory(buffer.clone()),
            Content::Ranges(ranges) => From::Ranges(ranges.clone()),
        })
    }

    fn size(&self) -> Result<u64, FileError> {
        match self {
            From::Local(file) => Ok(file.metadata().map_err(|error| unreadable(&error))?.len()),
            From::Memory(buffer) => Ok(buffer.len() as u64),
            From::Ranges(ranges) => Ok(ranges.length()),
        }
    }

    /// Returns the bytes of a part. `arena` has the length of the part.
    async fn read(self, position: u64, mut arena: Arena) -> Result<Buffer, FileError> {
        match self {
            From::Local(file) => {
                let read = tokio::task::spawn_blocking(move || {
                    file.read_exact_at(&mut arena, position).map(|()| arena.freeze())
                });
                read.await
                    .map_err(|error| FileError::rejected(error.to_string()))?
                    .map_err(|error| unreadable(&error))
            }
            From::Memory(buffer) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX).min(buffer.len());
                Ok(buffer.slice_with_length(start, arena.len().min(buffer.len() - start)))
            }
            From::Ranges(ranges) => {
                ranges.fetch(position, &mut arena).await.map_err(|error| unfetched(&error))?;
                Ok(arena.freeze())
            }
        }
    }
}

/// Where the bytes of a part are held.
#[expect(clippy::large_enum_variant, reason = "there is one for each file in progress")]
enum Room {
    /// In memory as a whole.
    Whole(Arena),
    /// Written to the disk as they arrive.
    Passing(Arc<dyn ReadRanges>, PartWriter, Lease),
}

/// The memory of a part that is written as it arrives, in bytes: the buffer of its connection.
const PASSING: usize = 512 << 10;

/// Writes a part as it arrives.
///
/// This runs on its own thread, because the disk may block. (Rejected: `block_in_place` at each write. It
/// starts a new runtime thread almost every time, and needed three times the memory.)
async fn passed(
    ranges: Arc<dyn ReadRanges>,
    range: Range<u64>,
    mut writer: PartWriter,
) -> Result<UploadedPart, FileError> {
    let (_stays, is_left) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let user = User::of(&runtime);
    let written = tokio::task::spawn_blocking(move || {
        let _user = user;
        let mut write = |position: u64, bytes: &[u8]| writer.write(position, bytes);
        let came = runtime.block_on(async {
            tokio::select! {
                came = ranges.stream(range, &mut write) => came,
                // The caller no longer waits.
                _ = is_left => Err(io::ErrorKind::Interrupted.into()),
            }
        });
        // If writing failed, fetching reports an error as well: the write error is the cause.
        let part = writer.finish().map_err(|error| unwritten(&error))?;
        came.map(|()| part).map_err(|error| unfetched(&error))
    });
    written.await.map_err(|error| FileError::rejected(error.to_string()))?
}

/// Converts the error of a range that could not be fetched into an error of the file.
fn unfetched(error: &io::Error) -> FileError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<StoreError>());
    cause.map_or_else(|| unreadable(error), file_error)
}

#[async_trait]
impl FileTransform for Files {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        self.target.check_present().map_err(FileError::Failed)?;
        let (path, existing) = self.path_of(file).await?;
        let written = self.write(file, &path, existing).await.map_err(|error| self.failed(error));
        self.target.check_present().map_err(FileError::Failed)?;
        match &written {
            Ok(()) => self.note_address(file, &path),
            Err(_) => self.names.give_back(Path::new(&path)),
        }
        written.map(|()| Disposition::Continue)
    }
}

/// The number of parts of a file that are read ahead of the parts that may be sent at once.
const AHEAD: usize = 4;
/// The error code of files that cannot be written.
const UNWRITABLE: &str = "FILE_INPUT_IS_UNWRITABLE";
/// The same if the store is S3.
const NOT_UPLOADED: &str = "FILE_S3_FILE_UPLOAD_FAILURE";
/// The error code of files whose object exists.
const REFUSED: &str = "FILE_OUTPUT_EXISTS";

/// Converts an error in writing into an error of the file.
fn unwritten(error: &StoreError) -> FileError {
    match error {
        StoreError::Refused { .. } => FileError::coded(REFUSED, error.to_string()),
        error if error.is_temporary() => file_error(error),
        _ => FileError::coded(UNWRITABLE, error.to_string()),
    }
}

impl Files {
    /// Rejects a file whose attempts are used up, and names the store's kind in the code.
    fn failed(&self, error: FileError) -> FileError {
        let code = match self.target.store.is_s3() {
            true => NOT_UPLOADED,
            false => UNWRITABLE,
        };
        match error {
            FileError::Failed(error)
                if error.kind().is_temporary() && self.on_failure == OnFailure::Reject =>
            {
                FileError::coded(code, error.full())
            }
            FileError::Rejected(problem) if problem.code == Some(UNWRITABLE) => {
                FileError::Rejected(problem.code(code))
            }
            error => error,
        }
    }

    /// Writes the file to this path, unless an existing object stays.
    async fn write(&self, file: &File, path: &str, existing: Existing) -> Result<(), FileError> {
        let from = From::of(file)?;
        let size = from.size()?;
        let limits = self.target.limits;
        if size > limits.most_bytes {
            let reason =
                format!("the file has {size} bytes, and the store accepts at most {}", limits.most_bytes);
            return Err(FileError::coded("FILE_SIZE_IS_TOO_BIG", reason));
        }
        if !matches!(existing, Existing::Replace | Existing::Rename)
            && self.is_left_alone(file, path, size).await?
        {
            self.target.counts.skipped.fetch_add(1, Relaxed);
            return Ok(());
        }
        match self.store(file, path, from, size, existing).await {
            Ok(stored) if stored.size == size => Ok(()),
            Ok(stored) => {
                let reason = format!("the store has {} bytes of the {size} that were sent", stored.size);
                Err(FileError::coded(UNWRITABLE, reason))
            }
            Err(FileError::Rejected(problem))
                if problem.code == Some(REFUSED) && existing == Existing::Skip =>
            {
                self.target.counts.skipped.fetch_add(1, Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the file, as a whole or in parts.
    async fn store(
        &self,
        file: &File,
        path: &str,
        from: From,
        size: u64,
        existing: Existing,
    ) -> Result<Stored, FileError> {
        let mut target = self.target.clone();
        target.writing.on_existing = existing.on_existing();
        if target.writing.content_type.is_none() {
            target.writing.content_type = file.mime().map(|mime| mime.to_string());
        }
        // A copy must not show others what they could not read.
        target.writing.mode = file.origin().times.mode;
        if target.store.is_here() {
            target.writing.copy = file.origin().copy_to(&Path::new("/").join(&target.path)).map(Arc::new);
        }
        let part_size = match &from {
            From::Ranges(_) => target.fetched_part_size(size),
            From::Local(_) | From::Memory(_) => target.part_size(Some(size), 1),
        };
        if size <= part_size || self.target.limits.most_parts < 2 {
            return self.whole(&target, path, from, size).await;
        }
        let identity = file.origin().identity();
        let journal = self.journal.clone().filter(|_| identity.is_some());
        target.writing.once = journal.is_none();
        let noted = Noted::new(journal, &target.store.name(path));
        let (target, memory) = (&target, &self.memory);
        let (identity, found) = (identity.unwrap_or_default(), file.origin().path.as_deref());
        Job { target, path, from, size, part_size, identity, found, noted, memory }.run().await
    }

    /// Returns the path of the object of a file, and what happens to an existing object. Two files of one
    /// name do not replace each other, also if they come in two runs with one state. A file that is built
    /// again replaces the object that it was before.
    async fn path_of(&self, file: &mut File) -> Result<(String, Existing), FileError> {
        let has_key = file.origin().key.is_some();
        let is_kept = matches!(self.existing, Existing::Skip | Existing::Error);
        let earlier = self.names.earlier(self.journal.as_ref(), file.origin())?;
        let earlier = earlier.and_then(|path| path.into_os_string().into_string().ok());
        // The configured target may have changed since.
        let wanted = match earlier.filter(|path| path.starts_with(&self.target.path)) {
            Some(path) => path,
            None => self.wanted_path(file)?,
        };
        if is_kept && !has_key {
            return Ok((wanted, self.existing));
        }
        let mut number = 1;
        loop {
            let candidate = numbered(Path::new(&wanted), number);
            match self.names.claim(self.journal.as_ref(), &candidate, file.origin())? {
                Claim::New if self.renames(&candidate).await? => number += 1,
                claim @ (Claim::New | Claim::Same) => {
                    let is_again = claim == Claim::Same && (has_key || self.existing == Existing::Rename);
                    let existing = if is_again { Existing::Replace } else { self.existing };
                    return Ok((candidate.to_string_lossy().into_owned(), existing));
                }
                Claim::Other | Claim::Unknown if is_kept => return Ok((wanted, self.existing)),
                Claim::Other | Claim::Unknown if self.name.is_none() && self.existing != Existing::Rename => {
                    let name = self.target.store.name(&wanted);
                    let reason = format!(
                        "another file was written to `{name}`: with a slash at its end, `url` is for several files"
                    );
                    return Err(FileError::coded(REFUSED, reason));
                }
                Claim::Other | Claim::Unknown => number += 1,
            }
        }
    }

    /// True if another file has the name, and the file is to get another one.
    async fn renames(&self, candidate: &Path) -> Result<bool, FileError> {
        if self.existing != Existing::Rename {
            return Ok(false);
        }
        let path = candidate.to_string_lossy();
        let found = self.finder.find(&self.target.store, &self.target.path, &path).await;
        Ok(found.map_err(|error| unwritten(&error))?.is_some())
    }

    fn wanted_path(&self, file: &mut File) -> Result<String, FileError> {
        let Some(name) = &self.name else { return Ok(self.target.path.clone()) };
        let name = name.render(file)?;
        let Some(name) = name.to_str().filter(|name| !name.is_empty() && !name.ends_with('/')) else {
            return Err(FileError::coded(
                UNWRITABLE,
                "its name in the store would be empty, or is not UTF-8",
            ));
        };
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if !Path::new(name).components().all(plain) {
            let reason = format!("the name `{name}` leads out of the target");
            return Err(FileError::coded(UNWRITABLE, reason));
        }
        Ok(format!("{}{name}", self.target.path))
    }

    /// Stores the address of the object in a note of the file.
    fn note_address(&self, file: &mut File, path: &str) {
        let address = self.target.store.address(path);
        file.set_note(crate::URL, address.unwrap_or_else(|| self.target.store.name(path)));
    }

    /// True if the existing object must stay.
    async fn is_left_alone(&self, file: &File, path: &str, size: u64) -> Result<bool, FileError> {
        let found = self.finder.find(&self.target.store, &self.target.path, path).await;
        let Some(found) = found.map_err(|error| unwritten(&error))? else { return Ok(false) };
        match self.existing {
            Existing::Replace | Existing::Rename => Ok(false),
            Existing::Update => {
                let since = |nanos: i64| u64::try_from(nanos).ok().map(Duration::from_nanos);
                let there = found.state().modified.and_then(since);
                let here = file.origin().times.modified;
                let here = here.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
                let is_newer = here.zip(there).is_some_and(|(here, there)| here > there);
                Ok(found.size() == size && !is_newer)
            }
            Existing::Skip => Ok(true),
            Existing::Error => Err(FileError::coded(REFUSED, format!("`{}` exists already", found.name()))),
        }
    }

    async fn whole(&self, target: &Target, path: &str, from: From, size: u64) -> Result<Stored, FileError> {
        let length = usize::try_from(size).map_err(|_| FileError::coded(UNWRITABLE, "it is too large"))?;
        let arena = self.memory.arena(length).await;
        let body = from.read(0, arena).await?;
        let permit = target.limit.acquire(size).await;
        match put(target, path, held(body)).await {
            Ok(stored) => {
                if stored.was_overloaded {
                    permit.overloaded();
                } else {
                    permit.succeeded();
                }
                target.wrote(stored.crc32c);
                if stored.verified != Verified::No {
                    target.counts.verified.fetch_add(size, Relaxed);
                }
                Ok(stored)
            }
            Err(error) => {
                permit.failed();
                Err(unwritten(&error))
            }
        }
    }
}

/// A file that is sent in parts.
struct Job<'a> {
    target: &'a Target,
    path: &'a str,
    from: From,
    size: u64,
    part_size: u64,
    /// Identifies the state of the file.
    identity: String,
    /// The path at which a source found the file.
    found: Option<&'a Path>,
    noted: Noted,
    memory: &'a Share,
}

impl Job<'_> {
    async fn run(self) -> Result<Stored, FileError> {
        let (upload, mut parts) = self.begun().await?;
        parts.iter().for_each(|part| self.target.note(part, true));
        let completed = match self.send(&upload, &mut parts).await {
            Ok(()) => {
                parts.sort_by_key(|part| part.number);
                complete(&upload, &parts).await.map_err(|error| unwritten(&error))
            }
            Err(error) => Err(error),
        };
        match completed {
            Ok(stored) => {
                self.target.wrote(stored.crc32c);
                self.noted.forget()?;
                Ok(stored)
            }
            // The engine retries the file, and the retry resumes the upload. If this run ends, a later run
            // does.
            Err(error @ FileError::Failed(_)) if self.noted.is_kept() => Err(error),
            Err(error) => {
                // A failed abort is ignored, because the first error matters.
                let _ = upload.abort().await;
                self.noted.forget()?;
                Err(error)
            }
        }
    }

    /// Returns the upload of an earlier run and its finished parts, or a new upload.
    async fn begun(&self) -> Result<(Upload, Vec<UploadedPart>), FileError> {
        let store = &self.target.store;
        match self.noted.found(&self.identity, self.part_size)? {
            Former::Nothing => {}
            Former::Same(begun, parts) => {
                if let Some(upload) = store.resume(&begun).await.map_err(|error| unwritten(&error))? {
                    return Ok((upload, parts));
                }
                self.noted.forget()?;
            }
            Former::Other(begun) => {
                store.discard(&begun).await.map_err(|error| unwritten(&error))?;
                self.noted.forget()?;
            }
        }
        let note = |begun: &Begun| self.noted.begin(begun, &self.identity, self.part_size, self.found);
        let upload = store.begin_noted(self.path, &self.target.writing, note).await?;
        self.noted.forget_failed(store, &upload)?;
        Ok((upload.map_err(|error| unwritten(&error))?, Vec::new()))
    }

    /// Sends the missing parts. When this returns, no part is in flight. A part that arrived after the upload
    /// was discarded would stay in the store.
    async fn send(&self, upload: &Upload, parts: &mut Vec<UploadedPart>) -> Result<(), FileError> {
        let mut sending = JoinSet::new();
        let sent = self.send_missing(upload, parts, &mut sending).await;
        while let Some(ended) = sending.join_next().await {
            // Only the first error is reported.
            let _ = self.take(ended, parts);
        }
        sent
    }

    /// Sends the missing parts, several at the same time.
    async fn send_missing(
        &self,
        upload: &Upload,
        parts: &mut Vec<UploadedPart>,
        sending: &mut JoinSet<Result<UploadedPart, FileError>>,
    ) -> Result<(), FileError> {
        let (mut number, mut offset) = (0, 0);
        while offset < self.size {
            number += 1;
            let at = offset;
            let length = self.part_size.min(self.size - at);
            offset += length;
            if parts.iter().any(|part| part.number == number && part.size == length) {
                continue;
            }
            let room = loop {
                // More parts would only wait for each other, in memory that other components need.
                let may_begin = sending.len() < AHEAD + self.target.limit.current();
                tokio::select! {
                    biased;
                    Some(sent) = sending.join_next() => self.take(sent, parts)?,
                    room = self.room(upload, number, at, length), if may_begin => break room?,
                }
            };
            let (target, upload, from) = (self.target.clone(), upload.clone(), self.from.clone());
            sending.spawn(async move {
                match room {
                    Room::Whole(arena) => {
                        let body = from.read(at, arena).await?;
                        send(&target, &upload, number, at, held(body).into())
                            .await
                            .map_err(|error| unwritten(&error))
                    }
                    Room::Passing(ranges, writer, _lease) => {
                        check(Failpoint::PartBefore, &upload.begun().path)
                            .map_err(|error| unwritten(&error))?;
                        let part = passed(ranges, at..at + length, writer).await?;
                        Failpoint::PartAfter.pass();
                        Ok(part)
                    }
                }
            });
        }
        while let Some(sent) = sending.join_next().await {
            self.take(sent, parts)?;
        }
        Ok(())
    }

    /// Returns where to hold the bytes of a part.
    async fn room(&self, upload: &Upload, number: u32, offset: u64, length: u64) -> Result<Room, FileError> {
        if let From::Ranges(ranges) = &self.from
            && ranges.streams()
            && let Some(writer) = upload.writer(number, offset)
        {
            return Ok(Room::Passing(ranges.clone(), writer, self.memory.reserve(PASSING).await));
        }
        let length =
            usize::try_from(length).map_err(|_| FileError::coded(UNWRITABLE, "its parts are too large"))?;
        Ok(Room::Whole(self.memory.arena(length).await))
    }

    /// Records a part that was sent.
    fn take(
        &self,
        sent: Result<Result<UploadedPart, FileError>, JoinError>,
        parts: &mut Vec<UploadedPart>,
    ) -> Result<(), FileError> {
        let part = sent.map_err(|error| FileError::rejected(error.to_string()))??;
        self.noted.part(&part)?;
        parts.push(part);
        Ok(())
    }
}
