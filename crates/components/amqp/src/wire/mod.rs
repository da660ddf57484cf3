//! The frames of AMQP 0.9.1, as a client reads and writes them.
//!
//! [`frames`] cuts the bytes of a connection into frames, [`method`](mod@method) reads those with a method,
//! [`content`] puts messages together, and [`write`](mod@write) makes the frames of a client. The properties
//! of a message are read from their bytes when they are asked for, so that a message with thousands of
//! headers takes no more memory than its bytes.
//!
//! The specification is AMQP 0-9-1 (2008) with the extensions and the types of fields of RabbitMQ.

mod content;
mod frames;
mod input;
mod method;
mod properties;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use content::{Assembler, Delivery, Event, Returned};
pub(crate) use frames::{Frames, OVERHEAD};
pub(crate) use method::{Close, Confirmation, Method, Queue, Tune};
pub(crate) use properties::{Properties, Property};
pub(crate) use thalweg_broker::input::Malformed;
#[cfg(test)]
pub(crate) use write::method;
pub(crate) use write::{
    Argument, Consume, HEADER, PublishTo, StartOk, ack, body, cancel, channel_close, channel_open, close,
    confirm, consume, exchange_check, flow_ok, header, heartbeat, long_text, nack, open, publish, qos,
    queue_bind, queue_check, queue_declare, short_text, start_ok, table, tune_ok,
};

/// The longest short text of the protocol, in bytes: names, keys and properties.
pub(crate) const LONGEST: usize = 255;
