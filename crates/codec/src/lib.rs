//! Bytes to columns and back.
//!
//! Framing cuts a stream of bytes into messages. Parsers (CSV, JSON, logfmt, timestamps) put typed Arrow columns over
//! the same bytes; encoders and templates write columns as bytes. Compression and file name patterns are here too,
//! because both readers and writers of every family of components need them.
//!
//! This crate performs no I/O of its own, waits for nothing, and knows neither the engine nor any component: it is a library
//! for whoever has bytes and wants columns, or the reverse.

pub mod block;
pub mod braces;
pub mod columns;
pub mod compress;
pub mod csv;
pub mod decompress;
pub mod delimited;
pub mod delimiter;
pub mod encode;
pub mod framing;
pub mod json;
pub mod json_columns;
pub mod keys;
pub mod names;
pub mod part_name;
pub mod partitioner;
pub mod pattern;
pub mod target;
pub mod template;
pub mod time_text;
pub mod timestamps;
pub mod values;

use thalweg_record::PAYLOAD;

/// The default of an option that names the field to read: the payload.
pub fn payload() -> String {
    PAYLOAD.to_owned()
}

/// Returns why a message that is not UTF-8 is rejected.
pub fn not_utf8(value: &[u8]) -> String {
    let valid = std::str::from_utf8(value).err().map_or(value.len(), |error| error.valid_up_to());
    format!("is not UTF-8, at byte {valid}")
}

pub mod testing;
