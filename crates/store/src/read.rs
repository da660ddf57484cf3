//! Reading a range of an object.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::attempt::{AttemptError, Receiver, receive};
use crate::{Fingerprint, Object, StoreError};

/// The limit on retries for a server that sends a few bytes each time and then breaks off.
const MOST_RETRIES: u32 = 1000;

/// Receives bytes and their position in the object. They continue the bytes before them, or begin before
/// their end. In the latter case, earlier bytes from that position on are void.
pub type Take<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + Send + 'a;

/// The target of a reply, and the state that the reply must be of.
struct Taking<'a, 'b> {
    take: &'a mut Take<'b>,
    /// The start of the range, and how many of its bytes have arrived.
    start: u64,
    taken: u64,
    object: &'a Object,
    /// True if the received bytes are known to be of that state.
    is_known: bool,
}

impl Taking<'_, '_> {
    fn same(&mut self, now: &Fingerprint) -> Result<(), AttemptError> {
        if !self.object.state.agrees(now) {
            return Err(AttemptError::Other(now.to_string()));
        }
        self.is_known = true;
        Ok(())
    }
}

impl Receiver for Taking<'_, '_> {
    fn head(&mut self, state: Option<Fingerprint>) -> Result<(), AttemptError> {
        state.map_or(Ok(()), |state| self.same(&state))
    }

    fn bytes(&mut self, at: u64, bytes: Bytes) -> Result<(), AttemptError> {
        (self.take)(self.start + at, &bytes).map_err(|error| {
            let what = format!("taking {} bytes at {}", bytes.len(), self.start + at);
            let (name, why) = (self.object.name(), error.to_string());
            AttemptError::Fatal(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false })
        })?;
        self.taken += bytes.len() as u64;
        Ok(())
    }

    fn confirmed(&mut self, state: Fingerprint) -> Result<(), AttemptError> {
        self.same(&state)
    }
}

impl Object {
    /// Fills `into` with the bytes from `position` on. Otherwise as [`stream`](Self::stream).
    ///
    /// # Errors
    /// As for [`stream`](Self::stream).
    pub async fn read(&self, position: u64, into: &mut [u8]) -> Result<bool, StoreError> {
        let range = position..position.saturating_add(into.len() as u64);
        let mut copy = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at - position).unwrap_or(usize::MAX);
            let into = into.get_mut(at..).and_then(|into| into.get_mut(..bytes.len()));
            into.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
            Ok(())
        };
        self.stream(range, &mut copy).await
    }

    /// Passes the bytes of a range to `take` as they arrive. Bytes that arrived before a connection broke are
    /// kept, and only the rest is requested again. If their state is unknown, as in a folder, they are void
    /// and arrive again. Returns true if the store was overloaded meanwhile: a caller with many concurrent
    /// requests should then reduce them.
    ///
    /// # Errors
    /// [`StoreError::Changed`] if the object is no longer in the state in which it was found. Other errors,
    /// for instance if the object ends before the range does or `take` fails.
    pub async fn stream(&self, range: Range<u64>, take: &mut Take<'_>) -> Result<bool, StoreError> {
        let Range { mut start, end } = range;
        let name = self.name();
        let what = format!("reading {} bytes at {start}", end.saturating_sub(start));
        if end > self.state.length {
            let why = format!("it ends at {}", self.state.length);
            return Err(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false });
        }
        let (origin, counts) = (self.origin(), self.store.counts());
        let (mut failed, mut attempts, mut was_overloaded) = (0, 0, false);
        while start < end {
            let mut receiver = Taking { take, start, taken: 0, object: self, is_known: false };
            counts.request(attempts > 0);
            attempts += 1;
            let seen = Arc::default();
            let silence = self.store.retries().silence;
            let received =
                receive(&origin, start..end, self.state.length, silence, &seen, &mut receiver).await;
            let Taking { taken, is_known, .. } = receiver;
            counts.read.fetch_add(taken, Ordering::Relaxed);
            let failure = match received {
                Ok(()) => break,
                Err(failure) => failure,
            };
            let kept = if is_known { taken } else { 0 };
            start += kept;
            // An attempt that returned bytes resets the count of failures.
            failed = if kept > 0 { 1 } else { failed + 1 };
            was_overloaded |= matches!(&failure, AttemptError::Temporary { overloaded: true, .. });
            let pause = match self.store.pause(&name, &what, failure, failed) {
                Ok(pause) if attempts < MOST_RETRIES => pause,
                Ok(_) => {
                    let why = "the connection broke each time after a few bytes".to_owned();
                    return Err(StoreError::Failed { name, what, attempts, why, is_temporary: true });
                }
                Err(StoreError::Changed { name, is, .. }) => {
                    return Err(StoreError::Changed { name, was: self.state.to_string(), is });
                }
                Err(error) => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
        Ok(was_overloaded)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Store, StoreError};

    #[tokio::test]
    async fn ranges_of_a_file_are_read_and_that_it_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b");
        let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let (store, path_in_store) = Store::from_url(path.to_str().unwrap()).unwrap();
        let object = store.stat(&path_in_store).await.unwrap();
        assert_eq!((object.size(), object.name()), (100_000, path.display().to_string()));
        let mut into = vec![0; 5000];
        object.read(70_000, &mut into).await.unwrap();
        assert_eq!(into, content[70_000..75_000]);
        assert_eq!(store.counts().read(), 5000);
        let beyond = object.read(99_000, &mut into).await.unwrap_err();
        assert!(beyond.to_string().contains("it ends at 100000"), "{beyond}");
        std::fs::write(&path, vec![1; 100_000]).unwrap();
        let changed = object.read(0, &mut into).await.unwrap_err();
        assert!(matches!(changed, StoreError::Changed { .. }), "{changed}");
        std::fs::remove_file(&path).unwrap();
        let absent = store.stat(&path_in_store).await.unwrap_err();
        assert_eq!(absent, StoreError::Absent { name: path.display().to_string() });
    }
}
