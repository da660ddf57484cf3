//! What several components need: a file for each idea.

pub mod delimited;
pub mod io;
pub(crate) mod json;
pub mod template;
pub(crate) mod values;
pub mod decompress;
pub mod framing;
pub mod io;
//! What several components need: a file each, named after the idea.

pub(crate) mod columns;
pub(crate) mod conditions;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod ordered;
pub(crate) mod timestamps;
