//! Acknowledgements: messages that are settled are taken off the server, while the other task of the source
//! reads on.
//!
//! The keeper has a connection of its own, because the reading one waits for messages. It connects again by
//! itself. An acknowledgement of entries may be repeated, so one without a reply is sent again. The removal
//! of an element of a list may not: it would remove another element of the same content, which may be on its
//! way. The list itself then tells whether the element was removed ([`Shared::is_stale`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_broker::keeping::{SETTLE_WAIT, Settling, settle_wait, unless_stopped};
use thalweg_engine::{Error, Settled, SourceOutput};
use thalweg_record::Settlement;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::head;
use super::link::{Link, Replies};
use super::pending::{IDS, Place, Sent, Shared};
use crate::connection::{Connection, Servers, refused};
use crate::id::Id;
use crate::resp::{Commands, Limits, Reply};

/// How often the keeper looks after what is due, and after the end of the source.
const LOOK: Duration = Duration::from_millis(100);
/// How often it asks how far the source is behind.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// The number of batches that are acknowledged at once, and about how many bytes the commands have that
/// remove elements.
const AT_ONCE: usize = 16;
const TOGETHER: usize = 1 << 20;
/// How many entries of other consumers are looked at in a step, and how many ids may wait to be read.
const SCAN: &str = "100";
const WAITING: usize = 1000;

/// News of the task that reads.
pub(super) enum News {
    /// Messages were sent on.
    Sent(Sent, Settled),
    /// Entries are pending that are deleted.
    Gone(Vec<Id>),
    /// The task has failed: it begins again later.
    Failed,
}

/// Ends the input when all has been read, or lets the keeper know that the task has failed.
pub(super) fn end(read: &Result<(), Error>, out: &mut SourceOutput, tell: &mpsc::UnboundedSender<News>) {
    match read {
        // Some messages are settled only when the input has ended.
        Ok(()) => out.end(),
        // The keeper ends after this task.
        Err(_) => drop(tell.send(News::Failed)),
    }
}

/// The acknowledgements of a source, over all its connections.
pub(super) struct Keeper {
    pub(super) shared: Arc<Mutex<Shared>>,
    place: Place,
    retry_delay: Duration,
    /// The messages that the source has not read yet.
    lag: Arc<AtomicU64>,
    /// The batches that are on their way.
    settling: Settling<Sent>,
    /// Those that are settled, and not off the server.
    settled: Vec<Sent>,
    due: Due,
}

/// When something is to be done next.
#[derive(Debug)]
struct Due {
    beat: Instant,
    watch: Instant,
    scan: Instant,
    /// Where the search for entries of dead consumers continues.
    cursor: String,
}

impl Keeper {
    pub(super) fn new(place: Place, retry_delay: Duration, lag: Arc<AtomicU64>) -> Self {
        let now = Instant::now();
        Self {
            shared: Arc::default(),
            place,
            retry_delay,
            lag,
            settling: Settling::default(),
            settled: Vec::new(),
            due: Due { beat: now, watch: now, scan: now, cursor: "0-0".to_owned() },
        }
    }

    /// Notes entries that the checkpoint of an earlier run covers. They are acknowledged, and not sent on
    /// again.
    pub(super) fn know(&mut self, ids: Vec<Id>, partition: Arc<str>) {
        self.shared.lock().open.extend(ids.iter().copied());
        self.settled.push(Sent::Entries { ids, partition: Some(partition) });
    }

    /// Runs `reading`, the task that sends messages on, and acknowledges what is settled meanwhile, until all
    /// is.
    ///
    /// # Errors
    /// The error of `reading`, or of an acknowledgement when all has been read.
    pub(super) async fn beside(
        &mut self,
        reading: impl Future<Output = Result<(), Error>>,
        servers: Servers,
        out: &SourceOutput,
        news: mpsc::UnboundedReceiver<News>,
    ) -> Result<(), Error> {
        tokio::join!(reading, self.keep(servers, out, news)).0?;
        self.shared.lock().failure()
    }

    /// Acknowledges what is settled, until the news have ended and all is acknowledged.
    async fn keep(&mut self, servers: Servers, out: &SourceOutput, news: mpsc::UnboundedReceiver<News>) {
        let mut link = Link::new(servers);
        if let Err(error) = self.attend(&mut link, out, news).await {
            self.shared.lock().failed = Some(error);
        }
        self.lag.store(0, Relaxed);
    }

    async fn attend(
        &mut self,
        link: &mut Link,
        out: &SourceOutput,
        mut news: mpsc::UnboundedReceiver<News>,
    ) -> Result<(), Error> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut has_news, mut moved) = (true, Instant::now());
        loop {
            tokio::select! {
                new = news.recv(), if has_news => match new {
                    Some(News::Sent(sent, settled)) => self.settling.add(sent, settled),
                    Some(News::Gone(ids)) => self.settled.push(Sent::Entries { ids, partition: None }),
                    Some(News::Failed) => return Ok(()),
                    None => (has_news, moved) = (false, Instant::now()),
                },
                Some((sent, settlement)) = self.settling.next() => {
                    moved = Instant::now();
                    self.note(sent, &settlement, out);
                    while let Some((sent, settlement)) = self.settling.next_now() {
                        self.note(sent, &settlement, out);
                    }
                    match unless_stopped(out, self.acknowledge(link, out)).await {
                        Some(acknowledged) => acknowledged?,
                        None => return Ok(()),
                    }
                }
                _ = look.tick() => {
                    match unless_stopped(out, self.do_due(link, out)).await {
                        Some(done) => done?,
                        None => return Ok(()),
                    }
                    if !has_news && self.is_over(out, moved) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Acknowledges what is settled, and does what is due by the clock.
    async fn do_due(&mut self, link: &mut Link, out: &SourceOutput) -> Result<(), Error> {
        self.acknowledge(link, out).await?;
        self.shared.lock().wake();
        self.look_after(link).await
    }

    /// True if the source need not wait any longer.
    fn is_over(&self, out: &SourceOutput, moved: Instant) -> bool {
        // Messages are acknowledged after a checkpoint.
        out.save_soon();
        let wait = settle_wait(out);
        // A later run reads again what the server does not let go now.
        let removed = if self.settling.is_empty() { SETTLE_WAIT[0] } else { wait };
        (self.settling.is_empty() && (self.settled.is_empty() || out.is_dry()))
            || moved.elapsed() >= wait.min(removed)
    }

    /// Notes how a batch was settled.
    fn note(&mut self, sent: Sent, settlement: &Settlement, out: &SourceOutput) {
        if settlement.outcome.is_safe() {
            self.settled.push(sent);
        } else if out.is_dry() {
            // It stays at the server, for the next run.
            self.shared.lock().done(&sent);
        } else {
            self.shared.lock().fail(sent, self.retry_delay);
        }
    }

    /// Takes off the server what is settled, as far as the server takes it.
    async fn acknowledge(&mut self, link: &mut Link, out: &SourceOutput) -> Result<(), Error> {
        // A dry run leaves to the next one what an earlier one did not acknowledge.
        while !self.settled.is_empty()
            && !out.is_dry()
            && !self.shared.lock().is_held
            && let Some(connection) = link.connection().await?
        {
            let mut refusals = Vec::new();
            let mut failed = match self.settled.first() {
                Some(Sent::Head { length }) => {
                    let length = *length;
                    self.remove_head(connection, length, out).await.err()
                }
                _ => self.remove(connection, &mut refusals, out).await.err(),
            };
            for refusal in refusals {
                link.servers.follow(&refusal);
                let error = refused("messages cannot be acknowledged", &refusal);
                if !error.kind().is_temporary() {
                    return Err(error);
                }
                failed = failed.or(Some(error));
            }
            if let Some(error) = failed {
                return link.failed(error);
            }
        }
        Ok(())
    }

    /// Takes some batches off the server that are settled. Adds what the server refuses to `refusals`.
    ///
    /// # Errors
    /// If the connection breaks.
    async fn remove(
        &mut self,
        connection: &mut Connection,
        refusals: &mut Vec<String>,
        out: &SourceOutput,
    ) -> Result<(), Error> {
        let mut commands = Commands::default();
        let removal = |sent: &Sent| {
            let has_room = commands.bytes().len() < TOGETHER && !matches!(sent, Sent::Head { .. });
            has_room.then(|| self.place.removal(sent, &mut commands))
        };
        let counts: Vec<usize> = self.settled.iter().take(AT_ONCE).map_while(removal).collect();
        let rest = self.settled.split_off(counts.len());
        let taken = std::mem::replace(&mut self.settled, rest);
        let mut replies = Replies::new(connection, commands.count());
        let mut failed = replies.send(&commands).await.err();
        for (sent, count) in taken.into_iter().zip(counts) {
            let mut is_refused = false;
            for _ in 0..count {
                match replies.next().await {
                    Ok(Reply::Error(error)) => {
                        is_refused = true;
                        refusals.push(error);
                    }
                    Ok(_) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            match is_refused || failed.is_some() {
                true => self.not_removed(sent),
                false => self.removed(&sent, out),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes the first element of the list of those being processed. No other is on its way. The element
    /// stays settled after an error, because the removal may be repeated.
    async fn remove_head(
        &mut self,
        connection: &mut Connection,
        length: i64,
        out: &SourceOutput,
    ) -> Result<(), Error> {
        let Place::List { processing, .. } = &self.place else { return Ok(()) };
        let is_removed = head::remove(connection, processing, length).await?;
        let sent = self.settled.remove(0);
        match is_removed {
            true => self.removed(&sent, out),
            // The list is read again.
            false => self.not_removed(sent),
        }
        Ok(())
    }

    /// Notes that messages are off the server. A later run need not know them.
    fn removed(&self, sent: &Sent, out: &SourceOutput) {
        self.shared.lock().done(sent);
        if let Sent::Entries { partition: Some(partition), .. } = sent {
            out.forget(partition);
        }
    }

    /// Notes that messages may or may not be off the server.
    fn not_removed(&mut self, sent: Sent) {
        match sent {
            Sent::Entries { .. } => self.settled.push(sent),
            Sent::Elements(_) | Sent::Head { .. } => self.shared.lock().fail(sent, Duration::ZERO),
        }
    }

    /// Does what is due by the clock.
    async fn look_after(&mut self, link: &mut Link) -> Result<(), Error> {
        let now = Instant::now();
        let Some(connection) = link.connection().await? else { return Ok(()) };
        let mut done = Ok(());
        if let Place::Stream { consumer_timeout, .. } = self.place {
            if self.due.beat <= now {
                self.due.beat = now + consumer_timeout / 3;
                done = self.beat(connection).await;
            }
            if done.is_ok() && self.due.scan <= now {
                self.due.scan = now + (consumer_timeout / 2).min(Duration::from_secs(10));
                done = self.scan(connection).await;
            }
        }
        if done.is_ok() && self.due.watch <= now {
            self.due.watch = now + WATCH_EVERY;
            done = self.watch(connection).await;
        }
        done.or_else(|error| link.failed(error))
    }

    /// Says of all entries that are on their way, or are to be read again, that they are still being
    /// processed, so that no other consumer claims them.
    async fn beat(&self, connection: &mut Connection) -> Result<(), Error> {
        let Place::Stream { key, group, consumer, .. } = &self.place else { return Ok(()) };
        let kept: Vec<String> = self.shared.lock().kept().iter().map(ToString::to_string).collect();
        for ids in kept.chunks(IDS) {
            let mut words = vec![&b"XCLAIM"[..], key.as_bytes(), group.as_bytes(), consumer.as_bytes(), b"0"];
            words.extend(ids.iter().map(String::as_bytes));
            words.push(b"JUSTID");
            accepted(connection.call(&words, Limits::SMALL).await?)?;
        }
        Ok(())
    }

    /// Claims entries that another consumer has had for long, and lets them be read.
    async fn scan(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let Place::Stream { key, group, consumer, consumer_timeout } = &self.place else { return Ok(()) };
        let idle = consumer_timeout.as_millis().to_string();
        while self.shared.lock().again.len() < WAITING {
            let words = [
                &b"XAUTOCLAIM"[..],
                key.as_bytes(),
                group.as_bytes(),
                consumer.as_bytes(),
                idle.as_bytes(),
                self.due.cursor.as_bytes(),
                b"COUNT",
                SCAN.as_bytes(),
                b"JUSTID",
            ];
            let reply = accepted(connection.call(&words, Limits::SMALL).await?)?;
            let mut values = reply.list().unwrap_or_default().values.into_iter();
            let cursor = values.next().and_then(|cursor| Id::read(cursor.text()?));
            let ids = values.next().and_then(Reply::list).unwrap_or_default().values;
            let mut shared = self.shared.lock();
            for id in ids.iter().filter_map(|id| Id::read(id.text()?)) {
                if !shared.open.contains(&id) {
                    shared.again.insert(id);
                }
            }
            self.due.cursor = cursor.map_or_else(|| "0-0".to_owned(), |cursor| cursor.to_string());
            if self.due.cursor == "0-0" {
                break;
            }
        }
        Ok(())
    }

    /// Notes how many messages the source has not read yet.
    async fn watch(&self, connection: &mut Connection) -> Result<(), Error> {
        let lag = match &self.place {
            Place::Stream { key, group, .. } => {
                let reply = connection.call(&[b"XINFO", b"GROUPS", key.as_bytes()], Limits::SMALL).await?;
                lag_of(reply, group.as_bytes())
            }
            Place::List { key, .. } => {
                match connection.call(&[b"LLEN", key.as_bytes()], Limits::SMALL).await? {
                    Reply::Number(number) => u64::try_from(number).ok(),
                    _ => None,
                }
            }
        };
        // A server that does not know it, or does not tell it to this user, leaves the last value.
        if let Some(lag) = lag {
            self.lag.store(lag, Relaxed);
        }
        Ok(())
    }
}

/// Returns the lag of a group from the reply of the server about all groups.
fn lag_of(reply: Reply, group: &[u8]) -> Option<u64> {
    for described in reply.list()?.values {
        let values = described.list()?.values;
        let value = |name: &[u8]| {
            let place = values.iter().step_by(2).position(|value| value.text() == Some(name))?;
            values.get(2 * place + 1)
        };
        if value(b"name").and_then(Reply::text) == Some(group) {
            let Some(Reply::Number(lag)) = value(b"lag") else { return None };
            return u64::try_from(*lag).ok();
        }
    }
    None
}

/// Returns a reply that is no error.
fn accepted(reply: Reply) -> Result<Reply, Error> {
    match reply {
        Reply::Error(error) => Err(refused("pending entries cannot be claimed", &error)),
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_that_of_the_group() {
        let text = |text: &str| Reply::Status(text.to_owned());
        let group = |name: &str, lag| {
            Reply::List(crate::resp::List {
                values: vec![text("name"), text(name), text("lag"), lag],
                is_cut: false,
            })
        };
        let groups = |last| {
            let values = vec![group("other", Reply::Number(7)), group("g", last)];
            Reply::List(crate::resp::List { values, is_cut: false })
        };
        assert_eq!(lag_of(groups(Reply::Number(5)), b"g"), Some(5));
        assert_eq!(lag_of(groups(Reply::Null), b"g"), None);
        assert_eq!(lag_of(Reply::Error("ERR no such key".to_owned()), b"g"), None);
    }
}
