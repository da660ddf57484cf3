//! The binary, run as a user runs it.
//!
//! All tests are one program, since each test program would link the dependencies again.

#![allow(clippy::unwrap_used, missing_docs)]

#[cfg(feature = "amqp")]
mod amqp;
mod api;
#[cfg(target_os = "linux")]
mod api_letters;
#[cfg(all(feature = "images", feature = "stores"))]
mod as_capyfile;
mod as_gollum;
mod bad_input;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "mqtt", feature = "nats", feature = "redis"))]
mod brokers;
mod buffer;
mod command_line;
mod common;
#[cfg(feature = "stores")]
mod copy;
#[cfg(feature = "stores")]
mod copy_going_on;
#[cfg(feature = "stores")]
mod copy_stores;
#[cfg(feature = "stores")]
mod copy_streams;
mod dashboard;
mod delivery;
mod dry_run;
mod errors;
mod examples;
mod files;
mod gollum;
#[cfg(all(feature = "redis", feature = "stores"))]
mod gollum_stores;
#[cfg(all(feature = "images", feature = "stores"))]
mod hostile;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_transactions;
#[cfg(feature = "stores")]
mod leftovers;
mod limits;
mod many;
mod mistakes;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nats")]
mod nats;
mod network;
mod one_line;
mod otlp;
mod pipes;
mod planted;
#[cfg(feature = "postgres")]
mod postgres;
mod prometheus;
#[cfg(feature = "redis")]
mod redis;
#[cfg(target_os = "linux")]
mod reload;
mod remarks;
#[cfg(target_os = "linux")]
mod replays;
mod running;
#[cfg(target_os = "linux")]
mod schedule;
mod secrets;
#[cfg(target_os = "linux")]
mod services;
mod serving;
#[cfg(feature = "stores")]
mod sparse;
mod swapped;
mod telling;
mod unpack;
mod upload;
mod upload_answers;
