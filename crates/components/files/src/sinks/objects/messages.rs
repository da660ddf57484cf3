//! Writes messages into objects, one after the other.
//!
//! Messages are collected until they fill a part, which is sent while the next one is collected. A part ends
//! where a batch ends. A store therefore has a number of whole batches, and a run after an interrupted one
//! resumes with the next batch.
//!
//! An object that a run completed is never written again by a run that resumes: it may hold messages that
//! were acknowledged. Without `rotate`, a run that is asked to stop therefore leaves its object unfinished
//! for the next run, as a killed run does, and messages after a completed object go to a further one, which
//! is numbered. (Rejected: adding to a completed object. Stores cannot, except by copying it first.)
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
use thalweg_config::ByteSize;
use thalweg_engine::{Context, Error, Journal, Rejects, Sink, WriteOutcome};
use thalweg_record::{Arena, Batch, Budget, payload_slices};
use thalweg_store::{Begun, Body, StoreError, Upload, UploadedPart};
use tokio::task::JoinSet;

use super::parquet_options::Parquet;
use super::parts::{Noted, complete, held, put, send, unfinished as noted_as_begun};
use super::table::Table;
use super::tail::{Tail, Tails};
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
/// The memory that copied bytes are collected in, piece by piece, in bytes.
const PIECE: usize = 256 << 10;
/// The least budget. The files that the collected messages came from hold memory until the messages are
/// durable: see [`Group`](crate::group::Group). With less, the next files might not fit beside them.
pub(super) const LEAST: ByteSize = ByteSize(128 << 10);

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
    /// True if all messages that no checkpoint covers come again, so that a later run may write the object of
    /// these messages again.
    rewrites: bool,
    /// True if every object is one that did not exist. No state tells which existing ones are this sink's,
    /// and their messages never come again: a replay, or a service without a state.
    takes_free: bool,
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
    /// The name of the bytes after these parts, if the journal has them.
    #[serde(default)]
    tail: Option<String>,
    /// True if an existing object of this number is this sink's.
    #[serde(default)]
    is_claimed: bool,
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
    /// The bytes that an earlier run left for the next part.
    tail: Option<Tail>,
    /// True if the number was chosen for good: an existing object of this number is this sink's.
    is_claimed: bool,
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

    /// Returns the whole part as a body. Only whole pieces can be added from then on.
    fn body(&mut self) -> &mut Body {
        if let Some(Copied { arena, filled }) = self.copied.take() {
            self.body.push(held(arena.freeze().slice_with_length(0, filled)));
        }
        &mut self.body
    }
}

/// Copies bytes to the end of a part. Memory is claimed as the part grows: a part that is claimed as a whole
/// may be more than the memory, and would keep the sources from reading what fills it.
struct Copying<'a> {
    gathered: &'a mut Gathered,
    budget: &'a Budget,
}

impl Write for Copying<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_full = |copied: &Copied| copied.filled >= copied.arena.len();
        if self.gathered.copied.as_ref().is_none_or(is_full) {
            self.gathered.body();
            self.gathered.copied = Some(Copied { arena: self.budget.claim_arena(PIECE), filled: 0 });
        }
        let Some(copied) = &mut self.gathered.copied else { return Ok(0) };
        let mut free = copied.arena.get_mut(copied.filled..).unwrap_or_default();
        let written = free.write(bytes)?;
        copied.filled += written;
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
            tail: None,
            is_claimed: false,
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
            rewrites: context.resends,
            takes_free: context.journal.is_none() && (context.resumes || !context.starts_over),
            take_committed: 0,
            target,
        }
    }

    /// Returns the path of the object with this number.
    fn path(&self, number: u64) -> String {
        let path = &self.target.path;
        if self.rotate.is_none() && number == 1 {
            return path.clone();
        }
        part_name::labelled(path, &format!("{number:05}"))
    }

    /// Decides the number of the object for good, before anything of it is visible or begun. Returns its
    /// path.
    async fn claim(&mut self) -> Result<String, Error> {
        let is_further = self.rotate.is_none() && self.object.number > 1;
        if !self.object.is_claimed && (self.takes_free || is_further) {
            self.object.number = self.free(self.object.number).await?;
            if is_further {
                if let Some(journal) = &self.journal {
                    journal.note(CLAIMED, &self.object.number.into())?;
                }
                let (first, path) = (self.path(1), self.path(self.object.number));
                let (first, path) = (self.target.store.name(&first), self.target.store.name(&path));
                tracing::warn!("an earlier run completed `{first}`: further messages go to `{path}`");
            }
        }
        self.object.is_claimed = true;
        Ok(self.path(self.object.number))
    }

    /// Returns the number of an object that does not exist, from this number on. Where the existing ones have
    /// no gaps it is the first, found with few requests.
    async fn free(&mut self, number: u64) -> Result<u64, Error> {
        let target = self.target.clone();
        let (mut low, mut free, mut step) = (number, number, 1);
        while target.exists(&self.path(free)).await? {
            low = free + 1;
            free += step;
            step *= 2;
        }
        while low < free {
            let middle = low + (free - low) / 2;
            match target.exists(&self.path(middle)).await? {
                true => low = middle + 1,
                false => free = middle,
            }
        }
        Ok(free)
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

    /// Returns the minimum size in bytes of a part that is not the last.
    fn smallest(&self) -> usize {
        match self.target.limits.equal_parts {
            true => self.size(),
            false => usize::try_from(self.target.limits.smallest_part).unwrap_or(usize::MAX),
        }
    }

    /// Sends the part if `more` bytes would make it too large.
    async fn make_room(&mut self, more: usize) -> Result<(), Error> {
        let (size, smallest) = (self.size(), self.smallest());
        let is_full = |length: usize| length >= size || length >= smallest && length + more > size + SLACK;
        while is_full(self.object.gathered.len()) {
            self.cut().await?;
        }
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
        let mut copied = Copying { gathered: &mut self.object.gathered, budget: &self.budget };
        copied
            .write_all(&header)
            .and_then(|()| self.delimited.write(batch.payload(), &mut copied))
            .and_then(|()| self.delimited.flush(&mut copied))
            .map_err(|error| Error::permanent(error.to_string()))
    }

    /// True if a source waits for memory, and what is collected here holds much of it: that source may be the
    /// one whose messages would fill the part.
    fn is_in_the_way(&self) -> bool {
        let object = &self.object;
        let table = object.table.as_ref().map_or(0, Table::memory);
        let can_cut = table > 0 || object.gathered.len() >= self.smallest().max(1);
        can_cut && self.budget.is_short() && object.gathered.memory() + table >= self.budget.limit() / 4
    }

    /// Sends the bytes collected so far.
    async fn make_way(&mut self) -> Result<(), Error> {
        self.drain().await?;
        if let Some(table) = &mut self.object.table {
            self.object.undrained = paid(&self.budget, table.end_row_group()?);
            self.drain().await?;
        }
        if self.object.gathered.len() >= self.smallest() { self.cut().await } else { Ok(()) }
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
            let path = self.claim().await?;
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
        for begun in noted_as_begun(journal, &self.target.store.name(""))? {
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
        if self.object.upload.is_none() {
            let path = self.claim().await?;
            let body = self.object.gathered.body().clone();
            if !self.rewrites {
                self.note_completing(&whole(&path, body.len() as u64))?;
            }
            let stored = put(&self.target, &path, body).await;
            self.target.wrote(stored.map_err(|error| failure(&error))?.crc32c);
        } else {
            while self.object.gathered.len() > 0 {
                self.cut().await?;
            }
            while !self.object.sending.is_empty() {
                self.reap().await?;
            }
            if let Some(upload) = &self.object.upload {
                self.note_completing(&upload.begun().id)?;
                let parts: Vec<UploadedPart> = self.object.done.values().cloned().collect();
                let stored = complete(upload, &parts).await;
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

    /// Records that an upload, by its id, or a [whole] object is about to be completed. The state that is
    /// saved last may still have it as unfinished.
    fn note_completing(&self, what: &str) -> Result<(), Error> {
        match &self.journal {
            Some(journal) => journal.note(COMPLETING, &what.into()),
            None => Ok(()),
        }
    }

    /// True if a former run was about to complete this.
    fn was_completing(&self, what: &str) -> Result<bool, Error> {
        let Some(journal) = &self.journal else { return Ok(true) };
        let noted = journal.entries(COMPLETING)?;
        Ok(noted.iter().any(|(_, completing)| completing.as_str() == Some(what)))
    }

    /// Finds the number that a former run chose after it had saved its state for the last time. An object of
    /// that number is this sink's.
    fn find_claim(&self, saved: &mut Saved) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let claims = journal.entries(CLAIMED)?;
        let number = claims.first().and_then(|(_, number)| number.as_u64());
        if let Some(number) = number.filter(|number| *number >= saved.number && !saved.is_claimed) {
            (saved.number, saved.is_claimed) = (number, true);
        }
        Ok(())
    }

    /// True if a former run completed its object after it had saved its state for the last time.
    async fn was_completed(&mut self, saved: &Saved) -> Result<bool, Error> {
        let path = self.path(saved.number);
        let size = match self.target.store.stat(&path).await {
            Ok(found) => found.size(),
            Err(StoreError::Absent { .. }) => return Ok(false),
            Err(error) => return Err(failure(&error)),
        };
        match &saved.begun {
            Some(begun) if self.was_completing(&begun.id)? => Ok(true),
            _ => self.was_completing(&whole(&path, size)),
        }
    }

    /// Continues after an upload that the store no longer knows, although the saved state has it.
    async fn continue_after(&mut self, saved: &Saved, begun: &Begun) -> Result<(), Error> {
        if self.rewrites && saved.parts.is_empty() && saved.tail.is_none() {
            // All of its messages come again.
            self.object = Object::new(saved.number);
            self.object.is_claimed = true;
            return Ok(());
        }
        let name = self.target.store.name(&begun.path);
        let expected: u64 = saved.parts.iter().map(|part| part.size).sum();
        let found = match self.target.store.stat(&begun.path).await {
            Ok(found) => Some(found.size()),
            Err(StoreError::Absent { .. }) => None,
            Err(error) => return Err(failure(&error)),
        };
        // With `rotate`, later objects may have been completed since.
        let is_ours = self.rotate.is_some() || self.was_completing(&begun.id)?;
        if !is_ours || found.is_none_or(|size| size < expected) {
            return Err(Error::permanent(format!(
                "the upload of `{name}` that an earlier run began is gone, and with it {expected} bytes that are not read \
                 again: to write them again, use another state folder, with which all input is read from its beginning"
            )));
        }
        tracing::warn!(
            "`{name}` was already complete when the previous run was interrupted: some messages may be written twice"
        );
        self.object = Object::new(saved.number + 1);
        Ok(())
    }

    /// Continues with the object that an earlier run did not finish.
    fn continue_with(&mut self, saved: Saved, upload: Option<Upload>) -> Result<(), Error> {
        saved.parts.iter().for_each(|part| self.target.note(part, true));
        self.object.upload = upload;
        self.object.offset = saved.parts.iter().map(|part| part.size).sum();
        self.object.next = saved.parts.last().map_or(1, |part| part.number + 1);
        self.object.is_new = saved.parts.is_empty() && saved.tail.is_none();
        self.object.done = saved.parts.into_iter().map(|part| (part.number, part)).collect();
        self.object.is_claimed = saved.is_claimed || self.object.upload.is_some();
        if let (Some(name), Some(journal)) = (saved.tail, &self.journal) {
            let bytes = Tails(journal).read(&name)?;
            self.object.gathered.body().push(paid(&self.budget, bytes));
            self.object.tail = Some(Tail { name, part: self.object.next });
        }
        Ok(())
    }

    /// Makes all messages durable without completing the object: the next run continues it.
    async fn leave_unfinished(&mut self, journal: &Journal) -> Result<(), Error> {
        self.catch_up()?;
        while self.object.gathered.len() >= self.smallest() {
            self.cut().await?;
        }
        while !self.object.sending.is_empty() {
            self.reap().await?;
        }
        if self.object.gathered.len() > 0 {
            let number = self.object.number;
            let body = self.object.gathered.body();
            let name = Tails(journal).keep(number, self.object.offset, body)?;
            self.object.tail = Some(Tail { name, part: self.object.next });
        }
        if !self.object.is_new {
            let name = self.target.store.name(&self.path(self.object.number));
            tracing::info!("`{name}` is not complete: the next run with this state continues it");
        }
        Ok(())
    }
}

/// The name of the journal's entry for the upload or object that was completed last.
const COMPLETING: &str = "completing";

/// The name of the journal's entry for the number of the last further object, because the state is saved
/// later.
const CLAIMED: &str = "claimed";

/// Returns what the journal has of an object that is written in one request. The size tells it from another
/// object that was there before, if the request failed.
fn whole(path: &str, size: u64) -> String {
    format!("{path} {size}")
}

#[async_trait]
impl Sink for Messages {
    async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        let saved = saved.and_then(|saved| serde_json::from_value::<Saved>(saved).ok());
        let begun = saved.as_ref().and_then(|saved| saved.begun.clone()).filter(|_| self.resumes);
        self.discard_unsaved(begun.as_ref()).await?;
        if let Some(journal) = &self.journal {
            Tails(journal).forget_others(saved.as_ref().and_then(|saved| saved.tail.as_deref()))?;
        }
        let Some(mut saved) = saved else { return Ok(()) };
        self.find_claim(&mut saved)?;
        self.object = Object::new(saved.number);
        let Some(begun) = &begun else {
            if !self.rewrites && self.was_completed(&saved).await? {
                self.object = Object::new(saved.number + 1);
                return Ok(());
            }
            return self.continue_with(Saved { parts: Vec::new(), ..saved }, None);
        };
        match self.target.store.resume(begun).await.map_err(|error| failure(&error))? {
            Some(upload) => self.continue_with(saved, Some(upload)),
            None => self.continue_after(&saved, begun).await,
        }
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        // Every step that can fail comes before the batch is accepted. After an error, the engine passes the
        // same batch again.
        self.catch_up()?;
        let so_far = self.object.offset + self.object.gathered.len() as u64;
        if self.is_old() || self.rotate.is_some_and(|(size, _)| !self.object.is_new && so_far >= size) {
            self.complete().await?;
        }
        if self.object.is_new {
            // Early, so that the choice is in the saved state before the object is visible.
            self.claim().await?;
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
        match (self.is_old(), self.is_in_the_way()) {
            (true, _) => self.complete().await,
            (false, true) => self.make_way().await,
            (false, false) => Ok(()),
        }
    }

    async fn reopen(&mut self) -> Result<(), Error> {
        match self.rotate.is_some() && !self.object.is_new {
            true => self.complete().await,
            false => self.flush().await,
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        // Without messages, the object is still created as an empty one, unless it is numbered or an earlier
        // run wrote it.
        let is_first = self.rotate.is_none() && self.object.number == 1 && !self.takes_free;
        match self.object.is_new && !is_first {
            true => Ok(()),
            false => self.complete().await,
        }
    }

    async fn suspend(&mut self) -> Result<(), Error> {
        match self.journal.clone().filter(|_| self.resumes && self.rotate.is_none()) {
            Some(journal) => self.leave_unfinished(&journal).await,
            None => self.finish().await,
        }
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.take_committed)
    }

    fn is_due(&self) -> bool {
        self.is_old() || self.is_in_the_way()
    }

    fn state(&self) -> Option<Value> {
        let whole = self.object.whole();
        let saved = Saved {
            number: self.object.number,
            begun: self.object.upload.as_ref().map(|upload| upload.begun().clone()),
            parts: self.object.done.range(..=whole).map(|(_, part)| part.clone()).collect(),
            tail: self.object.tail.as_ref().filter(|tail| tail.part > whole).map(|tail| tail.name.clone()),
            is_claimed: self.object.is_claimed,
        };
        serde_json::to_value(saved).ok()
    }
}
