//! Detects the type of a file by its bytes, and converts pictures.
//!
//! - [`mime`] detects the type of a file by its first bytes, and matches types against an allow list.
//! - [`image`] reads the size of a picture from its header, and converts it to another format or size.
//! - [`metadata`] removes what a picture contains beside its pixels: who took it, where, and with what.
//!
//! This crate contains pure functions from bytes to bytes. They do not open files, and know no engine,
//! configuration or threads. The caller decides where bytes come from and how much memory they may use. Code
//! that waits must not live here.
//!
//! The bytes are untrusted. Nothing is allocated because of a header before [`image::probe`] has reported to
//! the caller how much that would be. Every length is compared with the bytes that are present. A codec that
//! panics fails only its own picture. Damaged input is an error with a reason, never a panic.
//!
//! Codecs are libraries: `zune-jpeg`, `jpeg-encoder`, `png`, `gif`, `tiff`, and libwebp in C, which is
//! compiled with this crate. Two parts are our own. The first is the walks over segments and chunks:
//! [`metadata`] copies bytes unchanged, so it needs the positions of the parts, not their meaning. The second
//! is the table of signatures. Libraries for it were rejected: their names differ from those that other
//! programs use for the same files, so a table of names would be needed anyway. The signatures are one more
//! column in it.
//!
//! See docs/decisions/054-file-types-have-our-own-table.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[cfg(feature = "images")]
mod container;
#[cfg(feature = "images")]
mod exif;
#[cfg(feature = "images")]
pub mod image;
#[cfg(feature = "images")]
pub mod metadata;
pub mod mime;
