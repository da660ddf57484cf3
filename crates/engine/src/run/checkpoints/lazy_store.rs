//! The store of a run, opened when it is first needed.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::Error;
use crate::replay::Replayed;
#[cfg(target_os = "linux")]
use crate::store::LettersServer;
use crate::store::{Owner, Store};

/// The store, opened when it is first needed: a run that has nothing to keep leaves no folder behind.
pub(in crate::run) struct LazyStore {
    folder: PathBuf,
    owner: Option<Owner>,
    /// Shows the dead letters to other processes. It ends before the store is closed.
    #[cfg(target_os = "linux")]
    server: Mutex<Option<LettersServer>>,
    open: Mutex<Option<Arc<Store>>>,
    /// The dead letters that the run processes again.
    replayed: Option<Arc<Replayed>>,
}

impl LazyStore {
    pub(in crate::run) fn new(folder: PathBuf, owner: Option<Owner>) -> Self {
        Self {
            folder,
            owner,
            #[cfg(target_os = "linux")]
            server: Mutex::default(),
            open: Mutex::default(),
            replayed: None,
        }
    }

    /// Lets the run remove dead letters as they are settled.
    pub(in crate::run) fn replaying(&self, replayed: Arc<Replayed>) -> Self {
        let open = Mutex::new(self.opened());
        Self {
            folder: self.folder.clone(),
            owner: self.owner.clone(),
            #[cfg(target_os = "linux")]
            server: Mutex::new(self.server.lock().take()),
            open,
            replayed: Some(replayed),
        }
    }

    /// True if the run removes dead letters as they are settled.
    pub(in crate::run) fn replays(&self) -> bool {
        self.replayed.is_some()
    }

    /// Removes the dead letters that positions cover.
    pub(super) fn remove_replayed(&self, moved: &[(Arc<str>, Arc<str>, Option<Value>)]) -> Result<(), Error> {
        let Some(replayed) = &self.replayed else { return Ok(()) };
        for (source, _, offset) in moved {
            if let Some(offset) = offset {
                replayed.remove(&*self.get()?, source, offset)?;
            }
        }
        Ok(())
    }

    /// The store, if it is open.
    pub(in crate::run) fn opened(&self) -> Option<Arc<Store>> {
        self.open.lock().clone()
    }

    pub(in crate::run) fn get(&self) -> Result<Arc<Store>, Error> {
        let mut open = self.open.lock();
        if let Some(store) = &*open {
            return Ok(store.clone());
        }
        let store = Arc::new(Store::open_for(&self.folder, self.owner.as_ref())?);
        #[cfg(target_os = "linux")]
        match LettersServer::start(&store, &self.folder) {
            Ok(server) => *self.server.lock() = Some(server),
            Err(error) => tracing::debug!("dead letters cannot be listed during this run: {error}"),
        }
        *open = Some(store.clone());
        Ok(store)
    }
}
