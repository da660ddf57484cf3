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

/// What to do when the origin turns out to have changed while it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChange {
    /// Whatever would have to be fetched is an error from then on.
    #[default]
    Fail,
    /// All that is held is let go, and reads begin anew with the file as it is now. One read never mixes two states;
    /// whoever makes several that belong together looks at [`RemoteFile::generation`].
    Restart,
}

/// Is told of each request when it has ended.
pub type Observer = Arc<dyn Fn(&Request) + Send + Sync>;

/// How a remote file is read.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The limit on the memory that it takes, together with other files. None is no limit.
    pub pool: Option<Pool>,
    /// The memory budget of the process: what is just being received is reserved there.
    pub budget: Option<Budget>,
    /// Ranges that were fetched are kept here, and looked for here first.
    pub cache: Option<Cache>,
    /// How many requests may be under way at once. Files of one origin should share it.
    pub concurrency: ConcurrencyLimit,
    /// What is temporary is tried again.
    pub retries: Retries,
    /// What to do when the origin has changed.
    pub on_change: OnChange,
    /// No more than so many bytes that nobody asked for are fetched to make one request out of two.
    pub widest_gap: u64,
    /// No request is longer.
    pub longest: u64,
    /// No request is shorter, unless the file ends or what follows is held: what comes next in a file is often read
    /// next.
    pub shortest: u64,
    /// How far is read ahead for those who read in order; 0 for not at all.
    pub read_ahead: u64,
    /// A file of at most so many bytes is fetched as a whole where its origin does not give parts.
    pub whole: u64,
    /// Is told of each request when it has ended.
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

/// What was done for a remote file so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RemoteStatistics {
    /// Requests that were made, those that failed among them.
    pub requests: u64,
    /// Those that were made again because one before had failed.
    pub retries: u64,
    /// Bytes of the file that came over the network.
    pub fetched: u64,
    /// Those of them that were fetched in advance.
    pub fetched_ahead: u64,
    /// Bytes that the cache had.
    pub cached: u64,
    /// How often the file began anew because the origin had changed.
    pub restarts: u64,
    /// The time to the first byte of a reply, as it was lately.
    pub latency: Option<Duration>,
    /// Bytes a second of one request, as it was lately.
    pub bandwidth: Option<f64>,
}

/// A file somewhere else, of which that is fetched what is read. Cloning gives another handle on the same file; when
/// the last is dropped, what is still being fetched is given up.
///
/// It is to be used within a tokio runtime.
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

/// What is to be fetched in advance; see [`RemoteFile::read_held`].
#[derive(Debug)]
pub struct Advance {
    span: Span,
    generation: u64,
}

/// How often one read begins anew because the file has changed.
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

    /// What messages call it.
    pub fn name(&self) -> &str {
        self.fetcher.origin.name()
    }

    /// How many bytes the file has.
    pub fn length(&self) -> u64 {
        self.fetcher.version.read().fingerprint.length
    }

    /// The state of the file that is read.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fetcher.version.read().fingerprint.clone()
    }

    /// Goes on by one each time that the file begins anew ([`OnChange::Restart`]).
    pub fn generation(&self) -> u64 {
        self.fetcher.version.read().generation
    }

    /// The bytes that are held in memory.
    pub fn held(&self) -> &SparseFile {
        &self.fetcher.held
    }

    /// What was done so far.
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

    /// Why the cache is not used (any more), if it is not although one was given.
    pub fn cache_trouble(&self) -> Option<String> {
        self.fetcher.cache_trouble()
    }

    /// The `length` bytes at `position`, fetched as far as they are not held.
    ///
    /// # Errors
    /// [`RemoteError::PastEnd`] if the file ends before; [`RemoteError::Changed`], [`RemoteError::Failed`] and the like.
    pub async fn read(&self, position: u64, length: usize) -> Result<Bytes, RemoteError> {
        self.within(Span::new(position, length as u64))?;
        let mut bytes = vec![0; length];
        self.read_into(position, &mut bytes).await?;
        Ok(bytes.into())
    }

    /// Fills `into` with the bytes from `position` on. Nothing is read by halves: after an error, `into` is in an
    /// undefined state.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub async fn read_into(&self, position: u64, into: &mut [u8]) -> Result<(), RemoteError> {
        let span = Span::new(position, into.len() as u64);
        self.reading(&[span], |held| held.read(position, into)).await
    }

    /// Fills `into` with the bytes from `position` on if all of them are held. It never waits, and needs no runtime: who reads a few
    /// bytes here and there asks first by this, and [`read_into`](Self::read_into) only when it says that they are not. Whoever reads
    /// in order so is read ahead for as well, but by the caller, who has a runtime then: see [`advance`](Self::advance).
    pub fn read_held(&self, position: u64, into: &mut [u8]) -> Option<Option<Advance>> {
        self.held().read(position, into).ok()?;
        let ahead = self.note(Span::new(position, into.len() as u64));
        Some(ahead.map(|span| Advance { span, generation: self.generation() }))
    }

    /// Begins to fetch in advance what [`read_held`](Self::read_held) found to be read next, and does not wait for it.
    pub fn advance(&self, advance: Advance) {
        // Nobody waits for it: if it fails, whoever reads there is told.
        let _ = self.fetcher.start(&[advance.span], advance.generation, true);
    }

    /// Several ranges at once: what is missing of all of them is planned together, and fetched in parallel.
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

    /// Sees to it that all of `spans` are held, without reading them. With a limit on memory they are held until others
    /// are used more.
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

    /// Fetches what is missing of `spans` until `copy` finds all of it.
    async fn reading(
        &self,
        spans: &[Span],
        mut copy: impl FnMut(&SparseFile) -> Result<(), Error>,
    ) -> Result<(), RemoteError> {
        let spans: Vec<Span> = spans.iter().filter(|span| span.length > 0).copied().collect();
        if spans.is_empty() {
            return Ok(());
        }
        // What is held now or comes to be held is not evicted before it is read.
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
                // It has come in the meantime, or the file has begun anew.
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

    /// The generation for which `span` is within the file.
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

    /// What is to be fetched in advance, now that `span` is read.
    fn note(&self, span: Span) -> Option<Span> {
        let ahead = self.ahead.lock().note(span, || self.fetcher.ahead_limits())?;
        let length = self.length();
        (ahead.position < length).then(|| Span::between(ahead.position, ahead.end().min(length)))
    }
}
