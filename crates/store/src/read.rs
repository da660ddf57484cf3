//! Reading a range of an object.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::attempt::{Receiver, Trouble, receive};
use crate::{Fingerprint, Object, StoreError};

/// An object that gives a few bytes each time and then breaks off is not asked for ever.
const MOST_RETRIES: u32 = 1000;

/// What a reply is written to, and which state it must be of.
struct Into<'a> {
    bytes: &'a mut [u8],
    filled: usize,
    state: &'a Fingerprint,
    /// Whether what came is known to be of that state.
    is_known: bool,
}

impl Into<'_> {
    fn same(&mut self, now: &Fingerprint) -> Result<(), Trouble> {
        if !self.state.agrees(now) {
            return Err(Trouble::Other(now.to_string()));
        }
        self.is_known = true;
        Ok(())
    }
}

impl Receiver for Into<'_> {
    fn head(&mut self, state: Option<Fingerprint>) -> Result<(), Trouble> {
        state.map_or(Ok(()), |state| self.same(&state))
    }

    fn bytes(&mut self, _: u64, bytes: Bytes) -> Result<(), Trouble> {
        if let Some(into) = self.bytes.get_mut(self.filled..self.filled + bytes.len()) {
            into.copy_from_slice(&bytes);
            self.filled += bytes.len();
        }
        Ok(())
    }

    fn confirmed(&mut self, state: Fingerprint) -> Result<(), Trouble> {
        self.same(&state)
    }
}

impl Object {
    /// Reads from a position on until `into` is full. Bytes that came before a cut are kept, and only the rest is asked for
    /// again. Says whether the store had too much to do meanwhile: who asks for much at once should then ask for less.
    ///
    /// # Errors
    /// [`StoreError::Changed`] if it is not in the state any more in which it was found, and what else can go wrong: it ends
    /// before, say.
    pub async fn read(&self, position: u64, into: &mut [u8]) -> Result<bool, StoreError> {
        let end = position.saturating_add(into.len() as u64);
        let name = self.name();
        let what = format!("reading {} bytes at {position}", into.len());
        if end > self.state.length {
            let why = format!("it ends at {}", self.state.length);
            return Err(StoreError::Failed { name, what, attempts: 1, why, is_temporary: false });
        }
        let (origin, counts) = (self.store.origin(&self.path), self.store.counts());
        let (mut done, mut failed, mut attempts, mut was_overloaded) = (0, 0, 0, false);
        while done < into.len() {
            let Some(rest) = into.get_mut(done..) else { break };
            let mut receiver = Into { bytes: rest, filled: 0, state: &self.state, is_known: false };
            counts.request(attempts > 0);
            attempts += 1;
            let seen = Arc::default();
            let range = position + done as u64..end;
            let silence = self.store.retries().silence;
            let received = receive(&origin, range, self.state.length, silence, &seen, &mut receiver).await;
            let (filled, is_known) = (receiver.filled, receiver.is_known);
            counts.read.fetch_add(filled as u64, Ordering::Relaxed);
            let trouble = match received {
                Ok(()) => break,
                Err(trouble) => trouble,
            };
            let kept = if is_known { filled } else { 0 };
            done += kept;
            // An attempt that brought something was not in vain.
            failed = if kept > 0 { 1 } else { failed + 1 };
            was_overloaded |= matches!(&trouble, Trouble::Temporary { overloaded: true, .. });
            let pause = match self.store.pause(&name, &what, trouble, failed) {
                Ok(pause) if attempts < MOST_RETRIES => pause,
                Ok(_) => {
                    let why = "it broke off each time after a few bytes".to_owned();
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
