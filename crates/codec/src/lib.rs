//! Bytes to columns and back.
//!
//! Framing cuts a stream of bytes into messages. Parsers (CSV, JSON, timestamps) put typed Arrow columns over
//! the same bytes. Encoders and templates write columns as bytes. Compression and file name patterns are here
//! too, because readers and writers of every family of components need them.
//!
//! - Cut bytes into messages: [`framing`] (delimiters, messages of several lines), [`stream_framing`] (also
//!   length prefixes and fixed sizes).
//! - Parse text into columns: [`columns`] (the common part), [`csv`], [`json_columns`], [`syslog`],
//!   [`journal`], [`exposition`] (the metrics of Prometheus), [`timestamps`].
//! - Decode messages into columns: [`avro`], [`protobuf`], [`otlp`] (also back).
//! - Write columns as bytes: [`encode`], [`template`], [`values`], [`time_text`], [`json`], [`delimited`].
//! - Choose, read and replace columns of a batch: [`target`], [`keys`], [`names`].
//! - Compress and decompress: [`compress`], [`decompress`].
//! - Decode text: [`charset`].
//! - Hash bytes: [`digest`].
//! - Options whose order matters: [`ordered`].
//! - Names of files: [`part_name`] (numbered parts), [`safe_path`] (paths that messages decide).
//! - Small parsers: [`braces`] (placeholders in a text), [`delimiter`] (splitting), [`pattern`] (file name
//!   patterns).
//!
//! This crate performs no I/O of its own, waits for nothing, and knows neither the engine nor any component.
//! It is a library for any program that has bytes and needs columns, or the reverse.

pub mod avro;
mod block;
pub mod braces;
pub mod charset;
pub mod columns;
pub mod compress;
pub mod csv;
pub mod decompress;
pub mod delimited;
pub mod delimiter;
pub mod digest;
pub mod encode;
pub mod exposition;
pub mod foreign;
pub mod framing;
pub mod journal;
pub mod json;
pub mod json_columns;
pub mod keys;
pub mod names;
pub mod ordered;
pub mod otlp;
pub mod part_name;
pub mod pattern;
pub mod protobuf;
pub mod safe_path;
pub mod stream_framing;
pub mod syslog;
pub mod target;
pub mod template;
pub mod testing;
pub mod time_text;
pub mod timestamps;
pub mod values;

use thalweg_record::PAYLOAD;

/// Returns `payload`, the default of options that name the field to read.
pub fn payload() -> String {
    PAYLOAD.to_owned()
}

/// Returns the reason for rejecting a value that is not UTF-8, with the offset of its first invalid byte.
pub fn not_utf8(value: &[u8]) -> String {
    let valid = std::str::from_utf8(value).err().map_or(value.len(), |error| error.valid_up_to());
    format!("is not UTF-8, at byte {valid}")
}
