//! Remote files, against a server that makes every mistake that servers make.

#![allow(clippy::unwrap_used)]

mod cache;
mod faults;
mod formats;
mod model;
mod server;
mod stores;
mod together;

use server::Server;
use std::time::Duration;
use thalweg_sparse::{Origin, RemoteFile, RemoteOptions, Retries};

/// Returns the expected content of a file.
fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at ^ at >> 8 ^ at >> 16).wrapping_mul(31) as u8).collect()
}

/// Options with pauses so short that no test waits for them.
fn quick() -> RemoteOptions {
    let retries =
        Retries { first: Duration::from_millis(1), longest: Duration::from_secs(5), ..Retries::default() };
    RemoteOptions { retries, read_ahead: 0, ..RemoteOptions::default() }
}

async fn open(server: &Server, options: RemoteOptions) -> RemoteFile {
    RemoteFile::open(Origin::from_url(&server.url()).unwrap(), options).await.unwrap()
}
