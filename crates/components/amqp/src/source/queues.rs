//! The queues of a source: declared, bound, consumed, and asked what they have.

use thalweg_engine::Error;

use super::AmqpSource;
use crate::connection::{Connection, Failed, Writer};
use crate::options::arguments;
use crate::wire::{self, Consume, Method, Queue};

/// A reason for which queues could not be prepared, and what was refused.
pub(super) struct Unprepared {
    pub(super) failed: Failed,
    pub(super) message: String,
}

/// Returns the number of messages that each consumer may have without an acknowledgement. A limit for all of
/// them together is nothing that all kinds of queues have.
pub(super) fn prefetch_of_each(config: &AmqpSource, prefetch: usize) -> u16 {
    u16::try_from(prefetch / config.queues.len().max(1)).unwrap_or(u16::MAX).max(1)
}

/// Declares and binds the queues, and sets the limit of messages.
pub(super) async fn prepare(
    config: &AmqpSource,
    prefetch: u16,
    connection: &mut Connection,
) -> Result<(), Unprepared> {
    let mut out = Vec::new();
    for queue in &*config.queues {
        if let Some(declare) = &config.declare {
            let given = arguments(&declare.arguments);
            wire::queue_declare(queue, declare.durable, declare.auto_delete, &given, &mut out);
            let is_answer = |method: &Method| matches!(method, Method::QueueDeclareOk(_));
            let answered = connection.call(&std::mem::take(&mut out), is_answer).await;
            let message = || format!("the queue `{queue}` cannot be declared");
            answered.map_err(|failed| Unprepared { failed, message: message() })?;
        }
        for binding in &config.bindings {
            let given = arguments(&binding.arguments);
            for key in &*binding.routing_key {
                wire::queue_bind(queue, &binding.exchange, key, &given, &mut out);
                let is_answer = |method: &Method| *method == Method::QueueBindOk;
                let answered = connection.call(&std::mem::take(&mut out), is_answer).await;
                let message = || format!("the queue `{queue}` cannot be bound to `{}`", binding.exchange);
                answered.map_err(|failed| Unprepared { failed, message: message() })?;
            }
        }
    }
    wire::qos(prefetch, &mut out);
    let answered = connection.call(&out, |method| *method == Method::QosOk).await;
    let message = "the server refuses the option `prefetch`";
    answered.map_err(|failed| Unprepared { failed, message: message.to_owned() })?;
    Ok(())
}

/// Begins to consume the queues. The tag of each consumer is the place of its queue.
pub(super) async fn consume(config: &AmqpSource, writer: &Writer) -> Result<(), Error> {
    let (given, mut out) = (arguments(&config.consumer_arguments), Vec::new());
    for (place, queue) in config.queues.iter().enumerate() {
        let tag = place.to_string();
        let consume = Consume { queue, tag: &tag, is_exclusive: config.exclusive, arguments: &given };
        wire::consume(consume, &mut out);
    }
    writer.write(&out).await
}

/// Ends the consumers.
pub(super) async fn cancel(config: &AmqpSource, writer: &Writer) -> Result<(), Error> {
    let mut out = Vec::new();
    for place in 0..config.queues.len() {
        wire::cancel(&place.to_string(), &mut out);
    }
    writer.write(&out).await
}

/// A question to the server how many messages the queues have. The last answer comes after all messages that
/// the server had delivered when it answered for the queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// True if a queue has messages, or may get some back from another consumer: maybe one of a run that was
    /// killed a moment ago.
    has_some: bool,
    has_last: bool,
    /// False once a message has come: the answers may be older.
    is_valid: bool,
}

impl Question {
    /// Asks.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(super) async fn ask(config: &AmqpSource, prefetch: u16, writer: &Writer) -> Result<Self, Error> {
        let mut out = Vec::new();
        config.queues.iter().for_each(|queue| wire::queue_check(queue, &mut out));
        // The channel answers it in the order of what it sends. It changes nothing.
        wire::qos(prefetch, &mut out);
        writer.write(&out).await?;
        Ok(Self { has_some: false, has_last: false, is_valid: true })
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, method: &Method) {
        match method {
            Method::QueueDeclareOk(Queue { messages, consumers }) => {
                self.has_some |= *messages > 0 || *consumers > 1;
            }
            Method::QosOk => self.has_last = true,
            _ => {}
        }
    }

    /// Notes that a message has come.
    pub(super) fn spoil(&mut self) {
        self.is_valid = false;
    }

    /// Returns whether the queues have messages, once all has been answered.
    pub(super) fn answer(&self) -> Option<Waiting> {
        self.has_last.then_some(match self.is_valid && !self.has_some {
            true => Waiting::None,
            false => Waiting::Some,
        })
    }
}

/// Whether queues have messages that wait for a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    None,
    Some,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_have_no_messages_if_all_say_so_and_none_has_come_since() {
        let begun = Question { has_some: false, has_last: false, is_valid: true };
        let answer = |queues: &[(u32, u32)], is_spoilt: bool| {
            let mut question = begun;
            for &(messages, consumers) in queues {
                question.answered(&Method::QueueDeclareOk(Queue { messages, consumers }));
            }
            assert_eq!(question.answer(), None);
            if is_spoilt {
                question.spoil();
            }
            question.answered(&Method::QosOk);
            question.answer()
        };
        assert_eq!(answer(&[(0, 1), (0, 1)], false), Some(Waiting::None));
        assert_eq!(answer(&[(0, 1), (2, 1)], false), Some(Waiting::Some));
        assert_eq!(answer(&[(0, 2)], false), Some(Waiting::Some));
        assert_eq!(answer(&[(0, 1)], true), Some(Waiting::Some));
    }
}
