//! Sparse files beside a plain byte map: the property test of the crate, with steps that the fuzzer finds.

#[path = "../../../sparse/tests/model/mod.rs"]
mod model;

use crate::Target;

pub(super) const TARGET: Target = Target { name: "sparse", components: &[], longest: 400, words: &[], run };

fn run(bytes: &[u8]) {
    model::run(&model::decode(bytes), false);
    model::run(&model::decode(bytes), true);
}
