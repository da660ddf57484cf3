//! Decides which files are new.
//!
//! A pass walks all folders once. A later pass, of the same run with `watch` or of the next run, sends files
//! that were created, moved there or modified since. These are the files whose *change time* (Unix's ctime)
//! is not before the start of the previous pass. The saved state is therefore one point in time, however many
//! files there are. (Rejected: saving the time of each file, which grows with the number of files.) Clocks
//! are too coarse near that point, so files of the last seconds before it are saved one by one.
//!
//! See docs/decisions/034-new-files-are-known-by-time.md.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thalweg_engine::{Checkpoint, SourceOutput};
use xxhash_rust::xxh3::Xxh3;

/// The partition of the position.
const PARTITION: &str = "files";
/// The partition of the recently sent files.
const RECENT: &str = "files.recent";

/// The maximum difference between the clocks of the system and of its file system, in nanoseconds.
const SLACK_NS: i128 = 2_000_000_000;

/// The state saved between runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    /// Only files that changed since then are new. In nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// The start of the unfinished pass, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<i64>,
    /// The last committed file: the index of the path in the configuration, and the file's path as
    /// hexadecimal digits of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<(usize, String)>,
    /// True if the completed pass was interrupted in between: which files it had sent recently before that is
    /// not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_doubtful: bool,
}

/// Files that are saved one by one at the end of a pass. They have their own partition, because the list may
/// be long.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Recent {
    /// The start of the pass.
    of: i64,
    /// The files sent that changed in the last seconds before the pass began, or later. As fingerprints.
    sent: Vec<u64>,
    /// The files that were younger than `min_age`. As fingerprints.
    deferred: Vec<u64>,
}

/// One walk through all folders.
#[derive(Debug)]
pub struct Pass {
    /// Only files that changed since then are new. In nanoseconds since 1970.
    since: Option<i64>,
    began: i64,
    root: usize,
    /// The last file that an earlier run committed in this pass: the index of its root, and its path.
    after: Option<(usize, PathBuf)>,
    /// True if files may be sent a second time.
    is_doubtful: bool,
    /// The files that the previous pass sent, and those that it deferred.
    known: (HashSet<u64>, HashSet<u64>),
    /// The same, as saved state. It is kept until this whole pass is committed.
    former: Recent,
    /// The files that this pass sent or deferred and the next pass must know.
    recent: Recent,
}

impl Pass {
    /// Resumes where an earlier run stopped.
    pub fn begin(out: &SourceOutput) -> Self {
        let saved = |partition| out.saved(partition).unwrap_or_default();
        let kept: Kept = serde_json::from_value(saved(PARTITION)).unwrap_or_default();
        let recent: Vec<Recent> = serde_json::from_value(saved(RECENT)).unwrap_or_default();
        // The recent files of a pass count only if that pass was committed.
        let recent = recent.into_iter().find(|recent| Some(recent.of) == kept.since).unwrap_or_default();
        let after = kept.after.as_ref().map(|(root, path)| (*root, path_of(path)));
        let is_doubtful = kept.is_doubtful || after.is_some();
        let began = kept.began.unwrap_or_else(now);
        Self { began, after, is_doubtful, ..Self::after(kept.since, recent) }
    }

    /// Returns the pass after one that ended with this state.
    fn after(since: Option<i64>, former: Recent) -> Self {
        let known = (former.sent.iter().copied().collect(), former.deferred.iter().copied().collect());
        let recent = Recent::default();
        Self { since, began: now(), root: 0, after: None, is_doubtful: false, known, former, recent }
    }

    /// True if files may be sent a second time, because a run was interrupted.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Returns the index of the first root that is not finished.
    pub fn first_root(&self) -> usize {
        self.after.as_ref().map_or(0, |(root, _)| *root)
    }

    /// Starts a root.
    pub fn enter(&mut self, root: usize) {
        self.root = root;
    }

    /// True if a file must be sent.
    pub fn is_new(&mut self, path: &Path, metadata: &Metadata) -> bool {
        if let Some((root, after)) = &self.after
            && *root == self.root
            && path <= after
        {
            return false;
        }
        let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        let (print, name) = (fingerprint(path, Some(metadata)), fingerprint(path, None));
        let is_recent = changed >= i128::from(self.began) - SLACK_NS;
        let was_sent = self.known.0.contains(&print);
        if is_recent {
            self.recent.sent.push(print);
        }
        let is_changed = self.since.is_none_or(|since| changed >= i128::from(since) - SLACK_NS);
        (is_changed && !was_sent) || self.known.1.contains(&name)
    }

    /// Records that a file is too young to be sent.
    pub fn defer(&mut self, path: &Path) {
        self.recent.deferred.push(fingerprint(path, None));
    }

    /// Returns where a run resumes once this file and all files before it are settled.
    pub fn checkpoint(&self, path: &Path) -> Checkpoint {
        let after = Some((self.root, digits(path)));
        checkpoint(PARTITION, &Kept { since: self.since, began: Some(self.began), after, is_doubtful: false })
    }

    /// Returns where a run resumes once this whole pass is settled. The list of recent files is in a
    /// partition that does not wait for that. It therefore contains the recent files of the previous pass as
    /// well, in case this pass is not committed.
    pub fn finished(&mut self) -> [Checkpoint; 2] {
        self.recent.of = self.began;
        let is_doubtful = self.after.is_some();
        let kept = Kept { since: Some(self.began), began: None, after: None, is_doubtful };
        [checkpoint(RECENT, &[&self.former, &self.recent]), checkpoint(PARTITION, &kept)]
    }

    /// Starts the next pass.
    pub fn begin_next(&mut self) {
        self.recent.of = self.began;
        *self = Self::after(Some(self.began), std::mem::take(&mut self.recent));
    }
}

fn checkpoint(partition: &str, kept: &impl Serialize) -> Checkpoint {
    Checkpoint { partition: partition.into(), offset: serde_json::to_value(kept).unwrap_or_default() }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns a fingerprint that identifies a file, and with `metadata` also its state.
fn fingerprint(path: &Path, metadata: Option<&Metadata>) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(path.as_os_str().as_bytes());
    if let Some(metadata) = metadata {
        for number in [metadata.ctime(), metadata.ctime_nsec(), metadata.mtime(), metadata.mtime_nsec()] {
            hash.update(&number.to_le_bytes());
        }
        hash.update(&metadata.len().to_le_bytes());
    }
    hash.digest()
}

/// Returns a path as hexadecimal digits, because a path need not be text.
fn digits(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path_of(digits: &str) -> PathBuf {
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}
