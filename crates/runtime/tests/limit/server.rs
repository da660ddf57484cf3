//! A server with a number of slots: items queue for a slot, or share them all.

use fastrand::Rng;

use crate::scenario::Change;

/// The present behaviour of the server.
#[derive(Debug, Clone)]
pub struct Server {
    slots: usize,
    shared: bool,
    foreign: usize,
    fixed: f64,
    per_byte: f64,
    network: f64,
    slow: f64,
    noise: f64,
    outliers: f64,
    outlier_factor: f64,
    reject_above: usize,
    reject_part: f64,
    refusal: f64,
    /// The items at the server, in the order of arrival; an item in transit has `travel` left.
    jobs: Vec<Job>,
}

#[derive(Debug, Clone)]
struct Job {
    id: usize,
    /// The remaining seconds in transit.
    travel: f64,
    work: f64,
    refused: bool,
}

/// The server's answer to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Done,
    Refused,
}

fn set<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

impl Server {
    pub fn new() -> Self {
        Self {
            slots: 1,
            shared: false,
            foreign: 0,
            fixed: 0.0,
            per_byte: 0.0,
            network: 0.0,
            slow: 1.0,
            noise: 0.0,
            outliers: 0.0,
            outlier_factor: 1.0,
            reject_above: usize::MAX,
            reject_part: 0.0,
            refusal: 0.001,
            jobs: Vec::new(),
        }
    }

    pub fn change(&mut self, change: &Change) {
        set(&mut self.slots, change.slots);
        set(&mut self.shared, change.shared);
        set(&mut self.foreign, change.foreign);
        set(&mut self.fixed, change.fixed_ms.map(|ms| ms / 1e3));
        set(&mut self.per_byte, change.ns_per_byte.map(|ns| ns / 1e9));
        set(&mut self.network, change.network_ms.map(|ms| ms / 1e3));
        set(&mut self.slow, change.slow);
        set(&mut self.noise, change.noise);
        set(&mut self.outliers, change.outliers);
        set(&mut self.outlier_factor, change.outlier_factor);
        set(&mut self.reject_above, change.reject_above);
        set(&mut self.reject_part, change.reject_part);
        set(&mut self.refusal, change.refusal_ms.map(|ms| ms / 1e3));
    }

    /// Returns the seconds that an item takes on an empty server, without noise and slowness.
    pub fn unloaded(&self, bytes: u64) -> f64 {
        self.network + self.fixed + self.per_byte * bytes as f64
    }

    pub fn send(&mut self, id: usize, bytes: u64, rng: &mut Rng) {
        let refused = self.jobs.iter().filter(|job| !job.refused).count() >= self.reject_above
            || rng.f64() < self.reject_part;
        if refused {
            self.jobs.push(Job { id, travel: self.refusal, work: 0.0, refused });
            return;
        }
        let normal = (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
        let mut work = self.unloaded(bytes) - self.network;
        // The mean of the noise is 1.
        work *= (self.noise * normal - self.noise * self.noise / 2.0).exp();
        if rng.f64() < self.outliers {
            work *= self.outlier_factor;
        }
        self.jobs.push(Job { id, travel: self.network, work, refused });
    }

    /// Removes an item that the client has cancelled; the server stops working on it.
    pub fn abandon(&mut self, id: usize) {
        self.jobs.retain(|job| job.id != id);
    }

    /// Returns the speed of each item, in the order of arrival.
    fn speeds(&self) -> impl Iterator<Item = f64> {
        let here = |job: &&Job| job.travel <= 0.0 && !job.refused;
        let present = self.jobs.iter().filter(here).count() + self.foreign;
        let share = (self.slots as f64 / present.max(1) as f64).min(1.0) / self.slow;
        let mut free = self.slots;
        self.jobs.iter().map(move |job| {
            if !here(&job) {
                0.0
            } else if self.shared {
                share
            } else if free > 0 {
                free -= 1;
                1.0 / self.slow
            } else {
                0.0
            }
        })
    }

    /// Returns the seconds until the next change.
    pub fn next(&self) -> f64 {
        let left = |(job, speed): (&Job, f64)| {
            if job.travel > 0.0 {
                job.travel
            } else if job.refused {
                0.0
            } else if speed > 0.0 {
                job.work / speed
            } else {
                f64::INFINITY
            }
        };
        self.jobs.iter().zip(self.speeds()).map(left).fold(f64::INFINITY, f64::min)
    }

    /// Advances the time, at most to the next change, and returns the finished items.
    pub fn pass(&mut self, seconds: f64) -> Vec<(usize, Reply)> {
        const NOTHING: f64 = 1e-10;
        let speeds: Vec<f64> = self.speeds().collect();
        for (job, speed) in self.jobs.iter_mut().zip(speeds) {
            if job.travel > 0.0 {
                job.travel = if job.travel - seconds < NOTHING { 0.0 } else { job.travel - seconds };
            } else {
                job.work -= seconds * speed;
            }
        }
        let finished = |job: &mut Job| job.travel <= 0.0 && (job.refused || job.work < NOTHING);
        let reply = |job: Job| (job.id, if job.refused { Reply::Refused } else { Reply::Done });
        self.jobs.extract_if(.., finished).map(reply).collect()
    }
}
