//! Configurations as people write them: one program, so that linking it is paid for once.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
mod documents;
mod options;
mod reading;
mod rubbish;
mod showing;
mod variables;
mod variants;
mod yaml;
