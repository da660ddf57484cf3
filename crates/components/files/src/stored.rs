//! An object in a store as the content of a file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use thalweg_engine::{Error, FileError, Meter};
use thalweg_record::{Fetching, Pace, ReadRanges, Take};
use thalweg_runtime::ConcurrencyLimit;
use thalweg_sparse::{BudgetAccount, Pool, RemoteFile, RemoteOptions};
use thalweg_store::{Object, StoreError};
use tokio::runtime::Handle;

/// State shared by all readers of the objects of one source.
#[derive(Clone)]
pub struct Reads {
    /// Limits the number of ranges that are requested at the same time.
    pub limit: ConcurrencyLimit,
    /// How to read an object as a whole.
    pub pace: Pace,
    /// Caches the ranges that components read at random positions.
    pub pool: Pool,
    runtime: Handle,
}

impl Reads {
    /// Creates the state for `readers` concurrent requests. With `None`, the limit adapts to the store.
    pub fn new(readers: Option<usize>, pace: Pace, budget: &thalweg_record::Budget) -> Self {
        let limit = match readers {
            Some(readers) => ConcurrencyLimit::fixed(readers),
            None => ConcurrencyLimit::adaptive(8..=64),
        };
        let pool = Pool::with_account(budget.limit() / 4, BudgetAccount::new(budget));
        Self { limit, pace, pool, runtime: Handle::current() }
    }
}

/// An object whose ranges are fetched when they are read.
///
/// Ranges that are read in sequence are fetched directly. Random reads of any size go through a sparse file,
/// which caches them.
pub struct StoredObject {
    object: Object,
    reads: Reads,
    meter: Meter,
    remembered: OnceLock<RemoteFile>,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

impl StoredObject {
    /// Creates the content for an object in the state in which it was found.
    pub fn new(object: Object, reads: &Reads, meter: Meter) -> Arc<Self> {
        Arc::new(Self { object, reads: reads.clone(), meter, remembered: OnceLock::new() })
    }

    fn remembered(&self) -> io::Result<&RemoteFile> {
        if let Some(file) = self.remembered.get() {
            return Ok(file);
        }
        let origin = self.object.origin();
        let options = RemoteOptions { pool: Some(self.reads.pool.clone()), ..RemoteOptions::default() };
        let opening = RemoteFile::open(origin, options);
        let file = thalweg_runtime::wait_for(&self.reads.runtime, opening).map_err(io::Error::other)?;
        if !self.object.state().agrees(&file.fingerprint()) {
            let (was, is) = (self.object.state(), file.fingerprint());
            return Err(io::Error::other(format!(
                "it has changed since it was found: it was {was}, and is {is}"
            )));
        }
        Ok(self.remembered.get_or_init(|| file))
    }

    /// Waits until another request is allowed, and performs it.
    async fn in_turn(
        &self,
        length: u64,
        reading: impl Future<Output = Result<bool, StoreError>>,
    ) -> io::Result<()> {
        let permit = self.reads.limit.acquire(length).await;
        match reading.await {
            Ok(true) => permit.overloaded(),
            Ok(false) => permit.succeeded(),
            Err(error) => {
                permit.failed();
                return Err(io::Error::other(error));
            }
        }
        self.meter.add_progress(length);
        Ok(())
    }
}

impl ReadRanges for StoredObject {
    fn length(&self) -> u64 {
        self.object.size()
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length().saturating_sub(position)).unwrap_or(usize::MAX);
        let length = left.min(into.len());
        let into = &mut into[..length];
        let read = self.remembered()?.read_into(position, into);
        thalweg_runtime::wait_for(&self.reads.runtime, read).map_err(io::Error::other)?;
        Ok(length)
    }

    fn fetch<'a>(&'a self, position: u64, into: &'a mut [u8]) -> Fetching<'a> {
        let length = into.len() as u64;
        Box::pin(self.in_turn(length, self.object.read(position, into)))
    }

    fn streams(&self) -> bool {
        true
    }

    fn stream<'a>(&'a self, range: Range<u64>, take: &'a mut Take<'a>) -> Fetching<'a> {
        let length = range.end.saturating_sub(range.start);
        Box::pin(self.in_turn(length, self.object.stream(range, take)))
    }

    fn pace(&self) -> Pace {
        self.reads.pace
    }
}

/// Converts an error of a store into an error of the run. Temporary errors are retried.
pub fn failure(error: &StoreError) -> Error {
    match error.is_temporary() {
        true => Error::temporary(error.to_string()),
        false => Error::permanent(error.to_string()),
    }
}

/// Converts an error of a store into an error of one file.
pub fn file_error(error: &StoreError) -> FileError {
    match error {
        StoreError::Failed { is_temporary: true, .. } => FileError::Failed(failure(error)),
        StoreError::Absent { .. } => FileError::coded("FILE_CAN_NOT_BE_OPENED", error.to_string()),
        _ => FileError::rejected(error.to_string()),
    }
}
