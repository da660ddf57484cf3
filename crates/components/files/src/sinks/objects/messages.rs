//! Writes messages into objects, one after the other.
//!
//! Messages are collected until they fill a part, which is sent while the next one is collected. A part ends
//! where a batch ends. A store therefore has a number of whole batches, and a run after an interrupted one
//! resumes with the next batch.
//!
//! See docs/decisions/019-a-checkpoint-covers-output-and-input-together.md.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_engine::{Context, Error, Journal, Rejects, Sink, WriteOutcome};
use thalweg_record::{Arena, Batch, Budget, payload_slices};
use thalweg_store::{Begun, Body, StoreError, Upload, UploadedPart};
use tokio::task::JoinSet;

use super::parquet_options::Parquet;
use super::parts::{Noted, held, send, unfinished as noted_as_begun};
use super::table::Table;
use super::{ObjectsSink, Target};
use crate::stored::failure;
use thalweg_codec::delimited::Delimited;
use thalweg_codec::part_name;
use thalweg_stream::encode::EncodeConfig;

/// The bounds of the default number of parts in flight. Within them, it is as many as half of the memory
/// holds. The limit of the store may be lower.
const AT_ONCE: std::ops::RangeInclusive<usize> = 2..=32;
/// The space in bytes beyond the size of a part, because a part ends where a batch ends.
const SLACK: usize = 1 << 20;

/// Writes messages into objects.
pub(super) struct Messages {
    target: Target,
    encode: EncodeConfig,
    delimited: Delimited,
    /// True if the payloads are encoded for this sink alone.
    is_encoded: bool,
    parquet: Option<Parquet>,
    budget: Budget,
    /// The size in bytes and the age at which the next object begins.
    rotate: Option<(u64, Duration)>,
    /// The maximum number of parts in flight, if configured.
    writers: Option<usize>,
    /// True if a later run may resume an upload.
    resumes: bool,
    /// Records which uploads were begun, because the state is saved later.
    journal: Option<Journal>,
    object: Object,
    /// The saved upload of an earlier run that the store no longer knows.
    gone: Option<Saved>,
    /// The number of batches that became durable since the engine last asked.
    take_committed: usize,
}

/// The saved state for a later run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Saved {
    /// The number of the object.
    number: u64,
    begun: Option<Begun>,
    /// The parts that the store has, from the first one on without a gap.
    parts: Vec<UploadedPart>,
}

/// Returns the upload that was in progress when a run saved this state.
pub(super) fn unfinished(saved: &Value) -> Option<Begun> {
    serde_json::from_value::<Saved>(saved.clone()).ok()?.begun
}

/// The object that is being written.
struct Object {
    number: u64,
    upload: Option<Upload>,
    /// The table, if the object is one.
    table: Option<Table>,
    /// Bytes that the table returned and that are not part of `gathered` yet.
    undrained: Bytes,
    /// The bytes collected for the next part.
    gathered: Gathered,
    /// The total size of the parts sent, in bytes.
    offset: u64,
    next: u32,
    sending: JoinSet<Outcome>,
    /// Parts that could not be sent.
    unsent: Vec<Unsent>,
    done: BTreeMap<u32, UploadedPart>,
    /// For each batch that is not durable, the number of its last part. In the order of the batches.
    batches: VecDeque<u32>,
    is_new: bool,
    since: Instant,
}

/// A part that is being collected.
#[derive(Default)]
struct Gathered {
    /// The beginning of the part: buffers that are sent without a copy.
    body: Body,
    /// The rest of the part, which was copied.
    copied: Option<Copied>,
}

struct Copied {
    arena: Arena,
    filled: usize,
}

impl Gathered {
    fn len(&self) -> usize {
        self.body.len() + self.copied.as_ref().map_or(0, |copied| copied.filled)
    }

    /// Returns the memory in use, in bytes.
    fn memory(&self) -> usize {
        self.body.len() + self.copied.as_ref().map_or(0, |copied| copied.arena.len())
    }

    /// True if `more` bytes fit behind the copied bytes.
    fn fits(&self, more: usize) -> bool {
        self.copied.as_ref().is_some_and(|copied| copied.filled + more <= copied.arena.len())
    }

    /// Returns the whole part as a body. Only whole pieces can be added from then on.
    fn body(&mut self) -> &mut Body {
        if let Some(Copied { arena, filled }) = self.copied.take() {
            self.body.push(held(arena.freeze().slice_with_length(0, filled)));
        }
        &mut self.body
    }
}

impl Write for Copied {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut free = self.arena.get_mut(self.filled..).unwrap_or_default();
        let written = free.write(bytes)?;
        self.filled += written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns bytes from a table, counted against the budget from now on.
fn paid(budget: &Budget, bytes: Vec<u8>) -> Bytes {
    if bytes.is_empty() { Bytes::new() } else { held(budget.claim(bytes.len()).freeze(bytes)) }
}

/// A part that could not be sent.
struct Unsent {
    number: u32,
    offset: u64,
    body: Body,
}

type Outcome = Result<UploadedPart, (Unsent, StoreError)>;

impl Object {
    fn new(number: u64) -> Self {
        Self {
            number,
            upload: None,
            table: None,
            undrained: Bytes::new(),
            gathered: Gathered::default(),
            offset: 0,
            next: 1,
            sending: JoinSet::new(),
            unsent: Vec::new(),
            done: BTreeMap::new(),
            batches: VecDeque::new(),
            is_new: true,
            since: Instant::now(),
        }
    }

    /// Returns the number of finished parts, from the first one on without a gap.
    fn whole(&self) -> u32 {
        (1..).take_while(|number| self.done.contains_key(number)).last().unwrap_or(0)
    }
}

impl Messages {
    pub(super) fn new(config: &ObjectsSink, target: Target, context: &Context) -> Self {
        let rotate = config.rotate.as_ref().map(|rotate| {
            let size = rotate.size.map_or(u64::MAX, |size| size.bytes());
            (size, rotate.every.map_or(Duration::MAX, |every| every.duration()))
        });
        Self {
            encode: config.encode.clone(),
            is_encoded: config.encode.encoder().is_some(),
            delimited: Delimited::new(&config.delimiter),
            parquet: config.parquet.clone(),
            budget: context.memory.budget().clone(),
            rotate,
            writers: config.writers,
            // A table cannot be resumed. Neither can an object whose parts do not end where batches end.
            resumes: context.resumes && config.parquet.is_none() && !target.limits.equal_parts,
            journal: context.journal.clone().filter(|_| context.resumes),
            object: Object::new(1),
            gone: None,
            take_committed: 0,
            target,
        }
    }

    /// Returns the path of the object with this number.
    fn path(&self, number: u64) -> String {
        let path = &self.target.path;
        if self.rotate.is_none() {
            return path.clone();
        }
        part_name::labelled(path, &format!("{number:05}"))
    }

    /// Sends the collected bytes as a part.
    async fn cut(&mut self) -> Result<(), Error> {
        if self.object.gathered.len() == 0 {
            return Ok(());
        }
        self.begin().await?;
        let part = self.object.gathered.memory();
        let fitting = (self.budget.limit() / 2 / part).clamp(*AT_ONCE.start(), *AT_ONCE.end());
        while self.object.sending.len() >= self.writers.unwrap_or(fitting).max(1) {
            self.reap().await?;
        }
        let mut body = std::mem::take(self.object.gathered.body());
        if self.target.limits.equal_parts {
            self.object.gathered.body = body.split_off(self.size());
        }
        let (number, offset) = (self.object.next, self.object.offset);
        self.object.next += 1;
        self.object.offset += body.len() as u64;
        self.dispatch(Unsent { number, offset, body });
        Ok(())
    }

    /// Returns the preferred size of the next part in bytes.
    fn size(&self) -> usize {
        let size = self.target.part_size(None, self.object.next);
        usize::try_from(size).unwrap_or(usize::MAX / 2)
    }

    /// Makes sure that `more` bytes can be copied.
    async fn make_room(&mut self, more: usize) -> Result<(), Error> {
        let size = self.size();
        let smallest = match self.target.limits.equal_parts {
            true => size,
            false => usize::try_from(self.target.limits.smallest_part).unwrap_or(usize::MAX),
        };
        while self.object.gathered.len() >= size
            || self.object.gathered.len() >= smallest && !self.object.gathered.fits(more)
        {
            self.cut().await?;
        }
        let gathered = &mut self.object.gathered;
        let copied = match gathered.copied.take() {
            Some(copied) if copied.filled + more <= copied.arena.len() => copied,
            former => {
                let kept = former.as_ref().and_then(|former| former.arena.get(..former.filled));
                let kept = kept.unwrap_or_default();
                let capacity = (size + SLACK).saturating_sub(gathered.body.len()).max(kept.len() + more);
                let mut copied = Copied { arena: self.budget.claim_arena(capacity), filled: 0 };
                copied.write_all(kept).map_err(|error| Error::permanent(error.to_string()))?;
                copied
            }
        };
        gathered.copied = Some(copied);
        Ok(())
    }

    /// Returns the buffers of a batch, with delimiters, if they can be sent without a copy.
    ///
    /// Only buffers that were encoded for this sink qualify. The buffers of a source must not be held until a
    /// part is full, since the source may wait for their memory.
    fn slices(&self, batch: &Batch) -> Option<Vec<Buffer>> {
        let is_free = self.is_encoded && self.object.gathered.copied.is_none();
        let delimiter = self.delimited.delimiter();
        match delimiter {
            &[delimiter] if is_free => payload_slices(batch.payload(), delimiter),
            _ => None,
        }
    }

    /// Adds pieces without a copy.
    async fn add(&mut self, pieces: impl IntoIterator<Item = Bytes>) -> Result<(), Error> {
        while self.object.gathered.len() >= self.size() {
            self.cut().await?;
        }
        let body = self.object.gathered.body();
        pieces.into_iter().for_each(|piece| body.push(piece));
        Ok(())
    }

    /// Adds messages, after a header if there is one.
    async fn write_messages(&mut self, batch: &Batch, header: Option<Vec<u8>>) -> Result<(), Error> {
        let header = header.map(|mut header| {
            header.extend_from_slice(self.delimited.delimiter());
            Bytes::from(header)
        });
        if let Some(slices) = self.slices(batch) {
            return self.add(header.into_iter().chain(slices.into_iter().map(held))).await;
        }
        let header = header.unwrap_or_default();
        let most = header.len() + batch.payload_bytes() + batch.rows() * self.delimited.delimiter().len();
        self.make_room(most).await?;
        let Some(copied) = &mut self.object.gathered.copied else { return Ok(()) };
        copied
            .write_all(&header)
            .and_then(|()| self.delimited.write(batch.payload(), copied))
            .and_then(|()| self.delimited.flush(copied))
            .map_err(|error| Error::permanent(error.to_string()))
    }

    /// Adds the bytes that a table returned. This must happen before the next write to the table, which could
    /// not be undone if adding failed.
    async fn drain(&mut self) -> Result<(), Error> {
        if self.object.undrained.is_empty() {
            return Ok(());
        }
        self.add([self.object.undrained.clone()]).await?;
        self.object.undrained = Bytes::new();
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), Error> {
        if self.object.upload.is_none() {
            let path = self.path(self.object.number);
            let begun = self.target.store.begin(&path, &self.target.writing).await;
            let upload = begun.map_err(|error| failure(&error))?;
            self.noted(self.object.number).begin(upload.begun(), "", 0)?;
            self.object.upload = Some(upload);
        }
        Ok(())
    }

    /// Returns the journal's record of an object.
    fn noted(&self, number: u64) -> Noted {
        Noted::new(self.journal.clone(), &self.target.store.name(&self.path(number)))
    }

    /// Discards uploads that an earlier run began after it saved its state for the last time.
    async fn discard_unsaved(&mut self, saved: Option<&Begun>) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        for begun in noted_as_begun(journal)? {
            if Some(&begun) != saved {
                self.target.store.discard(&begun).await.map_err(|error| failure(&error))?;
                Noted::new(self.journal.clone(), &self.target.store.name(&begun.path)).forget()?;
            }
        }
        Ok(())
    }

    fn dispatch(&mut self, part: Unsent) {
        let Some(upload) = self.object.upload.clone() else {
            self.object.unsent.push(part);
            return;
        };
        let target = self.target.clone();
        self.object.sending.spawn(async move {
            let sent = send(&target, &upload, part.number, part.offset, part.body.clone()).await;
            sent.map_err(|error| (part, error))
        });
    }

    /// Waits for a part in flight.
    async fn reap(&mut self) -> Result<(), Error> {
        let Some(ended) = self.object.sending.join_next().await else { return Ok(()) };
        self.take(ended)
    }

    fn take(&mut self, ended: Result<Outcome, tokio::task::JoinError>) -> Result<(), Error> {
        match ended.map_err(|error| Error::permanent(error.to_string()))? {
            Ok(part) => {
                self.object.done.insert(part.number, part);
                if self.resumes {
                    let whole = self.object.whole();
                    while self.object.batches.front().is_some_and(|&last| last <= whole) {
                        self.object.batches.pop_front();
                        self.take_committed += 1;
                    }
                }
                Ok(())
            }
            Err((part, error)) => {
                self.object.unsent.push(part);
                Err(failure(&error))
            }
        }
    }

    /// Sends the unsent parts again, and takes the results that have arrived.
    fn catch_up(&mut self) -> Result<(), Error> {
        for part in std::mem::take(&mut self.object.unsent) {
            self.dispatch(part);
        }
        while let Some(ended) = self.object.sending.try_join_next() {
            self.take(ended)?;
        }
        Ok(())
    }

    /// Completes the object, and starts the next one.
    async fn complete(&mut self) -> Result<(), Error> {
        self.catch_up()?;
        self.drain().await?;
        if let Some(table) = self.object.table.take() {
            self.object.undrained = paid(&self.budget, table.finish()?);
            self.drain().await?;
        }
        let path = self.path(self.object.number);
        if self.object.upload.is_none() {
            let body = self.object.gathered.body().clone();
            let stored = self.target.store.put(&path, body, &self.target.writing).await;
            self.target.wrote(stored.map_err(|error| failure(&error))?.crc32c);
        } else {
            while self.object.gathered.len() > 0 {
                self.cut().await?;
            }
            while !self.object.sending.is_empty() {
                self.reap().await?;
            }
            if let Some(upload) = &self.object.upload {
                let parts: Vec<UploadedPart> = self.object.done.values().cloned().collect();
                let stored = upload.complete(&parts).await;
                self.target.wrote(stored.map_err(|error| failure(&error))?.crc32c);
                self.noted(self.object.number).forget()?;
            }
        }
        self.take_committed += self.object.batches.len();
        self.object = Object::new(self.object.number + 1);
        Ok(())
    }

    fn is_old(&self) -> bool {
        let every = self.rotate.map(|(_, every)| every);
        !self.object.is_new && every.is_some_and(|every| self.object.since.elapsed() >= every)
    }
}

#[async_trait]
impl Sink for Messages {
    async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        let saved = saved.and_then(|saved| serde_json::from_value::<Saved>(saved).ok());
        let begun = saved.as_ref().and_then(|saved| saved.begun.clone()).filter(|_| self.resumes);
        self.discard_unsaved(begun.as_ref()).await?;
        let Some(saved) = saved else { return Ok(()) };
        self.object = Object::new(saved.number);
        let Some(begun) = &begun else { return Ok(()) };
        let resumed = self.target.store.resume(begun).await.map_err(|error| failure(&error))?;
        let Some(upload) = resumed else {
            let name = self.target.store.name(&begun.path);
            if self.rotate.is_none() {
                self.gone = Some(saved);
            } else {
                tracing::warn!(
                    "`{name}` was already complete when the previous run was interrupted: some messages may be written twice"
                );
                self.object = Object::new(saved.number + 1);
            }
            return Ok(());
        };
        saved.parts.iter().for_each(|part| self.target.note(part, true));
        self.object.upload = Some(upload);
        self.object.offset = saved.parts.iter().map(|part| part.size).sum();
        self.object.next = saved.parts.last().map_or(1, |part| part.number + 1);
        self.object.is_new = saved.parts.is_empty();
        self.object.done = saved.parts.into_iter().map(|part| (part.number, part)).collect();
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        if let Some(gone) = &self.gone {
            let name = self.target.store.name(&self.path(gone.number));
            return Err(Error::permanent(format!(
                "the upload of `{name}` that an earlier run began is gone: that run may have completed it just before it was interrupted. \
                 To write it again, use another state folder"
            )));
        }
        // Every step that can fail comes before the batch is accepted. After an error, the engine passes the
        // same batch again.
        self.catch_up()?;
        let so_far = self.object.offset + self.object.gathered.len() as u64;
        if self.is_old() || self.rotate.is_some_and(|(size, _)| !self.object.is_new && so_far >= size) {
            self.complete().await?;
        }
        match &self.parquet {
            Some(options) => {
                let options = options.clone();
                self.drain().await?;
                let table = match &mut self.object.table {
                    Some(table) => table,
                    None => self.object.table.insert(Table::new(&options, batch, &self.budget)?),
                };
                self.object.undrained = paid(&self.budget, table.write(batch, rejects)?);
            }
            None => {
                let header = match self.object.is_new {
                    true => self.encode.header(&batch.fields().schema()),
                    false => None,
                };
                self.write_messages(batch, header).await?;
            }
        }
        if std::mem::take(&mut self.object.is_new) {
            self.object.since = Instant::now();
        }
        self.object.batches.push_back(self.object.next);
        Ok(WriteOutcome::Staged)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.catch_up()?;
        if self.is_old() { self.complete().await } else { Ok(()) }
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        match self.rotate.is_some() && !self.object.is_new {
            true => self.complete().await,
            false => self.flush().await,
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if let Some(gone) = self.gone.take() {
            let path = self.path(gone.number);
            let found = self.target.store.stat(&path).await.map_err(|error| failure(&error))?;
            let expected: u64 = gone.parts.iter().map(|part| part.size).sum();
            if found.size() < expected {
                let name = found.name();
                return Err(Error::permanent(format!(
                    "`{name}` is not the object that an earlier run wrote"
                )));
            }
            return Ok(());
        }
        // Without messages, the object is still created as an empty one, unless it is numbered or an earlier
        // run wrote it.
        match self.object.is_new && (self.rotate.is_some() || self.object.number > 1) {
            true => Ok(()),
            false => self.complete().await,
        }
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.take_committed)
    }

    fn is_due(&self) -> bool {
        self.is_old()
    }

    fn state(&self) -> Option<Value> {
        if let Some(gone) = &self.gone {
            return serde_json::to_value(gone).ok();
        }
        let whole = self.object.whole();
        let saved = Saved {
            number: self.object.number,
            begun: self.object.upload.as_ref().map(|upload| upload.begun().clone()),
            parts: self.object.done.range(..=whole).map(|(_, part)| part.clone()).collect(),
        };
        serde_json::to_value(saved).ok()
    }
}
