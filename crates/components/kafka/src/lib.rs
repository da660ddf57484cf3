//! The source and the sink `kafka`.
//!
//! [`client`] hides the library that speaks the protocol behind traits; [`options`] are those that both
//! components share, and a [`session`] has the transactions of both. Nothing else may use the library.
//!
//! See docs/decisions/084-kafka-is-spoken-in-rust.md.

mod client;
mod options;
mod session;

thalweg_engine::components! {
    source source::KafkaSource;
    sink sink::KafkaSink;
}
