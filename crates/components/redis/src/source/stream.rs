//! The entries of a stream, by a consumer of a group.
//!
//! An entry comes to the source in three ways: as a new one; as one that this consumer had before it was
//! restarted; or from a consumer that is dead. The server tells the ids of the last two kinds, and a command
//! reads entries by their ids ([`Reader::claim`]). That command also reads what failed, and what had no room
//! in a reply.
//!
//! A checkpoint has the ids of the entries that it covers and that the server may deliver again. A resumed
//! run acknowledges them without sending them on.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_broker::keeping::unless_stopped;
use thalweg_engine::{Checkpoint, Error, Source, SourceOutput};
use tokio::sync::mpsc;

use super::keeper::{self, Keeper, News};
use super::messages::{Incoming, Messages};
use super::pending::{Sent, Shared};
use super::{POLL, RedisSource, has_stalled, opened, pause_unless_waited};
use crate::connection::{Connection, Servers, refused};
use crate::id::Id;
use crate::resp::{Limits, List, Reply};

/// The most entries that are asked for at once.
const ENTRIES: usize = 1024;
/// The memory of an entry beside its texts.
const ENTRY: usize = 512;
/// The size that entries are thought to have before one was read. A reply of many entries that are much
/// larger may exceed what the decoder reads; the source then begins here again, with fewer entries.
const FIRST: usize = 16 << 10;
/// The number of pending entries that are looked up at once.
const PAGE: usize = 1000;
/// The id that stands for all entries that no consumer has had.
const NEW: &[u8] = b">";

/// Reads a stream.
pub(super) struct Stream {
    pub(super) config: RedisSource,
    pub(super) key: String,
    pub(super) group: String,
    pub(super) consumer: String,
    pub(super) messages: Messages,
    /// The size of the entries that are asked for at once.
    pub(super) fetch_bytes: usize,
    /// The number of entries that may be on their way.
    pub(super) most: usize,
    pub(super) servers: Option<Servers>,
    pub(super) keeper: Keeper,
    /// The number of the next partition. None before the first run.
    pub(super) next: Option<u64>,
}

#[async_trait]
impl Source for Stream {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let first = self.next.take().unwrap_or_else(|| self.recall(out));
        let next = self.next.insert(first);
        let servers = opened(&mut self.servers, &self.config)?;
        let Some(connection) = unless_stopped(out, servers.connect()).await else { return Ok(()) };
        let connection = connection?;
        let (tell, news) = mpsc::unbounded_channel();
        let mut positions = out.clone();
        positions.end();
        // Entries of one reply are here, and those of the one before are being sent on.
        let _received = out.claim(self.fetch_bytes * 2);
        let for_keeper = servers.clone();
        let reader = Reader {
            config: &self.config,
            key: self.key.as_bytes(),
            group: self.group.as_bytes(),
            consumer: self.consumer.as_bytes(),
            messages: &self.messages,
            fetch_bytes: self.fetch_bytes,
            most: self.most,
            shared: self.keeper.shared.clone(),
            servers,
            connection,
            tell,
            average: FIRST,
            alone: 0,
            own: Some(Id { milliseconds: 0, number: 0 }),
            next,
        };
        self.keeper.beside(reader.run(out), for_keeper, &positions, news).await
    }
}

impl Stream {
    /// Notes what the checkpoint of an earlier run covers. Returns the number of the first partition of this
    /// run, which is at random: partitions of other runs may be left.
    fn recall(&mut self, out: &SourceOutput) -> u64 {
        let prefix = prefix(self.key.as_bytes(), self.group.as_bytes());
        for partition in out.partitions().into_iter().filter(|partition| partition.starts_with(&prefix)) {
            let saved = out.saved(&partition);
            let texts = saved.as_ref().and_then(Value::as_array).into_iter().flatten();
            let ids = texts.filter_map(|text| text.as_str()?.parse().ok()).collect();
            self.keeper.know(ids, partition);
        }
        fastrand::u64(..)
    }
}

/// Passes on the entries of a stream.
struct Reader<'a> {
    config: &'a RedisSource,
    key: &'a [u8],
    group: &'a [u8],
    consumer: &'a [u8],
    messages: &'a Messages,
    fetch_bytes: usize,
    most: usize,
    shared: Arc<Mutex<Shared>>,
    servers: &'a mut Servers,
    connection: Connection,
    tell: mpsc::UnboundedSender<News>,
    /// About how many bytes an entry has.
    average: usize,
    /// The number of entries that must be read each by itself, because they had no room beside others.
    alone: usize,
    /// The pending entries of this consumer are looked up from this id on. None if all are known.
    own: Option<Id>,
    /// The number of the next partition of the checkpoint.
    next: &'a mut u64,
}

impl Reader<'_> {
    async fn run(mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let read = self.read(out).await;
        keeper::end(&read, out, &self.tell);
        read
    }

    async fn read(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        self.create_group().await?;
        let mut active = Instant::now();
        while !out.is_stopping() {
            let is_full = {
                let mut shared = self.shared.lock();
                shared.failure()?;
                shared.open.len() >= self.most
            };
            if is_full {
                if has_stalled(self.config, active) {
                    break;
                }
                // Some are settled after a checkpoint.
                out.save_soon();
                tokio::time::sleep(POLL).await;
                continue;
            }
            let Some(entries) = unless_stopped(out, self.next()).await else { break };
            match entries? {
                Some(entries) if entries.is_empty() => {}
                Some(entries) => {
                    self.pass_on(&entries, out).await?;
                    active = Instant::now();
                }
                None if self.is_done(active, out).await? => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Creates the group unless it exists. A server whose memory is full creates none, but an existing group
    /// can be read: if there is none, reading says so.
    async fn create_group(&mut self) -> Result<(), Error> {
        let start = self.config.start.id();
        let words: [&[u8]; 6] = [b"XGROUP", b"CREATE", self.key, self.group, start.as_bytes(), b"MKSTREAM"];
        match self.connection.call(&words, Limits::SMALL).await? {
            Reply::Error(error) if error.starts_with("BUSYGROUP") || error.starts_with("OOM") => Ok(()),
            Reply::Error(error) => Err(self.refused(&error)),
            _ => Ok(()),
        }
    }

    /// Returns the error of a server as that of the source, which begins again at another node if the error
    /// names it.
    fn refused(&mut self, error: &str) -> Error {
        self.servers.follow(error);
        refused(&format!("the stream `{}` cannot be read", String::from_utf8_lossy(self.key)), error)
    }

    async fn call(&mut self, words: &[&[u8]], limits: Limits) -> Result<List, Error> {
        match self.connection.call(words, limits).await? {
            Reply::Error(error) => Err(self.refused(&error)),
            reply => reply
                .list()
                .ok_or_else(|| Error::temporary("the answer of the server is not that of a stream")),
        }
    }

    /// Returns the next entries, or none if the stream has none for now.
    async fn next(&mut self) -> Result<Option<Vec<Incoming>>, Error> {
        loop {
            let again: Vec<Id> = self.shared.lock().again.iter().take(self.count()).copied().collect();
            if !again.is_empty() {
                return self.claim(&again).await.map(Some);
            }
            match self.own {
                Some(from) => self.find_own(from).await?,
                None => {
                    let new = self.read_new().await?;
                    return Ok((!new.is_empty()).then_some(new));
                }
            }
        }
    }

    /// Returns the number of entries to ask for.
    fn count(&self) -> usize {
        match self.alone {
            0 => (self.fetch_bytes / (self.average + ENTRY)).clamp(1, ENTRIES),
            _ => 1,
        }
    }

    /// Returns what is kept of a reply.
    fn limits(&self) -> Limits {
        let limit = self.messages.limit();
        match self.alone {
            0 => Limits { text: limit, all: self.fetch_bytes * 2 },
            _ => Limits { text: limit, all: limit.saturating_add(1 << 20) },
        }
    }

    /// Looks up the entries that are pending for this consumer, from one on.
    async fn find_own(&mut self, from: Id) -> Result<(), Error> {
        let (from, page) = (from.to_string(), PAGE.to_string());
        let words: [&[u8]; 7] =
            [b"XPENDING", self.key, self.group, from.as_bytes(), b"+", page.as_bytes(), self.consumer];
        let pending = self.call(&words, Limits::SMALL).await?;
        let is_cut = pending.is_cut;
        let ids = pending.values.into_iter().filter_map(|entry| {
            let values = entry.list()?.values;
            Id::read(values.first()?.text()?)
        });
        let ids: Vec<Id> = ids.collect();
        // The last page is not full.
        self.own = ids.last().and_then(|last| last.successor()).filter(|_| is_cut || ids.len() == PAGE);
        let mut shared = self.shared.lock();
        for id in ids {
            if !shared.open.contains(&id) {
                shared.again.insert(id);
            }
        }
        Ok(())
    }

    /// Reads pending entries by their ids.
    async fn claim(&mut self, ids: &[Id]) -> Result<Vec<Incoming>, Error> {
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let mut words = vec![&b"XCLAIM"[..], self.key, self.group, self.consumer, b"0"];
        words.extend(texts.iter().map(String::as_bytes));
        let is_alone = self.alone > 0;
        let reply = self.call(&words, self.limits()).await?;
        let is_cut = reply.is_cut;
        let mut entries = self.entries(reply, is_alone);
        if let (true, true, [id]) = (is_cut, entries.is_empty(), ids)
            && let Some(message) = self.messages.entry(*id, Vec::new(), true, is_alone)
        {
            entries.push((*id, Read::Message(message)));
        }
        let mut left: Vec<Id> = ids.to_vec();
        left.retain(|id| entries.iter().all(|(known, _)| known != id));
        let without_room = entries.iter().filter(|(_, entry)| matches!(entry, Read::WithoutRoom)).count();
        self.alone = match (is_cut, without_room) {
            (true, _) => without_room + left.len(),
            (false, 0) => self.alone.saturating_sub(1),
            (false, some) => some,
        };
        if !is_cut {
            // An entry that the server does not return is deleted.
            self.gone(left);
        }
        Ok(self.arrived(entries))
    }

    /// Reads entries that no consumer of the group has had.
    async fn read_new(&mut self) -> Result<Vec<Incoming>, Error> {
        let (count, block) = (self.count().to_string(), POLL.as_millis().to_string());
        let words: [&[u8]; 11] = [
            b"XREADGROUP",
            b"GROUP",
            self.group,
            self.consumer,
            b"COUNT",
            count.as_bytes(),
            b"BLOCK",
            block.as_bytes(),
            b"STREAMS",
            self.key,
            NEW,
        ];
        let asked = Instant::now();
        let streams = self.call(&words, self.limits()).await?;
        if streams.values.is_empty() && !streams.is_cut {
            pause_unless_waited(asked).await;
        }
        let mut is_cut = streams.is_cut;
        let mut all = Vec::new();
        for stream in streams.values {
            let Some(mut stream) = stream.list() else { continue };
            is_cut |= stream.is_cut;
            let entries = stream.values.pop().and_then(Reply::list).unwrap_or_default();
            is_cut |= entries.is_cut;
            all.extend(self.entries(entries, false));
        }
        if is_cut || all.iter().any(|(_, entry)| matches!(entry, Read::WithoutRoom)) {
            // Those that had no room are pending for this consumer now.
            self.own = Some(Id { milliseconds: 0, number: 0 });
        }
        Ok(self.arrived(all))
    }

    /// Reads the entries of a reply, and notes how large they are.
    fn entries(&mut self, reply: List, is_alone: bool) -> Vec<(Id, Read)> {
        let mut size = 0_usize;
        let entries = reply.values.into_iter().filter_map(|entry| {
            let mut entry = entry.list()?;
            let is_whole = !entry.is_cut;
            let fields = (entry.values.len() > 1).then(|| entry.values.pop()).flatten();
            let id = Id::read(entry.values.first()?.text()?)?;
            Some((
                id,
                match fields {
                    Some(Reply::List(fields)) => {
                        size = size.saturating_add(bytes_of(&fields));
                        match self.messages.entry(id, fields.values, fields.is_cut, is_alone) {
                            Some(message) => Read::Message(message),
                            None => Read::WithoutRoom,
                        }
                    }
                    _ if is_whole => Read::Deleted,
                    _ => Read::WithoutRoom,
                },
            ))
        });
        let entries: Vec<(Id, Read)> = entries.collect();
        if let Some(average) = size.checked_div(entries.len()) {
            self.average = average;
        }
        entries
    }

    /// Notes that entries arrived. Returns the messages that are not on their way already.
    fn arrived(&mut self, entries: Vec<(Id, Read)>) -> Vec<Incoming> {
        let mut gone = Vec::new();
        let mut messages = Vec::new();
        let mut shared = self.shared.lock();
        for (id, entry) in entries {
            match entry {
                Read::Message(message) => messages.extend(shared.arrive(id).then_some(message)),
                Read::Deleted => gone.push(id),
                Read::WithoutRoom => {}
            }
        }
        drop(shared);
        self.gone(gone);
        messages
    }

    /// Lets the group forget entries that are deleted.
    fn gone(&self, ids: Vec<Id>) {
        if !ids.is_empty() {
            let mut shared = self.shared.lock();
            ids.iter().for_each(|id| {
                shared.again.remove(id);
            });
            drop(shared);
            self.tell(News::Gone(ids));
        }
    }

    async fn pass_on(&mut self, entries: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let mut rest = entries;
        let mut sent = Ok(());
        while !rest.is_empty() && !out.is_stopping() {
            let count = self.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            sent = self.send(batch, out).await;
            if sent.is_err() {
                break;
            }
            rest = after;
        }
        // They stay pending at the server.
        self.shared.lock().give_back(rest.iter().filter_map(|message| message.id));
        sent
    }

    async fn send(&mut self, batch: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let mut received = self.messages.received(batch, out).await?;
        let ids: Vec<Id> = batch.iter().filter_map(|message| message.id).collect();
        let partition: Arc<str> = format!("{}{:016x}", prefix(self.key, self.group), *self.next).into();
        *self.next = self.next.wrapping_add(1);
        let offset = ids.iter().map(ToString::to_string).collect();
        received.reading.checkpoint = Some(Checkpoint { partition: partition.clone(), offset });
        let settled = match self.messages.rejected(batch) {
            None => out.send_acked(received).await?,
            Some(reason) => out.reject_acked(received, vec![reason]).await?,
        };
        self.tell(News::Sent(Sent::Entries { ids, partition: Some(partition) }, settled));
        Ok(())
    }

    /// True if the source is to end: the group has delivered all, and all that is not acknowledged is on its
    /// way here.
    async fn is_done(&mut self, active: Instant, out: &SourceOutput) -> Result<bool, Error> {
        if self.config.end_after_idle.is_none_or(|idle| active.elapsed() < idle.duration()) {
            return Ok(false);
        }
        let (is_idle, open) = {
            let shared = self.shared.lock();
            (shared.is_idle() && self.own.is_none(), shared.open.len())
        };
        // A dry run acknowledges nothing.
        if !is_idle || out.is_dry() {
            return Ok(is_idle);
        }
        let words: [&[u8]; 3] = [b"XPENDING", self.key, self.group];
        let pending = self.call(&words, Limits::SMALL).await?;
        let count = match pending.values.first() {
            Some(Reply::Number(count)) => usize::try_from(*count).unwrap_or_default(),
            _ => 0,
        };
        // The others are those of other consumers. Some on their way are settled only when the input has
        // ended.
        Ok(count <= open)
    }

    fn tell(&self, news: News) {
        // The other task ends after this one.
        let _ = self.tell.send(news);
    }
}

/// Returns the beginning of the names of partitions. Each batch is a partition of its own, because batches
/// are acknowledged in any order.
fn prefix(key: &[u8], group: &[u8]) -> String {
    format!("{}/{}/", String::from_utf8_lossy(key), String::from_utf8_lossy(group))
}

/// An entry as it was read.
enum Read {
    Message(Incoming),
    /// It is deleted, and still pending.
    Deleted,
    /// It is to be read again.
    WithoutRoom,
}

/// Returns the size that texts have at the server.
fn bytes_of(fields: &List) -> usize {
    let sizes = fields.values.iter().map(|value| match value {
        Reply::Text(text) => text.length,
        _ => 0,
    });
    sizes.fold(0, usize::saturating_add)
}
