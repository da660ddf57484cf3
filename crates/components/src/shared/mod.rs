//! What several components need: a file for each idea.

pub mod decompress;
pub mod framing;
pub mod io;
