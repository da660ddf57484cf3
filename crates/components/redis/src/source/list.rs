//! The elements of a list, each of which is moved to a second list until it is settled.
//!
//! The second list belongs to this consumer alone. After a restart, and whenever the fate of an element is
//! unknown, that list is read from its beginning before any further element is taken: see
//! [`Reader::recover`]. It has then only what is not on its way.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_broker::keeping::unless_stopped;
use thalweg_engine::{Error, Source, SourceOutput};
use tokio::sync::mpsc;

use super::keeper::{self, Keeper, News};
use super::messages::{Incoming, Messages};
use super::pending::{Sent, Shared};
use super::{POLL, RedisSource, has_stalled, opened, pause_unless_waited};
use crate::connection::{Connection, Servers, refused};
use crate::resp::{Commands, Limits, Reply, Text};

/// The most elements that are taken at once.
const ELEMENTS: usize = 1024;
/// The memory of an element beside its text.
const ELEMENT: usize = 256;
/// How many times as much as is read at once may be on its way of the list of those being processed, before
/// some of it is off the server: a quarter of the memory by default.
const AT_ONCE: usize = 8;
/// The size that elements are thought to have before one was read. A reply of many elements that are much
/// larger may exceed what the decoder reads; the source then begins here again, with fewer elements.
const FIRST: usize = 16 << 10;

/// Reads a list.
pub(super) struct Elements {
    pub(super) config: RedisSource,
    pub(super) key: String,
    pub(super) processing: String,
    pub(super) messages: Messages,
    /// The size of the elements that are taken at once.
    pub(super) fetch_bytes: usize,
    /// The number of batches that may be on their way.
    pub(super) most: usize,
    pub(super) servers: Option<Servers>,
    pub(super) keeper: Keeper,
}

#[async_trait]
impl Source for Elements {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let servers = opened(&mut self.servers, &self.config)?;
        let Some(connection) = unless_stopped(out, servers.connect()).await else { return Ok(()) };
        let connection = connection?;
        let (tell, news) = mpsc::unbounded_channel();
        let mut positions = out.clone();
        positions.end();
        let _received = out.claim(self.fetch_bytes * 2);
        let for_keeper = servers.clone();
        // The list may have what an earlier run, or an earlier connection, did not finish.
        self.keeper.shared.lock().is_stale = true;
        let reader = Reader {
            config: &self.config,
            key: self.key.as_bytes(),
            processing: self.processing.as_bytes(),
            messages: &self.messages,
            fetch_bytes: self.fetch_bytes,
            most: self.most,
            shared: self.keeper.shared.clone(),
            servers,
            connection,
            tell,
            average: FIRST,
            is_empty: false,
            length: 0,
        };
        self.keeper.beside(reader.run(out), for_keeper, &positions, news).await
    }
}

/// Whether the list of those being processed has elements that were not sent on.
enum Unfinished {
    None,
    Some,
}

/// Passes on the elements of a list.
struct Reader<'a> {
    config: &'a RedisSource,
    key: &'a [u8],
    processing: &'a [u8],
    messages: &'a Messages,
    fetch_bytes: usize,
    most: usize,
    shared: Arc<Mutex<Shared>>,
    servers: &'a mut Servers,
    connection: Connection,
    tell: mpsc::UnboundedSender<News>,
    /// About how many bytes an element has.
    average: usize,
    /// True if the list was empty when it was last read.
    is_empty: bool,
    /// The number of elements that the list of those being processed had before it was read.
    length: i64,
}

impl Reader<'_> {
    async fn run(mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let read = self.read(out).await;
        keeper::end(&read, out, &self.tell);
        read
    }

    async fn read(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut active = Instant::now();
        while !out.is_stopping() {
            let (batches, is_stale) = {
                let mut shared = self.shared.lock();
                shared.failure()?;
                (shared.batches, shared.is_stale)
            };
            if is_stale {
                if !self.recover(out).await? {
                    break;
                }
                continue;
            }
            if batches >= self.most {
                if has_stalled(self.config, active) {
                    break;
                }
                // Some are settled after a checkpoint.
                out.save_soon();
                tokio::time::sleep(POLL).await;
                continue;
            }
            let Some(elements) = unless_stopped(out, self.next(out.is_dry())).await else { break };
            let elements = elements?;
            if !elements.is_empty() {
                self.pass_on(elements, out).await?;
                active = Instant::now();
            } else if self.is_done(active) {
                break;
            }
        }
        Ok(())
    }

    fn is_done(&self, active: Instant) -> bool {
        let idle = self.config.end_after_idle;
        idle.is_some_and(|idle| active.elapsed() >= idle.duration()) && self.shared.lock().is_idle()
    }

    /// Takes the next elements; none if there are none for now. Then it also looks for elements in the list
    /// of those being processed although none is on its way: the server moved them for a connection that
    /// broke, after [`recover`](Self::recover) had read that list.
    async fn next(&mut self, is_dry: bool) -> Result<Vec<Text>, Error> {
        let elements = self.take().await?;
        let is_quiet = {
            let shared = self.shared.lock();
            shared.batches == 0 && !shared.is_stale
        };
        // The elements that a dry run has sent on stay there.
        if elements.is_empty() && is_quiet && !is_dry && self.unfinished_count().await? > 0 {
            self.shared.lock().is_stale = true;
        }
        Ok(elements)
    }

    /// Returns the number of elements in the list of those being processed; 0 if the server does not tell it
    /// to this user.
    async fn unfinished_count(&mut self) -> Result<i64, Error> {
        let words: [&[u8]; 2] = [b"LLEN", self.processing];
        Ok(match self.connection.call(&words, Limits::SMALL).await? {
            Reply::Number(number) => number,
            _ => 0,
        })
    }

    /// Returns the error of a server as that of the source.
    fn refused(&mut self, error: &str) -> Error {
        self.servers.follow(error);
        refused(&format!("the list `{}` cannot be read", String::from_utf8_lossy(self.key)), error)
    }

    /// Returns the number of elements to ask for.
    fn count(&self) -> usize {
        (self.fetch_bytes / (self.average + ELEMENT)).clamp(1, ELEMENTS)
    }

    /// Moves elements to the list of those being processed, and returns them; none if there are none for now.
    async fn take(&mut self) -> Result<Vec<Text>, Error> {
        let limit = self.messages.limit();
        let (from, wait) = (self.config.take_from.word(), POLL.as_secs_f64().to_string());
        let mut commands = Commands::default();
        if self.is_empty {
            let words: [&[u8]; 6] = [b"BLMOVE", self.key, self.processing, from, b"RIGHT", wait.as_bytes()];
            commands.push(&words);
        } else {
            let words: [&[u8]; 5] = [b"LMOVE", self.key, self.processing, from, b"RIGHT"];
            (0..self.count()).for_each(|_| commands.push(&words));
        }
        // Also if the source fails here, elements were moved.
        let asked = Instant::now();
        self.connection.send(&commands).await?;
        let (mut elements, mut left, mut refusal) = (Vec::new(), self.fetch_bytes * 2, None);
        for _ in 0..commands.count() {
            match self.connection.reply(Limits { text: limit, all: left }).await? {
                Reply::Text(text) => {
                    left = left.saturating_sub(text.kept.len() + ELEMENT);
                    elements.push(text);
                }
                Reply::Error(error) => refusal = Some(error),
                _ => {}
            }
        }
        if let Some(refusal) = refusal {
            return Err(self.refused(&refusal));
        }
        if self.is_empty && elements.is_empty() {
            pause_unless_waited(asked).await;
        }
        self.is_empty = elements.len() < commands.count();
        self.note(&elements);
        Ok(elements)
    }

    /// Notes how large elements are.
    fn note(&mut self, elements: &[Text]) {
        let size = elements.iter().map(|text| text.length).fold(0, usize::saturating_add);
        if let Some(average) = size.checked_div(elements.len()) {
            self.average = average;
        }
    }

    /// Sends elements on, as far as they are whole. Returns how many were. The others are read again, and
    /// those after them.
    async fn pass_on(&mut self, elements: Vec<Text>, out: &mut SourceOutput) -> Result<usize, Error> {
        let (all, limit) = (elements.len(), self.messages.limit());
        let is_plain = |message: &Incoming| message.too_large.is_none();
        let read = elements.into_iter().map_while(|text| Incoming::of_text(text, limit).filter(is_plain));
        let messages: Vec<Incoming> = read.collect();
        if messages.len() < all {
            self.shared.lock().is_stale = true;
        }
        let mut rest = &messages[..];
        while !rest.is_empty() && !out.is_stopping() {
            let count = self.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            self.send(batch, out).await?;
            rest = after;
        }
        Ok(messages.len())
    }

    async fn send(&self, batch: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let received = self.messages.received(batch, out).await?;
        let elements = received.reading.payload.clone();
        let settled = match self.messages.rejected(batch) {
            None => (Sent::Elements(elements), out.send_acked(received).await?),
            Some(reason) => {
                (Sent::Head { length: self.length }, out.reject_acked(received, vec![reason]).await?)
            }
        };
        self.shared.lock().batches += 1;
        // The other task ends after this one.
        let _ = self.tell.send(News::Sent(settled.0, settled.1));
        Ok(())
    }

    /// Waits until nothing is on its way. Returns false if the source is to end before.
    async fn is_quiet(&self, out: &SourceOutput) -> bool {
        let (mut last, mut moved) = (usize::MAX, Instant::now());
        loop {
            let (is_quiet, batches) = {
                let shared = self.shared.lock();
                let is_due = shared.stale_until.is_none_or(|until| until <= Instant::now());
                (shared.failed.is_some() || (shared.batches == 0 && is_due), shared.batches)
            };
            if out.is_stopping() || is_quiet {
                return !out.is_stopping();
            }
            if batches != last {
                (last, moved) = (batches, Instant::now());
            }
            if batches > 0 && has_stalled(self.config, moved) {
                return false;
            }
            // Some are settled after a checkpoint.
            out.save_soon();
            out.sleep(POLL / 10).await;
        }
    }

    /// Sends on what the list of those being processed has, when nothing is on its way: as much as a part of
    /// the memory holds, and the rest when that is off the server. Returns false if the source is to end
    /// before.
    async fn recover(&mut self, out: &mut SourceOutput) -> Result<bool, Error> {
        while self.is_quiet(out).await {
            {
                let mut shared = self.shared.lock();
                shared.failure()?;
                (shared.is_held, shared.is_stale, shared.stale_until) = (true, false, None);
            }
            let read = self.read_unfinished(out).await;
            let mut shared = self.shared.lock();
            shared.is_held = false;
            match read {
                Ok(Unfinished::None) => return Ok(true),
                Ok(Unfinished::Some) => shared.is_stale = true,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads the list of those being processed from its beginning. Nothing of it is on its way.
    async fn read_unfinished(&mut self, out: &mut SourceOutput) -> Result<Unfinished, Error> {
        let limit = self.messages.limit();
        self.length = self.unfinished_count().await?;
        let (mut sent, mut size) = (0, 0_usize);
        while size < self.fetch_bytes * AT_ONCE && !out.is_stopping() {
            let mut elements = self.unfinished(sent, false).await?;
            let is_first = sent == 0;
            match elements.first() {
                None => return Ok(Unfinished::None),
                Some(first) if is_first && !first.is_whole() && first.length <= limit => {
                    elements = self.unfinished(0, true).await?;
                }
                Some(_) => {}
            }
            // An element that is too large is removed by its place, so it is alone.
            if is_first && elements.first().is_some_and(|first| first.length > limit) {
                let first = elements.into_iter().next().and_then(|text| Incoming::of_text(text, limit));
                if let Some(first) = first {
                    self.send(&[first], out).await?;
                }
                return Ok(Unfinished::Some);
            }
            let (all, bytes) = (elements.len(), elements.iter().map(|text| text.kept.len()).sum::<usize>());
            let passed = self.pass_on(elements, out).await?;
            if passed < all {
                return Ok(Unfinished::Some);
            }
            (sent, size) = (sent + passed, size.saturating_add(bytes + passed * ELEMENT));
        }
        Ok(Unfinished::Some)
    }

    /// Reads elements of the list of those being processed, behind `skipped` others: one if it needs all the
    /// room.
    async fn unfinished(&mut self, skipped: usize, is_alone: bool) -> Result<Vec<Text>, Error> {
        let limit = self.messages.limit();
        let (count, all) = match is_alone {
            true => (1, limit.saturating_add(1 << 20)),
            false => (self.count(), self.fetch_bytes * 2),
        };
        let (first, last) = (skipped.to_string(), (skipped + count - 1).to_string());
        let words: [&[u8]; 4] = [b"LRANGE", self.processing, first.as_bytes(), last.as_bytes()];
        let reply = match self.connection.call(&words, Limits { text: limit, all }).await? {
            Reply::Error(error) => return Err(self.refused(&error)),
            reply => reply.list().unwrap_or_default(),
        };
        let elements = reply.values.into_iter().filter_map(|value| match value {
            Reply::Text(text) => Some(text),
            _ => None,
        });
        let elements: Vec<Text> = elements.collect();
        self.note(&elements);
        Ok(elements)
    }
}
