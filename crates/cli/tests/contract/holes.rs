//! Clauses of the contract that are known not to hold yet. The list is to be emptied: an entry that holds is
//! a failure.

use thalweg_testkit::suite::Hole;

const fn rare(suite: &'static str, case: &'static str, item: &'static str, reason: &'static str) -> Hole {
    Hole { suite, case, point: "*", reason, item, is_rare: true }
}

const PACKED: &str =
    "a packed file that was delivered and not saved comes again with other messages, and gets another name";
const PIPE: &str = "a record that a killed run had read in part is torn";
const EARLY: &str = "a signal in the first milliseconds ends the program without a word";
const WAITS: &str = "the source ends when all is settled, and the sink settles when the source has ended";

/// The items are those of the findings on loss; `N` are new.
pub const KNOWN_HOLES: &[Hole] = &[
    rare("message_sink", "file -> directory, pack", "N5", PACKED),
    rare("matrix", "*-> directory, pack", "N5", PACKED),
    rare("matrix", "spool -> objects*", "N4", WAITS),
    rare("matrix", "spool -> directory, pack", "N4", WAITS),
    rare("matrix", "pipe -> *", "N6", PIPE),
    rare("matrix", "file, follow -> *", "N7", EARLY),
];
