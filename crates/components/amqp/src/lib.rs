//! The source and the sink `amqp`, and the client that they share.
//!
//! [`wire`] has the frames and methods of the protocol, and [`connection`] a connection to a server with one
//! channel; [`options`] are those that both components share. No other component lives here.
//!
//! See docs/decisions/103-amqp-by-a-client-of-ours.md and 107-brokers-share-a-crate.md.

mod connection;
#[doc(hidden)]
pub mod fuzzing;
mod options;
#[cfg(test)]
mod scripted;
mod wire;

thalweg_engine::components! {
    source source::AmqpSource;
    sink sink::AmqpSink;
}
