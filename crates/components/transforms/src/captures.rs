//! The memory that a regular expression takes to find its groups.
//!
//! For long texts and many groups, the library follows all states of the expression at once, each with the
//! places of all groups. It keeps this table for each thread, and has no bound for it.

use regex::bytes::Regex;
use regex_automata::nfa::thompson::{Config, NFA};
use regex_automata::util::syntax;
use thalweg_engine::Error;
use thalweg_record::{Budget, size_text};

/// The place of a group, twice: for the present states and the next ones.
const PLACE: usize = 2 * size_of::<usize>();

/// The table may always have this size, in bytes.
const LEAST: usize = 8 << 20;

/// Refuses an expression whose groups take more than a quarter of the memory on each core.
///
/// # Errors
/// With the size.
pub(crate) fn check(regex: &Regex, budget: &Budget) -> Result<(), Error> {
    let compiler = NFA::compiler()
        .configure(Config::new().utf8(false))
        .syntax(syntax::Config::new().utf8(false))
        .build(regex.as_str());
    let Ok(nfa) = compiler else { return Ok(()) };
    let size = nfa.states().len().saturating_mul(nfa.group_info().slot_len()).saturating_mul(PLACE);
    let most = (budget.limit() / 4).max(LEAST);
    if size <= most {
        return Ok(());
    }
    Err(Error::permanent(format!(
        "the pattern takes {} of memory on each core to find its {} groups, which is too much: the limit is {}, a \
         quarter of `memory`. Write `(?-u:\\w)` for `\\w` and `(?-u:\\d)` for `\\d`, which are far smaller, use fewer \
         groups, or raise `memory`",
        size_text(size >> 20 << 20),
        regex.captures_len() - 1,
        size_text(most),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_of_large_classes_are_refused_and_small_ones_are_not() {
        let checked = |group: &str, count: usize, memory: usize| {
            let regex = Regex::new(&vec![group; count].join(" ")).unwrap();
            check(&regex, &Budget::new(memory)).map_err(|error| error.to_string())
        };
        assert_eq!(checked(r"(\w+)", 10, 32 << 20), Ok(()));
        assert_eq!(checked(r"((?-u:\w)+)", 100, 32 << 20), Ok(()));
        assert_eq!(checked(r"(\S+)", 40, 256 << 20), Ok(()));
        let refused = checked(r"(\w+)", 100, 256 << 20).unwrap_err();
        assert!(
            refused.contains("to find its 100 groups") && refused.contains("limit is 64 MiB"),
            "{refused}"
        );
    }
}
