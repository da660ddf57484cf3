//! A store: the target of a URL.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opendal::{ErrorKind, Operator};
use parking_lot::Mutex;
use thalweg_beneath::{Beneath, Links};

use crate::attempt::{AttemptError, patient, state};
use crate::local::working;
use crate::transport::Seen;
use crate::upload::Remote;
use crate::url::{self, Kind};
use crate::{Listing, Object, Origin, Retries, StoreError};

/// A place that contains objects, with everything needed to access them. Clones are the same store: they
/// share connections, credentials and counters.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// The folder of this machine below which writes follow no links.
    beneath: Option<Beneath>,
}

struct Inner {
    operator: Operator,
    kind: Kind,
    /// The prefix that turns a path into a name.
    name: String,
    key: String,
    retries: Retries,
    counts: Counts,
    /// Access for our own requests, or why it is not possible. Created on first use.
    remote: OnceLock<Result<Option<Remote>, String>>,
}

/// The requests to a store so far.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
}

impl Counts {
    /// Returns how many requests were made.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns how many requests repeated a failed request.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of objects were received. Bytes that were received twice count twice.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of objects were sent. Bytes that were sent twice count twice.
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
    /// Returns the store of a URL, and the path in it. [`Origin::from_url`] describes the forms of a URL. A
    /// path that is empty or ends with a slash is the prefix of the names of several objects. (An `http` or
    /// `https` URL always means one file.)
    ///
    /// # Errors
    /// [`StoreError::NotAUrl`].
    pub fn from_url(url: &str) -> Result<(Self, String), StoreError> {
        Self::with_retries(url, Retries::default())
    }

    /// As [`from_url`](Self::from_url), with other retries.
    ///
    /// # Errors
    /// As for [`from_url`](Self::from_url).
    pub fn with_retries(url: &str, retries: Retries) -> Result<(Self, String), StoreError> {
        let url::Location { operator, kind, name, key, path } = url::parse(url)?;
        let inner =
            Inner { operator, kind, name, key, retries, counts: Counts::default(), remote: OnceLock::new() };
        Ok((Self { inner: Arc::new(inner), beneath: None }, path))
    }

    /// Returns the same store, whose writes follow no links below a folder of this machine: for paths that
    /// others decide. The path of the folder itself may have links. A store elsewhere has no links.
    #[must_use]
    pub fn without_links(self, folder: &str) -> Self {
        let beneath = || Beneath::new(Path::new("/").join(folder), Links::Refused);
        let beneath = self.is_here().then(beneath);
        Self { beneath, ..self }
    }

    pub(crate) fn beneath(&self) -> Option<&Beneath> {
        self.beneath.as_ref()
    }

    /// Returns the name of the object at a path for messages: its URL without secrets.
    pub fn name(&self, path: &str) -> String {
        match self.inner.kind {
            Kind::Http => self.inner.name.clone(),
            _ => format!("{}{path}", self.inner.name),
        }
    }

    /// Returns the counters of this store and its clones.
    pub fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    /// Returns how temporary failures are retried.
    pub fn retries(&self) -> &Retries {
        &self.inner.retries
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.inner.kind
    }

    pub(crate) fn made(&self) -> &Result<Option<Remote>, String> {
        self.inner.remote.get_or_init(|| Remote::of(&self.inner.kind))
    }

    /// Returns the object at a path as an origin, of which ranges can be cached.
    pub fn origin(&self, path: &str) -> Origin {
        let key = match self.inner.kind {
            Kind::Http => self.inner.key.clone(),
            _ => format!("{}{path}", self.inner.key),
        };
        Origin {
            operator: self.inner.operator.clone(),
            path: path.to_owned(),
            name: self.name(path),
            key,
            local: self.is_here().then(Beneath::chosen),
        }
    }

    /// True if the store is the folders of this machine.
    pub fn is_here(&self) -> bool {
        matches!(self.inner.kind, Kind::Folders)
    }

    /// True if the store speaks S3.
    pub fn is_s3(&self) -> bool {
        self.inner.name.starts_with("s3://")
    }

    /// True if the objects below a prefix can be listed.
    pub fn can_list(&self) -> bool {
        !matches!(self.inner.kind, Kind::Http)
    }

    /// True if listings are in the order of names and can start after a name.
    pub fn lists_in_order(&self) -> bool {
        match self.inner.kind {
            Kind::Folders => true,
            Kind::Http => false,
            _ => self.inner.operator.info().capability().list_with_start_after,
        }
    }

    /// Lists the objects below a prefix, at any depth.
    pub fn list(&self, prefix: &str) -> Listing {
        Listing::new(self.clone(), prefix.to_owned())
    }

    /// Looks up the object at a path.
    ///
    /// # Errors
    /// [`StoreError::Absent`] and other errors of the store.
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
        let mode = match self.inner.kind {
            Kind::Folders => {
                let file = Path::new("/").join(path);
                let asked = move || std::fs::metadata(file).map(|metadata| metadata.mode());
                Some(working(self, path, "asking for its permissions", asked).await?)
            }
            _ => None,
        };
        Ok(Object { mode, ..Object::new(self.clone(), path.to_owned(), state) })
    }

    /// Removes an object. It is no error if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        let name = self.name(path);
        self.patiently(&name, "removing it", |seen| {
            let (name, operator) = (&name, self.origin(path).looking(&seen, 0));
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

    /// Runs `attempt`, and retries temporary failures.
    pub(crate) async fn patiently<T, F: Future<Output = Result<T, AttemptError>>>(
        &self,
        name: &str,
        what: &str,
        mut attempt: impl FnMut(Arc<Mutex<Seen>>) -> F,
    ) -> Result<T, StoreError> {
        let mut failed = 0;
        loop {
            self.inner.counts.request(failed > 0);
            let failure = match attempt(Arc::default()).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            failed += 1;
            let pause = self.pause(name, what, failure, failed)?;
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns how long to wait before the next attempt.
    ///
    /// # Errors
    /// If there is to be no further attempt.
    pub(crate) fn pause(
        &self,
        name: &str,
        what: &str,
        failure: AttemptError,
        failed: u32,
    ) -> Result<Duration, StoreError> {
        let name = name.to_owned();
        match failure {
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
                Err(StoreError::Changed { name, was: "in another state when it was found".to_owned(), is })
            }
            // Unreachable here: no receiver of this crate abandons an attempt.
            AttemptError::Stale => Err(StoreError::Failed {
                name,
                what: what.to_owned(),
                attempts: failed,
                why: "the attempt was abandoned".to_owned(),
                is_temporary: false,
            }),
        }
    }
}
