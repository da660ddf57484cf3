//! How far a source has read: what a checkpoint has of it.

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// A place between two messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    /// The cursor that the requests of the poll have.
    pub(super) cursor: Option<String>,
    /// The cursor that the pages of the poll have given so far, for the next poll.
    pub(super) next_cursor: Option<String>,
    /// The page of the poll. None for a first page without a name.
    pub(super) page: Option<Page>,
    /// The number of messages of the page that were sent.
    pub(super) sent: u64,
    /// The digest of these messages. None if there are none.
    pub(super) digest: Option<String>,
    /// The header `ETag` of the last answer.
    pub(super) etag: Option<String>,
    /// The header `Last-Modified` of the last answer.
    pub(super) last_modified: Option<String>,
}

/// The name of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Page {
    /// Its URL.
    Url(String),
    /// The token that the page before has for it.
    Token(String),
    /// Its number, or the offset of its first message.
    Number(u64),
}

impl Page {
    /// Returns what a request has of it. None for a URL.
    pub(super) fn value(&self) -> Option<String> {
        match self {
            Self::Url(_) => None,
            Self::Token(token) => Some(token.clone()),
            Self::Number(number) => Some(number.to_string()),
        }
    }
}

impl Place {
    /// True in the middle of a poll.
    pub(super) fn is_within(&self) -> bool {
        self.page.is_some() || self.sent > 0
    }

    /// Returns the place at the beginning of the next poll.
    pub(super) fn ended(self) -> Self {
        Self { cursor: self.next_cursor.or(self.cursor), ..Self::default() }
    }

    /// Returns the place at the beginning of its poll.
    pub(super) fn rewound(self) -> Self {
        Self { cursor: self.cursor, etag: self.etag, last_modified: self.last_modified, ..Self::default() }
    }
}

/// The messages of a page that were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct SoFar {
    pub(super) count: u64,
    digest: Sha1,
}

impl SoFar {
    /// Adds a message. It has its length before it, so that two messages differ from one.
    pub(super) fn add(&mut self, message: &[u8]) {
        self.count += 1;
        self.digest.update((message.len() as u64).to_le_bytes());
        self.digest.update(message);
    }

    /// Returns the digest of all messages.
    pub(super) fn digest(&self) -> Option<String> {
        (self.count > 0).then(|| format!("{:x}", self.digest.clone().finalize()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_place_is_read_as_it_was_saved() {
        let place = Place {
            cursor: Some("a".to_owned()),
            page: Some(Page::Token("t".to_owned())),
            sent: 3,
            digest: Some("d".to_owned()),
            ..Place::default()
        };
        let saved = serde_json::to_value(&place).unwrap();
        assert_eq!(saved["page"], json!({ "token": "t" }));
        assert_eq!(serde_json::from_value::<Place>(saved).unwrap(), place);
        assert_eq!(serde_json::from_value::<Place>(json!({})).unwrap(), Place::default());
        let begin = Place { cursor: Some("a".to_owned()), ..Place::default() };
        assert!(place.is_within() && !begin.is_within());
        assert_eq!(place.clone().ended(), begin);
        let next = Place { next_cursor: Some("b".to_owned()), ..place.clone() };
        assert_eq!(next.ended(), Place { cursor: Some("b".to_owned()), ..Place::default() });
        assert_eq!(place.rewound(), begin);
    }

    #[test]
    fn digests_tell_messages_apart() {
        let of = |messages: &[&str]| {
            let mut so_far = SoFar::default();
            messages.iter().for_each(|message| so_far.add(message.as_bytes()));
            so_far.digest()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert!(of(&["a", "b"]) != of(&["ab"]) && of(&["a"]) != of(&["a", ""]));
    }
}
