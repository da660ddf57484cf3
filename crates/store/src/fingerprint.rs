//! Detects whether a file has changed.

use opendal::Metadata;
use std::fmt;

/// The known state of a file: its length, its entity tag, and the time of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// The length of the file in bytes.
    pub length: u64,
    /// The entity tag, if the origin has one.
    pub etag: Option<String>,
    /// The time of the last change in nanoseconds since 1970, if the origin reports it.
    pub modified: Option<i64>,
}

impl Fingerprint {
    /// Creates a fingerprint from the metadata of the whole file.
    pub fn new(length: u64, metadata: &Metadata) -> Self {
        Self {
            length,
            etag: metadata.etag().map(str::to_owned),
            modified: metadata
                .last_modified()
                .and_then(|time| i64::try_from(time.into_inner().as_nanosecond()).ok()),
        }
    }

    /// True if nothing contradicts that both are the same state. The lengths must be equal. Then the tags
    /// decide if both have one, and the times otherwise. (Some servers send a tag only now and then.)
    pub fn agrees(&self, other: &Self) -> bool {
        self.length == other.length
            && match (&self.etag, &other.etag) {
                (Some(ours), Some(theirs)) => plain(ours) == plain(theirs),
                _ => match (self.modified, other.modified) {
                    (Some(ours), Some(theirs)) => ours == theirs,
                    _ => true,
                },
            }
    }
}

/// Returns a tag without `W/` and quotes: the same store sends it with quotes in a reply and without in a
/// listing.
fn plain(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)?;
        if let Some(etag) = &self.etag {
            write!(f, ", tag {etag}")?;
        }
        if let (None, Some(modified)) = (&self.etag, self.modified) {
            write!(f, ", changed {}.{:09} s after 1970", modified / 1_000_000_000, modified % 1_000_000_000)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(length: u64, etag: Option<&str>, modified: Option<i64>) -> Fingerprint {
        Fingerprint { length, etag: etag.map(str::to_owned), modified }
    }

    #[test]
    fn the_tag_decides_where_both_have_one_and_the_time_where_they_do_not() {
        assert!(print(5, Some("a"), Some(1)).agrees(&print(5, Some("a"), Some(2))));
        assert!(!print(5, Some("a"), Some(1)).agrees(&print(5, Some("b"), Some(1))));
        assert!(print(5, Some("\"a\""), None).agrees(&print(5, Some("a"), None)));
        assert!(!print(5, Some("a"), Some(1)).agrees(&print(5, None, Some(2))));
        assert!(print(5, Some("a"), Some(1)).agrees(&print(5, None, Some(1))));
        assert!(print(5, Some("a"), None).agrees(&print(5, None, None)));
        assert!(!print(5, Some("a"), None).agrees(&print(6, Some("a"), None)));
    }
}
