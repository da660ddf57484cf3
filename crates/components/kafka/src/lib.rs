//! The source and the sink `kafka`.
//!
//! [`client`] hides the library that speaks the protocol behind two traits; [`options`] are those that both
//! components share. Nothing else may use the library.
//!
//! See docs/decisions/084-kafka-is-spoken-in-rust.md.

mod client;
mod options;

thalweg_engine::components! {
    source source::KafkaSource;
    sink sink::KafkaSink;
}
