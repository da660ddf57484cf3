//! Real servers on loopback, and a proxy that injects faults, for tests and benchmarks.
//!
//! A test of copies between stores is only as good as the servers it runs against. A server written for a
//! test knows only what its author knows. It accepts every signature, its conditions are never raced, and it
//! treats multipart uploads the way the tested client does. The stores here are therefore independent
//! programs, started as any user would start them: [`S3`] is versitygw over a folder, [`Azure`] is azurite,
//! [`WebDav`] is wsgidav, [`Etcd`] is etcd, [`Kafka`] is a broker, [`Nats`] is nats-server, [`Mqtt`] is
//! mosquitto, [`Amqp`] is RabbitMQ, [`Redis`] is redis-server, [`Postgres`] is PostgreSQL. [`WebFiles`] is a
//! folder over plain HTTP, and [`WebRecords`] answers with records, both in this process. A [`Server`] is one
//! of those that can fail on request. Each runs on a free port of loopback while its value lives. Dropping
//! the value stops the process and removes its folder. Keep the value in a test, not in a `static`: statics
//! are never dropped, and the program would keep running.
//!
//! Real servers rarely fail on demand. [`Proxy`] is between a client and any of them, passes bytes unchanged
//! (so that signatures stay valid), and injects faults by rule: a delay, a cut connection, an answer of its
//! own before or after the request takes effect, a low rate, a wrong length, another entity tag, no answer at
//! all. It also records the requests.
//!
//! `make tools` installs the programs; [`Tools`] finds them. A missing program is an error and never a
//! skipped test: what is skipped silently is not tested.
//!
//! Three things must not live here: code that the program itself needs (this crate is for `dev-dependencies`
//! and the benchmark); knowledge of thalweg's own crates (it depends on none of them but the guard
//! [`Patience`], so that any of them can be tested with it); and fake stores.
//!
//! See docs/decisions/052-tests-use-real-servers.md.

mod amqp;
mod ask;
mod azure;
mod background;
mod escape;
mod etcd;
mod kafka;
mod mqtt;
mod nats;
mod outage;
mod postgres;
mod program;
mod proxy;
mod redis;
mod relay;
mod s3;
mod server;
mod tools;
mod web;
mod web_records;
mod webdav;

pub use amqp::{Amqp, AmqpMessage};
pub use async_nats::jetstream::stream::{Config as StreamConfig, DiscardPolicy};
pub use azure::Azure;
pub use etcd::Etcd;
pub use kafka::{Kafka, Secured};
pub use krafka::{ConsumerRecord, Record};
pub use mqtt::{Mqtt, MqttMessage};
pub use nats::{ConsumerState, Nats, NatsMessage};
pub use outage::{Lost, Outage};
pub use postgres::Postgres;
pub use proxy::{Fault, Proxy, Rule, Seen, Times};
pub use redis::{Redis, RedisClient, RedisValue};
pub use s3::S3;
pub use server::Server;
pub use thalweg_patience::Patience;
pub use tools::Tools;
pub use web::WebFiles;
pub use web_records::WebRecords;
pub use webdav::WebDav;
