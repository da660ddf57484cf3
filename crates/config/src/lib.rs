//! Configuration documents with places: what a user wrote, where they wrote it, and what was wrong
//! with it, all of it at once.
//!
//! Most readers of configuration go straight from text to a struct, and stop at the first thing
//! that does not fit, often without being able to say where it stands. A person who has made three
//! mistakes then learns of them in three runs. Here it goes in steps, and each keeps the places:
//!
//! 1. [`Document::parse`] turns YAML (or JSON, which is YAML) into a tree of [`Node`]s, each with the
//!    [`Span`] of bytes it was read from. Anchors, aliases and merge keys are resolved, within bounds.
//! 2. [`Document::substitute`] puts variables and secrets into the scalars. It happens after parsing,
//!    so that a secret with a colon in it cannot become a mapping.
//! 3. [`check`] holds a node against a JSON schema, the one `schemars` derives from the very struct
//!    that will be filled, and collects every mistake as a [`Diagnostic`].
//! 4. [`decode`] checks, and if nothing was wrong lets `serde` fill the struct. What a schema cannot
//!    say (a cross-field rule in a `TryFrom`) is still reported, at the innermost node that was being read.
//!
//! A check of a text that a schema cannot express, such as "this is a regular expression", is a *format*:
//! the schema names it, [`register_format`] tells what it means, and its mistakes are shown inside the
//! text where they are. [`ByteSize`], [`TimeSpan`] and [`Pattern`] are values with such formats.
//!
//! [`write()`] goes the other way, from nodes to YAML with comments: what another dialect was read into can be shown.
//!
//! [`Diagnostics`] shows it all: to a person ([`Diagnostics::render`]), in a log (its `Display`), to a
//! program (its `Serialize`).
//!
//! This crate knows nothing of sources, sinks or engines, and must not. It never panics on what it reads:
//! depth is bounded, aliases are bounded, and its tests feed it rubbish.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod check;
mod decode;
mod diagnostic;
mod document;
mod format;
mod mistake;
mod nearest;
mod node;
mod place;
mod render;
mod scalar;
mod substitute;
mod syntax;
pub mod testing;
pub mod types;
mod write;

pub use check::{AsSchema, check};
pub use decode::{DecodeError, decode};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use document::Document;
pub use format::{FormatError, register_format};
pub use mistake::Mistake;
pub use nearest::nearest;
pub use node::{Key, Node, Span, Value};
pub use types::{ByteRange, ByteSize, FileMode, Pattern, TimeSpan};
pub use write::{Comments, write};
