//! The readers of the files beside the database, for their fuzz target.

use std::path::Path;

use super::Owner;
use super::faults::Faults;
use super::inventory::{self, Inventory};
use super::owner;
use crate::Error;

/// Reads the files `owner` and `inventory` with these contents in a folder, as opening a store does. The
/// inventory gets a head that fits.
///
/// # Errors
/// If the store would not be opened.
///
/// # Panics
/// If the files cannot be written.
pub fn open_files(folder: &Path, owner: &[u8], contents: &[u8], is_closed: bool) -> Result<(), Error> {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("it is written");
    write(owner::NAME, owner);
    write(inventory::NAME, &[inventory::head(contents, is_closed).as_bytes(), contents].concat());
    let faults = Faults::of(folder);
    owner::check(folder, &Owner::named("/of/another.yaml".to_owned()), &faults)?;
    Inventory::open(folder, &faults).map(drop)
}
