//! What several components need: a file for each idea.

pub mod delimited;
pub mod io;
pub(crate) mod json;
pub mod template;
pub(crate) mod values;
