//! What a file is, by its bytes, and what can be done to a picture.
//!
//! - [`mime`] says what type a file has by its first bytes, and whether a type is among those that are allowed.
//! - [`image`] reads the size of a picture from its header, and makes a picture of another format or size of it.
//! - [`metadata`] removes what a picture tells beside its pixels: who took it, where, and with what.
//!
//! What lives here are pure functions from bytes to bytes. They do not open files, know no engine, no configuration and
//! no thread; who calls them decides where bytes come from and how much memory they may take. What may not live
//! here is anything that waits.
//!
//! Bytes come from strangers. So nothing is allocated because a header says so before [`image::probe`] could tell
//! the caller how much that would be; every length that is read is compared with the bytes that are there; and a codec that
//! panics fails its one picture. Damaged input is an error with a reason, never a panic.
//!
//! Codecs are libraries: `zune-jpeg`, `jpeg-encoder`, `png`, `gif`, `tiff`, and libwebp in C, which is compiled with this
//! crate. What is our own are the walks over segments and chunks ([`metadata`] copies what it keeps byte by
//! byte, so it needs where things stand, not what they mean) and the table of signatures. The libraries for the latter
//! were rejected: their names differ from those that others use for the same files, so a table of names would be
//! needed anyway, and with it the signatures are one column more.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod container;
mod exif;
pub mod image;
pub mod metadata;
pub mod mime;
