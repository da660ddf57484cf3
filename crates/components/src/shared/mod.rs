//! What several components need: a file for each idea.

pub(crate) mod columns;
pub(crate) mod conditions;
pub mod decompress;
pub mod delimited;
pub mod framing;
pub(crate) mod input;
pub mod io;
pub(crate) mod json;
pub(crate) mod keys;
pub mod mode;
pub(crate) mod names;
pub(crate) mod ordered;
pub(crate) mod spool;
pub mod tell;
pub mod template;
pub(crate) mod timestamps;
pub(crate) mod values;
