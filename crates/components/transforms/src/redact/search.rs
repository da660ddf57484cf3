//! The search for data in texts.
//!
//! One automaton looks for all expressions in a single pass, and a text without a candidate stays where it
//! is. Only in others is each kind searched for by itself. A candidate that fails its check is searched again
//! from its second byte, since another may begin inside it. Such candidates have a bounded length, so this
//! stays linear. With all kinds in one automaton it would not: a long run of characters that may begin a mail
//! address would be read again for each candidate of a card in it.

use std::cmp::Reverse;

use regex_automata::Input;
use regex_automata::meta::{BuildError, Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use thalweg_config::Pattern;

use super::escapes;
use super::kinds::Kind;
use super::own::Own;

/// The maximum size of patterns that are compiled together, in bytes: that of a single `Pattern`.
pub(super) const LARGEST: usize = 10 << 20;

/// The size of a text whose memory is kept for the next one, in bytes.
const USUAL: usize = 64 << 10;

/// Data in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its kind. `None` if it is what a pattern of the user matches.
    pub(super) kind: Option<Kind>,
}

/// Finds the data in texts.
pub(super) struct Search {
    any: Automaton,
    finders: Vec<Finder>,
    /// The text with other bytes in place of its escapes. Kinds are searched for there.
    replaced: Vec<u8>,
    /// True if the text has escapes.
    has_escapes: bool,
}

impl Search {
    /// Creates a search.
    ///
    /// # Errors
    /// If the patterns are too large.
    pub(super) fn new(kinds: &[Kind], own: &[Pattern]) -> Result<Self, Box<BuildError>> {
        let own: Vec<String> = own.iter().map(|pattern| pattern.regex().as_str().to_owned()).collect();
        let all: Vec<String> = kinds.iter().map(|kind| kind.pattern()).chain(own.clone()).collect();
        let any = Automaton::new(&all)?;
        let mut finders = Vec::new();
        for &kind in kinds {
            let sought = Sought::Kind(kind, Automaton::new(&[kind.pattern()])?);
            finders.push(Finder { sought, next: None });
        }
        if !own.is_empty() {
            finders.push(Finder { sought: Sought::Own(Own::new(&own)?), next: None });
        }
        Ok(Self { any, finders, replaced: Vec::new(), has_escapes: false })
    }

    /// Begins with a text. Returns false if there is no candidate in it.
    ///
    /// # Errors
    /// The reason for rejecting the text.
    pub(super) fn begin(&mut self, text: &[u8]) -> Result<bool, String> {
        // One long text must not keep its memory.
        self.replaced.clear();
        self.replaced.shrink_to(USUAL);
        self.has_escapes = escapes::replace(text, &mut self.replaced);
        let is_found = self.any.find(text, 0, true).is_some()
            || self.has_escapes && self.any.find(&self.replaced, 0, true).is_some();
        if !is_found {
            return Ok(false);
        }
        for finder in &mut self.finders {
            if let Sought::Own(own) = &mut finder.sought {
                own.begin(text);
            }
        }
        self.seek(text, 0, |_| true).map(|()| true)
    }

    /// Lets the finders that a function chooses find their first data at or after an index.
    fn seek(&mut self, text: &[u8], from: usize, is_chosen: impl Fn(&Finder) -> bool) -> Result<(), String> {
        let plain = if self.has_escapes { self.replaced.as_slice() } else { text };
        for finder in self.finders.iter_mut().filter(|finder| is_chosen(finder)) {
            finder.seek(if matches!(finder.sought, Sought::Kind(..)) { plain } else { text }, from)?;
        }
        Ok(())
    }

    /// Returns the next data. Of what begins at the same byte, it is the longest.
    ///
    /// # Errors
    /// The reason for rejecting the text.
    pub(super) fn next(&mut self, text: &[u8]) -> Result<Option<Found>, String> {
        let all = self.finders.iter().filter_map(|finder| finder.next);
        let Some(first) = all.min_by_key(|found| (found.start, Reverse(found.end))) else { return Ok(None) };
        self.seek(text, first.end, |finder| finder.next.is_some_and(|found| found.start < first.end))?;
        Ok(Some(first))
    }
}

/// Expressions of which any may match.
pub(super) struct Automaton {
    regex: Regex,
    cache: Cache,
}

impl Automaton {
    /// Compiles expressions.
    ///
    /// # Errors
    /// If they are too large together.
    pub(super) fn new(patterns: &[String]) -> Result<Self, Box<BuildError>> {
        let config = Config::new()
            .utf8_empty(false)
            .which_captures(WhichCaptures::Implicit)
            .nfa_size_limit(Some(LARGEST));
        let regex = Regex::builder()
            .configure(config)
            .syntax(syntax::Config::new().utf8(false))
            .build_many(patterns)?;
        Ok(Self { cache: regex.create_cache(), regex })
    }

    /// Returns the range of the first match at or after an index. If `is_any`, it may be that of a part.
    pub(super) fn find(&mut self, text: &[u8], from: usize, is_any: bool) -> Option<(usize, usize)> {
        let input = Input::new(text).range(from..).earliest(is_any);
        self.regex.search_with(&mut self.cache, &input).map(|found| (found.start(), found.end()))
    }
}

/// The data that a finder looks for.
#[expect(clippy::large_enum_variant, reason = "there are few, and each search reads them")]
enum Sought {
    Kind(Kind, Automaton),
    Own(Own),
}

/// Finds the data of one kind, or that of the user's patterns.
struct Finder {
    sought: Sought,
    next: Option<Found>,
}

impl Finder {
    /// Finds the first data at or after an index. Empty matches are no data.
    fn seek(&mut self, text: &[u8], mut from: usize) -> Result<(), String> {
        self.next = None;
        while from <= text.len() {
            let (found, kind) = match &mut self.sought {
                Sought::Kind(kind, automaton) => (automaton.find(text, from, false), Some(*kind)),
                Sought::Own(own) => (own.find(text, from)?, None),
            };
            let Some((start, end)) = found else { return Ok(()) };
            let length = kind.map_or(Some(end - start), |kind| kind.length(text, start..end));
            if let Some(length) = length.filter(|length| *length > 0) {
                self.next = Some(Found { start, end: start + length, kind });
                return Ok(());
            }
            from = start + 1;
        }
        Ok(())
    }
}
