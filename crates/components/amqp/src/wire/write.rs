//! The frames that a client sends. Each function appends one to a buffer, but for those that append an
//! element.
//!
//! Short texts have at most 255 bytes: the options and the sink see to it.

use super::LONGEST;
use super::content::{BASIC, CHANNEL};
use super::frames::Kind;

/// The first bytes of a connection: the protocol and its version.
pub(crate) const HEADER: &[u8; 8] = b"AMQP\x00\x00\x09\x01";
const END: u8 = 0xce;
/// The channel of the connection itself.
const CONNECTION: u16 = 0;

/// The answer to the beginning of a connection.
#[derive(Debug, Clone)]
pub(crate) struct StartOk<'a> {
    pub(crate) mechanism: &'a str,
    /// The user and the password, as the mechanism wants them.
    pub(crate) response: &'a [u8],
    /// The name that the server shows of the client.
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    Bool(bool),
    Number(i64),
    Text(String),
}

/// A consumer of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Consume<'a> {
    pub(crate) queue: &'a str,
    pub(crate) tag: &'a str,
    /// True to be the only consumer.
    pub(crate) is_exclusive: bool,
    /// The bytes of further arguments: see [`table`].
    pub(crate) arguments: &'a [u8],
}

/// The target of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublishTo<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a [u8],
    /// True to get the message back if no queue takes it.
    pub(crate) is_mandatory: bool,
}

/// Appends the answer to the beginning of a connection.
pub(crate) fn start_ok(answer: &StartOk<'_>, out: &mut Vec<u8>) {
    // Extensions of RabbitMQ that the client knows.
    let capabilities = table(
        [
            "authentication_failure_close",
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "publisher_confirms",
        ]
        .map(|name| (name, Argument::Bool(true))),
    );
    let text = |text: &str| Argument::Text(text.to_owned());
    let mut properties = table([
        ("product", text(answer.name)),
        ("version", text(answer.version)),
        ("platform", text("Rust")),
    ]);
    short_text(b"capabilities", &mut properties);
    properties.push(b'F');
    long_text(&capabilities, &mut properties);
    method(CONNECTION, 10, 11, out, |out| {
        long_text(&properties, out);
        short_text(answer.mechanism.as_bytes(), out);
        long_text(answer.response, out);
        short_text(b"en_US", out);
    });
}

/// Appends the limits of the connection: one channel, the size of the largest frame in bytes, and the seconds
/// after which a silent peer is gone.
pub(crate) fn tune_ok(frame_max: u32, heartbeat: u16, out: &mut Vec<u8>) {
    method(CONNECTION, 10, 31, out, |out| {
        out.extend_from_slice(&CHANNEL.to_be_bytes());
        out.extend_from_slice(&frame_max.to_be_bytes());
        out.extend_from_slice(&heartbeat.to_be_bytes());
    });
}

/// Appends the virtual host of the connection.
pub(crate) fn open(virtual_host: &str, out: &mut Vec<u8>) {
    method(CONNECTION, 10, 40, out, |out| {
        short_text(virtual_host.as_bytes(), out);
        out.extend_from_slice(&[0, 0]);
    });
}

/// Appends the end of the connection.
pub(crate) fn close(out: &mut Vec<u8>) {
    method(CONNECTION, 10, 50, out, end);
}

/// Appends the beginning of the channel.
pub(crate) fn channel_open(out: &mut Vec<u8>) {
    method(CHANNEL, 20, 10, out, |out| out.push(0));
}

/// Appends the end of the channel.
pub(crate) fn channel_close(out: &mut Vec<u8>) {
    method(CHANNEL, 20, 40, out, end);
}

/// An end without an error: a code, a text, and the method that is to blame.
fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(&200_u16.to_be_bytes());
    short_text(b"done", out);
    out.extend_from_slice(&[0; 4]);
}

/// Appends the answer to a server that starts or stops the flow of messages.
pub(crate) fn flow_ok(is_active: bool, out: &mut Vec<u8>) {
    method(CHANNEL, 20, 21, out, |out| out.push(u8::from(is_active)));
}

/// Appends the question whether an exchange is there.
pub(crate) fn exchange_check(exchange: &str, out: &mut Vec<u8>) {
    method(CHANNEL, 40, 10, out, |out| {
        out.extend_from_slice(&[0, 0]);
        short_text(exchange.as_bytes(), out);
        short_text(b"direct", out);
        out.push(PASSIVE);
        long_text(&[], out);
    });
}

const PASSIVE: u8 = 1;

/// Appends the question how many messages a queue has.
pub(crate) fn queue_check(queue: &str, out: &mut Vec<u8>) {
    declare(queue, PASSIVE, &[], out);
}

/// Appends the declaration of a queue. `arguments` are the bytes of a [`table`].
pub(crate) fn queue_declare(
    queue: &str,
    is_durable: bool,
    is_auto_delete: bool,
    arguments: &[u8],
    out: &mut Vec<u8>,
) {
    declare(queue, (u8::from(is_durable) << 1) | (u8::from(is_auto_delete) << 3), arguments, out);
}

fn declare(queue: &str, flags: u8, arguments: &[u8], out: &mut Vec<u8>) {
    method(CHANNEL, 50, 10, out, |out| {
        out.extend_from_slice(&[0, 0]);
        short_text(queue.as_bytes(), out);
        out.push(flags);
        long_text(arguments, out);
    });
}

/// Appends the binding of a queue to an exchange.
pub(crate) fn queue_bind(
    queue: &str,
    exchange: &str,
    routing_key: &str,
    arguments: &[u8],
    out: &mut Vec<u8>,
) {
    method(CHANNEL, 50, 20, out, |out| {
        out.extend_from_slice(&[0, 0]);
        for text in [queue, exchange, routing_key] {
            short_text(text.as_bytes(), out);
        }
        out.push(0);
        long_text(arguments, out);
    });
}

/// Appends the number of messages that each consumer may have without an acknowledgement.
pub(crate) fn qos(prefetch: u16, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 10, out, |out| {
        // There is no limit in bytes, which RabbitMQ does not have.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&prefetch.to_be_bytes());
        out.push(0);
    });
}

/// Appends a consumer whose messages are to be acknowledged.
pub(crate) fn consume(consume: Consume<'_>, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 20, out, |out| {
        out.extend_from_slice(&[0, 0]);
        short_text(consume.queue.as_bytes(), out);
        short_text(consume.tag.as_bytes(), out);
        out.push(u8::from(consume.is_exclusive) << 2);
        long_text(consume.arguments, out);
    });
}

/// Appends the end of a consumer.
pub(crate) fn cancel(tag: &str, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 30, out, |out| {
        short_text(tag.as_bytes(), out);
        out.push(0);
    });
}

/// Appends the acknowledgement of a message, or of all up to it.
pub(crate) fn ack(tag: u64, is_multiple: bool, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 80, out, |out| {
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(u8::from(is_multiple));
    });
}

/// Appends the rejection of a message. With `requeue`, the queue delivers it again.
pub(crate) fn nack(tag: u64, requeue: bool, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 120, out, |out| {
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(u8::from(requeue) << 1);
    });
}

/// Appends the wish that the server confirms messages.
pub(crate) fn confirm(out: &mut Vec<u8>) {
    method(CHANNEL, 85, 10, out, |out| out.push(0));
}

/// Appends the beginning of a message. Its [`header`] and its [`body`] follow.
pub(crate) fn publish(target: PublishTo<'_>, out: &mut Vec<u8>) {
    method(CHANNEL, BASIC, 40, out, |out| {
        out.extend_from_slice(&[0, 0]);
        short_text(target.exchange.as_bytes(), out);
        short_text(target.routing_key, out);
        out.push(u8::from(target.is_mandatory));
    });
}

/// Appends the header of a message: the length of its payload, and the bytes of its properties.
pub(crate) fn header(length: usize, properties: &[u8], out: &mut Vec<u8>) {
    frame(Kind::Header as u8, CHANNEL, out, |out| {
        out.extend_from_slice(&BASIC.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&(length as u64).to_be_bytes());
        out.extend_from_slice(properties);
    });
}

/// Appends a part of a payload.
pub(crate) fn body(part: &[u8], out: &mut Vec<u8>) {
    frame(Kind::Body as u8, CHANNEL, out, |out| out.extend_from_slice(part));
}

/// Appends the sign that the client is there.
pub(crate) fn heartbeat(out: &mut Vec<u8>) {
    frame(Kind::Heartbeat as u8, CONNECTION, out, |_| {});
}

/// Returns the bytes of a table of arguments.
pub(crate) fn table<'a>(fields: impl IntoIterator<Item = (&'a str, Argument)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        short_text(name.as_bytes(), &mut out);
        match value {
            Argument::Bool(value) => out.extend_from_slice(&[b't', u8::from(value)]),
            Argument::Number(value) => {
                out.push(b'l');
                out.extend_from_slice(&value.to_be_bytes());
            }
            Argument::Text(text) => {
                out.push(b'S');
                long_text(text.as_bytes(), &mut out);
            }
        }
    }
    out
}

/// Appends a frame with a method.
pub(crate) fn method(
    channel: u16,
    class: u16,
    number: u16,
    out: &mut Vec<u8>,
    arguments: impl FnOnce(&mut Vec<u8>),
) {
    frame(Kind::Method as u8, channel, out, |out| {
        out.extend_from_slice(&class.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        arguments(out);
    });
}

/// Appends a frame. Its length is written once its content is known.
fn frame(kind: u8, channel: u16, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    out.extend_from_slice(&channel.to_be_bytes());
    let place = out.len();
    out.extend_from_slice(&[0; 4]);
    let begin = out.len();
    content(out);
    let length = u32::try_from(out.len() - begin).unwrap_or(u32::MAX);
    if let Some(written) = out.get_mut(place..begin) {
        written.copy_from_slice(&length.to_be_bytes());
    }
    out.push(END);
}

/// Appends a text after its length, which is one byte.
pub(crate) fn short_text(text: &[u8], out: &mut Vec<u8>) {
    let text = text.get(..text.len().min(LONGEST)).unwrap_or_default();
    out.push(text.len() as u8);
    out.extend_from_slice(text);
}

/// Appends bytes after their length, which has four bytes.
pub(crate) fn long_text(text: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text);
}
