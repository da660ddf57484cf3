//! Serving a service definition of capyfile: requests bring files, its processors process them.
//!
//! Each request has runs of its own, one for each phase of the processor, so that no request can see another's files. They
//! count on the server's one budget, make their temporary files in the server's one folder, and take turns where there are
//! very many.

mod health;
mod phases;
mod request;
mod uploads;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use thalweg_config::{ByteSize, Document};
use thalweg_dialects::capyfile::{self, Operation};
use thalweg_engine::{Registry, Temporaries};
use thalweg_net::net::{Address, Announce, Client, Limits, Listener, Owner, UnixSocket, serve};
use thalweg_net::tls::TlsServer;
use thalweg_net::upload::{self, Room};
use thalweg_net::web::{ConnectionOptions, converse};
use thalweg_record::Budget;
use thalweg_runtime::Stop;
use tokio::sync::Semaphore;

use crate::exit::CliError;
use crate::service::{EtcdLookup, surroundings};

pub use health::Check;

/// How many clients may be connected.
const CONNECTIONS: usize = 4096;
/// How long a client may be silent.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many copies of what works at files there may be at once, in all requests, for each core, and at least.
const TURNS: usize = 4;
const LEAST_TURNS: usize = 32;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub address: String,
    /// The certificate, where TLS is spoken.
    pub tls: Option<TlsServer>,
    /// The health check, if there is one.
    pub check: Option<Check>,
    /// The largest file.
    pub max_file: ByteSize,
    /// The largest request.
    pub max_request: ByteSize,
    /// The most files in a request.
    pub max_files: usize,
    /// The budget.
    pub memory: ByteSize,
    /// How many cores to use.
    pub cores: usize,
    /// How long what is under way may take when the server is to end.
    pub grace: Duration,
}

/// A service that is served.
pub struct Server {
    settings: Settings,
    document: Document,
    service: String,
    /// The processors, and what they do.
    processors: BTreeMap<String, Vec<Operation>>,
    world: EtcdLookup,
    registry: Registry,
    budget: Budget,
    room: Room,
    limits: upload::Limits,
    turns: Arc<Semaphore>,
    all_turns: u32,
    under_way: AtomicU64,
}

impl Server {
    /// Checks the definition, as far as that can be done without a request.
    pub fn new(document: Document, settings: Settings, world: EtcdLookup) -> Result<Self, CliError> {
        let service = capyfile::service(&document).map_err(CliError::Mistakes)?;
        let remarks = capyfile::check(&document, surroundings(&world, None)).map_err(CliError::Mistakes)?;
        for remark in remarks.to_string().lines() {
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
                max_file: settings.max_file,
                max_request: settings.max_request,
                max_files: settings.max_files,
                patience: PATIENCE,
            },
            room: Room { share: budget.share(), temporary, in_memory: true },
            turns: Arc::new(Semaphore::new(all_turns as usize)),
            all_turns,
            settings,
            service: service.name,
            processors,
            document,
            world,
            registry: thalweg_components::registry(),
            budget,
            under_way: AtomicU64::new(0),
        })
    }

    /// Takes the address; one that is in use is a failure.
    pub async fn bind(&self, announce: &Announce) -> Result<Listener, CliError> {
        let address = Address::Tcp(self.settings.address.clone());
        Ok(Listener::bind(&address, UnixSocket::default(), announce).await?)
    }

    /// Answers requests until it is told to stop, and those that are under way then. Says whether all of them were.
    pub async fn run(self: Arc<Self>, listener: Listener, stop: Stop) -> Result<bool, CliError> {
        let tls = self.settings.tls.as_ref().map(TlsServer::acceptor).transpose()?;
        let limits = Limits { max_connections: CONNECTIONS, end_after_idle: None };
        let owner = Serving { server: self.clone(), stop: stop.clone() };
        let connection = |client, owner: Serving| owner.connection(client);
        let begun = async {
            stop.requested().await;
            tokio::time::Instant::now() + self.settings.grace
        };
        let (served, end) = tokio::join!(serve(&listener, limits, tls.as_ref(), &owner, connection), begun);
        served?;
        // What is processed goes on where its client has gone.
        let all = tokio::time::timeout_at(end, self.turns.acquire_many(self.all_turns)).await;
        Ok(all.is_ok() && self.under_way.load(std::sync::atomic::Ordering::Relaxed) == 0)
    }
}

/// A server, as what connections are accepted for.
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
        self.server.settings.grace
    }
}

impl Serving {
    async fn connection(self, client: Client) -> Result<(), thalweg_engine::Error> {
        let peer = client.name.clone();
        let manner = ConnectionOptions { read_timeout: PATIENCE, keep_alive: true };
        let Serving { server, stop } = self;
        let answer = |request| server.clone().answer(request, peer.clone());
        converse(client, manner, stop.requested(), answer).await;
        Ok(())
    }
}
