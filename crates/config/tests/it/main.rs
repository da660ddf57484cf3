//! Configurations as people write them. All tests are one program, which is linked only once.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
mod documents;
mod options;
mod reading;
mod rubbish;
mod secrets;
mod showing;
mod variables;
mod variants;
mod yaml;
