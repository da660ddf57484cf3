//! Sparse files: only the bytes you need, in little more memory than those bytes.
//!
//! To read the metadata of a large remote file, or one tile of it, a few kilobytes in several places are
//! enough. A [`SparseFile`] holds the bytes that were fetched. It lists the ranges that are still missing
//! ([`SparseFile::need`]), and reads as if the whole file were present. A [`SparseFileSystem`] holds many
//! sparse files by id. A [`Pool`] limits their memory in bytes: it evicts the ranges that were not used for
//! longest.
//!
//! This crate is the data structure: which bytes are held, where, and for how long. It knows nothing of
//! networks, disks or pipelines. Code that fetches builds on it, and needs only `need`, `write`, `read` and
//! `pin`. The feature `remote` adds such code: a `RemoteFile` fetches the ranges that its callers read, and a
//! `Cache` keeps them on disk. Each module describes how it works.
//!
//! # How bytes are stored
//!
//! Positions are divided into chunks of 64 KiB. As in Roaring bitmaps, each chunk has the form that is
//! smallest for its content:
//!
//! - **packed**, while data and runs need less than 60 KiB: the data back to back, and a word of 32 bits for
//!   each run. From 32 KiB on, a chunk also becomes a page once writes between its runs have moved 64 KiB;
//! - a **page** of 64 KiB with every byte in its place, with a list of runs, or, beyond 2,048 runs, one bit
//!   for each byte;
//! - a page that is **wholly present**, without a list or bits.
//!
//! A run therefore costs four bytes, or one bit per byte, whichever is less. A write moves at most 60 KiB, at
//! any position. Nothing but a hash table of chunks depends on the number of blocks. Blocks are not stored:
//! adjacent bytes are one block, and its end is computed on request.
//!
//! Chunks are found through a hash table. As soon as there is more than one chunk, the table is divided into
//! 32 shards, each behind its own lock. Readers share a lock. An operation on several chunks takes all their
//! locks in a fixed order. Every write is therefore visible as a whole or not at all, and a write that
//! disagrees with the bytes held changes nothing.
//!
//! # What was measured, and what was only estimated
//!
//! Times are CPU time of one call on a 2.45 GHz EPYC, or, where noted, on a 2.6 GHz Xeon. svfsc is the C++
//! library that this crate replaces.
//!
//! - *A tree of blocks* is the design of svfsc: 112 bytes of heap for a block of one byte, about 150 ns to
//!   read it and 380 ns to write it on the same machine, most of it waiting for memory. Here: 2.3 to 7 bytes,
//!   and less than 30 ns for either.
//! - *Binary search* among the runs of a chunk, down to one run: each step depends on the previous one, and
//!   reading one of 64 runs took 40 to 60 ns. Counting how many of the last 64 starts are not greater has no
//!   such dependency: 30 ns. Stopping at 16 instead of 64 made no difference. Now the last of each eight of
//!   those 64 is compared, and then one group of eight: 28 ns instead of 31 on the Xeon, and 90 instead of
//!   115 for reads in random order.
//! - *Pages from the allocator*: after 380 MiB were freed, mimalloc returned nothing to the system within 50
//!   ms. Pages are therefore mapped, and unmapped at once. Packed data belongs to the allocator, which
//!   returns it in its own time.
//! - *The time of each use* costs 9 ns by the coarse clock and 29 ns by the exact one, so it is recorded only
//!   on request. An atomic addition costs about 6 ns. A thread therefore counts its reads where no other
//!   thread counts: 22 ns instead of 28 on the Xeon, for a read of one byte. A file has such a place for each
//!   of up to 32 reading threads. Further threads share one word, which counts reads and their bytes
//!   together.
//! - *Every search from the start*: a read of the next of 2,000 runs took 24 ns. Each reading thread now
//!   remembers where its last search in a file ended, and looks there first: 14 ns, and 14 instead of 26 for
//!   `has`. The place is beside the thread's counters, so no line of memory is shared.
//! - *Packed until it is full*: filling 4,096 gaps of one chunk moved 24 KiB for each of them: 490 ns a
//!   write. A chunk that moves much now becomes a page early: 23 ns.
//! - *A list without an allocation for few ranges* as the result of `need` was not built: copying it to the
//!   caller took as long as the allocation. `each_missing` has no list: 12 ns instead of 23.
//! - *Two lookups in the hash table* for each write, one to compare and one to write, and a general path for
//!   all writes: 40 to 50 ns. A write to free bytes that needs no memory now takes one short path.
//! - *An offset for each run* beside its start, so that data could stay in the order of arrival, was not
//!   built. Each run would need half as much again, and erased blocks would leave garbage to collect. Data in
//!   the order of position costs moving the bytes behind a write: 290 ns for each 8-byte write when 64 KiB
//!   are written backwards, its worst case.
//! - *Doubling* packed memory when it is full leaves half of the capacity unused at worst, and the last chunk
//!   of a file keeps it: 1.1 % of a mebibyte in blocks of 256 bytes. A chunk that is written from the front
//!   now gets the capacity it will need if it continues as it began, at most the double. If that guess is
//!   right, nothing is left to trim either.
//! - *Growing each chunk from nothing* copied its data three times, and its last copy, to a page, was a
//!   fourth: 166 ns for each joined write of 1 KiB. A chunk that continues the one before it now starts with
//!   the same room: 116 ns. The last chunk of a file may reserve a page in this way until
//!   [`SparseFile::compact`].
//! - *Erasing blocks one by one* took all locks of a file for each, and moved the data behind it. Blocks that
//!   are erased together are now removed in one pass for each chunk. Bytes erased at the front of a chunk
//!   become an unused head of its data: least recently used blocks are often there.
//! - *Pages from the start* were not built: with one byte held in 800, each would cost 900 bytes.
//! - *A lock for each chunk* behind a table with a lock was not built: every read would take two locks, and
//!   all cores would contend for that of the table.
//! - *Reading without locks* while other threads may write is undefined, or needs every byte to be atomic.
//!   This crate has no `unsafe`.
//!
//! See docs/decisions/040-sparse-files-are-chunks.md.

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
#[doc(hidden)]
pub use cache::fuzzing;
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
