//! A store: what a URL leads to.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opendal::{ErrorKind, Operator};
use parking_lot::Mutex;

use crate::attempt::{AttemptError, patient, state};
use crate::transport::Seen;
use crate::upload::Remote;
use crate::url::{self, Kind};
use crate::{Listing, Object, Origin, Retries, StoreError};

/// A place where objects lie, with what is needed to get at them. Clones are the same store: they share connections, credentials
/// and counters.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    operator: Operator,
    kind: Kind,
    /// What stands before a path to make a name of it.
    name: String,
    key: String,
    retries: Retries,
    counts: Counts,
    /// How requests of our own reach it, or why not; made when it is needed.
    remote: OnceLock<Result<Option<Remote>, String>>,
}

/// What was asked of a store so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
}

impl Counts {
    /// How many requests were made.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// How many of them were made again, after one that failed.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// How many bytes of objects came, those that came twice among them.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// How many bytes of objects were sent, those that were sent twice among them.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(crate) fn request(&self, is_again: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.retries.fetch_add(u64::from(is_again), Ordering::Relaxed);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.inner.name)
    }
}

impl Store {
    /// What a URL leads to, and the path in it: see [`Origin::from_url`] for their forms. The path may be empty, or end with a
    /// slash: then it is what the names of several objects begin with. (What `http` and `https` lead to is one file each.)
    ///
    /// # Errors
    /// [`StoreError::NotAUrl`].
    pub fn from_url(url: &str) -> Result<(Self, String), StoreError> {
        Self::with_retries(url, Retries::default())
    }

    /// As [`from_url`](Self::from_url), with other patience.
    ///
    /// # Errors
    /// As there.
    pub fn with_retries(url: &str, retries: Retries) -> Result<(Self, String), StoreError> {
        let url::Location { operator, kind, name, key, path } = url::parse(url)?;
        let inner =
            Inner { operator, kind, name, key, retries, counts: Counts::default(), remote: OnceLock::new() };
        Ok((Self { inner: Arc::new(inner) }, path))
    }

    /// What messages call the object at a path: its URL without what may be secret in it.
    pub fn name(&self, path: &str) -> String {
        match self.inner.kind {
            Kind::Http => self.inner.name.clone(),
            _ => format!("{}{path}", self.inner.name),
        }
    }

    /// What was asked of it so far, by this and by its clones.
    pub fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    /// Its patience.
    pub fn retries(&self) -> &Retries {
        &self.inner.retries
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.inner.kind
    }

    pub(crate) fn made(&self) -> &Result<Option<Remote>, String> {
        self.inner.remote.get_or_init(|| Remote::of(&self.inner.kind))
    }

    /// The object at a path, as something of which ranges are kept.
    pub fn origin(&self, path: &str) -> Origin {
        let key = match self.inner.kind {
            Kind::Http => self.inner.key.clone(),
            _ => format!("{}{path}", self.inner.key),
        };
        Origin { operator: self.inner.operator.clone(), path: path.to_owned(), name: self.name(path), key }
    }

    /// Whether it is the folders of this machine.
    pub fn is_here(&self) -> bool {
        matches!(self.inner.kind, Kind::Folders)
    }

    /// Whether what is below a prefix can be listed.
    pub fn can_list(&self) -> bool {
        !matches!(self.inner.kind, Kind::Http)
    }

    /// Whether listings are in the order of names and can begin behind one.
    pub fn lists_in_order(&self) -> bool {
        match self.inner.kind {
            Kind::Folders => true,
            Kind::Http => false,
            _ => self.inner.operator.info().capability().list_with_start_after,
        }
    }

    /// What is below a prefix, at any depth.
    pub fn list(&self, prefix: &str) -> Listing {
        Listing::new(self.clone(), prefix.to_owned())
    }

    /// What is known of the object at a path.
    ///
    /// # Errors
    /// [`StoreError::Absent`], and what else can go wrong.
    pub async fn stat(&self, path: &str) -> Result<Object, StoreError> {
        let origin = self.origin(path);
        let silence = self.inner.retries.silence;
        let ask = |by_reading| {
            let origin = &origin;
            self.patiently(origin.name(), "asking for its state", move |seen| async move {
                state(origin, by_reading, silence, &seen).await
            })
        };
        let state = match ask(false).await {
            Err(error)
                if matches!(self.inner.kind, Kind::Http) && !matches!(error, StoreError::Absent { .. }) =>
            {
                ask(true).await?
            }
            asked => asked?,
        };
        Ok(Object { path: path.to_owned(), state, store: self.clone() })
    }

    /// Removes an object. That there is none is no error.
    ///
    /// # Errors
    /// What can go wrong.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        let name = self.name(path);
        self.patiently(&name, "removing it", |seen| {
            let (name, operator) = (&name, self.origin(path).looking(&seen));
            async move {
                match patient(self.inner.retries.silence, operator.delete(path)).await {
                    None => Err(AttemptError::silent(self.inner.retries.silence)),
                    Some(Ok(())) => Ok(()),
                    Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
                    Some(Err(error)) => {
                        Err(AttemptError::of(&error, name, "removing it", &seen.lock().clone()))
                    }
                }
            }
        })
        .await
    }

    /// Does something, again and again while what goes wrong is temporary.
    pub(crate) async fn patiently<T, F: Future<Output = Result<T, AttemptError>>>(
        &self,
        name: &str,
        what: &str,
        mut attempt: impl FnMut(Arc<Mutex<Seen>>) -> F,
    ) -> Result<T, StoreError> {
        let mut failed = 0;
        loop {
            self.inner.counts.request(failed > 0);
            let trouble = match attempt(Arc::default()).await {
                Ok(done) => return Ok(done),
                Err(trouble) => trouble,
            };
            failed += 1;
            let pause = self.pause(name, what, trouble, failed)?;
            tokio::time::sleep(pause).await;
        }
    }

    /// How long to wait before the next attempt; the error if there is to be none.
    pub(crate) fn pause(
        &self,
        name: &str,
        what: &str,
        trouble: AttemptError,
        failed: u32,
    ) -> Result<Duration, StoreError> {
        let name = name.to_owned();
        match trouble {
            AttemptError::Temporary { why, asked, .. } => {
                self.inner.retries.pause(failed, asked).ok_or_else(|| StoreError::Failed {
                    name,
                    what: what.to_owned(),
                    attempts: failed,
                    why,
                    is_temporary: true,
                })
            }
            AttemptError::Fatal(error) => Err(error),
            AttemptError::Ignored => Err(StoreError::NoRanges { name }),
            AttemptError::Other(is) => {
                Err(StoreError::Changed { name, was: "what it was when it was found".to_owned(), is })
            }
            // Nobody here gives up what it waits for.
            AttemptError::Stale => Err(StoreError::Failed {
                name,
                what: what.to_owned(),
                attempts: failed,
                why: "it was given up".to_owned(),
                is_temporary: false,
            }),
        }
    }
}
