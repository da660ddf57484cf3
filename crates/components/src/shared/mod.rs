//! What several components need: a file for each idea.

pub(crate) mod json;
pub mod template;
pub(crate) mod values;
pub mod decompress;
pub mod framing;
pub mod io;
