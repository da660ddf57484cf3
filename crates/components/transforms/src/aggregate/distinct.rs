//! The number of different values.
//!
//! Up to [`EXACT`] values are counted exactly, by hashes of 64 bits. More are estimated by HyperLogLog, with
//! 4096 registers of a byte: the standard error is 1.04 / 64 = 1.6 %.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number of values that are counted exactly.
pub(super) const EXACT: usize = 1000;

/// The number of bits of a hash that choose a register.
const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// Counts different values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Distinct {
    /// Their hashes, in order.
    Exact(Vec<u64>),
    Estimated(Registers),
}

/// The registers of HyperLogLog.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Registers(Box<[u8]>);

impl Distinct {
    pub(super) fn new() -> Self {
        Self::Exact(Vec::new())
    }

    /// Adds the hash of a value.
    pub(super) fn add(&mut self, hash: u64) {
        match self {
            Distinct::Exact(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                if hashes.len() < EXACT {
                    hashes.insert(at, hash);
                    return;
                }
                let mut registers = Registers(vec![0; REGISTERS].into());
                hashes.iter().for_each(|known| registers.add(*known));
                registers.add(hash);
                *self = Distinct::Estimated(registers);
            }
            Distinct::Estimated(registers) => registers.add(hash),
        }
    }

    /// Adds the values of another one.
    pub(super) fn merge(&mut self, other: Self) {
        match other {
            Distinct::Exact(hashes) => hashes.into_iter().for_each(|hash| self.add(hash)),
            Distinct::Estimated(mut registers) => {
                match &*self {
                    Distinct::Exact(hashes) => hashes.iter().for_each(|hash| registers.add(*hash)),
                    Distinct::Estimated(own) => registers.merge(own),
                }
                *self = Distinct::Estimated(registers);
            }
        }
    }

    pub(super) fn count(&self) -> i64 {
        match self {
            Distinct::Exact(hashes) => hashes.len() as i64,
            Distinct::Estimated(registers) => registers.estimate().round() as i64,
        }
    }

    /// The bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Distinct::Exact(hashes) => hashes.capacity() * size_of::<u64>(),
            Distinct::Estimated(_) => REGISTERS,
        }
    }

    /// True if it can be used: a state may be damaged.
    pub(super) fn is_valid(&self) -> bool {
        match self {
            Distinct::Exact(hashes) => hashes.len() <= EXACT && hashes.is_sorted_by(|one, next| one < next),
            Distinct::Estimated(registers) => registers.0.len() == REGISTERS,
        }
    }
}

impl Registers {
    fn add(&mut self, hash: u64) {
        let at = (hash >> (u64::BITS - BITS)) as usize;
        // A bit after the last one bounds the number of zeros.
        let rest = (hash << BITS) | (1 << (BITS - 1));
        let zeros = rest.leading_zeros() as u8 + 1;
        if let Some(register) = self.0.get_mut(at) {
            *register = (*register).max(zeros);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (register, other) in self.0.iter_mut().zip(other.0.iter()) {
            *register = (*register).max(*other);
        }
    }

    fn estimate(&self) -> f64 {
        let count = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|&zeros| (-f64::from(zeros)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let empty = self.0.iter().filter(|&&zeros| zeros == 0).count();
        // Few values leave registers empty, whose number is then the better estimate.
        match empty > 0 && estimate <= 2.5 * count {
            true => count * (count / empty as f64).ln(),
            false => estimate,
        }
    }
}

impl Serialize for Registers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Registers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(|bytes| Self(bytes.into())).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_codec::keys::hash_bytes;

    fn counted(values: usize) -> Distinct {
        let mut distinct = Distinct::new();
        for value in (0..values).chain(0..values / 2) {
            distinct.add(hash_bytes(&value.to_le_bytes()));
        }
        distinct
    }

    #[test]
    fn few_values_are_counted_exactly() {
        for values in [0, 1, 7, EXACT] {
            assert_eq!(counted(values).count(), values as i64);
        }
    }

    #[test]
    fn many_values_are_estimated_within_five_standard_errors() {
        for values in [EXACT + 1, 3000, 20_000, 300_000] {
            let error = counted(values).count() as f64 / values as f64 - 1.0;
            assert!(error.abs() < 5.0 * 0.01625, "{values}: {error}");
        }
    }

    #[test]
    fn a_state_has_all_of_it_and_a_damaged_one_is_found() {
        for values in [0, 5, 2000] {
            let counted = counted(values);
            let saved = serde_json::to_value(&counted).unwrap().to_string();
            let restored: Distinct = serde_json::from_str(&saved).unwrap();
            assert!(restored == counted && restored.is_valid());
        }
        assert!(!Distinct::Exact(vec![2, 1]).is_valid());
        assert!(!Distinct::Estimated(Registers(vec![0; 3].into())).is_valid());
    }
}
