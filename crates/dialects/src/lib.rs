//! Configurations of other programs, read into thalweg's own form.
//!
//! A dialect turns a [`Document`] into another one: the same text, with a tree of nodes that says in our form what the
//! user said in theirs. The engine then reads it like any other, and since each node keeps the place in the user's
//! text that it came from, a mistake found at any later point is shown there. What a dialect cannot express is a
//! mistake of its own, with what to use instead; what means nothing here is a remark. Nothing is left out silently.
//!
//! This crate stands on `thalweg-config` alone: it knows the names of our components and their options as anybody
//! who writes a configuration does, and whether they are right is found out by whoever reads what it made.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod capyfile;
pub mod gollum;
mod made;
mod report;

use thalweg_config::{Comments, Diagnostics, Document};

/// What a configuration of another program is in our form.
#[derive(Debug, Clone)]
pub struct Conversion {
    /// The document: the user's text, and nodes of our form with places in it.
    pub document: Document,
    /// What to say beside the nodes when they are printed.
    pub comments: Comments,
    /// What means nothing here, or is meant otherwise: not wrong, but to be known.
    pub remarks: Diagnostics,
}

/// Reads a document of any dialect that says all by itself; none if it has the form of none of them.
///
/// A service definition of capyfile is none of these: what it means depends on which of its processors is to run, and
/// on its surroundings. See [`capyfile::read`].
///
/// # Errors
/// Every mistake in it, each at its place.
pub fn read(document: &Document) -> Option<Result<Conversion, Diagnostics>> {
    gollum::is_gollum(document).then(|| gollum::read(document))
}
