//! Shared by the sinks: how messages are sent, and whether the service can be used at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{Context, Error, InFlight, Rejects, Sink, WriteOutcome};
use thalweg_net::requests::{Encode, Service, Shared, Store, StoreOptions};
use thalweg_record::Batch;
use tokio::sync::OnceCell;

use crate::api::{Access, Api, AwsService, CallError};
use crate::options::AwsOptions;
use crate::refusal::Kind;

/// How many bytes of an answer are read. It has a short text for each message of a request, at most.
const MOST_ANSWER: usize = 8 << 20;

/// How messages are sent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct SendingOptions {
    /// The largest number of requests in flight. By default it adapts to the service, up to 64, and is 1 for
    /// a queue or topic in order (FIFO). With 1, batches are sent in order, and not joined.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    concurrency: Option<usize>,
    /// How long a small batch waits for others, to be sent with them in one request. It does not wait if
    /// sources wait for memory. The default is 100 ms.
    #[serde(default = "thalweg_net::net::defaults::a_tenth_of_a_second")]
    max_delay: TimeSpan,
    /// After the service has been failing for this time, the messages of a batch leave by `errors`. The time
    /// counts from the first attempt that fails, and again from each message that the service takes or
    /// refuses. By default messages wait for as long as it takes, and their sources with them when the memory
    /// is full.
    #[serde(default)]
    give_up: Option<TimeSpan>,
    /// Whether the service must answer before the run begins, and know the credentials and the target. The
    /// default is `true`.
    #[serde(default = "thalweg_net::net::defaults::yes")]
    check: bool,
}

/// The state that the writers of a sink share. It is a part of its configuration, which each of them has a
/// clone of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Common {
    requests: Shared,
    is_checked: Arc<OnceCell<()>>,
    pub(crate) ids: Ids,
}

/// Numbers of messages, which are the same when a message is sent again, and differ between runs.
#[derive(Debug, Clone)]
pub(crate) struct Ids {
    run: u64,
    next: Arc<AtomicU64>,
}

impl Default for Ids {
    fn default() -> Self {
        Self { run: fastrand::u64(..), next: Arc::default() }
    }
}

impl Ids {
    /// Takes numbers for the messages of a batch, and returns the first.
    pub(crate) fn take(&self, batch: &Batch) -> u64 {
        self.next.fetch_add(batch.rows() as u64, Relaxed)
    }

    /// Appends the text of a number.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{:016x}-{number}", self.run).as_bytes());
    }
}

/// The request that shows whether the service can be used.
pub(crate) struct Probe {
    pub(crate) action: &'static str,
    pub(crate) body: Bytes,
}

/// A sink, as its options describe it.
pub(crate) struct Plan<'a> {
    pub(crate) service: &'static AwsService,
    pub(crate) aws: &'a AwsOptions,
    pub(crate) sending: &'a SendingOptions,
    pub(crate) common: &'a Common,
    /// The name, ARN or URL of what it writes into.
    pub(crate) place: &'a str,
    /// The largest number of messages in a request.
    pub(crate) most_count: usize,
    /// The largest number of bytes in a request.
    pub(crate) most_bytes: ByteSize,
    /// True if messages are sent in order by default.
    pub(crate) is_in_order: bool,
}

impl Plan<'_> {
    fn requests(&self, url: String) -> StoreOptions {
        let SendingOptions { concurrency, max_delay, give_up, check: _ } = self.sending;
        let mut requests = self.aws.requests(url);
        requests.concurrency = concurrency.or(self.is_in_order.then_some(1));
        requests.max_delay = *max_delay;
        requests.give_up = *give_up;
        requests.max_count = self.most_count;
        requests
    }

    /// Returns the number of batches that wait for an answer at the same time.
    pub(crate) fn in_flight(&self) -> InFlight {
        self.requests(String::new()).in_flight()
    }

    /// Builds one writer of the sink.
    ///
    /// # Errors
    /// If the region is not known, or TLS cannot be set up.
    pub(crate) fn build(
        &self,
        context: &Context,
        probe: Probe,
        service: impl Service,
        encode: impl Encode + 'static,
    ) -> Result<Box<dyn Sink>, Error> {
        let access = Arc::new(self.aws.access(self.service, self.place)?);
        let requests = self.requests(access.url.clone());
        let check = self.sending.check.then(|| (access.clone(), requests.clone(), probe));
        let request = || access.request(&requests, MOST_ANSWER);
        let shared = &self.common.requests;
        let store = Store::of(context, &requests, shared, self.most_bytes, request, service, encode)?;
        Ok(Box::new(Checked { store, check, is_checked: self.common.is_checked.clone() }))
    }
}

/// A writer that asks the service first.
struct Checked {
    store: Store,
    /// None if the user wants no check. Only the first writer needs a client for it.
    check: Option<(Arc<Access>, StoreOptions, Probe)>,
    is_checked: Arc<OnceCell<()>>,
}

/// Asks the service whether it can be used.
async fn check(api: &Api, probe: &Probe) -> Result<(), Error> {
    match api.ask(probe.action, probe.body.clone()).await {
        Ok(_) => Ok(()),
        Err(CallError::Failed(error)) => Err(error),
        Err(CallError::Refused(refusal)) => match refusal.kind {
            // There are no messages yet: an invalid name of the target would otherwise make each of them
            // leave by `errors`.
            Kind::Credentials | Kind::Absent | Kind::Messages => Err(refusal
                .error()
                .context("the service cannot be used (`check: false` does without this check)")),
            // A user who may only write may not ask. Whether the service takes messages is seen by its
            // answers.
            _ => Ok(()),
        },
    }
}

#[async_trait]
impl Sink for Checked {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        if let Some((access, requests, probe)) = &self.check {
            let checked = self.is_checked.get_or_try_init(|| async {
                let api = Api::new(access, requests, MOST_ANSWER)?;
                check(&api, probe).await
            });
            checked.await?;
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        self.store.write(batch, rejects).await
    }

    fn drop_batch(&mut self) {
        self.store.drop_batch();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.store.flush().await
    }
}
