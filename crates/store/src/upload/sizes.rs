//! The sizes of parts.

use crate::Store;
use crate::url::Kind;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The size in bytes of the largest object that must fit when the length is not known in advance.
const MOST_UNKNOWN: u64 = 5 * TIB;

/// The limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// True if the store can be written to at all. If false, the other fields mean nothing.
    pub can_write: bool,
    /// The minimum size in bytes of a part that is not the last.
    pub smallest_part: u64,
    /// The maximum size in bytes of a part, and of an object that is written in one request.
    pub largest_part: u64,
    /// The maximum number of parts.
    pub most_parts: u32,
    /// The maximum size of an object in bytes.
    pub most_bytes: u64,
    /// True if all parts but the last must have the same size.
    pub equal_parts: bool,
}

impl Store {
    /// Returns the limits of the store.
    pub fn limits(&self) -> Limits {
        let of_objects = Limits {
            can_write: true,
            smallest_part: 5 * MIB,
            largest_part: 5 * GIB,
            most_parts: 10_000,
            most_bytes: 5 * TIB,
            equal_parts: false,
        };
        match self.kind() {
            Kind::Http | Kind::WebDav => Limits {
                can_write: false,
                smallest_part: 0,
                largest_part: 0,
                most_parts: 0,
                most_bytes: 0,
                equal_parts: false,
            },
            Kind::Folders => Limits {
                can_write: true,
                smallest_part: 1,
                largest_part: TIB,
                most_parts: u32::MAX,
                // The kernel uses signed numbers for positions.
                most_bytes: i64::MAX as u64,
                equal_parts: false,
            },
            Kind::S3(_) | Kind::Gcs(_) => Limits {
                equal_parts: matches!(self.made(), Ok(Some(remote)) if remote.wants_equal_parts()),
                ..of_objects
            },
            Kind::Azure(_) => Limits {
                smallest_part: 1,
                largest_part: 4000 * MIB,
                most_parts: 50_000,
                most_bytes: 50_000 * 4000 * MIB,
                ..of_objects
            },
        }
    }
}

/// Returns the size in bytes of the part with this number (from 1 on). The last part gets the rest.
///
/// `wanted` is the preferred size. If the total size is known, every part has the same size: a multiple of 1
/// MiB, and not more than `wanted` unless the object would not fit. If it is not known, the first parts have
/// the wanted size, and later ones grow with the square of their number, so that 5 TiB fit. A small object is
/// then sent in small parts, and the largest part stays below three times the mean. With `equal_parts`, parts
/// do not grow.
pub fn part_size(wanted: u64, total: Option<u64>, number: u32, limits: &Limits) -> u64 {
    let (largest, parts) = (limits.largest_part.max(1), u128::from(limits.most_parts.max(1)));
    let base = u128::from(wanted.max(limits.smallest_part).max(1));
    let size = match total {
        Some(total) => {
            let size = base.max(u128::from(total).div_ceil(parts));
            size.div_ceil(u128::from(MIB)).saturating_mul(u128::from(MIB))
        }
        None if limits.equal_parts => base,
        None => {
            let to_fit = u128::from(limits.most_bytes.min(MOST_UNKNOWN));
            let missing = to_fit.saturating_sub(base.saturating_mul(parts));
            let number = u128::from(number).min(parts);
            base + (3 * missing).div_ceil(parts) * number * number / (parts * parts) + 1
        }
    };
    u64::try_from(size).unwrap_or(u64::MAX).min(largest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(url: &str) -> Limits {
        Store::from_url(url).unwrap().0.limits()
    }

    fn all() -> [Limits; 4] {
        ["s3://bucket", "gs://bucket", "az://box?account_name=me", "/tmp"].map(limits)
    }

    #[test]
    fn what_comes_without_a_known_length_may_be_as_long_as_the_store_allows() {
        for limits in all() {
            for wanted in [0, 8 * MIB, 64 * MIB, GIB] {
                assert!(!limits.equal_parts);
                let mut sum = 0_u64;
                for number in 1..=limits.most_parts.min(50_000) {
                    sum = sum.saturating_add(part_size(wanted, None, number, &limits));
                }
                assert!(limits.most_parts > 50_000 || sum >= 5 * TIB, "{sum} {wanted} {limits:?}");
            }
        }
    }

    #[test]
    fn what_is_short_is_sent_in_parts_of_the_wanted_size() {
        let limits = limits("s3://bucket");
        assert_eq!(part_size(8 * MIB, Some(5 * GIB), 1, &limits), 8 * MIB);
        assert!(part_size(8 * MIB, None, 1, &limits) <= 9 * MIB);
        assert!(part_size(8 * MIB, None, 300, &limits) <= 10 * MIB);
        assert!(part_size(8 * MIB, None, 10_000, &limits) < 1600 * MIB);
    }

    #[test]
    fn parts_do_not_grow_where_all_must_have_one_size() {
        assert!(
            limits("s3://bucket/x?endpoint=me.eu.r2.cloudflarestorage.com&enable_virtual_host_style=true")
                .equal_parts
        );
        assert!(!limits("s3://me.r2.cloudflarestorage.com/x").equal_parts);
        let limits = limits("s3://bucket/x?endpoint=https://me.r2.cloudflarestorage.com/");
        assert_eq!(part_size(8 * MIB, None, 1, &limits), 8 * MIB);
        assert_eq!(part_size(8 * MIB, None, 9_000, &limits), 8 * MIB);
    }

    #[test]
    fn a_web_server_takes_nothing() {
        assert!(!limits("http://example.org/x").can_write);
    }

    proptest! {
        #[test]
        fn what_is_known_to_fit_fits_in_parts_of_one_size(
            wanted in 0..8 * GIB, total in 0..5 * TIB, number in 1..10_000_u32, store in 0..4_usize,
        ) {
            let limits = all()[store];
            let size = part_size(wanted, Some(total), number, &limits);
            prop_assert_eq!(size, part_size(wanted, Some(total), 1, &limits));
            prop_assert_eq!(size % MIB, 0);
            prop_assert!(size >= limits.smallest_part && size <= limits.largest_part);
            prop_assert!(total.div_ceil(size) <= u64::from(limits.most_parts));
        }

        #[test]
        fn parts_of_an_unknown_whole_never_shrink_and_are_allowed(
            wanted in 0..8 * GIB, number in 1..u32::MAX, store in 0..4_usize,
        ) {
            let limits = all()[store];
            let size = part_size(wanted, None, number, &limits);
            prop_assert!(size >= limits.smallest_part && size <= limits.largest_part);
            prop_assert!(size <= part_size(wanted, None, number + 1, &limits));
        }
    }
}
