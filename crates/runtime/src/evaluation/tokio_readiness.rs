//! Descriptors on tokio's threads: its reactor watches them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;

use mio::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::cannot_be_watched;

/// Waits until the descriptor is ready for this operation.
pub(super) async fn ready(descriptor: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
    let interest = match interest.is_readable() {
        true => tokio::io::Interest::READABLE,
        false => tokio::io::Interest::WRITABLE,
    };
    // SAFETY: a borrowed descriptor stays open, and the same, while it is borrowed, which is longer than
    // `watched` lives; it always returns the same number.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    match watched.map_err(io::Error::from) {
        Ok(watched) => watched.ready(interest).await.map(drop),
        Err(error) if cannot_be_watched(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
