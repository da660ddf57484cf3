//! What several components need: a file for each idea.

pub(crate) mod base64;
pub(crate) mod block;
pub(crate) mod columns;
pub(crate) mod conditions;
pub mod decompress;
pub mod delimited;
pub(crate) mod delimiter;
pub(crate) mod expansion;
pub mod framing;
pub(crate) mod input;
pub mod io;
pub(crate) mod json;
pub(crate) mod json_columns;
pub(crate) mod keys;
<<<<<<< HEAD
pub(crate) mod labels;
=======
>>>>>>> network
pub mod mode;
pub(crate) mod names;
pub mod net;
pub(crate) mod ordered;
<<<<<<< HEAD
pub(crate) mod spool;
pub(crate) mod target;
pub mod tell;
=======
pub mod partition;
pub(crate) mod progress;
pub mod replies;
>>>>>>> network
pub mod template;
pub(crate) mod time_text;
pub(crate) mod timestamps;
pub mod tls;
pub(crate) mod values;
