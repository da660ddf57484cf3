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

/// A question to the server how many messages the queues have, and another one, once that is answered. The
/// channel has got all messages that the queues had delivered when they answered, and sends them before the
/// last answer. It would not do so if both were asked together: the channel takes its messages in the order
/// in which they come, from the client and from the queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// The number of queues that have not answered.
    missing: usize,
    /// True if a queue has messages, or may get some back from another consumer: maybe one of a run that was
    /// killed a moment ago.
    has_some: bool,
    last: Last,
    /// False once a message has come, or if one was about to return to its queue: the answers may be older.
    is_valid: bool,
}

/// The state of the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Unasked,
    Asked,
    Answered,
}

impl Question {
    /// Asks for all queues.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(super) async fn ask(config: &AmqpSource, writer: &Writer) -> Result<Self, Error> {
        let mut out = Vec::new();
        config.queues.iter().for_each(|queue| wire::queue_check(queue, &mut out));
        writer.write(&out).await?;
        Ok(Self::begun(config.queues.len()))
    }

    fn begun(queues: usize) -> Self {
        Self { missing: queues, has_some: false, last: Last::Unasked, is_valid: true }
    }

    /// Asks the last question, if its time has come. It sets a limit that is set already.
    ///
    /// # Errors
    /// If the connection breaks.
    pub(super) async fn go_on(&mut self, prefetch: u16, writer: &Writer) -> Result<(), Error> {
        if self.missing > 0 || self.last != Last::Unasked {
            return Ok(());
        }
        let mut out = Vec::new();
        wire::qos(prefetch, &mut out);
        writer.write(&out).await?;
        self.last = Last::Asked;
        Ok(())
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, method: &Method) {
        match method {
            Method::QueueDeclareOk(Queue { messages, consumers }) => {
                self.missing = self.missing.saturating_sub(1);
                self.has_some |= *messages > 0 || *consumers > 1;
            }
            Method::QosOk if self.last == Last::Asked => self.last = Last::Answered,
            _ => {}
        }
    }

    /// Notes that a message has come, or is about to return to its queue.
    pub(super) fn spoil(&mut self) {
        self.is_valid = false;
    }

    /// Returns whether the queues have messages, once all has been answered.
    pub(super) fn answer(&self) -> Option<Waiting> {
        (self.last == Last::Answered).then_some(match self.is_valid && !self.has_some {
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
        let answer = |queues: &[(u32, u32)], is_spoilt: bool| {
            let mut question = Question::begun(queues.len());
            for &(messages, consumers) in queues {
                question.answered(&Method::QueueDeclareOk(Queue { messages, consumers }));
            }
            // An answer that was not asked for.
            question.answered(&Method::QosOk);
            assert_eq!((question.missing, question.answer()), (0, None));
            question.last = Last::Asked;
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
