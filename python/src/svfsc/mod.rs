//! `thalweg.svfsc`: the classes of the package `svfsc`, with its names, arguments, results and exceptions,
//! over sparse files.
//!
//! There are these differences. A write that disagrees with held bytes is rejected wherever the first
//! difference is. A failed write changes nothing. A write of zero bytes creates no block. Ids may have
//! characters beyond ASCII. Sizes in memory are those of this implementation.

mod arguments;
mod file;
mod held;
mod need;
mod state;
mod system;
mod times;
mod touches;

pub use file::{File, quicken};
pub use system::FileSystem;
