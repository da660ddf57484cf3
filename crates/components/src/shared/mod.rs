//! What several components need: a file for each idea.

pub(crate) mod columns;
pub(crate) mod conditions;
pub mod decompress;
pub mod delimited;
pub mod framing;
pub mod io;
pub(crate) mod json;
pub(crate) mod keys;
pub mod mode;
pub(crate) mod names;
pub mod net;
pub(crate) mod ordered;
pub mod partition;
pub(crate) mod progress;
pub mod replies;
pub mod template;
pub(crate) mod timestamps;
pub mod tls;
pub(crate) mod values;
