//! From the messages of the server to those of the engine.

use std::sync::Arc;

use thalweg_config::{ByteSize, List};
use thalweg_engine::{Error, Reading, Received, SourceOutput};
use thalweg_stream::whole::{self, Whole};

use super::fields::Field;
use crate::wire::Delivery;

/// The memory of a message, beside its bytes.
const MESSAGE: usize = 300;

/// A message that was received.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Delivery,
    /// The place of its queue among those of the source.
    pub(super) queue: usize,
}

impl Incoming {
    fn payload(&self) -> &[u8] {
        &self.message.payload
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let Delivery { exchange, routing_key, properties, payload, .. } = &self.message;
        MESSAGE + exchange.len() + routing_key.len() + properties.len() + payload.len()
    }
}

/// Makes batches of messages.
pub(super) struct Messages {
    fields: Vec<(String, Field)>,
    queues: Vec<String>,
    whole: Whole,
    /// The most messages of a batch.
    most: usize,
    /// `meta.path` of the messages.
    path: Arc<str>,
}

impl Messages {
    pub(super) fn new(
        fields: &List<String>,
        queues: &[String],
        max_message_bytes: ByteSize,
        most: usize,
    ) -> Self {
        let fields = fields.iter().filter_map(|name| Some((name.clone(), Field::new(name)?)));
        Self {
            fields: fields.collect(),
            queues: queues.to_vec(),
            whole: Whole::new(max_message_bytes),
            most,
            path: queues.join(", ").into(),
        }
    }

    /// Returns the number of messages that make the next batch of about `bytes` bytes: a message that is
    /// rejected is alone.
    pub(super) fn batch(&self, messages: &[Incoming], bytes: usize) -> usize {
        let accepted = messages.iter().take_while(|incoming| self.reason(incoming).is_none()).count();
        let accepted = messages.get(..accepted.min(self.most)).unwrap_or_default();
        self.whole.batch(accepted.iter().map(Incoming::payload), bytes)
    }

    /// Returns the reason to reject a batch: that of its only message.
    pub(super) fn rejected(&self, messages: &[Incoming]) -> Option<String> {
        self.reason(messages.first()?)
    }

    fn reason(&self, incoming: &Incoming) -> Option<String> {
        self.whole.refused(usize::try_from(incoming.message.length).unwrap_or(usize::MAX))
    }

    /// Waits for memory, and returns a batch of all these messages.
    ///
    /// # Errors
    /// If the fields do not fit together.
    pub(super) async fn received(
        &self,
        messages: &[Incoming],
        out: &SourceOutput,
    ) -> Result<Received, Error> {
        let payloads: Vec<&[u8]> = messages.iter().map(Incoming::payload).collect();
        let columns = self
            .fields
            .iter()
            .map(|(name, field)| (field.described(name), field.column(messages, &self.queues)));
        Ok(Received {
            fields: whole::fields(columns, messages.len())?,
            reading: Reading {
                payload: self.whole.payload(&payloads, out).await,
                path: Some(self.path.clone()),
                positions: None,
                checkpoint: None,
            },
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message of a payload of this length, of which at most eleven bytes are there.
    pub(in crate::source) fn incoming(properties: &[u8], length: usize) -> Incoming {
        let message = Delivery {
            consumer: "0".to_owned(),
            tag: 1,
            is_redelivered: true,
            exchange: "x".to_owned(),
            routing_key: "a.b".to_owned(),
            properties: properties.to_vec(),
            payload: vec![b'x'; length.min(11)],
            length: length as u64,
        };
        Incoming { message, queue: 0 }
    }

    #[test]
    fn a_message_that_is_too_large_is_alone_and_says_its_whole_size() {
        let messages = |most| Messages::new(&List::default(), &["q".to_owned()], "10".parse().unwrap(), most);
        let all = [incoming(&[], 4), incoming(&[], 4), incoming(&[], 5000), incoming(&[], 4)];
        assert_eq!((messages(100).batch(&all, 1000), messages(100).rejected(&all)), (2, None));
        assert_eq!(messages(1).batch(&all, 1000), 1);
        let reason = "the message has 5000 bytes, more than `max_message_bytes` (10)".to_owned();
        let rejected = messages(100).rejected(&all[2..]);
        assert_eq!((messages(100).batch(&all[2..], 1000), rejected), (1, Some(reason)));
    }
}
