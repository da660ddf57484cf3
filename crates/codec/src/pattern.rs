//! File paths and patterns: the folder to start from, and the names to find there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::{MatchOptions, Pattern, PatternError};
use thalweg_config::Mistake;

/// A path or a pattern.
#[derive(Debug)]
pub struct Root {
    text: String,
    base: Arc<Path>,
    /// The pattern below `base`, split at the slashes. Empty for a plain path.
    parts: Vec<PathSegment>,
}

#[derive(Debug)]
enum PathSegment {
    /// `**`: any number of folders, including none.
    Folders,
    Name(Pattern),
}

/// Returns the options for matching. Without `hidden`, a wildcard does not match a dot at the start of a
/// name.
fn matching(hidden: bool) -> MatchOptions {
    MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: !hidden,
    }
}

impl Root {
    /// Parses a path or pattern.
    ///
    /// # Errors
    /// If the pattern is malformed. [`mistake`] explains this to users.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        let is_pattern = |part: &str| part.contains(['*', '?', '[']);
        let plain: Vec<&str> = text.split('/').take_while(|part| !is_pattern(part)).collect();
        let rest: Vec<&str> = text.split('/').skip(plain.len()).filter(|part| !part.is_empty()).collect();
        let base = match (plain.as_slice(), rest.is_empty()) {
            (_, true) => PathBuf::from(text),
            ([], false) => PathBuf::from("."),
            ([""], false) => PathBuf::from("/"),
            (plain, false) => PathBuf::from(plain.join("/")),
        };
        let part = |part: &&str| match *part {
            "**" => Ok(PathSegment::Folders),
            name => Pattern::new(name).map(PathSegment::Name),
        };
        Ok(Self {
            text: text.to_owned(),
            base: base.into(),
            parts: rest.iter().map(part).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the text as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the folder or file to start from.
    pub fn base(&self) -> &Arc<Path> {
        &self.base
    }

    /// True if the text is a pattern, false if it is a plain path.
    pub fn is_pattern(&self) -> bool {
        !self.parts.is_empty()
    }

    /// True if a file matches. `below` is its path relative to the base.
    pub fn finds(&self, below: &Path, hidden: bool) -> bool {
        let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        matches(&self.parts, &names, matching(hidden))
    }

    /// True if a file in a folder may match. `below` is the path of the folder relative to the base.
    pub fn leads_into(&self, below: &Path, hidden: bool) -> bool {
        let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
        let mut parts = self.parts.iter();
        for name in &names {
            match parts.next() {
                Some(PathSegment::Folders) => return hidden || !name.starts_with('.'),
                Some(PathSegment::Name(pattern)) if pattern.matches_with(name, matching(hidden)) => {}
                _ => return false,
            }
        }
        parts.next().is_some()
    }
}

/// True if the parts match all names. Each part is applied once to all places that the parts before it can
/// lead to: trying one place after the other takes exponential time in the number of `**`.
fn matches(parts: &[PathSegment], names: &[&str], how: MatchOptions) -> bool {
    // For each number of names, whether the parts so far match that many.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for (number, part) in parts.iter().enumerate() {
        let mut next = vec![false; names.len() + 1];
        match part {
            PathSegment::Name(pattern) => {
                for (at, name) in names.iter().enumerate() {
                    next[at + 1] = reached[at] && pattern.matches_with(name, how);
                }
            }
            PathSegment::Folders => {
                // At the end of a pattern, `**` matches all files, and so at least one name.
                let is_end = number + 1 == parts.len();
                for at in 0..=names.len() {
                    let goes_on = at > 0
                        && (next[at - 1] || is_end && reached[at - 1])
                        && is_visible(names[at - 1], how);
                    next[at] = goes_on || !is_end && reached[at];
                }
            }
        }
        reached = next;
    }
    reached[names.len()]
}

fn is_visible(name: &str, how: MatchOptions) -> bool {
    !how.require_literal_leading_dot || !name.starts_with('.')
}

/// A filter of file names. A name is allowed if it matches an include pattern, or there is none, and matches
/// no exclude pattern.
#[derive(Debug)]
pub struct Wanted {
    include: Vec<About>,
    exclude: Vec<About>,
}

impl Wanted {
    /// Creates the filter from the options of a source.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        let all = |texts: &[String]| texts.iter().map(|text| About::new(text)).collect::<Result<Vec<_>, _>>();
        Ok(Self { include: all(include)?, exclude: all(exclude)? })
    }

    /// True if a file is allowed. `below` is its path relative to the base.
    pub fn allows(&self, below: &Path) -> bool {
        let is_named = self.include.is_empty() || self.include.iter().any(|about| about.matches(below));
        is_named && !self.exclude.iter().any(|about| about.matches(below))
    }
}

#[derive(Debug)]
struct About {
    pattern: Pattern,
    /// True if the pattern applies to the file name alone, and not to the whole path.
    name: bool,
}

impl About {
    fn new(text: &str) -> Result<Self, PatternError> {
        let pattern = Pattern::new(text)?;
        Ok(Self { pattern, name: !text.contains('/') })
    }

    fn matches(&self, below: &Path) -> bool {
        let how = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let name = if self.name { Path::new(below.file_name().unwrap_or_default()) } else { below };
        self.pattern.matches_with(&name.to_string_lossy(), how)
    }
}

/// Returns the mistake in a pattern that an option holds, if there is one.
pub fn mistake(option: &'static str, text: &str) -> Option<Mistake> {
    if text.is_empty() {
        return Some(
            Mistake::new(option, format!("`{option}` is empty.")).help("`.` is the folder that you are in."),
        );
    }
    let error = Pattern::new(text).err()?;
    let message =
        format!("`{text}` is not a valid file pattern: {} (at character {}).", error.msg, error.pos + 1);
    Some(Mistake::new(option, message).help("`**` stands alone between slashes, and `[` is closed by `]`."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_without_a_pattern_is_where_to_begin() {
        for (text, base, is_pattern) in [
            ("in/a/*.jpg", "in/a", true),
            ("/*/x", "/", true),
            ("*.jpg", ".", true),
            ("in/**", "in", true),
            ("in/a.jpg", "in/a.jpg", false),
            ("/in", "/in", false),
        ] {
            let root = Root::new(text).unwrap();
            assert_eq!((&**root.base(), root.is_pattern()), (Path::new(base), is_pattern), "{text}");
        }
    }

    #[test]
    fn patterns_match_as_in_shells() {
        for (text, below, finds) in [
            ("in/*.jpg", "a.jpg", true),
            ("in/*.jpg", "a/b.jpg", false),
            ("in/*.jpg", ".a.jpg", false),
            ("in/**/*.jpg", "a.jpg", true),
            ("in/**/*.jpg", "a/b/c.jpg", true),
            ("in/**/*.jpg", "a/.b/c.jpg", false),
            ("in/**", "a/b/c", true),
            ("in/**", "a", true),
            ("in/**/b/*", "b/c", true),
            ("in/**/b/*", "a/b/c", true),
            ("in/**/b/*", "a/c", false),
            ("in/[ab]/?", "a/x", true),
            ("in/[ab]/?", "c/x", false),
        ] {
            assert_eq!(Root::new(text).unwrap().finds(Path::new(below), false), finds, "{text} {below}");
        }
        assert!(Root::new("in/*.jpg").unwrap().finds(Path::new(".a.jpg"), true));
    }

    #[test]
    fn many_double_stars_take_no_exponential_time() {
        let root = Root::new(&format!("in/{}x", "**/a*/".repeat(30))).unwrap();
        assert!(!root.finds(Path::new(&"a/".repeat(60)), false));
        assert!(root.finds(&Path::new(&"a/".repeat(60)).join("x"), false));
    }

    #[test]
    fn only_folders_that_can_hold_a_match_are_entered() {
        let leads = |text: &str, below: &str| Root::new(text).unwrap().leads_into(Path::new(below), false);
        assert!(leads("in/a*/b/*.jpg", "ab") && leads("in/a*/b/*.jpg", "ab/b"));
        assert!(!leads("in/a*/b/*.jpg", "c") && !leads("in/a*/b/*.jpg", "ab/c") && !leads("in/*.jpg", "a"));
        assert!(leads("in/**/x", "a/b/c") && !leads("in/**/x", ".git"));
    }
}
