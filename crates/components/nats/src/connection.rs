//! A connection to the servers, which the client keeps: it connects again for ever, with growing pauses.
//!
//! The client accepts messages while it has no connection, and loses those that were on their way when one
//! broke. A component therefore looks at the [epoch](Connection::epoch): as long as it is the same, all went
//! over one connection, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, Statistics};
use parking_lot::Mutex;
use thalweg_engine::Error;

use crate::options::{Auth, ServerOptions};

/// How often the client asks whether the server is there. After two questions without an answer, it connects
/// again.
const PING_EVERY: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// The number of messages that wait in the client to be written.
const QUEUE: usize = 256;
/// The number of messages of a subscription that wait in the client to be taken. It drops further ones.
pub(crate) const SUBSCRIPTION: usize = 8192;
/// How often a component looks whether there is a connection.
const LOOK: Duration = Duration::from_millis(20);

/// A connection.
pub(crate) struct Connection {
    pub(crate) client: Client,
    statistics: Arc<Statistics>,
    notices: Arc<Mutex<Notices>>,
}

/// The events that the servers and the client report beside messages.
#[derive(Debug, Default, Clone)]
pub(crate) struct Notices {
    /// The number of errors that the server reported, and the last of them.
    pub(crate) errors: u64,
    pub(crate) last: Option<String>,
    /// How often a subscription was full, so that the client dropped a message.
    pub(crate) dropped: u64,
}

impl Notices {
    fn add(&mut self, event: &Event) {
        match event {
            Event::ServerError(error) => {
                self.errors += 1;
                self.last = Some(error.to_string());
            }
            Event::SlowConsumer(_) => self.dropped += 1,
            _ => {}
        }
    }
}

impl Connection {
    /// Connects to one of the servers. `subscription` messages of a subscription may wait to be taken.
    ///
    /// # Errors
    /// If none answers, or the user is refused.
    pub(crate) async fn open(options: &ServerOptions, subscription: usize) -> Result<Self, Error> {
        let notices = Arc::<Mutex<Notices>>::default();
        let prepared = prepared(options, &notices).await?.subscription_capacity(subscription);
        let client = prepared.connect(&options.servers[..]).await.map_err(|error| failed(options, error))?;
        let statistics = client.statistics();
        Ok(Self { client, statistics, notices })
    }

    /// Returns a number that is another one for each connection.
    pub(crate) fn epoch(&self) -> u64 {
        self.statistics.connects.load(Relaxed)
    }

    /// True while there is a connection, as far as the client knows.
    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Waits until there is a connection. Returns false if there is none after `timeout`.
    pub(crate) async fn connected(&self, timeout: Duration) -> bool {
        let begun = Instant::now();
        while !self.is_connected() {
            if begun.elapsed() >= timeout {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Returns how many messages the client dropped because a subscription was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.notices.lock().dropped
    }

    /// Adds what the server reported last to an error: a server that refuses a message or a subscription says
    /// so apart from it.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match self.notices().last {
            Some(reason) => error.caused_by(reason),
            None => error,
        }
    }

    /// Returns what was reported so far.
    pub(crate) fn notices(&self) -> Notices {
        self.notices.lock().clone()
    }
}

/// Returns the options of the client.
async fn prepared(options: &ServerOptions, notices: &Arc<Mutex<Notices>>) -> Result<ConnectOptions, Error> {
    let notices = notices.clone();
    // The server may require TLS without being asked: the client then needs a configuration too.
    let tls = options.tls.clone().unwrap_or_default().config_with_name()?;
    let prepared = ConnectOptions::new()
        .name(&options.client_id)
        .custom_inbox_prefix(&options.inbox_prefix)
        .ping_interval(PING_EVERY)
        .client_capacity(QUEUE)
        .require_tls(options.tls.is_some())
        .tls_client_config(tls)
        .reconnect_delay_callback(pause)
        .event_callback(move |event| {
            notices.lock().add(&event);
            std::future::ready(())
        });
    match &options.auth {
        Some(auth) => with_user(prepared, auth).await,
        None => Ok(prepared),
    }
}

async fn with_user(options: ConnectOptions, auth: &Auth) -> Result<ConnectOptions, Error> {
    if let (Some(user), Some(password)) = (&auth.user, &auth.password) {
        return Ok(options.user_and_password(user.clone(), password.clone()));
    }
    if let Some(token) = &auth.token {
        return Ok(options.token(token.clone()));
    }
    if let Some(seed) = &auth.nkey {
        return Ok(options.nkey(seed.clone()));
    }
    match &auth.credentials_file {
        Some(path) => options.credentials_file(path).await.map_err(|error| {
            Error::permanent(format!("cannot read credentials from `{}`", path.display())).caused_by(error)
        }),
        None => Ok(options),
    }
}

/// Returns the pause before an attempt to connect. Pauses differ, so that clients do not come all at once
/// when a server is back.
fn pause(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(2)).unwrap_or(u32::MAX).min(10);
    match attempt {
        0 | 1 => Duration::ZERO,
        _ => (Duration::from_millis(50) * 2_u32.pow(doublings))
            .min(LONGEST_PAUSE)
            .mul_f64(0.5 + fastrand::f64() / 2.0),
    }
}

fn failed(options: &ServerOptions, error: ConnectError) -> Error {
    let servers = options.shown();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            Error::permanent(format!("the servers `{servers}` refuse the user: see `auth`"))
        }
        ConnectErrorKind::Authentication => {
            Error::permanent(format!("the key in `auth` cannot be used for the servers `{servers}`"))
        }
        ConnectErrorKind::ServerParse => Error::permanent(format!("`{servers}` are no addresses")),
        _ => Error::temporary(format!("the servers `{servers}` cannot be reached")),
    }
    .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ_up_to_a_limit() {
        assert_eq!((pause(0), pause(1)), (Duration::ZERO, Duration::ZERO));
        for (attempt, most) in [(2, 50), (3, 100), (5, 400), (8, 3200), (9, 4000), (usize::MAX, 4000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = pause(attempt);
                assert!(pause <= most && pause >= most / 2, "{attempt}: {pause:?}");
            }
        }
    }

    #[test]
    fn errors_of_the_server_and_full_subscriptions_are_counted() {
        let mut notices = Notices::default();
        notices.add(&Event::Connected);
        notices.add(&Event::SlowConsumer(1));
        notices.add(&Event::ServerError(async_nats::ServerError::Other("no".to_owned())));
        assert_eq!((notices.errors, notices.dropped), (1, 1));
        assert_eq!(notices.last.as_deref(), Some("nats: no"));
    }
}
