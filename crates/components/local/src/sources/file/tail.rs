//! One file that is being read, from where an earlier run stopped.
//!
//! A position belongs to a file, not to a path: files are renamed while they are read. A file is identified
//! by its device and inode. Inodes are reused, so fingerprints are compared as well: of its first bytes, and
//! of the last bytes before the position. The first bytes alone do not suffice: many logs begin with the same
//! header, and so does a file that was truncated and written again. A young file has few bytes, so a position
//! includes the number of bytes that each fingerprint covers.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use thalweg_beneath::Beneath;
use thalweg_engine::SourceOutput;

use super::find::Identity;
use super::saved::{Checkpoints, FINGERPRINT_BYTES, Fingerprint, Saved, read_some};
use super::sequences::{self, Begun, Last, Sequences};
use super::{FileSource, ReadFrom};
use thalweg_codec::decompress::{Compression, Damage, Decoder};
use thalweg_codec::framing::{Cutter, Skip, StreamPosition};

/// A file that is being read.
pub struct Tail {
    /// Its present path, or the last known one.
    pub path: PathBuf,
    /// Opens the path.
    pub beneath: Beneath,
    /// The same path as text, for metadata and log lines.
    pub shown: Arc<str>,
    /// The partition of its checkpoints.
    pub partition: Arc<str>,
    /// The name of the sequence of its positions. A file that is rewritten begins another one.
    pub sequence: Arc<str>,
    /// The number of bytes of the fingerprint with which the name is noted, if it is: see [`sequences`].
    pub noted: Option<usize>,
    /// True if names of sequences are noted.
    notes: bool,
    /// Cuts the text into messages.
    pub cutter: Cutter,
    /// The bytes of the message that is not complete yet.
    pub carry: Vec<u8>,
    /// The error that ended the last read early.
    pub failure: Option<io::Error>,
    /// When it last yielded data.
    pub active: Instant,
    /// True if no searched path leads to it any more.
    pub is_gone: bool,
    /// True if it is read from the end that it had when it was opened, and this position is not saved yet.
    pub begins_at_end: bool,
    /// True if its read error was already reported.
    pub has_warned: bool,
    /// With `follow`: true if something was read of it that may not be covered by a checkpoint.
    pub is_unsaved: bool,
    identity: Identity,
    file: Option<Arc<File>>,
    fingerprint: Fingerprint,
    /// Of the last bytes that were read, if it is not compressed.
    last: Fingerprint,
    compression: Compression,
    /// The memory of the whole process, in bytes.
    memory: usize,
    content: Content,
    /// The size of a compressed file when it was last read to its end or to damage. The file is read again
    /// only if its size changes.
    seen: Option<u64>,
    /// The size in bytes at the last check.
    size: u64,
    /// The number of bytes of the file that were read, for the progress.
    used: u64,
}

enum Content {
    /// The file is too short to tell its format.
    Unknown,
    Plain,
    Packed {
        decoder: Box<Decoder<File>>,
        /// The number of decompressed bytes that are still to be skipped.
        skip: u64,
    },
}

/// The result of a read.
pub struct Filled {
    /// The number of bytes of the buffer that are used.
    pub bytes: usize,
    /// True if the end was reached.
    pub is_end: bool,
    /// The number of bytes of the file that were read.
    pub progress: u64,
}

impl Tail {
    /// Opens a file and seeks to its start position. `is_first` is true if the file existed when the run
    /// began.
    pub(super) fn open(
        path: &Path,
        beneath: &Beneath,
        config: &FileSource,
        sequences: Option<&Sequences>,
        out: &SourceOutput,
        is_first: bool,
    ) -> io::Result<Self> {
        let file = Arc::new(beneath.open(path)?);
        let metadata = file.metadata()?;
        let identity = Identity::of(&metadata);
        let partition: Arc<str> = identity.partition().into();
        let shown: Arc<str> = path.to_string_lossy().into();
        let mut cutter = config.cut.cutter(StreamPosition::default());
        cutter.within(out.share().budget().limit());
        let mut tail = Self {
            path: path.to_owned(),
            beneath: beneath.clone(),
            cutter,
            carry: Vec::new(),
            failure: None,
            active: Instant::now(),
            is_gone: false,
            begins_at_end: false,
            has_warned: false,
            is_unsaved: false,
            identity,
            fingerprint: Fingerprint::read(&file, FINGERPRINT_BYTES)?,
            last: Fingerprint::of(&[]),
            compression: config.compression,
            memory: out.share().budget().limit(),
            content: Content::Unknown,
            seen: None,
            size: metadata.len(),
            used: 0,
            file: Some(file.clone()),
            shown,
            partition,
            sequence: "".into(),
            noted: None,
            notes: sequences.is_some(),
        };
        tail.begin_sequence(&metadata, "");
        tail.detect(!config.follow)?;
        let former = Saved::of(out, &tail.partition);
        let last = match sequences {
            Some(sequences) => sequences.last(&tail, &file, &metadata, former.as_ref())?,
            None => Last::Unknown,
        };
        let position = match (last, former) {
            (Last::Same(begun), _) => {
                tail.sequence = begun.start.sequence.as_str().into();
                tail.noted = Some(begun.start.fingerprint_bytes);
                begun.start.position()
            }
            (Last::Other, former) => {
                let before = former.map(|saved| saved.sequence).unwrap_or_default();
                tail.begin_another(&metadata, &before);
                StreamPosition::default()
            }
            (Last::Unknown, former) => match (tail.saved(out)?, former) {
                (Some(saved), _) => {
                    if !saved.sequence.is_empty() {
                        tail.sequence = saved.sequence.as_str().into();
                        tail.noted = Some(FINGERPRINT_BYTES);
                    }
                    saved.position()
                }
                (None, Some(other)) => {
                    tail.begin_another(&metadata, &other.sequence);
                    StreamPosition::default()
                }
                (None, None) if config.read_from == ReadFrom::End && is_first => {
                    tail.end_position(&metadata)?
                }
                (None, None) => StreamPosition::default(),
            },
        };
        let position = if matches!(tail.content, Content::Plain) && metadata.len() < position.offset {
            tracing::warn!(
                "`{}` is shorter than the saved position: it was truncated, and is read from its beginning",
                tail.shown
            );
            let before = tail.sequence.clone();
            tail.begin_sequence(&metadata, &before);
            StreamPosition::default()
        } else {
            position
        };
        tail.go_to(position)?;
        Ok(tail)
    }

    /// Begins another sequence than `before`: another file than the one that was read under this identity
    /// came after the last run began.
    fn begin_another(&mut self, metadata: &Metadata, before: &str) {
        self.begin_sequence(metadata, before);
        tracing::info!(
            "`{}` is another file than before, or was rewritten: it is read from its beginning",
            self.shown
        );
    }

    /// Begins a sequence behind the sequence `before`.
    fn begin_sequence(&mut self, metadata: &Metadata, before: &str) {
        self.noted = None;
        self.sequence = match self.notes {
            true => sequences::random(),
            false => sequences::derived(metadata, before),
        };
    }

    /// True if it must be noted what the sequence was begun for, before more of it is sent. A young file is
    /// noted again when it has grown.
    pub(super) fn is_unnoted(&self) -> bool {
        self.notes && self.noted.is_none_or(|bytes| bytes < self.fingerprint.bytes)
    }

    /// Returns what a sequence that begins at the present position is begun for.
    pub(super) fn begun(&self) -> io::Result<Begun> {
        let file = self.file.as_ref().ok_or(ErrorKind::NotFound)?;
        Begun::new(self.checkpoints().saved(self.cutter.position()), file, &file.metadata()?)
    }

    /// Returns the saved state of this file, from an earlier run or this one. Also looks under other devices,
    /// since device numbers may change when the machine restarts.
    fn saved(&self, out: &SourceOutput) -> io::Result<Option<Saved>> {
        let Some(file) = &self.file else { return Ok(None) };
        let inode = format!(":{:x}", self.identity.inode);
        if let Some(saved) = Saved::of(out, &self.partition)
            && saved.fits(file)?
        {
            return Ok(Some(saved));
        }
        for partition in out
            .partitions()
            .into_iter()
            .filter(|partition| partition.ends_with(&inode) && *partition != self.partition)
        {
            if let Some(saved) = Saved::of(out, &partition)
                && saved.path == *self.shown
                && saved.fingerprint_bytes > 0
                && saved.fits(file)?
            {
                return Ok(Some(saved));
            }
        }
        Ok(None)
    }

    /// Returns the position at the present end. If that is in the middle of a line, the rest of the line is
    /// skipped.
    fn end_position(&mut self, metadata: &Metadata) -> io::Result<StreamPosition> {
        let size = metadata.len();
        let Some(file) = self.file.as_ref().filter(|_| size > 0) else {
            return Ok(StreamPosition::default());
        };
        if self.is_packed() {
            self.seen = Some(size);
            return Ok(StreamPosition::default());
        }
        let mut first = [0; 4];
        let read = read_some(file, 0, &mut first)?;
        self.cutter.learn_order(first.get(..read).unwrap_or_default());
        let mut last = vec![0; self.cutter.tail_bytes()];
        let from = size.saturating_sub(last.len() as u64);
        let read = file.read_at(&mut last, from)?;
        let skip = if self.cutter.may_end_with(last.get(..read).unwrap_or_default()) {
            Skip::Nothing
        } else {
            Skip::Line
        };
        self.begins_at_end = true;
        Ok(StreamPosition { offset: size, skip, ..self.cutter.position() })
    }

    /// Returns the creator of checkpoints for this file.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints {
            partition: self.partition.clone(),
            sequence: self.sequence.clone(),
            shown: self.shown.clone(),
            fingerprint: self.fingerprint,
            file: self.file.clone().filter(|_| !self.is_packed()),
        }
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Sets its new name.
    pub fn rename(&mut self, path: &Path) {
        if self.path != path {
            self.path = path.to_owned();
            self.shown = path.to_string_lossy().into();
        }
    }

    /// Detects the compression, as soon as the file has enough bytes.
    fn detect(&mut self, is_whole: bool) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| matches!(self.content, Content::Unknown)) else {
            return Ok(());
        };
        let mut first = [0; 4];
        let read = read_some(file, 0, &mut first)?;
        let format = self.compression.of(first.get(..read).unwrap_or_default());
        let format = if is_whole { Some(format.flatten()) } else { format };
        self.content = match format {
            None => Content::Unknown,
            Some(None) => Content::Plain,
            Some(Some(format)) => {
                // All other reads name their offset, so the position of the handle belongs to the decoder
                // alone.
                let mut file = file.try_clone()?;
                file.rewind()?;
                // The earlier bytes are read again: compressed data has no entry in its middle.
                let position = self.cutter.position();
                self.cutter.seek(position);
                self.carry.clear();
                self.used = 0;
                Content::Packed {
                    decoder: Box::new(Decoder::new(format, file).within(self.memory)),
                    skip: position.offset,
                }
            }
        };
        Ok(())
    }

    /// Continues at a position, and drops the bytes that were read after it.
    fn go_to(&mut self, position: StreamPosition) -> io::Result<()> {
        self.cutter.seek(position);
        self.carry.clear();
        self.used = position.offset;
        self.last = Fingerprint::of(&[]);
        if let Content::Packed { .. } = self.content {
            self.content = Content::Unknown;
            self.detect(true)?;
        }
        Ok(())
    }

    /// Returns to the beginning of the incomplete message, after an error.
    pub fn recover(&mut self) -> io::Result<()> {
        self.go_to(self.cutter.position())
    }

    /// True if it has bytes that were not read. A file that was truncated or rewritten is read from its
    /// beginning.
    pub fn has_news(&mut self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let metadata = file.metadata()?;
        let size = metadata.len();
        self.size = size;
        if let Content::Packed { .. } = self.content {
            if self.seen.is_none_or(|seen| seen == size) {
                return Ok(self.seen.is_none());
            }
            self.seen = None;
            self.content = Content::Unknown;
        }
        if size == self.used {
            return Ok(false);
        }
        if size < self.used || !self.fingerprint.fits(file)? || !self.last.is_before(file, self.used)? {
            tracing::warn!("`{}` was truncated or rewritten: it is read from its beginning", self.shown);
            let before = self.sequence.clone();
            self.begin_sequence(&metadata, &before);
            self.fingerprint = Fingerprint::of(&[]);
            self.content = Content::Unknown;
            self.go_to(StreamPosition::default())?;
        }
        if let Some(file) = self.file.as_ref().filter(|_| self.fingerprint.bytes < FINGERPRINT_BYTES) {
            self.fingerprint = Fingerprint::read(file, FINGERPRINT_BYTES)?;
        }
        self.detect(self.is_gone)?;
        Ok(size > 0 && !matches!(self.content, Content::Unknown))
    }

    /// Records that a compressed file was read as far as possible.
    pub fn rest_until_changed(&mut self) {
        if matches!(self.content, Content::Packed { .. }) {
            self.seen = Some(self.size);
        }
    }

    /// True if it is compressed. A compressed file is assumed to be complete, so its last message needs no
    /// delimiter.
    pub fn is_packed(&self) -> bool {
        matches!(self.content, Content::Packed { .. })
    }

    /// Fills `buffer`, after the bytes in `carry`, until it is full or there is no more data. An error is
    /// kept in `failure`, because the bytes before it count.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Filled {
        let before = self.used;
        let mut bytes = self.carry.len();
        if let Some(front) = buffer.get_mut(..bytes) {
            front.copy_from_slice(&self.carry);
        }
        self.carry.clear();
        let mut is_end = false;
        // A long skip is interrupted now and then, so that the source can stop.
        let mut passes = 64;
        while let Some(free) = buffer.get_mut(bytes..).filter(|free| !free.is_empty()) {
            match self.read(free) {
                Ok((0, 0)) => {
                    is_end = true;
                    break;
                }
                Ok((0, _)) => {
                    passes -= 1;
                    if passes == 0 {
                        break;
                    }
                }
                Ok((read, _)) => bytes += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        if let (Content::Plain, Some(found @ [_, ..])) = (&self.content, buffer.get(..bytes)) {
            self.last = Fingerprint::of(found);
        }
        Filled { bytes, is_end, progress: self.used.saturating_sub(before) }
    }

    /// Reads. Returns the number of bytes read and the number of bytes skipped.
    fn read(&mut self, into: &mut [u8]) -> io::Result<(usize, usize)> {
        match (&mut self.content, &self.file) {
            (Content::Packed { decoder, skip }, _) => {
                let read = decoder.read(into);
                self.used = decoder.consumed();
                let read = read?;
                let passed = usize::try_from(*skip).unwrap_or(usize::MAX).min(read);
                *skip -= passed as u64;
                into.copy_within(passed..read, 0);
                Ok((read - passed, passed))
            }
            (Content::Plain, Some(file)) => {
                let read = file.read_at(into, self.used)?;
                self.used += read as u64;
                Ok((read, 0))
            }
            (Content::Unknown, _) | (_, None) => Ok((0, 0)),
        }
    }

    /// True if it was deleted: no path leads to it.
    pub fn is_deleted(&self) -> bool {
        self.file.as_ref().and_then(|file| file.metadata().ok()).is_none_or(|metadata| metadata.nlink() == 0)
    }

    /// True if its handle is open.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Closes its handle, unless it is in the middle of compressed data.
    pub fn close(&mut self) {
        if self.is_packed() && self.seen.take().is_none() {
            return;
        }
        self.file = None;
        if self.is_packed() {
            self.used = self.size;
            self.content = Content::Unknown;
        }
    }

    /// True if its size is no longer the one up to which it was read.
    pub fn is_behind(&self, size: u64) -> bool {
        size != self.used
    }

    /// Opens it again if its size is no longer the one up to which it was read.
    pub fn reopen(&mut self, size: u64) -> io::Result<()> {
        if self.file.is_none() && self.is_behind(size) {
            let file = self.beneath.open(&self.path)?;
            if Identity::of(&file.metadata()?) == self.identity {
                self.file = Some(Arc::new(file));
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of the file that are still to be read.
    pub fn expected(&self) -> u64 {
        let size =
            self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
        size.saturating_sub(self.used)
    }

    /// Returns the damage that `failure` describes, if any.
    pub fn damage(&self) -> Option<Damage> {
        self.failure.as_ref().and_then(Damage::of).cloned()
    }
}
