//! The source and the sink `nats`, and the client that they share.
//!
//! [`wire`] has the protocol, [`connection`] a connection to one of the servers, and [`jetstream`] the
//! requests about streams and consumers; [`options`] are those that both components share. No other component
//! lives here.
//!
//! See docs/decisions/088-nats-by-a-client-of-ours.md.

mod connection;
#[doc(hidden)]
pub mod fuzzing;
mod jetstream;
mod options;
#[cfg(test)]
mod scripted;
mod wire;

thalweg_engine::components! {
    source source::NatsSource;
    sink sink::NatsSink;
}
