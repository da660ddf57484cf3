//! What an item of some size may be expected to take.
//!
//! `cost(bytes) = fixed + per_byte · bytes`, fitted to the items of the recent past. Dividing a latency by
//! the bytes alone was rejected: a request of 1 KiB that takes 20 ms is as good as one of 1 MiB that takes
//! 40 ms, and by the byte it looks 500 times worse.
//!
//! The model knows the *shape* only, that is, how much dearer a large item is than a small one. How slow
//! things are at the moment is the *level*, by which every latency is divided before the model learns from
//! it. So a server that becomes three times slower leaves the model as it is.
//!
//! The fit is a least squares fit of two parameters, whose sums fade exponentially. Each item weighs
//! `1 / cost²`: noise grows with the latency, and an unweighted fit would be deaf to small items.
//! While all items have about the same size, the slope could be anything; four imaginary items that say
//! "half of the cost is fixed" keep it in bounds, and any real spread in the sizes outvotes them.

/// How many items the model remembers: the weight of one fades to 1/e after so many.
const MEMORY: f64 = 512.0;
/// The weight of the belief that half of the cost is fixed, in items.
const PRIOR: f64 = 4.0;
/// The least part of the mean cost that is fixed: an empty item is not free, and nothing divides by zero.
const LEAST_FIXED: f64 = 0.01;
/// How many items of about a size must have been seen before the model is believed at it.
const ENOUGH: f64 = 2.0;

/// Sums over items, of which each weighs `w`: `b` is its size in bytes, `y` its latency in seconds.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    count: f64,
    w: f64,
    wb: f64,
    wbb: f64,
    wy: f64,
    wby: f64,
    /// How many items there were of each size, by its binary logarithm.
    sizes: [f64; 65],
}

impl Default for Sums {
    fn default() -> Self {
        Self { count: 0.0, w: 0.0, wb: 0.0, wbb: 0.0, wy: 0.0, wby: 0.0, sizes: [0.0; 65] }
    }
}

fn octave(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()) as usize
}

impl Sums {
    fn fade(&mut self, factor: f64) {
        for sum in [&mut self.count, &mut self.w, &mut self.wb, &mut self.wbb, &mut self.wy, &mut self.wby] {
            *sum *= factor;
        }
        self.sizes.iter_mut().for_each(|count| *count *= factor);
    }

    fn merge(&mut self, other: &Sums, level: f64) {
        self.count += other.count;
        self.w += other.w;
        self.wb += other.wb;
        self.wbb += other.wbb;
        self.wy += other.wy / level;
        self.wby += other.wby / level;
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, count)| *sum += count);
    }
}

/// The fitted costs.
#[derive(Debug, Clone, Default)]
pub(super) struct CostModel {
    sums: Sums,
    fixed: f64,
    per_byte: f64,
}

impl CostModel {
    /// Seconds that an item takes at level 1.
    pub(super) fn expected(&self, bytes: u64) -> f64 {
        self.fixed + self.per_byte * bytes as f64
    }

    /// Whether the model has anything to go by at that size. Between sizes it knows it interpolates; beyond
    /// them it says no, since a straight line through one point has any slope one likes.
    pub(super) fn knows(&self, bytes: u64) -> bool {
        let octave = octave(bytes);
        let sizes = &self.sums.sizes;
        let seen = |range: &[f64]| range.iter().any(|count| *count >= ENOUGH);
        seen(&sizes[..=octave]) && seen(&sizes[octave..])
    }

    /// Notes an item in sums that are learnt from later, when the level of its time is known.
    pub(super) fn note(&self, sums: &mut Sums, bytes: u64, latency: f64) {
        let expected = self.expected(bytes);
        let scale = if expected > 0.0 { expected } else { latency };
        let (w, b) = (1.0 / (scale * scale), bytes as f64);
        sums.count += 1.0;
        sums.w += w;
        sums.wb += w * b;
        sums.wbb += w * b * b;
        sums.wy += w * latency;
        sums.wby += w * b * latency;
        sums.sizes[octave(bytes)] += 1.0;
    }

    /// Learns from items noted while everything took `level` times as long as at level 1.
    pub(super) fn learn(&mut self, noted: &Sums, level: f64) {
        self.sums.fade((-noted.count / MEMORY).exp());
        self.sums.merge(noted, level);
        let sums = &self.sums;
        let (bytes, cost) = (sums.wb / sums.w, sums.wy / sums.w);
        if !(cost > 0.0 && cost.is_finite()) {
            return;
        }
        if bytes > 0.0 {
            let prior = PRIOR * sums.w / sums.count * bytes * bytes;
            let spread = (sums.wbb - sums.wb * bytes).max(0.0) + prior;
            let slope = (sums.wby - sums.wy * bytes + prior * 0.5 * cost / bytes) / spread;
            self.per_byte = slope.clamp(0.0, (1.0 - LEAST_FIXED) * cost / bytes);
        } else {
            self.per_byte = 0.0;
        }
        self.fixed = cost - self.per_byte * bytes;
    }

    /// Fixed cost in seconds and cost of a byte in seconds, at level 1.
    pub(super) fn parameters(&self) -> (f64, f64) {
        (self.fixed, self.per_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learnt(items: &[(u64, f64)], rounds: usize) -> CostModel {
        let mut model = CostModel::default();
        for _ in 0..rounds {
            let mut sums = Sums::default();
            items.iter().for_each(|&(bytes, latency)| model.note(&mut sums, bytes, latency));
            model.learn(&sums, 1.0);
        }
        model
    }

    #[test]
    fn fixed_and_per_byte_costs_are_told_apart() {
        let cost = |bytes: u64| 0.02 + 1e-8 * bytes as f64;
        let sizes = [1 << 10, 1 << 12, 1 << 16, 1 << 20, 1 << 22];
        let model = learnt(&sizes.map(|bytes| (bytes, cost(bytes))), 50);
        for bytes in [1 << 11, 1 << 18, 1 << 22] {
            assert!((model.expected(bytes) / cost(bytes) - 1.0).abs() < 0.02, "{bytes}: {model:?}");
        }
    }

    #[test]
    fn of_items_of_one_size_half_the_cost_is_taken_for_fixed() {
        let model = learnt(&[(1000, 0.05); 8], 10);
        let (fixed, per_byte) = model.parameters();
        assert!((fixed - 0.025).abs() < 1e-6 && (per_byte * 1000.0 - 0.025).abs() < 1e-6, "{model:?}");
    }

    #[test]
    fn the_model_is_not_believed_at_sizes_beyond_those_seen() {
        let model = learnt(&[(1 << 10, 0.01), (1 << 20, 0.02)], 4);
        assert!(model.knows(1 << 10) && model.knows(1 << 15) && model.knows(1 << 20));
        assert!(!model.knows(1 << 24) && !model.knows(0));
    }

    #[test]
    fn no_latencies_and_no_bytes_make_a_cost_negative() {
        for items in [
            vec![(0, 0.01), (0, 0.02)],
            vec![(1 << 10, 1.0), (1 << 20, 0.001)],
            vec![(1, 1e-9), (u64::MAX, 100.0)],
        ] {
            let model = learnt(&items, 20);
            let (fixed, per_byte) = model.parameters();
            assert!(fixed > 0.0 && per_byte >= 0.0, "{items:?}: {model:?}");
        }
    }
}
