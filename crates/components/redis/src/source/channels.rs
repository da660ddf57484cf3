//! Messages of channels, which are delivered at most once.
//!
//! The server sends without being asked. It is read only when there is memory for more: it holds what is not
//! read yet, up to its own limit (`client-output-buffer-limit pubsub`, 32 MiB by default), and cuts the
//! connection of a client that is beyond it. A queue in this process, as the source `nats` has, was rejected:
//! it would be a second one behind that of the server.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use thalweg_broker::keeping::unless_stopped;
use thalweg_engine::{Error, Source, SourceOutput};

use super::messages::{Incoming, Messages};
use super::{POLL, RedisSource};
use crate::connection::{Connection, Servers, refused};
use crate::resp::{Commands, Limits, Reply, Text};

/// How often the source asks a silent server whether it is there.
const PING_EVERY: Duration = Duration::from_secs(10);

/// Reads channels.
pub(super) struct Channels {
    pub(super) config: RedisSource,
    pub(super) messages: Messages,
    /// The size of the messages that are taken at once.
    pub(super) fetch_bytes: usize,
}

#[async_trait]
impl Source for Channels {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut servers = Servers::new(&self.config.servers)?;
        let Some(connection) = unless_stopped(out, servers.connect()).await else { return Ok(()) };
        let mut connection = connection?;
        let _received = out.claim(self.fetch_bytes);
        self.subscribe(&mut connection).await?;
        // The last message, and the last sign of life.
        let (mut active, mut heard, mut asked) = (Instant::now(), Instant::now(), Instant::now());
        while !out.is_stopping() {
            let arrived = tokio::time::timeout(POLL, connection.reply(self.limits())).await;
            let Ok(reply) = arrived else {
                if self.config.end_after_idle.is_some_and(|idle| active.elapsed() >= idle.duration()) {
                    break;
                }
                if heard.elapsed() >= PING_EVERY + self.config.servers.timeout() {
                    return Err(Error::temporary("the server does not answer"));
                }
                if heard.elapsed() >= PING_EVERY && asked.elapsed() >= PING_EVERY {
                    asked = Instant::now();
                    ping(&mut connection).await?;
                }
                continue;
            };
            heard = Instant::now();
            let messages = self.gather(reply?, &mut connection)?;
            if !messages.is_empty() {
                self.pass_on(&messages, out).await?;
                active = Instant::now();
            }
        }
        Ok(())
    }
}

impl Channels {
    fn limits(&self) -> Limits {
        let limit = self.messages.limit();
        Limits { text: limit, all: limit.saturating_add(1 << 20) }
    }

    async fn subscribe(&self, connection: &mut Connection) -> Result<(), Error> {
        let mut commands = Commands::default();
        let mut names = 0;
        for (command, list) in
            [(&b"SUBSCRIBE"[..], &self.config.channels), (&b"PSUBSCRIBE"[..], &self.config.pattern)]
        {
            if !list.is_empty() {
                commands.begin(1 + list.len());
                commands.word(command);
                list.iter().for_each(|name| commands.word(name.as_bytes()));
                names += list.len();
            }
        }
        connection.send(&commands).await?;
        // A message may come between the confirmations, and is lost as if it had come before.
        while names > 0 {
            match connection.reply(self.limits()).await? {
                Reply::Error(error) => return Err(refused("the server refuses a subscription", &error)),
                Reply::List(list) if list.values.first().and_then(Reply::text).is_some_and(is_confirmed) => {
                    names -= 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns a message, and those after it that were read with it.
    fn gather(&self, first: Reply, connection: &mut Connection) -> Result<Vec<Incoming>, Error> {
        let (mut messages, mut size, mut next) = (Vec::new(), 0_usize, Some(first));
        while let Some(reply) = next {
            if let Reply::Error(error) = reply {
                return Err(refused("the server ends the subscriptions", &error));
            }
            let message = self.message(reply);
            size = size.saturating_add(message.as_ref().map_or(0, |message| message.payload.len()));
            messages.extend(message);
            next = match size < self.fetch_bytes {
                true => connection.buffered(self.limits())?,
                false => None,
            };
        }
        Ok(messages)
    }

    /// Returns the message in a reply: `message`, the channel and the payload; or `pmessage`, the pattern,
    /// the channel and the payload.
    fn message(&self, reply: Reply) -> Option<Incoming> {
        let mut values = reply.list()?.values.into_iter();
        let kind = values.next()?;
        let mut name = || Some(String::from_utf8_lossy(values.next()?.text()?).into_owned());
        let (pattern, channel) = match kind.text()? {
            b"message" => (None, name()?),
            b"pmessage" => (Some(name()?), name()?),
            _ => return None,
        };
        let payload = match values.next()? {
            Reply::Text(text) => text,
            _ => Text::default(),
        };
        let message = Incoming::of_text(payload, self.messages.limit())?;
        Some(Incoming { channel: Some(channel), pattern, ..message })
    }

    async fn pass_on(&self, messages: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let mut rest = messages;
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(self.messages.batch(rest, out.batch_bytes()));
            let received = self.messages.received(batch, out).await?;
            match self.messages.rejected(batch) {
                None => out.send(received).await?,
                Some(reason) => out.reject(received, &reason).await?,
            }
            rest = after;
        }
        Ok(())
    }
}

fn is_confirmed(kind: &[u8]) -> bool {
    matches!(kind, b"subscribe" | b"psubscribe")
}

async fn ping(connection: &mut Connection) -> Result<(), Error> {
    let mut commands = Commands::default();
    commands.push(&[b"PING"]);
    connection.send(&commands).await
}
