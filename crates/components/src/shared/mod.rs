//! What several components need: an idea a file.

pub mod delimited;
pub mod io;
pub mod template;
