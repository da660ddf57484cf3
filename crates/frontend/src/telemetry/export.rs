//! Sends the telemetry of a run until it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use serde_json::Value as Json;
use thalweg_codec::otlp::{Signal, request_of_json};
use thalweg_engine::{BatchTrace, Error, Handle};
use thalweg_net::otlp::Receiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::settings::Telemetry;
use super::{Counts, LAST, encode};
use crate::api::Observed;
use crate::instruments::instruments;

/// How often traces are sent.
const TRACES_EVERY: Duration = Duration::from_secs(5);
/// The most traces in a request. It has a few hundred bytes for each of their spans.
const MOST_IN_A_REQUEST: usize = 64;
/// The most traces that wait for a receiver. The oldest are dropped first.
const MOST_WAITING: usize = 1024;

/// The telemetry of a run.
pub(super) struct Export {
    run: Arc<Observed>,
    handle: Handle,
    receiver: Receiver,
    resource: Json,
    interval: Duration,
    counts: Arc<Counts>,
    /// When the counters of the run were 0.
    begun: SystemTime,
    /// The traces that were not sent yet.
    waiting: VecDeque<BatchTrace>,
    /// True while the receiver does not take requests, which was logged.
    fails: bool,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// The receiver has it.
    Taken,
    /// The receiver may take it later.
    NotNow,
    /// The receiver will never take it.
    Refused,
}

impl Export {
    pub(super) fn new(
        telemetry: &Telemetry,
        run: Arc<Observed>,
        counts: Arc<Counts>,
        handle: Handle,
    ) -> Result<Self, Error> {
        let now = SystemTime::now();
        Ok(Self {
            begun: now.checked_sub(run.begun.elapsed()).unwrap_or(now),
            run,
            handle,
            receiver: telemetry.receiver()?,
            resource: encode::resource(telemetry.resource()),
            interval: telemetry.interval(),
            counts,
            waiting: VecDeque::new(),
            fails: false,
        })
    }

    /// Sends until the run ends, and then the last figures. Without a message, it ends at once.
    pub(super) async fn run(mut self, ends: oneshot::Receiver<()>) {
        let has_ended = tokio::select! {
            ended = ends => ended.is_ok(),
            () = self.export() => false,
        };
        if has_ended && timeout(LAST, self.flush()).await.is_err() {
            self.failed("the receiver did not answer at the end of the run");
        }
    }

    /// Does not end by itself.
    async fn export(&mut self) {
        let now = Instant::now();
        let mut metrics = interval_at(now + self.interval, self.interval);
        let mut traces = interval_at(now + TRACES_EVERY, TRACES_EVERY);
        metrics.set_missed_tick_behavior(MissedTickBehavior::Delay);
        traces.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = metrics.tick() => {
                    self.send_metrics().await;
                }
                _ = traces.tick() => self.send_traces().await,
            }
        }
    }

    /// Metrics first: they tell what becomes of traces that do not arrive.
    async fn flush(&mut self) {
        if self.send_metrics().await != Sent::NotNow {
            self.send_traces().await;
        }
    }

    async fn send_metrics(&mut self) -> Sent {
        let instruments = instruments(&self.run);
        let request = encode::metrics(&instruments, &self.resource, self.begun, SystemTime::now());
        self.send(Signal::Metrics, &request).await
    }

    /// Sends the traces that wait. A request that is cut off by the end of the run is sent again.
    async fn send_traces(&mut self) {
        self.waiting.extend(self.handle.take_traces());
        let beyond = self.waiting.len().saturating_sub(MOST_WAITING);
        self.drop_oldest(beyond);
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(MOST_IN_A_REQUEST);
            let request = encode::traces(self.waiting.iter().take(count), &self.resource);
            match self.send(Signal::Traces, &request).await {
                Sent::Taken => drop(self.waiting.drain(..count)),
                Sent::Refused => self.drop_oldest(count),
                Sent::NotNow => return,
            }
        }
    }

    fn drop_oldest(&mut self, count: usize) {
        self.waiting.drain(..count);
        self.counts.dropped.fetch_add(count as u64, Relaxed);
    }

    async fn send(&mut self, signal: Signal, request: &Json) -> Sent {
        let request = match request_of_json(signal, request.to_string().as_bytes()) {
            Ok(request) => request,
            Err(reason) => {
                self.failed(&format!("the request {reason}"));
                return Sent::Refused;
            }
        };
        match self.receiver.send(signal, request.into()).await {
            Ok(()) => {
                if std::mem::take(&mut self.fails) {
                    tracing::warn!("telemetry is sent to {} again", self.receiver.shown());
                }
                Sent::Taken
            }
            Err(failure) => {
                self.failed(failure.text());
                if failure.is_temporary() { Sent::NotNow } else { Sent::Refused }
            }
        }
    }

    /// Counts a failure. The first one is logged, until a request succeeds.
    fn failed(&mut self, reason: &str) {
        self.counts.failures.fetch_add(1, Relaxed);
        if !std::mem::replace(&mut self.fails, true) {
            tracing::warn!("telemetry is not sent: {reason}; this does not hold up the run");
        }
    }
}
