//! `thalweg.svfsc`: the classes of the package `svfsc`, with its names, arguments, results and exceptions, over sparse files.
//!
//! Unlike there, a write that does not agree with what is held is refused wherever the first difference is; one that fails changes
//! nothing; writing nothing makes no block; and ids may have letters beyond ASCII. Sizes in memory are what they are here.

mod arguments;
mod file;
mod held;
mod state;
mod system;
mod times;
mod touches;

pub use file::File;
pub use system::FileSystem;
