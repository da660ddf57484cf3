//! The messages of one connection: read, and sent on.
//!
//! One task reads and waits for memory and the pipelines, so that messages which find no room stay with the
//! server. A second one acknowledges: [`Acknowledgements`].

use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use thalweg_broker::keeping::{Kept, joined};
use thalweg_engine::{Error, Source, SourceOutput};
use thalweg_stream::unacknowledged;
use tokio::sync::mpsc;

use super::acknowledgements::{Acknowledgements, News, acknowledge};
use super::deliveries::{Arrival, Deliveries};
use super::messages::{Incoming, Messages};
use super::{MqttSource, POLL};
use crate::connection::{Connection, Reader, Session, Writer};
use crate::options::random_client_id;
use crate::wire::{self, AckKind, Packet, Publish, Qos, Remedy, SubAck, Version};

/// The number of the subscription.
const SUBSCRIPTION: u16 = 1;
/// How long the source waits for the word of the server that it has the last acknowledgements.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// The most messages that are sent on together, and that a server may leave without an acknowledgement.
const MOST: usize = 4096;
const MOST_OPEN: usize = u16::MAX as usize;

/// Reads the topics of a server.
pub(super) struct Topics {
    pub(super) config: MqttSource,
    pub(super) messages: Messages,
    /// The size of the messages that are read before they are sent on.
    pub(super) read_bytes: usize,
    /// How many messages the server may send without an acknowledgement.
    pub(super) receive_maximum: u16,
    /// The acknowledgements of all connections.
    pub(super) kept: Acknowledgements,
    /// True if the server has accepted the subscription in the present session.
    pub(super) is_subscribed: bool,
    /// True once nothing more is sent on: what is left is to acknowledge.
    pub(super) has_ended: bool,
}

#[async_trait]
impl Source for Topics {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let had_ended = self.has_ended;
        match self.connected(out).await {
            // A server that is gone would hold up the end of the run for as long as it is.
            Err(error) if had_ended => {
                tracing::warn!(
                    "`{}`: the server sends its last messages again: they could not be acknowledged: {}",
                    out.name(),
                    error.full()
                );
                Ok(())
            }
            ended => ended,
        }
    }
}

impl Topics {
    /// Reads over one connection, and acknowledges.
    async fn connected(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let mut connection = tokio::select! {
            connection = self.connect() => connection?,
            // A server that does not answer takes no acknowledgements either.
            () = out.stopping() => return Ok(()),
        };
        self.kept.deliveries.lock().begin(connection.has_session);
        let has_subscription = connection.has_session && self.is_subscribed;
        let writer = connection.writer.clone();
        // MQTT 3.1.1 would send all retained messages again.
        if !(has_subscription && writer.version == Version::V3) {
            self.is_subscribed = false;
            let mut packet = Vec::new();
            let filters = self.config.topics.iter().map(String::as_str);
            wire::subscribe(writer.version, SUBSCRIPTION, filters, self.config.qos.0, &mut packet);
            writer.write(&packet).await?;
        }
        // Messages that were read, and those before them that are being sent on.
        let _read = out.claim(self.read_bytes * 2);
        let mut positions = out.clone();
        positions.end();
        let (tell, mut news) = mpsc::unbounded_channel();
        let deliveries = self.kept.deliveries.clone();
        let kept = Kept::default();
        let reading = Reading {
            config: &self.config,
            messages: &self.messages,
            read_bytes: self.read_bytes,
            receive_maximum: usize::from(self.receive_maximum),
            is_subscribed: &mut self.is_subscribed,
            has_ended: &mut self.has_ended,
            deliveries: &deliveries,
            writer: &writer,
            kept: &kept,
            tell: Some(tell),
        };
        let ended = {
            let keeping = self.kept.keep(&writer, &positions, &mut news);
            joined(reading.run(&mut connection.reader, out), keeping, &kept).await
        };
        self.kept.take_rest(&mut news);
        ended?;
        connection.close().await;
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let config = &self.config;
        let random = random_client_id();
        let session = Session {
            client_id: config.client_id.as_deref().unwrap_or(&random),
            // Without a name of its own, nothing would ever continue the session.
            is_clean: config.client_id.is_none(),
            expiry: match config.client_id {
                Some(_) => config.session_timeout.duration(),
                None => Duration::ZERO,
            },
            receive_maximum: Some(self.receive_maximum),
            // One byte more shows that a message is too large.
            payload_limit: config.max_message_bytes.as_usize().saturating_add(1),
        };
        Connection::open(&config.servers, &session).await
    }
}

/// Reads the messages of a connection.
struct Reading<'a> {
    config: &'a MqttSource,
    messages: &'a Messages,
    read_bytes: usize,
    receive_maximum: usize,
    is_subscribed: &'a mut bool,
    has_ended: &'a mut bool,
    deliveries: &'a Mutex<Deliveries>,
    writer: &'a Writer,
    kept: &'a Kept,
    /// None once nothing more is sent on.
    tell: Option<mpsc::UnboundedSender<News>>,
}

impl Reading<'_> {
    /// Reads until the source is to end, and all is acknowledged.
    async fn run(mut self, reader: &mut Reader, out: &mut SourceOutput) -> Result<(), Error> {
        if !*self.has_ended {
            let mut incoming = Vec::new();
            let read = self.read(reader, &mut incoming, out).await;
            // Also if the connection broke: with QoS 0, what has arrived does not come again.
            self.send(incoming, out).await?;
            read?;
            // Some messages are settled only when the input has ended.
            out.end();
            *self.has_ended = true;
        }
        self.tell = None;
        self.read_out(reader).await
    }

    /// Reads until all is acknowledged, and the server has said so. Messages that it sends meanwhile are for
    /// the next run. If it were not read, the system would break the connection in place of closing it, and
    /// the server might lose the last acknowledgements.
    async fn read_out(&mut self, reader: &mut Reader) -> Result<(), Error> {
        while !self.kept.has_ended() {
            if let Some(packet) = reader.next(POLL).await? {
                self.take(packet).await?;
            }
        }
        let begun = Instant::now();
        let mut is_due = true;
        let mut asked = 0;
        // Messages that are settled may come again over another connection.
        while begun.elapsed() < LAST_ANSWER {
            if acknowledge(self.deliveries, self.writer).await? || is_due {
                asked = self.writer.ask().await?;
                is_due = false;
            }
            if reader.has_answered(asked) {
                break;
            }
            if let Some(packet) = reader.next(POLL).await? {
                self.take(packet).await?;
            }
        }
        Ok(())
    }

    /// As [`run`](Self::run). Leaves messages in `incoming` that were not sent on.
    async fn read(
        &mut self,
        reader: &mut Reader,
        incoming: &mut Vec<Incoming>,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let (mut active, mut bytes, mut asked) = (Instant::now(), 0, None);
        while !out.is_stopping() {
            if self.kept.has_failed() {
                return Err(Error::temporary("the connection cannot be written to"));
            }
            // Messages that have arrived leave together.
            let wait = if incoming.is_empty() { POLL } else { Duration::ZERO };
            match reader.next(wait).await? {
                Some(Packet::PingResp) => {}
                Some(packet) => {
                    (active, asked) = (Instant::now(), None);
                    let new = self.take(packet).await?;
                    bytes += new.as_ref().map_or(0, Incoming::bytes);
                    incoming.extend(new);
                }
                None if incoming.is_empty() => {
                    match asked {
                        _ if !self.is_idle(active, out) => {}
                        // The answer comes after the messages that the server has now.
                        None => asked = Some(self.writer.ask().await?),
                        Some(number) if reader.has_answered(number) => break,
                        Some(_) => {}
                    }
                }
                None => bytes = usize::MAX,
            }
            if bytes >= self.read_bytes || incoming.len() >= MOST {
                self.send(std::mem::take(incoming), out).await?;
                bytes = 0;
            }
        }
        Ok(())
    }

    /// True if the source is to end, if the server has nothing for it.
    fn is_idle(&self, active: Instant, out: &SourceOutput) -> bool {
        let Some(idle) = self.config.end_after_idle else { return false };
        if !*self.is_subscribed || active.elapsed() < idle.duration() {
            return false;
        }
        let open = self.deliveries.lock().open();
        if open == 0 {
            return true;
        }
        // A server that waits for acknowledgements may have more. Some messages are settled after a
        // checkpoint, and others only when the input has ended.
        out.save_soon();
        // It may leave fewer messages without one than it is allowed. With MQTT 3.1.1, it alone knows how
        // many. Not for ever: the source would wait for settlements, and they for the end of the source.
        let is_full = self.writer.version == Version::V3 || open >= self.receive_maximum;
        let wait = if is_full { unacknowledged::stalled_after(idle) } else { unacknowledged::SHORTEST };
        active.elapsed() >= wait
    }

    /// Takes a packet. Returns a message that is to be sent on.
    async fn take(&mut self, packet: Packet) -> Result<Option<Incoming>, Error> {
        match packet {
            Packet::Publish(message) => return self.arrive(message),
            Packet::PubRel(release) => {
                let reason = self.deliveries.lock().release(release.id);
                let mut answer = Vec::new();
                wire::ack(self.writer.version, AckKind::PubComp, release.id, reason, &mut answer);
                self.writer.write(&answer).await?;
            }
            Packet::SubAck(answer) => self.subscribed(&answer)?,
            // Nothing was sent that these answer, and a second answer to the connection says nothing.
            Packet::PubAck(_) | Packet::PubRec(_) | Packet::PubComp(_) | Packet::ConnAck(_) => {}
            Packet::PingResp | Packet::Disconnect(_) => {}
        }
        Ok(None)
    }

    fn arrive(&self, message: Publish) -> Result<Option<Incoming>, Error> {
        if message.qos == Qos::AtMostOnce {
            return Ok(Some(Incoming { message, key: None }));
        }
        let mut deliveries = self.deliveries.lock();
        if deliveries.open() >= MOST_OPEN {
            return Err(Error::temporary("the server sends more messages than it has numbers for"));
        }
        match deliveries.arrive(&message) {
            Arrival::New(key) => return Ok(Some(Incoming { message, key: Some(key) })),
            Arrival::OnItsWay => {}
            Arrival::Settled => self.tell(News::Due),
        }
        Ok(None)
    }

    /// Takes the answer to the subscription.
    fn subscribed(&mut self, answer: &SubAck) -> Result<(), Error> {
        if answer.reasons().count() != self.config.topics.len() {
            return Err(Error::temporary("the server has not answered for each of the topics"));
        }
        for (filter, reason) in self.config.topics.iter().zip(answer.reasons()) {
            let refused = format!("the server refuses the subscription to `{filter}`");
            match reason.remedy() {
                Remedy::Change => return Err(Error::permanent(refused).caused_by(reason.to_string())),
                Remedy::Retry | Remedy::Wait => {
                    return Err(Error::temporary(refused).caused_by(reason.to_string()));
                }
                Remedy::None if reason.code < self.config.qos.0 as u8 => {
                    return Err(Error::permanent(format!(
                        "the server grants `{filter}` only with `qos: {}`; set it, or use another server",
                        reason.code
                    )));
                }
                Remedy::None => {}
            }
        }
        *self.is_subscribed = true;
        Ok(())
    }

    /// Sends messages on, as many as the source may.
    async fn send(&self, incoming: Vec<Incoming>, out: &mut SourceOutput) -> Result<(), Error> {
        let mut rest = &incoming[..];
        while !rest.is_empty() && out.left() > 0 {
            let count = self.messages.batch(rest, out.batch_bytes()).min(out.next_rows());
            let (batch, after) = rest.split_at(count);
            self.send_batch(batch, out).await?;
            rest = after;
        }
        Ok(())
    }

    async fn send_batch(&self, batch: &[Incoming], out: &mut SourceOutput) -> Result<(), Error> {
        let received = self.messages.received(batch, out).await?;
        let keys: Vec<u64> = batch.iter().filter_map(|incoming| incoming.key).collect();
        let settled = match self.messages.rejected(batch) {
            None => out.send_acked(received).await?,
            Some(reason) => out.reject_acked(received, vec![reason]).await?,
        };
        self.deliveries.lock().send(&keys);
        self.tell(News::Sent(keys, settled));
        Ok(())
    }

    fn tell(&self, news: News) {
        if let Some(tell) = &self.tell {
            // The other task ends after this one.
            let _ = tell.send(news);
        }
    }
}
