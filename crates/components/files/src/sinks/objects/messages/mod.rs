//! Writes messages into objects, one after the other.
//!
//! Messages are collected until they fill a part, which is sent while the next one is collected. A part ends
//! where a batch ends. A store therefore has a number of whole batches, and a run after an interrupted one
//! resumes with the next batch.
//!
//! An object that is complete is never written again by a run that resumes. Without `rotate`, a run that is
//! asked to stop therefore leaves its object unfinished for the next run, as a killed run does, and messages
//! after a completed object go to a further one, which is numbered. (Rejected: adding to a completed object.
//! Stores cannot, except by copying it first.)
//!
//! See docs/decisions/019-a-checkpoint-covers-output-and-input-together.md and
//! docs/decisions/077-objects-appear-when-a-checkpoint-covers-them.md.

mod claim;
mod resume;
mod saved;

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use arrow_schema::Schema;
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use thalweg_config::ByteSize;
use thalweg_engine::{Context, Error, Journal, Rejects, Sink, WriteOutcome};
use thalweg_record::{Batch, Budget, payload_slices};
use thalweg_store::{Begun, UploadedPart};

pub(super) use self::saved::{OTHER_OPTIONS, OTHER_SINK, Saved, is_finished, unfinished, unusable};
use super::name::Numbers;
use super::object::{Copying, Object, Outcome, Unsent, paid};
use super::parts::{Noted, complete, held, put, send, unfinished as noted_as_begun};
use super::sealed::{Sealed, Seals, Step, close_last};
use super::tail::{Tail, Tails};
use super::{ObjectsSink, Target};
use crate::kept_bytes::KeptBytes;
use crate::stored::failure;
use thalweg_codec::delimited::Delimited;
use thalweg_codec::encode::TableOptions;
use thalweg_stream::encode::EncodeConfig;
use thalweg_stream::table::{Table, too_wide};

/// The bounds of the default number of parts in flight. Within them, it is as many as half of the memory
/// holds. The limit of the store may be lower.
const AT_ONCE: std::ops::RangeInclusive<usize> = 2..=32;
/// The space in bytes beyond the size of a part, because a part ends where a batch ends.
const SLACK: usize = 1 << 20;
/// The least budget. The files that the collected messages came from hold memory until the messages are
/// durable: see [`Group`](crate::group::Group). With less, the next files might not fit beside them.
pub(super) const LEAST: ByteSize = ByteSize(128 << 10);

/// Writes messages into objects.
pub(super) struct Messages {
    pub(super) target: Target,
    encode: EncodeConfig,
    delimited: Delimited,
    /// True if the payloads are encoded for this sink alone.
    is_encoded: bool,
    /// How tables are written, if the objects are tables.
    pub(super) table: Option<TableOptions>,
    /// How objects are numbered.
    numbers: Numbers,
    /// Numbers the objects of all names, if messages decide the names.
    ids: Option<Arc<AtomicU64>>,
    pub(super) budget: Budget,
    /// The size in bytes and the age at which the next object begins.
    pub(super) rotate: Option<(u64, Duration)>,
    /// The maximum number of parts in flight, if configured.
    writers: Option<usize>,
    /// Records uploads that were begun, tails and sealed objects, if checkpoints are kept.
    pub(super) journal: Option<Journal>,
    /// True if a later run may continue the object.
    pub(super) resumes: bool,
    object: Object,
    /// True if all messages that no checkpoint covers come again, so that a later run may write the object of
    /// these messages again.
    pub(super) rewrites: bool,
    /// True if every object is one that did not exist. No state tells which existing ones are this sink's,
    /// and their messages never come again: a replay, or a service without a state.
    takes_free: bool,
    /// True if the first object is one that did not exist: with a state that has nothing of this sink, those
    /// that exist are of a sink of another name or state.
    pub(super) spares_former: bool,
    /// The number of batches that became durable since the engine last asked.
    take_committed: usize,
    /// True if the input has ended.
    is_finished: bool,
    /// The steps that wait for a checkpoint.
    steps: VecDeque<Step>,
}

impl Messages {
    pub(super) fn new(config: &ObjectsSink, numbers: Numbers, mut target: Target, context: &Context) -> Self {
        let rotate = config.rotate.as_ref().map(|rotate| {
            let size = rotate.size.map_or(u64::MAX, |size| size.bytes());
            (size, rotate.every.map_or(Duration::MAX, |every| every.duration()))
        });
        let journal = context.journal.clone().filter(|_| context.resumes);
        target.writing.once = journal.is_none();
        Self {
            encode: config.encode.clone(),
            is_encoded: config.encode.encoder().is_some(),
            delimited: Delimited::new(&config.delimiter),
            table: config.encode.table().cloned(),
            numbers,
            ids: None,
            budget: context.memory.budget().clone(),
            rotate,
            writers: config.writers,
            // A table cannot be resumed. Neither can an object whose parts do not end where batches end.
            resumes: journal.is_some() && config.encode.table().is_none() && !target.limits.equal_parts,
            spares_former: journal.is_some() && config.existing.is_none(),
            journal,
            object: Object::new(1),
            rewrites: context.resends,
            takes_free: context.journal.is_none() && (context.resumes || !context.starts_over),
            take_committed: 0,
            is_finished: false,
            steps: VecDeque::new(),
            target,
        }
    }

    /// Returns a writer of another name, whose first object has this number. `ids` are those of all names.
    pub(super) fn of_name(&self, path: String, number: u64, ids: &Arc<AtomicU64>) -> Self {
        let mut writer = Self {
            target: Target { path, ..self.target.clone() },
            encode: self.encode.clone(),
            delimited: self.delimited.clone(),
            // A batch has messages of many names. Its buffer would be held for the few of this one.
            is_encoded: false,
            table: self.table.clone(),
            numbers: self.numbers,
            ids: Some(ids.clone()),
            budget: self.budget.clone(),
            rotate: self.rotate,
            writers: self.writers,
            journal: self.journal.clone(),
            resumes: self.resumes,
            object: Object::new(number),
            rewrites: self.rewrites,
            takes_free: self.takes_free,
            spares_former: self.spares_former,
            take_committed: 0,
            is_finished: false,
            steps: VecDeque::new(),
        };
        writer.object = writer.next_object(number);
        writer
    }

    /// Returns an object that has no messages yet.
    fn next_object(&self, number: u64) -> Object {
        let id = self.ids.as_ref().map(|ids| ids.fetch_add(1, Relaxed));
        Object { id, ..Object::new(number) }
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
        self.can_make_way() && self.budget.is_short() && self.collected() >= self.budget.limit() / 4
    }

    /// True if some of what is collected can be sent.
    pub(super) fn can_make_way(&self) -> bool {
        let object = &self.object;
        let has_rows = object.table.as_ref().is_some_and(Table::has_rows);
        has_rows || object.gathered.len() >= self.smallest().max(1)
    }

    /// Returns the memory of what is collected, in bytes.
    fn collected(&self) -> usize {
        self.object.gathered.memory() + self.object.table.as_ref().map_or(0, Table::memory)
    }

    /// Returns the memory of the object, in bytes: what is collected, and what is being sent.
    pub(super) fn memory(&self) -> usize {
        let sent: u64 = self.object.done.values().map(|part| part.size).sum();
        let sending = usize::try_from(self.object.offset - sent).unwrap_or(usize::MAX);
        let table = self.object.table.as_ref().map_or(0, Table::metadata);
        self.collected().saturating_add(sending).saturating_add(table)
    }

    /// True if the object has messages.
    pub(super) fn has_messages(&self) -> bool {
        !self.object.is_new
    }

    /// Returns the number of the object.
    pub(super) fn number(&self) -> u64 {
        self.object.number
    }

    /// Takes the steps that wait for a checkpoint.
    pub(super) fn take_steps(&mut self) -> VecDeque<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Waits until the store has the parts in flight.
    pub(super) async fn settle_parts(&mut self) -> Result<(), Error> {
        self.catch_up()?;
        while !self.object.sending.is_empty() {
            self.reap().await?;
        }
        Ok(())
    }

    /// Sends the bytes collected so far.
    pub(super) async fn make_way(&mut self) -> Result<(), Error> {
        self.drain().await?;
        if let Some(table) = &mut self.object.table {
            self.object.undrained = paid(&self.budget, table.end_row_group()?);
            self.drain().await?;
        }
        if self.object.gathered.len() >= self.smallest() { self.cut().await } else { Ok(()) }
    }

    /// Returns the reason if the fields of a batch would make a table with too many columns.
    fn too_wide(&self, batch: &Batch) -> Option<String> {
        let options = self.table.as_ref().filter(|options| options.columns.is_none())?;
        let columns = batch.fields().schema_ref().fields().len();
        match self.object.table {
            Some(_) => None,
            None => too_wide(options, columns, self.budget.limit()),
        }
    }

    /// Adds the fields of a batch to the table of the object.
    async fn write_rows(
        &mut self,
        batch: &Batch,
        options: &TableOptions,
        rejects: &mut Rejects,
    ) -> Result<(), Error> {
        self.drain().await?;
        let table = match &mut self.object.table {
            Some(table) => table,
            None => {
                let table = Table::new(options, batch.fields().schema_ref(), &self.budget)?;
                self.object.table.insert(table)
            }
        };
        self.object.undrained = paid(&self.budget, table.write(batch, rejects)?);
        Ok(())
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
            let noted = self.noted(self.object.number);
            let note = |begun: &Begun| noted.begin(begun, "", 0, None);
            let begun = self.target.store.begin_noted(&path, &self.target.writing, note).await?;
            noted.forget_failed(&self.target.store, &begun)?;
            self.object.upload = Some(begun.map_err(|error| failure(&error))?);
        }
        Ok(())
    }

    /// Returns the journal's record of an object.
    fn noted(&self, number: u64) -> Noted {
        Noted::new(self.journal.clone(), &self.target.store.name(&self.path(number)))
    }

    /// Discards uploads that an earlier run began after it saved its state for the last time, except those
    /// that the state has.
    pub(super) async fn discard_unsaved(&mut self, saved: &[&Begun]) -> Result<(), Error> {
        let Some(journal) = &self.journal else { return Ok(()) };
        for begun in noted_as_begun(journal, &self.target.store.name("")) {
            let begun = begun?;
            if !saved.contains(&&begun) {
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
                    if self.object.tail.is_some_and(|tail| tail.part <= whole) {
                        self.drop_tail();
                    }
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
    pub(super) fn catch_up(&mut self) -> Result<(), Error> {
        for part in std::mem::take(&mut self.object.unsent) {
            self.dispatch(part);
        }
        while let Some(ended) = self.object.sending.try_join_next() {
            self.take(ended)?;
        }
        Ok(())
    }

    /// Completes the object, and starts the next one. If checkpoints are kept, the object is sealed: it
    /// becomes visible when one covers it.
    pub(super) async fn complete(&mut self) -> Result<(), Error> {
        self.catch_up()?;
        self.drain().await?;
        if self.object.is_new
            && !self.object.is_ended
            && let Some(options) = &self.table
        {
            self.object.table = Some(Table::new(options, &Schema::empty(), &self.budget)?);
        }
        if let Some(table) = self.object.table.take() {
            self.object.is_ended = true;
            self.object.undrained = paid(&self.budget, table.finish()?);
            self.drain().await?;
        }
        let has_upload = self.object.upload.is_some();
        match self.journal.clone() {
            Some(journal) => self.seal(&journal).await?,
            None if has_upload => {
                self.send_all().await?;
                self.complete_upload().await?;
            }
            None => {
                let path = self.claim().await?;
                let stored = put(&self.target, &path, self.object.gathered.body().clone()).await;
                self.target.wrote(stored.map_err(|error| failure(&error))?.crc32c);
            }
        }
        self.take_committed += self.object.batches.len();
        self.object = self.next_object(self.object.number + 1);
        Ok(())
    }

    /// Completes an object without messages, except a table whose columns are unknown: no reader accepts a
    /// table without columns.
    async fn complete_empty(&mut self) -> Result<(), Error> {
        if self.table.as_ref().is_some_and(|options| options.columns.is_none()) {
            let name = self.target.store.name(&self.path(self.object.number));
            tracing::warn!(
                "`{name}` is not written: there were no messages, which decide the columns of a table; list them in \
                 `columns` of `encode` for an empty table"
            );
            return Ok(());
        }
        self.complete().await
    }

    /// Sends all bytes, and waits until the store has them.
    async fn send_all(&mut self) -> Result<(), Error> {
        while self.object.gathered.len() > 0 {
            self.cut().await?;
        }
        while !self.object.sending.is_empty() {
            self.reap().await?;
        }
        Ok(())
    }

    async fn complete_upload(&mut self) -> Result<(), Error> {
        let Some(upload) = &self.object.upload else { return Ok(()) };
        let parts: Vec<UploadedPart> = self.object.done.values().cloned().collect();
        let stored = complete(upload, &parts).await;
        self.target.wrote(stored.map_err(|error| failure(&error))?.crc32c);
        Ok(())
    }

    /// Leaves the object to the next checkpoint.
    async fn seal(&mut self, journal: &Journal) -> Result<(), Error> {
        self.send_all().await?;
        let path = match &self.object.upload {
            Some(upload) => {
                upload.sync().await.map_err(|error| failure(&error))?;
                self.present_path()
            }
            None => self.claim().await?,
        };
        let id = self.object.id();
        let parts = self.object.done.values().cloned().collect();
        let begun = self.object.upload.as_ref().map(|upload| upload.begun().clone());
        let named = self.ids.is_some().then(|| (self.target.path.clone(), self.object.number));
        let sealed = Sealed { number: id, path: path.clone(), begun, parts, named };
        Seals { target: &self.target, journal }.seal(&sealed)?;
        self.drop_tail();
        self.steps.push_back(Step::Complete { id, path, upload: self.object.upload.take() });
        close_last(&mut self.steps);
        Ok(())
    }

    /// The tail is of a part that the store has.
    fn drop_tail(&mut self) {
        if let Some(tail) = self.object.tail.take() {
            self.steps.push_back(Step::Forget { id: self.object.id(), part: tail.part });
        }
    }

    /// True if the next message belongs to another object.
    pub(super) fn is_full(&self) -> bool {
        let table = self.object.table.as_ref().map_or(0, Table::unwritten) + self.object.undrained.len();
        let so_far = self.object.offset + (self.object.gathered.len() + table) as u64;
        self.object.is_ended
            || self.is_old()
            || self.rotate.is_some_and(|(size, _)| !self.object.is_new && so_far >= size)
    }

    pub(super) fn is_old(&self) -> bool {
        let every = self.rotate.map(|(_, every)| every);
        !self.object.is_new && every.is_some_and(|every| self.object.since.elapsed() >= every)
    }

    /// Makes all messages durable without completing the object: a later run continues it.
    pub(super) async fn keep(&mut self, journal: &Journal) -> Result<(), Error> {
        self.catch_up()?;
        while !self.object.sending.is_empty() {
            self.reap().await?;
        }
        let (id, part) = (self.object.id(), self.object.next);
        let tail = self.object.tail.filter(|tail| tail.part == part);
        let mut tail = tail.unwrap_or(Tail { part, kept: KeptBytes::default() });
        let kept = usize::try_from(tail.kept.size()).unwrap_or(usize::MAX);
        if kept < self.object.gathered.len() {
            Tails { journal, id }.add(&mut tail, self.object.gathered.after(kept))?;
            self.object.tail = Some(tail);
        }
        if !self.object.is_new && !std::mem::replace(&mut self.object.is_noted, true) {
            Seals { target: &self.target, journal }.begin(id)?;
        }
        self.take_committed += self.object.batches.len();
        self.object.batches.clear();
        Ok(())
    }
}

#[async_trait]
impl Sink for Messages {
    async fn open(&mut self, saved: Option<Value>) -> Result<(), Error> {
        let saved = match saved {
            Some(saved) => Some(serde_json::from_value::<Saved>(saved).map_err(|_| unusable(OTHER_SINK))?),
            None => None,
        };
        if saved.as_ref().is_some_and(|saved| saved.has_messages() && !self.resumes) {
            return Err(unusable(OTHER_OPTIONS));
        }
        if let Some(next) = self.clean_up(saved.as_ref()).await? {
            self.object = Object::new(next);
            return Ok(());
        }
        match saved {
            Some(saved) => self.resume(saved).await,
            None => Ok(()),
        }
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.target.check_present()?;
        // Every step that can fail comes before the batch is accepted. After an error, the engine passes the
        // same batch again.
        self.catch_up()?;
        if self.is_full() {
            self.complete().await?;
        }
        if let Some(why) = self.too_wide(batch) {
            // Nothing of the batch is in an object, and no earlier batch is in an unfinished one.
            (0..batch.rows()).for_each(|row| rejects.reject(row as u32, why.clone()));
            self.take_committed += 1;
            return Ok(WriteOutcome::Staged);
        }
        if self.object.is_new {
            // Early, so that the choice is in the saved state before the object is visible.
            self.claim().await?;
        }
        match self.table.clone() {
            Some(options) => self.write_rows(batch, &options, rejects).await?,
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
        self.target.check_present()?;
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
        self.target.check_present()?;
        // Without messages, the object is still created as an empty one, unless it is numbered or an earlier
        // run wrote it.
        let is_first = !self.is_numbered() && self.object.number == 1 && !self.takes_free;
        if !self.object.is_new {
            self.complete().await?;
        } else if is_first && !self.has_former().await? {
            self.complete_empty().await?;
        }
        self.is_finished = true;
        Ok(())
    }

    async fn suspend(&mut self) -> Result<(), Error> {
        self.target.check_present()?;
        let Some(journal) = self.journal.clone().filter(|_| self.resumes && self.rotate.is_none()) else {
            self.finish().await?;
            self.is_finished = false;
            return Ok(());
        };
        self.keep(&journal).await?;
        if !self.object.is_new {
            let name = self.target.store.name(&self.path(self.object.number));
            tracing::info!("`{name}` is not complete: the next run with this state continues it");
        }
        Ok(())
    }

    async fn pre_commit(&mut self) -> Result<(), Error> {
        self.target.check_present()?;
        self.flush().await?;
        match self.journal.clone().filter(|_| self.resumes) {
            Some(journal) => self.keep(&journal).await,
            None => Ok(()),
        }
    }

    async fn make_durable(&mut self) -> Result<(), Error> {
        self.target.check_present()?;
        // One that can be continued is kept unfinished by `pre_commit`.
        match self.journal.is_some() && !self.resumes && self.has_messages() {
            true => self.complete().await,
            false => Ok(()),
        }
    }

    fn uncommitted(&self) -> usize {
        self.steps.len()
    }

    async fn commit(&mut self, count: usize) -> Result<(), Error> {
        let Some(journal) = self.journal.clone() else { return Ok(()) };
        for _ in 0..count {
            let Some(step) = self.steps.front() else { break };
            Seals { target: &self.target, journal: &journal }.take(step).await?;
            self.steps.pop_front();
        }
        Ok(())
    }

    fn take_committed(&mut self) -> usize {
        std::mem::take(&mut self.take_committed)
    }

    fn is_due(&self) -> bool {
        self.is_old() || self.is_in_the_way()
    }

    fn state(&self) -> Option<Value> {
        serde_json::to_value(self.saved()).ok()
    }
}
