//! The contract of every role of component, tested with the program: see the crate `thalweg-testkit`.
//!
//! `make soak` runs the test that is ignored here.

#![allow(clippy::unwrap_used, missing_docs)]

mod bounds;
mod counting;
mod holes;
mod matrix;
mod memory;
mod power;
mod promises;
mod roles;
mod unfinished;
mod walk;

use std::path::{Path, PathBuf};

const PROGRAM: &str = env!("CARGO_BIN_EXE_thalweg");

/// The folder of the tables: `contract` in cargo's target folder.
fn tables() -> PathBuf {
    Path::new(PROGRAM).ancestors().nth(2).unwrap().join("contract")
}
