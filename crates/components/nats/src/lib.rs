//! The source and the sink `nats`.
//!
//! [`connection`] opens connections and keeps them; [`options`] are those that both components share. No
//! other component lives here.
//!
//! See docs/decisions/088-nats-by-its-own-client.md.

mod connection;
mod options;

thalweg_engine::components! {
    source source::NatsSource;
    sink sink::NatsSink;
}
