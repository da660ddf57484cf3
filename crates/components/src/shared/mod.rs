//! What several components need: a file for each idea.

pub mod decompress;
pub mod delimited;
pub mod framing;
pub mod io;
pub(crate) mod json;
pub mod template;
pub(crate) mod values;
