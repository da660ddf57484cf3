//! Clauses of the contract that are known not to hold yet. The list is to be emptied: an entry that holds is
//! a failure.

use thalweg_testkit::suite::Hole;

/// The items are those of the findings on loss; `N` are new.
pub const KNOWN_HOLES: &[Hole] = &[];
