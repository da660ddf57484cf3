//! A model of the expected cost of an item, given its size.
//!
//! `cost(bytes) = fixed + per_byte · bytes`, fitted to recent items. Dividing a latency by the bytes alone
//! was rejected: a request of 1 KiB that takes 20 ms is as good as one of 1 MiB that takes 40 ms, yet per
//! byte it looks 500 times worse.
//!
//! The model knows only the *shape*: how much more a large item costs than a small one. The current slowness
//! is the *level*; every latency is divided by it before the model learns from it. A server that becomes
//! three times slower therefore leaves the model unchanged.
//!
//! The fit is a least squares fit of two parameters, whose sums fade exponentially. Each item weighs `1 /
//! cost²`: noise grows with the latency, and an unweighted fit would ignore small items. While all items have
//! about the same size, the slope is undetermined. Four imaginary items that say "half of the cost is fixed"
//! keep it in bounds, and any real spread of sizes outvotes them.

/// The number of items that the model remembers: after this many, the weight of an item has faded to 1/e.
const MEMORY: f64 = 512.0;
/// The weight of the assumption that half of the cost is fixed, in items.
const PRIOR: f64 = 4.0;
/// The least share of the mean cost that is fixed: an empty item is not free, and nothing divides by zero.
const LEAST_FIXED: f64 = 0.01;
/// The number of items of about a size that make the model trustworthy at that size.
const ENOUGH: f64 = 2.0;

/// Sums over items. An item weighs `w`, has `b` bytes and a latency of `y` seconds.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    count: f64,
    w: f64,
    wb: f64,
    wbb: f64,
    wy: f64,
    wby: f64,
    /// The number of items of each size, by the binary logarithm of the size.
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
    /// Returns the seconds that an item takes at level 1.
    pub(super) fn expected(&self, bytes: u64) -> f64 {
        self.fixed + self.per_byte * bytes as f64
    }

    /// True if the model has data for that size. It interpolates between known sizes. It returns false beyond
    /// them: a straight line through one point can have any slope.
    pub(super) fn knows(&self, bytes: u64) -> bool {
        let octave = octave(bytes);
        let sizes = &self.sums.sizes;
        let seen = |range: &[f64]| range.iter().any(|count| *count >= ENOUGH);
        seen(&sizes[..=octave]) && seen(&sizes[octave..])
    }

    /// Adds an item to sums that the model learns from later, when the level during their time is known.
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

    /// Returns the fixed cost in seconds and the cost of a byte in seconds, both at level 1.
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
