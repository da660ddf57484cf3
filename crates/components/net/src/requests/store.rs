//! The sink of a system that is written to by HTTP: what all of them have in common.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Url};
use thalweg_config::ByteSize;
use thalweg_engine::{Context, Error, Rejects, Sink, WriteOutcome};
use thalweg_record::{Batch, Share};
use thalweg_runtime::ConcurrencyLimit;
use tokio::sync::OnceCell;

use super::client::Compression;
use super::failure::Failure;
use super::gather::{Gather, Service};
use super::moments::Moments;
use super::options::StoreOptions;
use super::parts::{Encode, Encoded};
use super::request::Request;
use super::rounds::{Piece, Rounds};

/// The pieces of one batch that are sent at the same time, if the sink may send several requests.
const PIECES: usize = 4;

/// How many bytes of an answer are read.
const MOST_ANSWER: usize = 16 << 20;

/// Where and how a system is written to.
pub(crate) struct Target {
    /// The path below the URL of the server.
    pub(crate) path: &'static str,
    pub(crate) query: Vec<(String, String)>,
    /// The headers of requests.
    pub(crate) headers: HeaderMap,
    /// The default of the largest request.
    pub(crate) most_bytes: ByteSize,
    /// True if a request may have messages of several batches.
    pub(crate) is_joining: bool,
    /// The request that shows whether the server can be used.
    pub(crate) check: Check,
}

/// The request that shows whether a server can be used.
pub(crate) struct Check {
    /// Its path below the URL of the server.
    pub(crate) path: &'static str,
    pub(crate) query: Vec<(String, String)>,
    /// The statuses by which the server refuses the user. A user who may only write can get others.
    pub(crate) denied: &'static [u16],
}

/// The state that the writers of a sink share. It is a part of its configuration, which each of them has a
/// clone of.
#[derive(Clone, Default)]
pub struct Shared(Arc<Common>);

#[derive(Default)]
struct Common {
    client: OnceLock<Client>,
    gather: OnceLock<Arc<Gather>>,
    is_checked: Arc<OnceCell<()>>,
    moments: Moments,
}

impl Shared {
    /// Returns the times that the messages of the sink have got.
    pub(crate) fn moments(&self) -> Moments {
        self.0.moments.clone()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// A writer of the sink.
pub struct Store {
    gather: Arc<Gather>,
    encode: Box<dyn Encode>,
    rounds: Rounds,
    memory: Share,
    /// The request that shows whether the server can be used, unless the user wants none.
    check: Option<(Request, &'static [u16])>,
    is_checked: Arc<OnceCell<()>>,
}

/// Returns the URL of a path below that of a server.
fn below(base: &Url, path: &str, query: &[(String, String)]) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

impl Common {
    /// Returns the request to a path of the server.
    fn request(
        &self,
        options: &StoreOptions,
        method: Method,
        headers: HeaderMap,
        path: &str,
        query: &[(String, String)],
    ) -> Result<Request, Error> {
        let compression = if method == Method::GET { Compression::None } else { options.compression };
        let endpoint = options.endpoint();
        let mut request = endpoint.request(method, headers, compression, MOST_ANSWER, &self.client)?;
        request.url = below(&request.url, path, query);
        Ok(request)
    }

    /// Returns the sender that the writers share.
    fn gather(
        &self,
        options: &StoreOptions,
        target: Target,
        service: impl Service,
    ) -> Result<Arc<Gather>, Error> {
        let Target { path, query, headers, most_bytes, is_joining, .. } = target;
        self.gather_by(options, service, most_bytes, is_joining, || {
            self.request(options, Method::POST, headers, path, &query)
        })
    }

    /// Returns the sender that the writers share. The first of them makes the request.
    fn gather_by(
        &self,
        options: &StoreOptions,
        service: impl Service,
        most_bytes: ByteSize,
        is_joining: bool,
        request: impl FnOnce() -> Result<Request, Error>,
    ) -> Result<Arc<Gather>, Error> {
        if let Some(gather) = self.gather.get() {
            return Ok(gather.clone());
        }
        let limits = options.limits(most_bytes);
        let is_joining = is_joining && !options.is_in_order();
        let made = Gather::new(request()?, Box::new(service), limits, options.limit(), is_joining);
        Ok(self.gather.get_or_init(|| Arc::new(made)).clone())
    }
}

impl Store {
    /// Builds one writer of a sink.
    pub(crate) fn build(
        context: &Context,
        options: &StoreOptions,
        shared: &Shared,
        target: Target,
        service: impl Service,
        encode: impl Encode + 'static,
    ) -> Result<Box<dyn Sink>, Error> {
        let Shared(common) = shared;
        let Check { path, query, denied } = &target.check;
        let check = match options.check {
            true => Some((common.request(options, Method::GET, HeaderMap::new(), path, query)?, *denied)),
            false => None,
        };
        let gather = common.gather(options, target, service)?;
        Ok(Box::new(Self::new(context, options, common, gather, Box::new(encode), check)))
    }

    /// Builds one writer of a sink that has options of its own. The first writer makes the request. A request
    /// has at most `most_bytes` bytes of parts, unless the options say another number.
    ///
    /// # Errors
    /// Those of `request`.
    pub fn of(
        context: &Context,
        options: &StoreOptions,
        shared: &Shared,
        most_bytes: ByteSize,
        request: impl FnOnce() -> Result<Request, Error>,
        service: impl Service,
        encode: impl Encode + 'static,
    ) -> Result<Self, Error> {
        let Shared(common) = shared;
        let gather = common.gather_by(options, service, most_bytes, true, request)?;
        Ok(Self::new(context, options, common, gather, Box::new(encode), None))
    }

    fn new(
        context: &Context,
        options: &StoreOptions,
        common: &Common,
        gather: Arc<Gather>,
        encode: Box<dyn Encode>,
        check: Option<(Request, &'static [u16])>,
    ) -> Self {
        let in_order = options.is_in_order();
        let pieces = ConcurrencyLimit::fixed(if in_order { 1 } else { PIECES });
        Self {
            gather,
            encode,
            rounds: Rounds::new(&context.name, pieces, in_order, options.give_up),
            memory: context.memory.clone(),
            check,
            is_checked: common.is_checked.clone(),
        }
    }

    /// Encodes all messages of the batch, also those that are done: pieces depend on them.
    fn encoded(&mut self, batch: &Batch) -> Encoded {
        if self.rounds.begin(batch.payload()) {
            self.encode.begin(batch);
        }
        let all: Vec<usize> = (0..batch.rows()).collect();
        let mut encoded = Encoded::default();
        self.encode.encode(batch, &all, &mut encoded);
        for (row, reason) in encoded.take_rejected() {
            self.rounds.reject(row, reason);
        }
        encoded
    }
}

/// Sends the request that shows whether the server can be used.
async fn check(request: &Request, denied: &[u16]) -> Result<(), Error> {
    let built = request.client.request(request.method.clone(), request.url.clone());
    let answer = request.send_built(built).await.map_err(Failure::error)?;
    match denied.contains(&answer.status.as_u16()) {
        true => {
            let text = request.text(&answer);
            Err(Error::permanent(format!("{text}; correct `auth`, or set `check: false`")))
        }
        // Any other answer shows that there is a server. Whether it takes messages is seen by its answers.
        false => Ok(()),
    }
}

#[async_trait]
impl Sink for Store {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        if let Some((request, denied)) = &self.check {
            self.is_checked.get_or_try_init(|| check(request, denied)).await?;
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let encoded = self.encoded(batch);
        // The parts, the pieces that are cut of them, and the bodies.
        let _copies = self.memory.claim(encoded.len() * 3);
        let (gather, budget) = (self.gather.clone(), self.memory.budget().clone());
        let limits = gather.limits();
        let pieces = move |open: Vec<usize>| {
            let pieces = encoded.cut(&open, limits.bytes, limits.count);
            let (gather, budget) = (gather.clone(), budget.clone());
            pieces.into_iter().map(move |(rows, parts)| {
                let (gather, budget) = (gather.clone(), budget.clone());
                let bytes = parts.bytes().len();
                Piece { rows, bytes, work: Box::pin(async move { gather.send(parts, &budget).await }) }
            })
        };
        self.rounds.send(batch.payload(), rejects, pieces).await?;
        Ok(WriteOutcome::Durable)
    }

    fn drop_batch(&mut self) {
        self.rounds.forget();
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
