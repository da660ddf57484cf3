//! Every sentence and table row of docs/guarantees.md, in its order, with the tests that show it. Each
//! section of the page is a file.

mod buffers;
mod dead_letters;
mod in_short;
mod interruptions;
mod introduction;
mod order;
mod pairs;
mod sinks;
mod sources;
mod state;
mod transforms;

/// A sentence or table row of the page.
pub(super) struct Promise {
    /// The text, with single spaces.
    pub(super) text: &'static str,
    pub(super) shown: Shown,
}

/// Why a promise may be on the page.
pub(super) enum Shown {
    /// Tests show it: `CRATE: NAME` is a test function, `SUITE: CASE` a case of a suite or of the matrix.
    By(&'static [&'static str]),
    /// It is no promise.
    Explains(&'static str),
}

const fn shown(text: &'static str, tests: &'static [&'static str]) -> Promise {
    Promise { text, shown: Shown::By(tests) }
}

const fn explains(text: &'static str, reason: &'static str) -> Promise {
    Promise { text, shown: Shown::Explains(reason) }
}

/// Returns the promises in the order of the page.
pub(super) fn promises() -> impl Iterator<Item = &'static Promise> {
    let sections: [&'static [Promise]; 11] = [
        introduction::PROMISES,
        in_short::PROMISES,
        interruptions::PROMISES,
        sources::PROMISES,
        sinks::PROMISES,
        pairs::PROMISES,
        buffers::PROMISES,
        transforms::PROMISES,
        dead_letters::PROMISES,
        state::PROMISES,
        order::PROMISES,
    ];
    sections.into_iter().flatten()
}
