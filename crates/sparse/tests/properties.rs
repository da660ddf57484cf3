//! After any sequence of operations, a sparse file equals a plain map of bytes.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

mod model;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_sparse_file_is_a_map_of_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        model::run(&model::decode(&bytes), false);
    }

    #[test]
    fn so_it_is_when_the_order_of_use_is_noted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        model::run(&model::decode(&bytes), true);
    }
}
