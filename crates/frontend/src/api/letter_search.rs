//! A bounded search in the dead letters, from the oldest on.
//!
//! A store may have a million letters, and few or none of the component that a client asks for. A search
//! looks at a bounded number and size of them, so that its answer is in time and other requests for dead
//! letters wait for a moment. It says where it ended, and the client continues there. To end a search when
//! its client is gone was rejected as the only bound: others wait until then, and no client ever gets the
//! answer. A bound of its time was rejected: the same request would have another answer on a busy machine. So
//! was an index by component: every letter would pay for it.

use thalweg_engine::{DeadLetter, DeadLetterId, Error};

use crate::errors::Filter;

/// A search looks at this many letters, or at as many as it may find if those are more.
const MOST_LOOKED_AT: usize = 20_000;
/// A search ends after this many bytes of letters.
const MOST_BYTES: usize = 64 << 20;

/// Where a search ends if the letters do not end before.
pub(super) struct Bounds {
    found: usize,
    looked_at: usize,
    bytes: usize,
}

impl Bounds {
    /// The bounds of a search that finds at most `limit` letters.
    pub(super) fn of(limit: usize) -> Self {
        Self { found: limit, looked_at: limit.max(MOST_LOOKED_AT), bytes: MOST_BYTES }
    }
}

/// The result of a search.
#[derive(Debug, PartialEq)]
pub(super) struct Found<T> {
    pub(super) letters: Vec<T>,
    /// The last letter that was looked at, if there may be more after it.
    pub(super) next: Option<DeadLetterId>,
}

/// Looks for the letters that a filter takes, and returns what `show` makes of each. It looks at one letter
/// at least, so that a client that continues a search comes to its end.
pub(super) fn search<T>(
    letters: impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>>,
    filter: &Filter,
    bounds: &Bounds,
    mut show: impl FnMut(DeadLetterId, &DeadLetter) -> T,
) -> Result<Found<T>, Error> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for (looked_at, letter) in (1..).zip(letters) {
        let (id, letter) = letter?;
        bytes += letter.size();
        if filter.takes(&letter) {
            found.push(show(id, &letter));
        }
        if found.len() >= bounds.found || looked_at >= bounds.looked_at || bytes >= bounds.bytes {
            return Ok(Found { letters: found, next: Some(id) });
        }
    }
    Ok(Found { letters: found, next: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand letters with the numbers 1, 2 and so on, each hundredth of `rare`.
    fn letters() -> impl Iterator<Item = Result<(DeadLetterId, DeadLetter), Error>> {
        (1..=1000).map(|id| {
            let component = if id % 100 == 0 { "rare.parse_json" } else { "main.parse_json" };
            let letter = serde_json::json!({
                "time_us": 0, "component": component, "reason": "", "source": "in", "payload": "x",
            });
            Ok((id, serde_json::from_value(letter).unwrap()))
        })
    }

    fn rare() -> Filter {
        Filter { component: Some("rare".into()) }
    }

    fn far() -> Bounds {
        Bounds { found: 1000, looked_at: 2000, bytes: MOST_BYTES }
    }

    fn ids(bounds: &Bounds) -> Found<DeadLetterId> {
        search(letters(), &rare(), bounds, |id, _| id).unwrap()
    }

    #[test]
    fn a_search_ends_at_each_of_its_bounds_and_says_where() {
        let all: Vec<_> = (1..=10).map(|hundreds| hundreds * 100).collect();
        assert_eq!(ids(&far()), Found { letters: all, next: None });
        assert_eq!(ids(&Bounds { found: 2, ..far() }), Found { letters: vec![100, 200], next: Some(200) });
        let looked_at = Bounds { looked_at: 150, ..far() };
        assert_eq!(ids(&looked_at), Found { letters: vec![100], next: Some(150) });
        // A letter that is larger than the bound is looked at as well.
        assert_eq!(ids(&Bounds { bytes: 1, ..far() }), Found { letters: vec![], next: Some(1) });
        let size = letters().next().unwrap().unwrap().1.size();
        let bytes = Bounds { bytes: 100 * size, ..far() };
        assert_eq!(ids(&bytes), Found { letters: vec![100], next: Some(100) });
    }

    #[test]
    fn a_search_that_is_continued_finds_each_letter_once() {
        for looked_at in [1, 7, 100, 333] {
            let (mut after, mut found) = (0, Vec::new());
            loop {
                let rest = letters().filter(|letter| letter.as_ref().is_ok_and(|(id, _)| *id > after));
                let bounds = Bounds { looked_at, ..far() };
                let part = search(rest, &rare(), &bounds, |id, _| id).unwrap();
                found.extend(part.letters);
                let Some(next) = part.next else { break };
                after = next;
            }
            assert_eq!(found, ids(&far()).letters, "{looked_at}");
        }
    }

    #[test]
    fn a_search_looks_at_as_many_letters_as_it_may_find() {
        assert_eq!(Bounds::of(1).looked_at, MOST_LOOKED_AT);
        assert_eq!(Bounds::of(MOST_LOOKED_AT + 1).looked_at, MOST_LOOKED_AT + 1);
    }

    #[test]
    fn a_failure_ends_a_search() {
        let failing = letters().take(3).chain([Err(Error::permanent("the run has ended"))]);
        assert!(search(failing, &rare(), &far(), |id, _| id).is_err());
    }
}
