//! The version of gollum that a configuration was written for.
//!
//! Some formatters changed their defaults and their treatment of wrong values between versions, so the same
//! text means something else in another version.

use std::str::FromStr;

use thalweg_config::{Document, Node};

use super::tables::{self, Role};

/// A version of gollum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.4: a list of plugins.
    V04,
    /// 0.5: a mapping of plugins, with formatters that 0.6 does not have.
    V05,
    /// 0.6: a mapping of plugins.
    V06,
}

impl FromStr for Version {
    type Err = String;

    /// Reads `0.4`, `0.5` or `0.6`, also with `v` and with a patch level.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.trim_start_matches('v').split('.');
        match (numbers.next(), numbers.next()) {
            (Some("0"), Some("4")) => Ok(Self::V04),
            (Some("0"), Some("5")) => Ok(Self::V05),
            (Some("0"), Some("6")) => Ok(Self::V06),
            _ => Err("the versions of gollum are 0.4, 0.5 and 0.6".to_owned()),
        }
    }
}

impl Version {
    /// The version that a document was written for. A mapping is taken for 0.6 unless it uses something that
    /// only 0.5 had.
    pub fn of(document: &Document) -> Self {
        let root = document.root();
        if root.as_sequence().is_some() {
            Self::V04
        } else if mentions_former(root) {
            Self::V05
        } else {
            Self::V06
        }
    }
}

/// True if a node or one below it names a formatter or filter that 0.6 does not have.
fn mentions_former(node: &Node) -> bool {
    let is_former = |name: &str| {
        tables::kind(name).is_some_and(|kind| {
            matches!(kind.role, Role::Filter | Role::Formatter) && tables::ONLY_IN_05.contains(&kind.name)
        })
    };
    node.as_str().is_some_and(is_former)
        || node.items().iter().any(mentions_former)
        || node.entries().iter().any(|(key, value)| is_former(&key.name) || mentions_former(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Version {
        Version::of(&Document::parse("x", text).unwrap())
    }

    #[test]
    fn the_form_and_the_formatters_tell_the_version() {
        assert_eq!(of("- consumer.Console: { Stream: a }\n"), Version::V04);
        assert_eq!(
            of("In: { Type: consumer.Console, Streams: a, Modulators: [format.Trim] }\n"),
            Version::V06
        );
        assert_eq!(of("In: { Type: consumer.Console, Modulators: [format.clear] }\n"), Version::V05);
        let nested = "In: { Modulators: [format.Double: { Left: [format.ExtractJSON: { Field: a }] }] }\n";
        assert_eq!(of(nested), Version::V05);
    }

    #[test]
    fn versions_are_read() {
        for (text, version) in [("0.4", Version::V04), ("v0.5.4", Version::V05), ("0.6.0", Version::V06)] {
            assert_eq!(text.parse(), Ok(version));
        }
        for text in ["", "0", "0.7", "1.4", "0.44"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }
}
