//! The patterns of the user, searched for in a bounded time.
//!
//! A search for one match takes linear time, but one for all matches may not: of `[a-z]+x|a`, each `a` of a
//! long word is a match, which is known only at the end of the word. The bytes that searches read are
//! therefore counted. A text of which they read too many is rejected. The alternative is to search in windows
//! of a fixed size, but data that is longer than a window, such as a private key, would then stay in the
//! text.
//!
//! The fastest search does not tell how much it read, so it counts as if it read up to the end. It is used
//! until it may have read [`UNCOUNTED`] bytes, which suffices for all texts of some kibibytes. The lazy
//! automaton takes over, which is slower and counts.

use regex_automata::Input;
use regex_automata::hybrid::{dfa, regex};
use regex_automata::meta::BuildError;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use super::search::{Automaton, LARGEST};

/// The bytes that searches in a text may read uncounted.
const UNCOUNTED: usize = 64 << 20;
/// How often searches may read each byte of a text on average.
const READINGS: usize = 128;

/// Finds what matches patterns of the user.
pub(super) struct Own {
    fast: Automaton,
    counting: Option<(regex::Regex, regex::Cache)>,
    uncounted: usize,
    counted: usize,
}

impl Own {
    /// Compiles patterns.
    ///
    /// # Errors
    /// If they are too large together.
    pub(super) fn new(patterns: &[String]) -> Result<Self, Box<BuildError>> {
        let fast = Automaton::new(patterns)?;
        let counting = regex::Regex::builder()
            .dfa(dfa::Config::new().unicode_word_boundary(true).skip_cache_capacity_check(true))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(LARGEST)))
            .syntax(syntax::Config::new().utf8(false))
            .build_many(patterns);
        let counting = counting.ok().map(|regex| {
            let cache = regex.create_cache();
            (regex, cache)
        });
        Ok(Self { fast, counting, uncounted: 0, counted: 0 })
    }

    /// Begins with a text.
    pub(super) fn begin(&mut self, text: &[u8]) {
        self.uncounted = UNCOUNTED;
        self.counted = text.len().saturating_mul(READINGS);
    }

    /// Returns the range of the first match at or after an index.
    ///
    /// # Errors
    /// If too much was read.
    pub(super) fn find(&mut self, text: &[u8], from: usize) -> Result<Option<(usize, usize)>, String> {
        let most = text.len().saturating_sub(from);
        if let Some(rest) = self.uncounted.checked_sub(most) {
            self.uncounted = rest;
            return Ok(self.fast.find(text, from, false));
        }
        let (found, read) = match self.count(text, from) {
            Some(counted) => counted,
            None => (self.fast.find(text, from, false), most),
        };
        self.counted = self.counted.checked_sub(read).ok_or_else(|| {
            format!(
                "its {} bytes would be read more than {READINGS} times to find all matches of `pattern`: limit \
                 its repetitions, as in `[a-z]{{1,64}}`, and write `(?-u:\\b)` for `\\b`",
                text.len()
            )
        })?;
        Ok(found)
    }

    /// Returns the first match, and the number of bytes that were read. `None` if the automaton cannot tell:
    /// it has no word boundaries between characters other than ASCII.
    fn count(&mut self, text: &[u8], from: usize) -> Option<(Option<(usize, usize)>, usize)> {
        let (regex, cache) = self.counting.as_mut()?;
        let read = |cache: &regex::Cache| {
            let (forward, reverse) = cache.as_parts();
            let bytes = forward.search_total_len() + reverse.search_total_len();
            (bytes, forward.clear_count() + reverse.clear_count())
        };
        let (bytes, clears) = read(cache);
        let found = regex.try_search(cache, &Input::new(text).range(from..)).ok()?;
        let (now, clears_now) = read(cache);
        // A cleared cache counts from zero.
        let read = if clears_now == clears { now - bytes } else { text.len() - from };
        Some((found.map(|found| (found.start(), found.end())), read))
    }
}
