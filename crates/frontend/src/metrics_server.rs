//! Serves a run's counters and health over HTTP.
//!
//! The [text format](https://prometheus.io/docs/instrumenting/exposition_formats/) is written here, from the
//! engine's own counters at the time of the request. An exporter library was rejected: it would count
//! everything a second time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use thalweg_engine::{ComponentCounts, Error, Handle};
use thalweg_job::{LoadError, descriptors_for_clients};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::health;
use crate::pulse::Pulse;

/// The paths that are served.
const PATHS: &str = "\
/metrics  counters, for Prometheus
/health   200 if every component works, 503 and why if not
/ready    200 while the run takes input, 503 before and after
";

/// The largest number of connections that are served at the same time. It is smaller if this process may have
/// few files open.
const MOST_CONNECTIONS: usize = 64;
/// The same, as a part of the descriptors that the clients of sources may take.
const PART_OF_DESCRIPTORS: usize = 6;
/// How long a connection may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The oldest connection is closed after this time if another client waits.
const LEAST: Duration = Duration::from_secs(1);

/// The server.
pub struct MetricsServer {
    listener: TcpListener,
    run: Observed,
}

/// The run that is observed.
#[derive(Clone)]
struct Observed {
    handle: Handle,
    pulse: Pulse,
    begun: Instant,
}

impl MetricsServer {
    /// Binds the address before the run starts, so that an address in use is an early error. It is called
    /// within a runtime.
    pub(crate) fn bind(address: SocketAddr, handle: Handle, pulse: Pulse) -> Result<Self, LoadError> {
        let bound = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener =
            bound.map_err(|error| Error::permanent(format!("cannot listen on {address}: {error}")))?;
        Ok(Self { listener, run: Observed { handle, pulse, begun: Instant::now() } })
    }

    /// The address, with the port that the system chose if none was given.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped. Each connection gets one answer, so that a limited number of connections
    /// serves every client in a bounded time. Other clients wait in the queue of the system.
    pub async fn run(self) {
        let most = MOST_CONNECTIONS.min(descriptors_for_clients() / PART_OF_DESCRIPTORS).max(1);
        let mut open = Open::default();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process may be out of file descriptors for a while.
                    tracing::warn!("cannot accept a connection for /metrics: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            open.make_room(most).await;
            open.begin(converse(stream, self.run.clone()));
        }
    }
}

/// The connections that are served.
#[derive(Default)]
struct Open {
    tasks: JoinSet<()>,
    /// When each began, the oldest first. Some may have ended.
    ages: VecDeque<(tokio::time::Instant, AbortHandle)>,
}

impl Open {
    fn begin(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(connection);
        self.ages.push_back((tokio::time::Instant::now(), task));
    }

    /// Waits until fewer than `most` connections are open. A client that connects and sends nothing must not
    /// keep others waiting, so the oldest one is closed after [`LEAST`].
    async fn make_room(&mut self, most: usize) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.ages.retain(|(_, task)| !task.is_finished());
            let Some((begun, oldest)) = self.ages.front().filter(|_| self.tasks.len() >= most) else {
                return;
            };
            match tokio::time::timeout_at(*begun + LEAST, self.tasks.join_next()).await {
                Ok(_) => {}
                Err(_) => {
                    tracing::debug!("a client of /metrics was too slow, and others wait");
                    oldest.abort();
                    self.tasks.join_next().await;
                }
            }
        }
    }
}

/// Answers a client's request.
async fn converse(stream: TcpStream, run: Observed) {
    let service = service_fn(|request| {
        let answer = answer(&request, &run);
        async { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TIMEOUT).keep_alive(false);
    let served = server.serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection for /metrics ended: {error}"),
        Err(_) => tracing::debug!("a client of /metrics was too slow"),
    }
}

fn answer(request: &Request<Incoming>, run: &Observed) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n".to_owned());
    }
    match request.uri().path() {
        "/metrics" => {
            let mut answer = text(StatusCode::OK, metrics(run));
            let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            answer.headers_mut().insert(CONTENT_TYPE, format);
            answer
        }
        "/health" => json(health::health(&run.handle, run.pulse.still_for())),
        "/ready" => json(health::ready(&run.handle)),
        "/" => text(StatusCode::OK, PATHS.to_owned()),
        _ => text(StatusCode::NOT_FOUND, format!("there is:\n{PATHS}")),
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// Answers 200 if all is well, and 503 if not, with an object.
fn json((is_well, object): (bool, serde_json::Value)) -> Response<Full<Bytes>> {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = text(status, format!("{object}\n"));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// A counter of components: its name, its help, and its value.
type Counter = (&'static str, &'static str, fn(&ComponentCounts) -> f64);

const COUNTERS: [Counter; 9] = [
    ("received_messages_total", "Messages that it received (a source: read).", |c| c.rows_in as f64),
    ("received_bytes_total", "Bytes of payload that it received.", |c| c.bytes_in as f64),
    ("sent_messages_total", "Messages that it sent (a sink: wrote).", |c| c.rows_out as f64),
    ("sent_bytes_total", "Bytes of payload that it sent.", |c| c.bytes_out as f64),
    ("errors_total", "Messages that left by its errors output.", |c| c.errors as f64),
    ("busy_seconds_total", "Time spent in it, summed over its workers.", |c| c.busy_ns as f64 / 1e9),
    ("batches_at_once_total", "Batches processed in the call of the stage before.", |c| {
        c.taken_at_once as f64
    }),
    ("batches_queued_total", "Batches that came through a channel.", |c| c.queued as f64),
    ("retrying", "1 while it retries a temporary error.", |c| f64::from(u8::from(c.retrying.is_some()))),
];

fn metrics(Observed { handle, begun, .. }: &Observed) -> String {
    let counts = handle.counts();
    let mut out = String::new();
    for (name, help, value) in COUNTERS {
        head(&mut out, &format!("component_{name}"), help);
        for component in &counts {
            line(&mut out, name, component, value(component));
        }
    }
    gauges(&mut out, &counts);
    let budget = handle.budget();
    let totals = [
        ("budget_limit_bytes", "The memory for data in flight.", budget.limit() as f64),
        ("budget_used_bytes", "The part of it in use.", budget.used() as f64),
        ("budget_peak_bytes", "The peak of its use.", budget.peak() as f64),
        (
            "dead_letters_total",
            "Messages kept because they could not be processed.",
            handle.dead_letters() as f64,
        ),
        (
            "dead_letters_dropped_total",
            "Dead letters dropped because there were too many.",
            handle.dead_letters_dropped() as f64,
        ),
        (
            "dead_letters_full",
            "1 while rejected messages wait because the dead letters are full.",
            f64::from(u8::from(handle.dead_letters_full().is_some())),
        ),
        ("uptime_seconds", "The time since the start of the run.", begun.elapsed().as_secs_f64()),
    ];
    for (name, help, value) in totals {
        head(&mut out, name, help);
        let _ = writeln!(out, "thalweg_{name} {value}");
    }
    head(&mut out, "build_info", "The version of thalweg.");
    let _ = writeln!(out, "thalweg_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    out
}

/// Shows the gauges that components have of their own, those of one name together.
fn gauges(out: &mut String, counts: &[ComponentCounts]) {
    let all =
        counts.iter().flat_map(|component| component.gauges.iter().map(move |gauge| (gauge, component)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(gauge, _)| gauge.name);
    for same in all.chunk_by(|(a, _), (b, _)| a.name == b.name) {
        for (number, (gauge, component)) in same.iter().enumerate() {
            if number == 0 {
                head(out, &format!("component_{}", gauge.name), gauge.help);
            }
            line(out, gauge.name, component, gauge.value as f64);
        }
    }
}

fn line(out: &mut String, name: &str, component: &ComponentCounts, value: f64) {
    let ComponentCounts { name: of, kind, role, .. } = component;
    let _ = writeln!(
        out,
        "thalweg_component_{name}{{component=\"{}\",kind=\"{kind}\",role=\"{role}\"}} {value}",
        escaped(of)
    );
}

fn head(out: &mut String, name: &str, help: &str) {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    let _ = writeln!(out, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}");
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_connection_is_closed_only_if_another_client_waits() {
        let mut open = Open::default();
        let (kept, mut closed) = (Arc::new(()), Vec::new());
        for _ in 0..3 {
            open.make_room(3).await;
            let held = Arc::new(());
            closed.push(Arc::downgrade(&held));
            open.begin(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
        }
        tokio::time::advance(LEAST * 5).await;
        assert_eq!(open.tasks.len(), 3);
        for at in 0..3 {
            open.make_room(3).await;
            assert_eq!(closed.iter().filter(|held| held.strong_count() == 0).count(), at + 1);
            assert_eq!(closed[at].strong_count(), 0);
            let kept = kept.clone();
            open.begin(async move {
                std::future::pending::<()>().await;
                drop(kept);
            });
        }
        assert_eq!(Arc::strong_count(&kept), 4);
    }
}
