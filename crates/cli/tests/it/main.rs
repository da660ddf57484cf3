//! The binary, run as a user runs it.
//!
//! One program, since each links anew.

#![allow(clippy::unwrap_used, missing_docs)]

mod common;
mod errors;
mod mistakes;
mod running;
mod telling;
