//! Sparse files: only the bytes you need, in little more memory than they take.
//!
//! To read the metadata of a large remote file, or one tile of it, a few kilobytes here and there are enough. A
//! [`SparseFile`] holds those that were fetched, says which are still to be fetched for a range ([`SparseFile::need`]),
//! and reads as if the file were there. A [`SparseFileSystem`] is many of them by id; a [`Pool`] puts them under a
//! limit in bytes, under which what was not used for long makes room.
//!
//! What lives here is the structure: which bytes are held, where, and for how long. It knows nothing of networks,
//! disks or pipelines; what fetches stands on it, and needs no more than `need`, `write`, `read` and `pin`. That is here
//! as well, behind the feature `remote`: a `RemoteFile` fetches what is read of a file elsewhere, and a `Cache` keeps it
//! on disk. Each says in its module how it works.
//!
//! # How bytes are kept
//!
//! Positions are divided into chunks of 64 KiB, each in the form that is smallest for what it holds, after the manner of
//! Roaring bitmaps:
//!
//! - **packed**, while data and runs take less than 48 KiB: the data back to back, and for each run a word of 32 bits;
//! - a **page** of 64 KiB with every byte in its place, and beside it a list of runs, or, beyond 2,048 of them, a bit
//!   for each byte;
//! - a page that is **wholly present**, with nothing beside it.
//!
//! So a run costs four bytes, or one bit a byte, whichever is less. Whatever is written where, it moves at most 48 KiB,
//! and nothing depends on how many blocks there are but a hash table of chunks. Blocks are not kept as
//! such: bytes that touch are one block, and where a block ends is seen when it is asked for.
//!
//! Chunks are found through a hash table, divided into 32 behind locks of their own once there is more than one.
//! Readers share a lock. What touches several chunks takes all their locks in a fixed order, so every write is seen
//! whole or not at all, and a write that does not agree with what is held changes nothing.
//!
//! # What was tried, and what was only reckoned
//!
//! Times are CPU time of one call on a 2.45 GHz EPYC, or where that is said on a 2.6 GHz Xeon. svfsc is the C++ library
//! whose place this takes.
//!
//! - *A tree of blocks* is what svfsc is: 112 bytes of heap for a block of one byte, about 150 ns to read it and 380 ns to
//!   write it on the same machine, most of that waiting for memory. Here: 2.3 to 7 bytes, and less than 30 ns for either.
//! - *Binary search* among a chunk's runs, down to one: each step waits for the one before, and reading one of 64 runs
//!   took 40 to 60 ns. Counting the last 64 starts that are not greater, which has nothing to wait for, brought it to 30; the last 16 made no difference.
//!   Of those 64 now the last of each eight is looked at, and then one eight: 28 ns instead of 31 on the Xeon, and when
//!   reads are in no order, 90 instead of 115.
//! - *Pages from the allocator*: of 380 MiB that were let go, mimalloc gave nothing back in 50 ms. Pages are mapped, and
//!   gone at once; what is packed is the allocator's, and goes back when that gives it back.
//! - *The time of each use* costs 9 ns by the coarse clock and 29 by the exact one, so it is noted only when asked for.
//!   An atomic addition costs about 6, so a thread counts its reads where no other thread counts: 22 ns instead of 28 on
//!   the Xeon, for a read of one byte. Each of up to 32 threads that read has such a place in a file; further ones share a
//!   word, in which reads and their bytes are counted at once.
//! - *Two looks at the hash table* for each write, one to compare and one to write, and a general path for all writes:
//!   40 to 50 ns. A write to free bytes that needs no memory now goes through in one piece.
//! - *An offset for each run* beside its start, so that data may lie in the order of arrival, was not built: it is half as
//!   much again for each run, and the data must be collected when blocks go. Keeping the data in the order of position costs
//!   moving what is behind: 290 ns for each 8-byte write of 64 KiB written backwards, its worst case.
//! - *Doubling* what is packed when it is full leaves half of the room unused at worst, which the last chunk of a file
//!   keeps: 1.1 % of a mebibyte in blocks of 256 bytes. While a chunk is written from the front it is now given what it
//!   will take if it goes on as it began, at most the double. Where that is right, nothing is left to trim either.
//! - *Pages from the start* were not built: a byte in 800 would take 900 bytes.
//! - *A lock for each chunk* behind a table with a lock was not built: every read would take two, and all
//!   cores contend for the table's.
//! - *Reading without locks* what others may write is undefined, or needs every byte to be atomic. This crate has no
//!   `unsafe`.

#[cfg(feature = "budget")]
mod budget;
#[cfg(feature = "remote")]
mod cache;
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
mod readers;
#[cfg(feature = "remote")]
mod remote;
mod shard;
mod span;
mod system;
mod touches;

#[cfg(feature = "budget")]
pub use budget::BudgetAccount;
#[cfg(feature = "remote")]
pub use cache::{Cache, CacheEntry, CachedFile};
pub use clock::Clock;
pub use counters::Counters;
pub use error::Error;
pub use file::{Options, Overlap, Pin, SparseFile};
pub use pool::{Account, Pool, PoolStatistics};
#[cfg(feature = "remote")]
pub use remote::{
    Advance, Ending, Observer, OnChange, Purpose, RemoteError, RemoteFile, RemoteOptions, RemoteStatistics,
    Request,
};
pub use span::{Merge, Span};
pub use system::SparseFileSystem;
#[cfg(feature = "remote")]
pub use thalweg_store::{Fingerprint, Origin, Retries, StoreError};
