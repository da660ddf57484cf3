//! The source and the sink `mqtt`, and the client that they share.
//!
//! [`wire`] has the packets of the protocol, and [`connection`] a connection to a server; [`options`] are
//! those that both components share, [`topic`] the rules of topics and filters. No other component lives
//! here.
//!
//! See docs/decisions/095-mqtt-by-a-client-of-ours.md and 107-brokers-share-a-crate.md.

mod connection;
#[doc(hidden)]
pub mod fuzzing;
mod options;
#[cfg(test)]
mod scripted;
mod topic;
mod wire;

thalweg_engine::components! {
    source source::MqttSource;
    sink sink::MqttSink;
}
