//! Listing the objects below a prefix.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use futures_util::{FutureExt, StreamExt};
use opendal::{EntryMode, ErrorKind, Metadata, Operator};
use parking_lot::Mutex;
use thalweg_beneath::Beneath;

use crate::answers::guarded;
use crate::attempt::{AttemptError, patient};
use crate::folders::Folders;
use crate::local::working;
use crate::repeats::{Remembered, Returned};
use crate::transport::Seen;
use crate::url::Kind;
use crate::walk::{Found, Walk};
use crate::{Fingerprint, Origin, Store, StoreError};

/// How many names a page of a listing has, so that an answer stays short.
const PAGE: usize = 1000;

/// An object as it was found: its path, and its state at that time. All reads must find the object in that
/// state.
#[derive(Debug, Clone)]
pub struct Object {
    pub(crate) store: Store,
    pub(crate) path: String,
    pub(crate) state: Fingerprint,
    pub(crate) mode: Option<u32>,
    /// Opens a file that was found in a folder of this machine.
    pub(crate) beneath: Option<Beneath>,
}

/// One entry of a listing.
#[derive(Debug)]
pub enum Entry {
    /// An object.
    Object(Object),
    /// A name that cannot be listed, and why.
    Unreadable {
        /// The name for messages.
        name: String,
        /// The reason.
        why: String,
    },
    /// A link out of the folder that is listed. It is not followed.
    LinkOut {
        /// The name for messages.
        name: String,
    },
}

impl Object {
    /// Creates an object from a path and state that were found before.
    pub fn new(store: Store, path: String, state: Fingerprint) -> Self {
        Self { store, path, state, mode: None, beneath: None }
    }

    /// Returns the permissions, if the store has them.
    pub fn mode(&self) -> Option<u32> {
        self.mode
    }

    /// Returns the object as an origin, of which ranges can be cached.
    pub fn origin(&self) -> Origin {
        let origin = self.store.origin(&self.path);
        Origin { local: self.beneath.clone().or(origin.local.clone()), ..origin }
    }

    /// Returns the store of the object.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the path in the store.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name for messages.
    pub fn name(&self) -> String {
        self.store.name(&self.path)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.state.length
    }

    /// Returns the state in which the object was found.
    pub fn state(&self) -> &Fingerprint {
        &self.state
    }
}

/// A listing in progress. Only one page of it is in memory.
pub struct Listing {
    store: Store,
    prefix: String,
    lister: Option<Lister>,
    /// The folders of a WebDAV server that are to be listed.
    folders: Option<Folders>,
    /// Used instead of `lister` for the folders of this machine.
    walk: Option<Walk>,
    /// Files that the walk has found and that were not returned yet.
    found: VecDeque<Found>,
    /// The last returned path. After a failure the listing continues after it, if the store lists in order.
    last: Option<String>,
    /// The names that were returned, of the present folder or of the latest pages.
    returned: Returned,
    /// How many names the server has repeated.
    repeated: u64,
    failed: u32,
    /// True if links to files outside of the listed folder are followed.
    follows: bool,
}

/// Requests pages of a listing.
struct Lister {
    operator: Operator,
    /// The head of the last reply.
    seen: Arc<Mutex<Seen>>,
    entries: opendal::Lister,
    /// The number of pages since the last entry.
    empty: Arc<AtomicU32>,
    /// The entries up to this path were returned before the listing failed.
    after: Option<String>,
    /// True if a listing of the same names has failed before: they may have been returned.
    repeats: bool,
}

impl Listing {
    pub(crate) fn new(store: Store, prefix: String) -> Self {
        Self {
            store,
            prefix,
            lister: None,
            folders: None,
            walk: None,
            found: VecDeque::new(),
            last: None,
            returned: Returned::default(),
            repeated: 0,
            failed: 0,
            follows: false,
        }
    }

    /// Also follows links to files outside of the listed folder of this machine.
    #[must_use]
    pub fn following_links(mut self, follows: bool) -> Self {
        self.follows = follows;
        self
    }

    /// Starts after `path`, if the store [lists in order](Store::lists_in_order).
    #[must_use]
    pub fn after(mut self, path: Option<String>) -> Self {
        self.last = path;
        self
    }

    /// Returns how many names the server has repeated. Each was returned once.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns the next object, or `None` at the end. Entries of other kinds are skipped.
    ///
    /// # Errors
    /// As [`next_entry`](Self::next_entry).
    pub async fn next(&mut self) -> Result<Option<Object>, StoreError> {
        loop {
            match self.next_entry().await? {
                Some(Entry::Object(object)) => return Ok(Some(object)),
                Some(Entry::Unreadable { .. } | Entry::LinkOut { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// [`StoreError`]. Objects returned before the error remain valid.
    pub async fn next_entry(&mut self) -> Result<Option<Entry>, StoreError> {
        if matches!(self.store.kind(), Kind::Folders) {
            return self.next_here().await;
        }
        loop {
            match self.step().await {
                Ok(found) => {
                    self.failed = 0;
                    return Ok(found);
                }
                Err(failure) => {
                    self.lister = None;
                    if let Some(folders) = &mut self.folders {
                        folders.again();
                    }
                    self.failed += 1;
                    let name = self.store.name(&self.prefix);
                    let pause = self.store.pause(&name, "listing it", failure, self.failed)?;
                    tokio::time::sleep(pause).await;
                    self.store.counts().request(true);
                }
            }
        }
    }

    async fn next_here(&mut self) -> Result<Option<Entry>, StoreError> {
        /// How many files one call on a blocking thread looks up.
        const AT_ONCE: usize = 256;
        if self.found.is_empty() {
            let (walk, prefix, last) = (self.walk.take(), self.prefix.clone(), self.last.clone());
            let follows = self.follows;
            let walking = move || {
                let mut walk = walk.map_or_else(|| Walk::new(&prefix, last.as_deref(), follows), Ok)?;
                walk.next(AT_ONCE).map(|found| (walk, found))
            };
            let (walk, found) = working(&self.store, &self.prefix, "listing it", walking).await?;
            self.walk = Some(walk);
            self.found.extend(found);
        }
        let Some(found) = self.found.pop_front() else { return Ok(None) };
        Ok(Some(match found {
            Found::File { path, state, mode } => {
                self.last = Some(path.clone());
                let beneath = self.walk.as_ref().map(|walk| walk.beneath().clone());
                let object = Object::new(self.store.clone(), path, state);
                Entry::Object(Object { mode: Some(mode), beneath, ..object })
            }
            Found::Unreadable { name, why } => Entry::Unreadable { name, why },
            Found::LinkOut { name } => Entry::LinkOut { name },
        }))
    }

    async fn step(&mut self) -> Result<Option<Entry>, AttemptError> {
        if matches!(self.store.kind(), Kind::WebDav) && self.folders.is_none() {
            self.folders = Some(Folders::of(&self.prefix));
        }
        loop {
            let folder = match &self.folders {
                None => self.prefix.clone(),
                Some(folders) => match folders.present() {
                    None => return Ok(None),
                    Some(folder) => folder.to_owned(),
                },
            };
            let mut lister = match self.lister.take() {
                Some(lister) => lister,
                None => self.open(&folder).await?,
            };
            let entry = self.entry(&mut lister, &folder).await?;
            if let Some(entry) = entry {
                self.lister = Some(lister);
                return Ok(Some(entry));
            }
            match &mut self.folders {
                None => return Ok(None),
                Some(folders) => {
                    folders.done();
                    self.returned.forget();
                }
            }
        }
    }

    /// Requests the first page of a folder, or of everything below a prefix.
    async fn open(&self, folder: &str) -> Result<Lister, AttemptError> {
        self.store.counts().request(false);
        let (seen, empty) = (Arc::default(), Arc::default());
        let operator = self.store.origin(&self.prefix).listing(&seen, &empty);
        let mut opening = operator.lister_with(folder).recursive(self.folders.is_none()).limit(PAGE);
        let mut after = None;
        if self.folders.is_none() {
            after.clone_from(&self.last);
            if let Some(last) = &self.last
                && operator.info().capability().list_with_start_after
            {
                opening = opening.start_after(last);
            }
        }
        let entries = opening.await.map_err(|error| self.failure(&error, &seen))?;
        Ok(Lister { operator, seen, entries, empty, after, repeats: self.failed > 0 })
    }

    /// Returns the next entry of the present folder, or `None` at its end.
    async fn entry(&mut self, lister: &mut Lister, folder: &str) -> Result<Option<Entry>, AttemptError> {
        let silence = self.store.retries().silence;
        loop {
            let next = guarded(lister.entries.next().map(Option::transpose));
            let entry = match patient(silence, next).await {
                None => return Err(AttemptError::silent(silence)),
                Some(Ok(None)) => return Ok(None),
                Some(Err(error)) => return Err(self.failure(&error, &lister.seen)),
                Some(Ok(Some(entry))) => entry,
            };
            lister.empty.store(0, Relaxed);
            let (path, metadata) = entry.into_parts();
            let is_folder = metadata.mode() == EntryMode::DIR || path.ends_with('/');
            if is_folder && (path == folder || self.folders.is_none()) {
                continue;
            }
            if let Some(why) = self.wrong(&path) {
                return Ok(Some(Entry::Unreadable { name: self.store.name(&path), why }));
            }
            if !path.starts_with(&self.prefix) {
                continue;
            }
            match &mut self.folders {
                Some(folders) if is_folder => {
                    let name = self.store.name(&self.prefix);
                    if let Some(why) = folders.add(&path, &name).map_err(AttemptError::Fatal)? {
                        return Ok(Some(Entry::Unreadable { name: self.store.name(&path), why }));
                    }
                    continue;
                }
                // A store in order may begin before the path it was asked to start after.
                _ if lister.after.as_ref().is_some_and(|after| path <= *after) => continue,
                _ => {}
            }
            if self.returned.contains(&path) {
                self.repeated += u64::from(!lister.repeats);
                continue;
            }
            let Some(metadata) = self.complete(lister, &path, metadata).await? else { continue };
            self.last = Some(path.clone());
            let remembered = if self.folders.is_some() { Remembered::All } else { Remembered::Latest };
            self.returned.add(&path, remembered);
            let state = Fingerprint::new(metadata.content_length(), &metadata);
            return Ok(Some(Entry::Object(Object::new(self.store.clone(), path, state))));
        }
    }

    /// Returns why the server cannot be right about a path.
    fn wrong(&self, path: &str) -> Option<String> {
        match &self.folders {
            Some(folders) => folders.wrong(path),
            None if path.starts_with(&self.prefix) => None,
            None => {
                Some(format!("the store lists it below `{}`, where it is not", self.store.name(&self.prefix)))
            }
        }
    }

    /// Looks up the state of an object if the listing does not have it. Returns `None` for what is no object.
    async fn complete(
        &self,
        lister: &Lister,
        path: &str,
        metadata: Metadata,
    ) -> Result<Option<Metadata>, AttemptError> {
        if metadata.mode() != EntryMode::Unknown {
            return Ok(Some(metadata));
        }
        let silence = self.store.retries().silence;
        match patient(silence, lister.operator.stat(path)).await {
            None => Err(AttemptError::silent(silence)),
            // It was removed meanwhile.
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Some(Err(error)) => Err(self.failure(&error, &lister.seen)),
            Some(Ok(metadata)) => Ok((!metadata.is_dir()).then_some(metadata)),
        }
    }

    fn failure(&self, error: &opendal::Error, seen: &Mutex<Seen>) -> AttemptError {
        let name = self.store.name(&self.prefix);
        if error.kind() == ErrorKind::Unsupported {
            return AttemptError::Fatal(StoreError::Impossible { name, what: "listing" });
        }
        match AttemptError::of(error, &name, "listing it", &seen.lock().clone()) {
            AttemptError::Fatal(StoreError::Denied { name, why, .. }) => {
                AttemptError::Fatal(StoreError::Denied { name, what: "listed", why })
            }
            failure => failure,
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
            assert!(object.state().agrees(store.stat(object.path()).await.unwrap().state()));
            found.push((object.path()[prefix.len()..].to_owned(), object.size()));
        }
        assert_eq!(found, [("a/b/z".to_owned(), 3), ("a/y".to_owned(), 2), ("x".to_owned(), 1)]);
    }
}
