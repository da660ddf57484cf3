//! Simulates a client with a limit and its server, from event to event on tokio's virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use thalweg_runtime::{ConcurrencyLimit, limit::Permit};
use tokio::time::Instant;

use crate::scenario::{Change, Scenario};
use crate::server::{Reply, Server};

/// Seconds between two points of a trace.
const STEP: f64 = 0.1;

/// The state at one time, and the events of the step that ended then.
#[derive(Debug, Default, Clone)]
pub struct Point {
    pub time: f64,
    pub limit: usize,
    pub in_flight: usize,
    pub done: f64,
    pub refused: f64,
    pub bytes: f64,
    /// Sums over the finished items, in seconds.
    pub latency: f64,
    pub unloaded: f64,
}

#[derive(Debug)]
pub struct Trace {
    pub points: Vec<Point>,
}

impl Trace {
    pub fn bytes_between(&self, from: f64, to: f64) -> f64 {
        self.points
            .iter()
            .filter(|point| point.time >= from && point.time < to)
            .map(|point| point.bytes)
            .sum()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8} {:>6} {:>9} {:>9} {:>9} {:>11}",
            "time/s", "limit", "in flight", "items/s", "MiB/s", "refused/s"
        )?;
        let rows = self.points.len().div_ceil(24).max(1);
        for points in self.points.chunks(rows) {
            let Some(last) = points.last() else { continue };
            let rate =
                |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64 / STEP;
            write!(
                f,
                "\n{:>8.1} {:>6} {:>9} {:>9.1} {:>9.2} {:>11.1}",
                last.time,
                last.limit,
                last.in_flight,
                rate(|point| point.done),
                rate(|point| point.bytes) / f64::from(1 << 20),
                rate(|point| point.refused),
            )?;
        }
        Ok(())
    }
}

struct Sent {
    permit: Permit,
    bytes: u64,
    at: f64,
    unloaded: f64,
}

/// The present behaviour of the client.
struct Client {
    limit: ConcurrencyLimit,
    sizes: Vec<(u64, f64)>,
    /// Items per second; infinite if there is always one to send.
    offered: f64,
    timeout: f64,
    next_arrival: f64,
    backlog: usize,
    /// The size of the next item in bytes.
    next: Option<u64>,
    sent: BTreeMap<usize, Sent>,
    ids: usize,
}

impl Client {
    fn change(&mut self, change: &Change, now: f64) {
        if let Some(sizes) = &change.sizes {
            self.sizes.clone_from(sizes);
        }
        if let Some(offered) = change.offered_per_second {
            self.offered = offered;
            self.next_arrival = now;
            self.backlog = 0;
        }
        if let Some(ms) = change.timeout_ms {
            self.timeout = ms / 1e3;
        }
        if let Some(upper) = change.upper {
            self.limit.set_upper(upper);
        }
        if let Some(budget) = change.budget {
            self.limit.set_budget(budget);
        }
    }

    fn draw_size(&self, rng: &mut Rng) -> u64 {
        let mut left = rng.f64() * self.sizes.iter().map(|(_, weight)| weight).sum::<f64>();
        for (bytes, weight) in &self.sizes {
            left -= weight;
            if left <= 0.0 {
                return *bytes;
            }
        }
        self.sizes.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Sends the items that are due, as far as the limit allows.
    fn send(&mut self, server: &mut Server, now: f64, rng: &mut Rng) {
        if self.offered.is_finite() {
            while self.next_arrival <= now {
                self.backlog += 1;
                self.next_arrival -= (1.0 - rng.f64()).ln() / self.offered;
            }
        }
        while self.offered.is_infinite() || self.backlog > 0 {
            let bytes = self.next.unwrap_or_else(|| self.draw_size(rng));
            self.next = Some(bytes);
            let Some(permit) = self.limit.try_acquire(bytes) else { return };
            self.next = None;
            self.backlog = self.backlog.saturating_sub(1);
            server.send(self.ids, bytes, rng);
            self.sent.insert(self.ids, Sent { permit, bytes, at: now, unloaded: server.unloaded(bytes) });
            self.ids += 1;
        }
    }

    fn next_timeout(&self) -> f64 {
        // In the order of sending, since the timeout is the same for all.
        self.sent.values().next().map_or(f64::INFINITY, |sent| sent.at + self.timeout)
    }

    fn give_up_late(&mut self, server: &mut Server, now: f64, point: &mut Point) {
        while self.next_timeout() <= now {
            let Some((id, sent)) = self.sent.pop_first() else { return };
            server.abandon(id);
            sent.permit.overloaded();
            point.refused += 1.0;
        }
    }

    fn receive(&mut self, (id, reply): (usize, Reply), now: f64, point: &mut Point) {
        let Some(sent) = self.sent.remove(&id) else { return };
        match reply {
            Reply::Refused => {
                sent.permit.overloaded();
                point.refused += 1.0;
            }
            Reply::Done => {
                sent.permit.succeeded();
                point.done += 1.0;
                point.bytes += sent.bytes as f64;
                point.latency += now - sent.at;
                point.unloaded += sent.unloaded;
            }
        }
    }
}

pub async fn simulate(scenario: &Scenario, limit: ConcurrencyLimit, seed: u64) -> Trace {
    let mut rng = Rng::with_seed(seed);
    let mut server = Server::new();
    let mut client = Client {
        limit,
        sizes: vec![(1 << 20, 1.0)],
        offered: f64::INFINITY,
        timeout: f64::INFINITY,
        next_arrival: 0.0,
        backlog: 0,
        next: None,
        sent: BTreeMap::new(),
        ids: 0,
    };
    server.change(&scenario.begin);
    client.change(&scenario.begin, 0.0);
    let begin = Instant::now();
    let mut events = scenario.events.iter().peekable();
    let mut points = Vec::new();
    let mut point = Point::default();
    let mut now = 0.0;
    while now < scenario.seconds {
        while let Some(event) = events.next_if(|event| event.at <= now) {
            server.change(&event.change);
            client.change(&event.change, now);
        }
        client.send(&mut server, now, &mut rng);
        let next_point = (points.len() + 1) as f64 * STEP;
        let next_event = events.peek().map_or(f64::INFINITY, |event| event.at);
        let next_arrival = if client.offered.is_finite() { client.next_arrival } else { f64::INFINITY };
        let next = [now + server.next(), next_point, next_event, next_arrival, client.next_timeout()]
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let passes = (next - now).max(0.0);
        now = next.max(now);
        let target = begin + Duration::from_secs_f64(now);
        tokio::time::advance(target.saturating_duration_since(Instant::now())).await;
        for reply in server.pass(passes) {
            client.receive(reply, now, &mut point);
        }
        client.give_up_late(&mut server, now, &mut point);
        if now >= next_point {
            point.time = now;
            point.limit = client.limit.current();
            point.in_flight = client.limit.in_flight();
            points.push(std::mem::take(&mut point));
        }
    }
    Trace { points }
}
