//! Sparse files: only the bytes you need, in little more memory than they take.
//!
//! A [`SparseFile`] holds those ranges of a file that somebody has fetched, and says which are to be fetched.

mod chunk;
mod clock;
mod counters;
mod directory;
mod error;
mod file;
mod packed;
mod page;
mod pool;
mod presence;
mod shard;
mod span;
mod system;
mod touches;

pub use clock::Clock;
pub use counters::Counters;
pub use error::Error;
pub use file::{Options, Overlap, Pin, SparseFile};
pub use pool::{Account, Pool, PoolStatistics};
pub use span::{Merge, Span};
pub use system::SparseFileSystem;
