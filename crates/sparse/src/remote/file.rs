use super::ahead::Ahead;
use super::fetch::Fetcher;
use super::flights::Stopped;
use super::{RemoteError, Request};
use crate::cache::Cache;
use crate::{Error, Pool, Span, SparseFile};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_record::Budget;
use thalweg_runtime::ConcurrencyLimit;
use thalweg_store::{Fingerprint, Origin, Retries};
use tokio::sync::watch;

/// How to handle an origin that changes while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// Any read that would have to fetch bytes fails from then on.
    #[default]
    Fail,
    /// Everything held is discarded, and reads restart with the file as it is now. One read never mixes two
    /// states. A caller of several reads that belong together compares [`RemoteFile::generation`].
    Restart,
}

/// Receives each request when it has ended.
pub type Observer = Arc<dyn Fn(&Request) + Send + Sync>;

/// How a remote file is read.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The memory limit that the file shares with other files. `None`: no limit.
    pub pool: Option<Pool>,
    /// The memory budget of the process. Memory for data that is being received is reserved there.
    pub budget: Option<Budget>,
    /// The cache on disk for fetched ranges. It is searched before a range is fetched.
    pub cache: Option<Cache>,
    /// The limit on concurrent requests. Files of one origin should share it.
    pub concurrency: ConcurrencyLimit,
    /// How temporary failures are retried.
    pub retries: Retries,
    /// How to handle a changed origin.
    pub on_change: OnChange,
    /// The maximum gap in bytes between two ranges that become one request. The bytes of the gap are fetched
    /// as well.
    pub widest_gap: u64,
    /// The maximum length of a request in bytes.
    pub longest: u64,
    /// The minimum length of a request in bytes, unless the file ends or the following bytes are held. The
    /// bytes that follow are often read next.
    pub shortest: u64,
    /// How many bytes are fetched ahead of a sequential reader; 0 turns read-ahead off.
    pub read_ahead: u64,
    /// The maximum size in bytes of a file that is fetched as a whole if its origin does not serve ranges.
    pub whole: u64,
    /// Receives each request when it has ended.
    pub observer: Option<Observer>,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            pool: None,
            budget: None,
            cache: None,
            concurrency: ConcurrencyLimit::adaptive(4..=64),
            retries: Retries::default(),
            on_change: OnChange::default(),
            widest_gap: 256 << 10,
            longest: 8 << 20,
            shortest: 16 << 10,
            read_ahead: 16 << 20,
            whole: 64 << 20,
            observer: None,
        }
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions").field("on_change", &self.on_change).finish_non_exhaustive()
    }
}

/// The requests and bytes of a remote file so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RemoteStatistics {
    /// Requests, including failed ones.
    pub requests: u64,
    /// Requests that repeat a failed one.
    pub retries: u64,
    /// Bytes of the file that arrived over the network.
    pub fetched: u64,
    /// The part of `fetched` that was fetched in advance.
    pub fetched_ahead: u64,
    /// Bytes that the cache had.
    pub cached: u64,
    /// How often the file restarted because the origin had changed.
    pub restarts: u64,
    /// The recent time to the first byte of a reply.
    pub latency: Option<Duration>,
    /// The recent bandwidth of one request, in bytes per second.
    pub bandwidth: Option<f64>,
}

/// A remote file of which only the ranges that are read are fetched. Cloning returns another handle to the
/// same file. When the last handle is dropped, pending fetches are cancelled.
///
/// It must be used within a tokio runtime.
///
/// ```no_run
/// # async fn example() -> Result<(), thalweg_sparse::RemoteError> {
/// use thalweg_sparse::{Origin, RemoteFile, RemoteOptions};
///
/// let origin = Origin::from_url("https://example.org/large.zip")?;
/// let file = RemoteFile::open(origin, RemoteOptions::default()).await?;
/// let directory = file.read(file.length().saturating_sub(65_536), 65_536).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RemoteFile {
    fetcher: Arc<Fetcher>,
    ahead: Arc<parking_lot::Mutex<Ahead>>,
    _open: Arc<watch::Sender<()>>,
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFile({})", self.name())
    }
}

/// A range to fetch in advance; see [`RemoteFile::read_held`].
#[derive(Debug)]
pub struct Advance {
    span: Span,
    generation: u64,
}

/// How often one read restarts because the file has changed.
const RESTARTS: u32 = 5;

impl RemoteFile {
    /// Asks the origin for the file's length and state.
    ///
    /// # Errors
    /// [`RemoteError::Absent`], [`RemoteError::Denied`], [`RemoteError::Failed`].
    pub async fn open(origin: Origin, options: RemoteOptions) -> Result<Self, RemoteError> {
        let (open, closed) = watch::channel(());
        let fetcher = Fetcher::open(origin, options, closed).await?;
        Ok(Self { fetcher: Arc::new(fetcher), ahead: Arc::default(), _open: Arc::new(open) })
    }

    /// Returns the name of the file for messages.
    pub fn name(&self) -> &str {
        self.fetcher.origin.name()
    }

    /// Returns the length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.fetcher.version.read().fingerprint.length
    }

    /// Returns the state of the file that is read.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fetcher.version.read().fingerprint.clone()
    }

    /// Returns the generation, which grows by one each time the file restarts ([`OnChange::Restart`]).
    pub fn generation(&self) -> u64 {
        self.fetcher.version.read().generation
    }

    /// Returns the bytes that are held in memory.
    pub fn held(&self) -> &SparseFile {
        &self.fetcher.held
    }

    /// Returns the counts of requests and bytes so far.
    pub fn statistics(&self) -> RemoteStatistics {
        let counts = &self.fetcher.counts;
        let (latency, bandwidth) = self.fetcher.costs.lock().measured();
        RemoteStatistics {
            requests: counts.requests.load(Ordering::Relaxed),
            retries: counts.retries.load(Ordering::Relaxed),
            fetched: counts.fetched.load(Ordering::Relaxed),
            fetched_ahead: counts.fetched_ahead.load(Ordering::Relaxed),
            cached: counts.cached.load(Ordering::Relaxed),
            restarts: self.generation(),
            latency,
            bandwidth,
        }
    }

    /// Returns why the cache has stopped working, if it has.
    pub fn cache_error(&self) -> Option<String> {
        self.fetcher.cache_error()
    }

    /// Returns the `length` bytes at `position`. Missing bytes are fetched.
    ///
    /// # Errors
    /// [`RemoteError::PastEnd`] if the range extends beyond the end of the file; [`RemoteError::Changed`],
    /// [`RemoteError::Failed`] and the like.
    pub async fn read(&self, position: u64, length: usize) -> Result<Bytes, RemoteError> {
        self.within(Span::new(position, length as u64))?;
        let mut bytes = vec![0; length];
        self.read_into(position, &mut bytes).await?;
        Ok(bytes.into())
    }

    /// Fills `into` with the bytes from `position` on. After an error the content of `into` is undefined.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn read_into(&self, position: u64, into: &mut [u8]) -> Result<(), RemoteError> {
        let span = Span::new(position, into.len() as u64);
        self.reading(&[span], |held| held.read(position, into)).await
    }

    /// Fills `into` with the bytes from `position` on if all of them are held. Returns `None` if they are
    /// not. It never waits and needs no runtime. A reader of scattered bytes calls it first, and
    /// [`read_into`](Self::read_into) only if it returns `None`. The inner value is the range to read ahead
    /// for a sequential reader. The caller passes it to [`advance`](Self::advance) within a runtime.
    pub fn read_held(&self, position: u64, into: &mut [u8]) -> Option<Option<Advance>> {
        self.held().read(position, into).ok()?;
        let ahead = self.note(Span::new(position, into.len() as u64));
        Some(ahead.map(|span| Advance { span, generation: self.generation() }))
    }

    /// Starts to fetch the range that [`read_held`](Self::read_held) returned, and does not wait for it.
    pub fn advance(&self, advance: Advance) {
        // No reader waits for this fetch. If it fails, the next read of the range reports the error.
        let _ = self.fetcher.start(&[advance.span], advance.generation, true);
    }

    /// Reads several ranges at once: all missing parts are planned together and fetched in parallel.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn read_many(&self, spans: &[Span]) -> Result<Vec<Bytes>, RemoteError> {
        spans.iter().try_for_each(|span| self.within(*span).map(drop))?;
        let mut read = vec![Bytes::new(); spans.len()];
        self.reading(spans, |held| {
            for (span, read) in spans.iter().zip(&mut read).filter(|(span, _)| span.length > 0) {
                *read = held.read_to_vec(span.position, span.length as usize)?.into();
            }
            Ok(())
        })
        .await?;
        Ok(read)
    }

    /// Fetches all of `spans` into memory, without reading them. With a memory limit they stay until more
    /// recently used ranges evict them.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn fetch(&self, spans: &[Span]) -> Result<(), RemoteError> {
        self.reading(spans, |held| match held.need_many(spans, 0).first() {
            None => Ok(()),
            Some(missing) => Err(Error::Missing { wanted: *missing, missing: *missing }),
        })
        .await
    }

    /// Fetches the missing parts of `spans` until `copy` finds all bytes.
    async fn reading(
        &self,
        spans: &[Span],
        mut copy: impl FnMut(&SparseFile) -> Result<(), Error>,
    ) -> Result<(), RemoteError> {
        let spans: Vec<Span> = spans.iter().filter(|span| span.length > 0).copied().collect();
        if spans.is_empty() {
            return Ok(());
        }
        // Pinned: bytes of the spans are not evicted before they are read.
        let fetcher = &self.fetcher;
        let _pins: Vec<_> = spans.iter().map(|span| fetcher.held.pin(span.position, span.length)).collect();
        let mut read_ahead = spans.len() == 1;
        let (mut left, mut known) = (RESTARTS, None);
        loop {
            let mut generation = self.generation();
            for span in &spans {
                generation = self.within(*span)?;
            }
            if known.replace(generation).is_some_and(|known| known != generation) {
                left = left.checked_sub(1).ok_or_else(|| fetcher.keeps_changing())?;
            }
            {
                let version = fetcher.version.read();
                if version.generation == generation && copy(&fetcher.held).is_ok() {
                    drop(version);
                    if read_ahead {
                        self.read_ahead(spans[0], generation);
                    }
                    return Ok(());
                }
            }
            let waits = fetcher.start(&spans, generation, false)?;
            if std::mem::take(&mut read_ahead) {
                self.read_ahead(spans[0], generation);
            }
            if waits.is_empty() {
                // The bytes have arrived meanwhile, or the file has restarted.
                tokio::task::yield_now().await;
            }
            for mut wait in waits {
                let ended = wait.wait_for(Option::is_some).await.map(|ended| ended.clone());
                match ended.unwrap_or_default() {
                    Some(Ok(())) => {}
                    Some(Err(Stopped::Failed(error))) => return Err(error),
                    Some(Err(Stopped::Anew)) => break,
                    None => return Err(RemoteError::Closed { name: self.name().to_owned() }),
                }
            }
        }
    }

    /// Returns the generation of the file if `span` is within its length.
    fn within(&self, span: Span) -> Result<u64, RemoteError> {
        let version = self.fetcher.version.read();
        let length = version.fingerprint.length;
        if span.position.checked_add(span.length).is_none_or(|end| end > length) {
            return Err(RemoteError::PastEnd { name: self.name().to_owned(), wanted: span, length });
        }
        Ok(version.generation)
    }

    fn read_ahead(&self, span: Span, generation: u64) {
        if let Some(span) = self.note(span) {
            self.advance(Advance { span, generation });
        }
    }

    /// Records a read of `span`, and returns the range to fetch in advance, if any.
    fn note(&self, span: Span) -> Option<Span> {
        let ahead = self.ahead.lock().note(span, || self.fetcher.ahead_limits())?;
        let length = self.length();
        (ahead.position < length).then(|| Span::between(ahead.position, ahead.end().min(length)))
    }
}
