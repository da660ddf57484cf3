//! The server: the state that all requests share.
//!
//! Each request has its own runs, one for each phase of the processor, so that no request sees another's
//! files. The runs share the server's budget and its directory of temporary files. A semaphore limits their
//! workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_config::Document;
use thalweg_dialects::capyfile::{self, Operation};
use thalweg_engine::{Error, Registry, Temporaries};
use thalweg_job::{Configuration, EtcdLookup, LoadError};
use thalweg_net::net::{Address, Announce, Client, Limits, Listener, Owner, UnixSocket, serve};
use thalweg_net::tls::TlsServer;
use thalweg_net::upload::{self, Room};
use thalweg_net::web::{ConnectionOptions, converse};
use thalweg_record::Budget;
use thalweg_runtime::Stop;
use tokio::sync::Semaphore;

use crate::settings::Settings;

/// The most clients that may be connected.
const CONNECTIONS: usize = 4096;
/// How long a client may be silent.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a server that drains looks for requests in flight.
const DRAIN_TICK: Duration = Duration::from_millis(50);
/// The most workers of all requests together: `TURNS` for each core, and at least `LEAST_TURNS`.
const TURNS: usize = 4;
const LEAST_TURNS: usize = 32;

/// A service, and the state of its server.
pub(super) struct Server {
    pub(super) settings: Settings,
    pub(super) document: Document,
    pub(super) service: String,
    /// The processors and their operations.
    pub(super) processors: BTreeMap<String, Vec<Operation>>,
    pub(super) etcd: EtcdLookup,
    pub(super) registry: Registry,
    pub(super) budget: Budget,
    pub(super) room: Room,
    pub(super) limits: upload::Limits,
    pub(super) turns: Arc<Semaphore>,
    pub(super) all_turns: u32,
    pub(super) under_way: AtomicU64,
}

impl Server {
    /// Checks the definition, as far as possible without a request.
    pub(super) fn new(configuration: &Configuration, settings: Settings) -> Result<Self, LoadError> {
        let document = configuration.document().clone();
        let Some(service) = configuration.service()? else {
            let name = document.name().to_owned();
            let why = format!("it has no list of `processors`; use `thalweg run {name}`");
            return Err(LoadError::NoService { document: name, why });
        };
        let etcd = EtcdLookup::of_this_process()?;
        for remark in capyfile::check(&document, etcd.environment(None))?.to_string().lines() {
            tracing::warn!("{remark}");
        }
        let operations = |name: &String| (name.clone(), capyfile::operations(&document, name));
        let processors = service.processors.iter().map(operations).collect();
        let budget = Budget::new(settings.memory.as_usize());
        let temporary = Temporaries::new(None);
        temporary.sweep();
        let all_turns = u32::try_from((TURNS * settings.cores).max(LEAST_TURNS)).unwrap_or(u32::MAX);
        Ok(Self {
            limits: upload::Limits {
                max_file_bytes: settings.max_file_bytes,
                max_request_bytes: settings.max_request_bytes,
                max_files: settings.max_files,
                patience: CLIENT_TIMEOUT,
            },
            room: Room { share: budget.share(), temporary, in_memory: true },
            turns: Arc::new(Semaphore::new(all_turns as usize)),
            all_turns,
            settings,
            service: service.name,
            processors,
            document,
            etcd,
            registry: thalweg_job::registry(),
            budget,
            under_way: AtomicU64::new(0),
        })
    }

    /// True if it speaks TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.settings.tls.is_some()
    }

    /// Binds the address.
    pub(super) async fn bind(&self, announce: &Announce) -> Result<Listener, LoadError> {
        let address = Address::Tcp(self.settings.address.clone());
        Ok(Listener::bind(&address, UnixSocket::default(), announce).await?)
    }

    /// Answers requests until `stop`, then finishes those in flight. Returns true if all of them were
    /// answered in time.
    pub(super) async fn run(self: Arc<Self>, listener: Listener, stop: Stop) -> Result<bool, LoadError> {
        let tls = self.settings.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let limits = Limits { max_connections: CONNECTIONS, end_after_idle: None };
        let owner = Serving { server: self.clone(), stop: stop.clone() };
        let connection = |client, owner: Serving| owner.connection(client);
        let begun = async {
            stop.requested().await;
            tokio::time::Instant::now() + self.settings.drain_timeout
        };
        let (served, end) = tokio::join!(serve(&listener, limits, tls.as_ref(), &owner, connection), begun);
        served?;
        // A request continues after its client is gone. It does not always hold turns: not between two
        // phases, and not while its parameters are read.
        let drained = async {
            while self.under_way.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(DRAIN_TICK).await;
            }
        };
        Ok(tokio::time::timeout_at(end, drained).await.is_ok())
    }
}

/// A server, as the owner of its connections.
#[derive(Clone)]
struct Serving {
    server: Arc<Server>,
    stop: Stop,
}

impl Owner for Serving {
    fn name(&self) -> &str {
        &self.server.service
    }

    fn stopping(&self) -> impl Future<Output = ()> + Send {
        self.stop.requested()
    }

    fn grace(&self) -> Duration {
        self.server.settings.drain_timeout
    }
}

impl Serving {
    async fn connection(self, client: Client) -> Result<(), Error> {
        let peer = client.name.clone();
        let options = ConnectionOptions { read_timeout: CLIENT_TIMEOUT, keep_alive: true };
        let Serving { server, stop } = self;
        let answer = |request| server.clone().answer(request, peer.clone());
        converse(client, options, stop.requested(), answer).await;
        Ok(())
    }
}
