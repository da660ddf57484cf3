//! Every sentence and every table row of docs/guarantees.md has tests that show it.
//!
//! A promise that no test shows, a promise that was changed without a look at its tests, and a test that no
//! longer exists are failures. Sentences that only explain, or that say what is not promised, give the reason
//! instead of tests. Whether a test really shows its promise is for people to judge: the list tells them what
//! to read.

mod list;
mod page;
mod written;

use std::fs;

use list::{Shown, promises};
use page::promises_of;
use thalweg_testkit::suite;
use written::{root, tests_of_crates};

#[test]
fn each_promise_names_the_tests_that_show_it() {
    let page = fs::read_to_string(root().join("docs/guarantees.md")).unwrap();
    let page = promises_of(&page);
    let known: Vec<&str> = promises().map(|promise| promise.text).collect();
    let new: Vec<_> = page.iter().filter(|text| !known.contains(&text.as_str())).collect();
    assert!(new.is_empty(), "docs/guarantees.md promises what is not in this list: {new:#?}");
    let gone: Vec<_> = known.iter().filter(|text| !page.iter().any(|promise| promise == **text)).collect();
    assert!(gone.is_empty(), "docs/guarantees.md no longer says: {gone:#?}");
    for promise in promises() {
        match promise.shown {
            Shown::By(tests) => assert!(!tests.is_empty(), "nothing shows: {}", promise.text),
            Shown::Explains(reason) => assert!(!reason.is_empty(), "why is it no promise: {}", promise.text),
        }
    }
}

#[test]
fn each_test_that_shows_a_promise_exists() {
    let known = tests_of_crates();
    let exists = |test: &str| {
        let (place, name) = test.split_once(": ")?;
        match suite::cases(place) {
            Some(cases) => cases.iter().any(|case| case == name).then_some(()),
            None => known.get(place)?.contains(name).then_some(()),
        }
    };
    let tests = promises().filter_map(|promise| match promise.shown {
        Shown::By(tests) => Some(tests),
        Shown::Explains(_) => None,
    });
    let gone: Vec<&str> = tests.flatten().copied().filter(|test| exists(test).is_none()).collect();
    assert!(gone.is_empty(), "these tests do not exist: {gone:#?}");
}
