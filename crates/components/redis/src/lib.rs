//! The source and the sink `redis`, for Redis, Valkey and servers that speak as they do.
//!
//! [`resp`] is the protocol, [`connection`] a connection that speaks it, and [`options`] are those that both
//! components share. No other component lives here.
//!
//! See docs/decisions/091-redis-by-a-protocol-of-our-own.md.

mod connection;
mod id;
mod options;
mod resp;

#[doc(hidden)]
pub use resp::decoded;

thalweg_engine::components! {
    source source::RedisSource;
    sink sink::RedisSink;
}
