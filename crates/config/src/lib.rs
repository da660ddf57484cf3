//! Configuration documents with positions: what the user wrote, where, and every mistake in it at once.
//!
//! Most configuration readers parse text directly into a struct. They stop at the first value that does not
//! fit, often without a position. A user with three mistakes then needs three runs to find them. This crate
//! works in four steps, and each keeps the positions:
//!
//! 1. [`Document::parse`] turns YAML (or JSON, which is YAML) into a tree of [`Node`]s, each with the
//!    [`Span`] of bytes it was read from. Anchors, aliases and merge keys are resolved, within limits.
//! 2. [`Document::substitute`] replaces variables and secrets in the scalars. Substitution follows parsing,
//!    so a secret that contains a colon cannot become a mapping.
//! 3. [`check`] compares a node with a JSON schema and collects every mistake as a [`Diagnostic`]. The schema
//!    is the one that `schemars` derives from the struct to be filled.
//! 4. [`decode`] checks, then lets `serde` fill the struct if there are no mistakes. A rule that a schema
//!    cannot express, such as a cross-field rule in a `TryFrom`, is reported at the innermost node being
//!    read.
//!
//! A check of a text that a schema cannot express, such as "this is a regular expression", is a *format*. The
//! schema names the format, and [`register_format`] defines it. Its mistakes are shown at their position
//! inside the text. [`ByteSize`], [`TimeSpan`], [`Cron`] and [`Pattern`] are types with such formats.
//!
//! [`write()`] works in the other direction: it writes nodes as YAML with comments. It shows the result of
//! converting another dialect.
//!
//! [`Diagnostics`] presents the mistakes to a person ([`Diagnostics::render`]), in a log (its `Display`) and
//! to a program (its `Serialize`).
//!
//! This crate must not know sources, sinks or engines. It never panics on its input: depth and aliases are
//! bounded, and its tests feed it garbage.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod check;
mod count;
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
mod secrets;
mod shortened;
mod substitute;
mod syntax;
pub mod testing;
pub mod types;
mod write;

pub use check::{AsSchema, check};
pub use count::{count, counted};
pub use decode::{DecodeError, decode};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use document::Document;
pub use format::{FormatError, register_format};
pub use mistake::Mistake;
pub use nearest::nearest;
pub use node::{Key, Node, Span, Value};
pub use shortened::shortened;
pub use types::{ByteRange, ByteSize, Cron, FileMode, List, Pattern, TimeSpan};
pub use write::{Comments, write};
