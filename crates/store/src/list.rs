//! What lies below a prefix.

use std::sync::Arc;

use futures_util::StreamExt;
use opendal::{EntryMode, ErrorKind};

use crate::attempt::{Trouble, patient};
use crate::upload::is_draft;
use crate::url::Kind;
use crate::{Fingerprint, Store, StoreError};

/// An object as it was found: where it is, and its state then, which all that is read of it must be of.
#[derive(Debug, Clone)]
pub struct Object {
    pub(crate) store: Store,
    pub(crate) path: String,
    pub(crate) state: Fingerprint,
}

impl Object {
    /// An object that was found before, in a state that is known.
    pub fn new(store: Store, path: String, state: Fingerprint) -> Self {
        Self { store, path, state }
    }

    /// Where it lies.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its path in the store.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        self.store.name(&self.path)
    }

    /// How many bytes it has.
    pub fn size(&self) -> u64 {
        self.state.length
    }

    /// The state in which it was found.
    pub fn state(&self) -> &Fingerprint {
        &self.state
    }
}

/// A listing under way: only a page of it is in memory.
pub struct Listing {
    store: Store,
    prefix: String,
    lister: Option<opendal::Lister>,
    /// The last that was given: after a failure it goes on behind it, where the store lists in order.
    last: Option<String>,
    failed: u32,
}

impl Listing {
    pub(crate) fn new(store: Store, prefix: String) -> Self {
        Self { store, prefix, lister: None, last: None, failed: 0 }
    }

    /// Begins behind a path, where the store lists in order and can do that (those of objects can, folders cannot: they are
    /// listed from their beginning).
    #[must_use]
    pub fn after(mut self, path: Option<String>) -> Self {
        self.last = path;
        self
    }

    /// The next object.
    ///
    /// # Errors
    /// What can go wrong; what was listed before stays true.
    pub async fn next(&mut self) -> Result<Option<Object>, StoreError> {
        loop {
            match self.step().await {
                Ok(found) => {
                    self.failed = 0;
                    return Ok(found);
                }
                Err(trouble) => {
                    self.lister = None;
                    self.failed += 1;
                    let name = self.store.name(&self.prefix);
                    let pause = self.store.pause(&name, "listing it", trouble, self.failed)?;
                    tokio::time::sleep(pause).await;
                    self.store.counts().request(true);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Object>, Trouble> {
        let silence = self.store.retries().silence;
        let name = self.store.name(&self.prefix);
        let seen = Arc::default();
        let operator = self.store.origin(&self.prefix).looking(&seen);
        let trouble = |error: opendal::Error| match error.kind() {
            ErrorKind::Unsupported => {
                Trouble::Fatal(StoreError::Impossible { name: name.clone(), what: "listing" })
            }
            _ => match Trouble::of(&error, &name, "listing it", &seen.lock().clone()) {
                Trouble::Fatal(StoreError::Denied { name, why, .. }) => {
                    Trouble::Fatal(StoreError::Denied { name, what: "listed", why })
                }
                trouble => trouble,
            },
        };
        let lister = match &mut self.lister {
            Some(lister) => lister,
            None => {
                self.store.counts().request(false);
                let mut lister = operator.lister_with(&self.prefix).recursive(true);
                if let Some(last) = &self.last
                    && operator.info().capability().list_with_start_after
                {
                    lister = lister.start_after(last);
                }
                self.lister.insert(lister.await.map_err(trouble)?)
            }
        };
        loop {
            let entry = match patient(silence, lister.next()).await {
                None => return Err(Trouble::silent(silence)),
                Some(None) => return Ok(None),
                Some(Some(Err(error))) => return Err(trouble(error)),
                Some(Some(Ok(entry))) => entry,
            };
            let (path, mut metadata) = entry.into_parts();
            if metadata.mode() == EntryMode::DIR || path.ends_with('/') {
                continue;
            }
            let is_folder = matches!(self.store.kind(), Kind::Folders);
            if is_folder && is_draft(path.rsplit('/').next().unwrap_or_default()) {
                continue;
            }
            if metadata.mode() == EntryMode::Unknown || is_folder {
                metadata = match patient(silence, operator.stat(&path)).await {
                    None => return Err(Trouble::silent(silence)),
                    // It has gone since.
                    Some(Err(error)) if error.kind() == ErrorKind::NotFound => continue,
                    Some(Err(error)) => return Err(trouble(error)),
                    Some(Ok(metadata)) if metadata.is_dir() => continue,
                    Some(Ok(metadata)) => metadata,
                };
            }
            self.last = Some(path.clone());
            let state = Fingerprint::new(metadata.content_length(), &metadata);
            return Ok(Some(Object { store: self.store.clone(), path, state }));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Store;

    #[tokio::test]
    async fn a_folder_is_listed_with_all_that_is_below_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        for (path, content) in [("x", "1"), ("a/y", "22"), ("a/b/z", "333")] {
            std::fs::write(folder.path().join(path), content).unwrap();
        }
        let url = format!("{}/", folder.path().display());
        let (store, prefix) = Store::from_url(&url).unwrap();
        let mut listing = store.list(&prefix);
        let mut found = Vec::new();
        while let Some(object) = listing.next().await.unwrap() {
            found.push((object.path()[prefix.len()..].to_owned(), object.size()));
        }
        found.sort();
        assert_eq!(found, [("a/b/z".to_owned(), 3), ("a/y".to_owned(), 2), ("x".to_owned(), 1)]);
    }
}
