//! The introduction of the page.

use super::{Promise, explains, shown};

pub(super) const PROMISES: &[Promise] = &[
    explains(
        "The promises of thalweg about your messages and files, whatever happens to the process, the disk or a server.",
        "introduces the page",
    ),
    shown(
        "Each sentence and each row is shown by tests, which a test lists (`crates/cli/tests/contract/promises/list`).",
        &["cli: each_promise_names_the_tests_that_show_it"],
    ),
    shown(
        "`make soak` interrupts every pair of components at random for as long as you like.",
        &["cli: soak"],
    ),
];
