//! Notices a poll that would not end: pages that lead in a circle, or that are all the same.
//!
//! Circles are found as Brent does it: each page is compared with one that came before it, and that one is
//! replaced after 1, 2, 4, 8 pages and so on. The memory is that of one page, however long the poll is. The
//! cost is that a circle may be gone through up to three times. (Rejected: to keep all pages that were read.)

use super::place::Page;

/// The number of pages in a row with the same messages that no server means.
const MOST_ALIKE: u32 = 10;

/// The number of pages in a row without messages after which they are logged.
const NOTED: u32 = 1000;

/// The pages of a poll so far.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// The page that later ones are compared with.
    kept: Option<Page>,
    /// The number of pages since then.
    steps: u64,
    /// After this number of pages, another one is kept.
    turn: u64,
    /// The digest of the messages of the last page.
    digest: Option<String>,
    /// The number of pages in a row with this digest.
    alike: u32,
}

impl Trail {
    /// Adds the digest of a page, which is None if the page has no messages, and the page that it leads to.
    ///
    /// # Errors
    /// The reason if the poll would not end.
    pub(super) fn add(&mut self, digest: Option<String>, next: &Page) -> Result<(), String> {
        self.alike = if digest == self.digest { self.alike.saturating_add(1) } else { 1 };
        self.digest = digest;
        if self.digest.is_some() && self.alike >= MOST_ALIKE {
            let text = "pages in a row have the same messages, so the server seems to ignore the page that is \
                        asked for (`pages`)";
            return Err(format!("{MOST_ALIKE} {text}"));
        }
        if self.kept.as_ref() == Some(next) {
            return Err("the pages lead in a circle: the next one was read in this poll already".to_owned());
        }
        self.steps += 1;
        if self.steps >= self.turn {
            (self.kept, self.steps) = (Some(next.clone()), 0);
            self.turn = self.turn.saturating_mul(2).max(1);
        }
        Ok(())
    }

    /// True once, when many pages in a row had no messages.
    pub(super) fn is_long_empty(&self) -> bool {
        self.digest.is_none() && self.alike == NOTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(number: usize) -> Page {
        Page::Url(format!("https://a/{number}"))
    }

    fn digest(number: usize) -> Option<String> {
        Some(number.to_string())
    }

    proptest! {
        #[test]
        fn a_circle_is_found_soon_and_other_pages_are_none(before in 0..50usize, length in 1..50usize) {
            let (mut straight, mut circle) = (Trail::default(), Trail::default());
            let mut found = None;
            for step in 0..4 * (before + length) + 4 {
                prop_assert_eq!(straight.add(digest(step), &page(step)), Ok(()));
                let at = if step < before { step } else { before + (step - before) % length };
                if found.is_none() && circle.add(digest(step), &page(at)).is_err() {
                    found = Some(step);
                }
            }
            prop_assert!(found.is_some_and(|step| step >= before + length));
        }
    }

    #[test]
    fn pages_with_the_same_messages_are_counted_in_a_row() {
        let mut trail = Trail::default();
        let add = |trail: &mut Trail, content: usize, at: usize| trail.add(digest(content), &page(at));
        for at in 0..9 {
            assert_eq!(add(&mut trail, 1, at), Ok(()));
        }
        assert_eq!(add(&mut trail, 2, 9), Ok(()));
        for at in 10..19 {
            assert_eq!(add(&mut trail, 1, at), Ok(()));
        }
        let reason = add(&mut trail, 1, 19).unwrap_err();
        assert!(reason.starts_with("10 pages in a row have the same messages"), "{reason}");
    }

    #[test]
    fn pages_without_messages_are_no_fault_and_are_noted_once() {
        let mut trail = Trail::default();
        let noted = (0..3000).filter(|at| {
            assert_eq!(trail.add(None, &page(*at)), Ok(()));
            trail.is_long_empty()
        });
        assert_eq!(noted.collect::<Vec<_>>(), [999]);
    }
}
