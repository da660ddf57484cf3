//! Answers of etcd.

use thalweg_job::etcd_value;

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "etcd",
    components: &[],
    longest: 16 << 10,
    words: &["{\"kvs\":[{\"value\":\"", "\"}]}", "\"message\":", "dXM=", "[["],
    run,
};

fn run(bytes: &[u8]) {
    for status in [200, 500] {
        let _ = bounded((1 << 20) + 300 * bytes.len(), || etcd_value(status, bytes));
    }
}
