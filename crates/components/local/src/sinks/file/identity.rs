//! The identity of a file, which tells it from others that have its name.
//!
//! A file keeps its inode when it is renamed, but a file system gives the inode of a removed file to a new
//! one. The time of creation beside it tells the two apart, where the file system has it. (Rejected: the
//! device. It may change when a file system is mounted again, and the path tells it.)

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// A file, whatever its name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) inode: u64,
    /// The time of its creation, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<u64>,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let since = metadata.created().ok().and_then(|created| created.duration_since(UNIX_EPOCH).ok());
        let created = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Self { inode: metadata.ino(), created }
    }

    /// Returns the file that has a name, without following a link.
    pub(super) fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_any_name_and_no_other_file_is_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name));
        fs::write(&one, "1").unwrap();
        let identity = Identity::at(&one).unwrap();
        fs::rename(&one, &two).unwrap();
        fs::write(&one, "2").unwrap();
        fs::write(&two, "1 and more").unwrap();
        assert_eq!(Identity::at(&two), Some(identity));
        assert_ne!(Identity::at(&one), Some(identity));
        assert_eq!(Identity::at(&folder.path().join("none")), None);
        let text = serde_json::to_string(&identity).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    }
}
