//! Reads configurations of other programs into thalweg's own form.
//!
//! A dialect turns a [`Document`] into another document: the same text, with a tree of nodes in thalweg's
//! form. The engine reads the result like any other configuration. Each node keeps its position in the user's
//! text, so an error found at any later point is shown there.
//!
//! Settings that a dialect cannot express are mistakes, with a hint what to use instead. Settings that mean
//! nothing here are remarks. No setting is dropped silently.
//!
//! This crate depends on `thalweg-config` alone. It knows the names of components and options only as text,
//! like the author of a configuration. The reader of the converted document checks them.
//!
//! See docs/decisions/026-a-dialect-produces-nodes.md.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod capyfile;
pub mod gollum;
mod made;
mod report;

use thalweg_config::{Comments, Diagnostics, Document};

/// A configuration of another program, converted to thalweg's form.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The user's text, with nodes of thalweg's form that keep their positions in it.
    pub document: Document,
    /// Comments to print beside the nodes.
    pub comments: Comments,
    /// Settings that mean nothing here, or mean something else: not wrong, but the user should know.
    pub remarks: Diagnostics,
}

/// Converts a document of any dialect that needs no further input. Returns `None` if the document belongs to
/// no such dialect.
///
/// A service definition of capyfile is excluded: its meaning depends on which processor runs and on the
/// environment. See [`capyfile::read`].
///
/// # Errors
/// All mistakes in the document, each at its position.
pub fn read(document: &Document) -> Option<Result<Conversion, Diagnostics>> {
    gollum::is_gollum(document).then(|| gollum::read(document))
}
