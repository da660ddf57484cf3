//! Fetching: turns missing ranges into requests, and handles the result of each.

use super::attempt::{Attempted, request_ended};
use super::costs::Costs;
use super::flights::{Ended, Flights, Stopped, Table};
use super::request::{Ending, Purpose, Request};
use super::{OnChange, RemoteError, RemoteOptions};
use crate::cache::CachedFile;
use crate::{Merge, Options, Overlap, Span, SparseFile, span};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_record::Share;
use thalweg_store::{AttemptError, Fingerprint, Origin};
use tokio::sync::watch;

/// The limit on retries for an origin that sends a few bytes each time and then breaks off.
const MOST_RETRIES: u32 = 1000;

/// The state that readers and fetches share.
pub(crate) struct Fetcher {
    pub origin: Origin,
    pub options: RemoteOptions,
    /// Held by every thread that puts bytes into `held` or copies them from there, so that two states of the
    /// file never mix.
    pub version: RwLock<Version>,
    pub held: SparseFile,
    pub costs: Mutex<Costs>,
    pub counts: Counts,
    flights: Arc<Flights>,
    share: Option<Share>,
    cache: Option<CachedFile>,
    /// True once the origin has shown that it does not serve ranges.
    whole: AtomicBool,
    /// The error of the first fetch that found the origin changed.
    changed: Mutex<Option<RemoteError>>,
    closed: watch::Receiver<()>,
}

pub(crate) struct Version {
    pub generation: u64,
    pub fingerprint: Fingerprint,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub fetched: AtomicU64,
    pub fetched_ahead: AtomicU64,
    pub cached: AtomicU64,
}

impl Fetcher {
    pub async fn open(
        origin: Origin,
        options: RemoteOptions,
        closed: watch::Receiver<()>,
    ) -> Result<Self, RemoteError> {
        let counts = Counts::default();
        let mut costs = Costs::default();
        let fingerprint = super::attempt::state(&origin, &options, &counts, &mut costs).await?;
        let cache = options
            .cache
            .as_ref()
            .map(|cache| thalweg_runtime::blocking(|| cache.open(origin.key(), origin.name(), &fingerprint)));
        let held = Options {
            pool: options.pool.clone(),
            // If nothing else tells that the origin has changed, overlapping requests may.
            overlap: Overlap::Agree,
            ..Options::default()
        };
        let modified = fingerprint.modified.map_or(0.0, |modified| modified as f64 / 1e9);
        Ok(Self {
            held: SparseFile::with_options(origin.name(), modified, held),
            share: options.budget.as_ref().map(|budget| budget.share()),
            version: RwLock::new(Version { generation: 0, fingerprint }),
            costs: Mutex::new(costs),
            flights: Arc::default(),
            whole: AtomicBool::new(false),
            changed: Mutex::default(),
            origin,
            options,
            counts,
            cache,
            closed,
        })
    }

    /// Starts to fetch what is missing of `spans`, and returns the fetches to wait for. The list is empty if
    /// everything is held, or the generation is over.
    pub fn start(
        self: &Arc<Self>,
        spans: &[Span],
        generation: u64,
        ahead: bool,
    ) -> Result<Vec<watch::Receiver<Ended>>, RemoteError> {
        self.take_from_cache(spans, generation);
        let mut table = self.flights.lock();
        let mut missing = self.held.need_many(spans, 0);
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let length = {
            // Under the lock of the table, because a restart empties the table.
            let version = self.version.read();
            if version.generation != generation {
                return Ok(Vec::new());
            }
            version.fingerprint.length
        };
        if self.whole.load(Ordering::Acquire) {
            missing = vec![Span::new(0, length)];
        }
        let (mut waits, rest) = table.divide(&missing);
        // If only the whole file can be fetched, range requests under way end in failure. Wait for them
        // first.
        if rest.is_empty() || self.whole.load(Ordering::Acquire) && !waits.is_empty() {
            return Ok(waits);
        }
        // Fetches under way are of the former state and may still succeed; new ones cannot.
        if let Some(changed) = self.changed.lock().clone() {
            return Err(changed);
        }
        let purpose = if ahead { Purpose::Ahead } else { Purpose::Read };
        for request in self.plan(&table, rest, length) {
            let (taken, ended) = self.flights.begin(&mut table, request);
            waits.push(ended);
            let fetcher = self.clone();
            let mut closed = self.closed.clone();
            tokio::spawn(async move {
                tokio::select! {
                    ended = fetcher.fly(request, generation, purpose) => taken.end(ended),
                    _ = closed.changed() => {
                        let name = fetcher.origin.name().to_owned();
                        taken.end(Err(Stopped::Failed(RemoteError::Closed { name })));
                    }
                }
            });
        }
        Ok(waits)
    }

    /// Returns the requests for `rest`, which is missing and not under way. No request contains bytes that
    /// are under way, not even in a gap.
    fn plan(&self, table: &Table, mut rest: Vec<Span>, length: u64) -> Vec<Span> {
        if self.whole.load(Ordering::Acquire) {
            return vec![Span::new(0, length)];
        }
        let merge = self.costs.lock().merge(self.options.widest_gap, self.options.longest);
        for span in &mut rest {
            if span.length < self.options.shortest {
                let end = span.position.saturating_add(self.options.shortest).min(length);
                let end = end.min(table.next(span.end()).unwrap_or(u64::MAX));
                // Only up to the next bytes that are held.
                let more = self.held.need(span.end(), end.saturating_sub(span.end()), 0);
                if let Some(more) = more.first().filter(|more| more.position == span.end()) {
                    span.length += more.length;
                }
            }
        }
        let mut requests = Vec::new();
        let mut from = 0;
        for at in 0..rest.len() {
            let parted = rest
                .get(at + 1)
                .is_none_or(|next| table.next(rest[at].end()).is_some_and(|flight| flight < next.position));
            if parted {
                requests.extend(span::merge(&span::joined(&rest[from..=at]), merge));
                from = at + 1;
            }
        }
        requests
    }

    /// Returns the minimum and maximum number of bytes to read ahead; `None` if read-ahead is off.
    pub fn ahead_limits(&self) -> Option<(u64, u64)> {
        let mut most = self.options.read_ahead;
        if let Some(pool) = &self.options.pool {
            most = most.min(pool.statistics().limit as u64 / 4);
        }
        let short = self.options.budget.as_ref().is_some_and(|budget| budget.is_short());
        if most == 0 || short || self.whole.load(Ordering::Relaxed) {
            return None;
        }
        let Merge { gap, .. } = self.costs.lock().merge(self.options.widest_gap, self.options.longest);
        Some((gap.min(most), most))
    }

    /// Fetches one range, and retries temporary failures.
    async fn fly(&self, span: Span, generation: u64, purpose: Purpose) -> Result<(), Stopped> {
        let _pin = self.held.pin(span.position, span.length);
        let (mut rest, mut failed, mut retries) = (span, 0, 0);
        loop {
            let lease = match &self.share {
                Some(share) => Some(share.reserve(rest.length as usize).await),
                None => None,
            };
            let permit = self.options.concurrency.acquire(rest.length).await;
            let Attempted { request, result, kept } =
                self.attempt(rest, generation, purpose, retries, lease).await;
            match &result {
                Ok(()) => permit.succeeded(),
                Err(AttemptError::Temporary { overloaded: true, .. }) => permit.overloaded(),
                Err(_) => permit.failed(),
            }
            let Err(error) = result else {
                self.ended(request, Ending::Done);
                break;
            };
            let (why, asked) = match error {
                AttemptError::Temporary { why, asked, .. } => (why, asked),
                AttemptError::Other(is) => {
                    self.ended(
                        request,
                        Ending::Failed { why: format!("the file has changed: it is {is} now") },
                    );
                    return Err(self.change(is, generation).await);
                }
                AttemptError::Ignored => {
                    self.ended(
                        request,
                        Ending::Failed {
                            why: "the server sent the whole file instead of the range".to_owned(),
                        },
                    );
                    return Err(self.take_whole());
                }
                AttemptError::Fatal(error) => {
                    self.ended(request, Ending::Failed { why: error.to_string() });
                    return Err(Stopped::Failed(error.into()));
                }
                AttemptError::Stale => {
                    self.ended(request, Ending::Failed { why: "the file has restarted".to_owned() });
                    return Err(Stopped::Anew);
                }
            };
            // Received bytes are kept, and an attempt that received some resets the count of failures.
            if !self.whole.load(Ordering::Relaxed) {
                rest = Span::between(rest.position + kept, rest.end());
            }
            if rest.length == 0 {
                self.ended(request, Ending::Done);
                break;
            }
            failed = if kept > 0 { 1 } else { failed + 1 };
            retries += 1;
            match self.options.retries.pause(failed, asked) {
                Some(pause) if retries < MOST_RETRIES => {
                    self.ended(request, Ending::Retried { why, pause });
                    tokio::time::sleep(pause).await;
                }
                _ => {
                    self.ended(request, Ending::Failed { why: why.clone() });
                    return Err(Stopped::Failed(RemoteError::Failed {
                        name: self.origin.name().to_owned(),
                        what: format!("reading {span}"),
                        attempts: retries,
                        why,
                    }));
                }
            }
        }
        self.give_to_cache(span, generation);
        Ok(())
    }

    fn ended(&self, request: Request, ending: Ending) {
        request_ended(request, ending, &self.counts, &self.options);
    }

    /// Handles that the origin is in another state.
    async fn change(&self, is: String, generation: u64) -> Stopped {
        let error = {
            let version = self.version.read();
            if version.generation != generation {
                return Stopped::Anew;
            }
            RemoteError::Changed {
                name: self.origin.name().to_owned(),
                was: version.fingerprint.to_string(),
                is,
            }
        };
        if self.options.on_change == OnChange::Fail {
            *self.changed.lock() = Some(error.clone());
            return Stopped::Failed(error);
        }
        // The reply may not have contained the whole state.
        let mut costs = Costs::default();
        let fingerprint =
            match super::attempt::state(&self.origin, &self.options, &self.counts, &mut costs).await {
                Ok(fingerprint) => fingerprint,
                Err(error) => return Stopped::Failed(error),
            };
        {
            let mut table = self.flights.lock();
            let mut version = self.version.write();
            if version.generation != generation {
                return Stopped::Anew;
            }
            version.generation += 1;
            version.fingerprint = fingerprint.clone();
            self.held.clear();
            table.clear();
        }
        // Without the locks, because a reader of the cache may wait for them. Until then the cache is of no
        // use to the new generation.
        if let Some(cache) = &self.cache {
            thalweg_runtime::blocking(|| cache.renew(&fingerprint, generation + 1));
        }
        Stopped::Anew
    }

    /// Returns the error for a reader whose file changed more often than the reader restarts.
    pub fn keeps_changing(&self) -> RemoteError {
        let is = self.version.read().fingerprint.to_string();
        RemoteError::Changed {
            name: self.origin.name().to_owned(),
            was: "changing all the time".to_owned(),
            is,
        }
    }

    fn take_whole(&self) -> Stopped {
        let (length, limit) = (self.version.read().fingerprint.length, self.options.whole);
        if length > limit {
            let name = self.origin.name().to_owned();
            return Stopped::Failed(RemoteError::NoRanges { name, length, limit });
        }
        self.whole.store(true, Ordering::Release);
        Stopped::Anew
    }

    fn take_from_cache(&self, spans: &[Span], generation: u64) {
        let Some(cache) = &self.cache else { return };
        let missing = self.held.need_many(spans, 0);
        if missing.is_empty() {
            return;
        }
        let mut found = 0;
        thalweg_runtime::blocking(|| {
            cache.read(&missing, generation, |position, bytes| {
                let version = self.version.read();
                if version.generation == generation
                    && self.held.write_with(position, bytes, Overlap::Keep).is_ok()
                {
                    found += bytes.len() as u64;
                }
            });
        });
        self.counts.cached.fetch_add(found, Ordering::Relaxed);
    }

    fn give_to_cache(&self, span: Span, generation: u64) {
        let Some(cache) = &self.cache else { return };
        thalweg_runtime::blocking(|| {
            cache.write(span, generation, |position, into| {
                let version = self.version.read();
                version.generation == generation && self.held.read(position, into).is_ok()
            });
        });
    }

    pub fn cache_error(&self) -> Option<String> {
        self.cache.as_ref().and_then(CachedFile::cache_error)
    }
}

impl Counts {
    /// Counts a request that has ended.
    pub fn note(&self, request: &Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.retries.fetch_add(u64::from(request.retries > 0), Ordering::Relaxed);
        self.fetched.fetch_add(request.received, Ordering::Relaxed);
        if request.purpose == Purpose::Ahead {
            self.fetched_ahead.fetch_add(request.received, Ordering::Relaxed);
        }
    }
}
