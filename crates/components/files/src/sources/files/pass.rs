//! Decides which files are new.
//!
//! A pass walks all folders once. A later pass, of the same run with `follow` or of the next run, sends files
//! that were created, moved there or modified since. These are the files whose *change time* (Unix's ctime)
//! is not before the start of the previous pass. The saved state is therefore one point in time, however many
//! files there are. (Rejected: saving the time of each file, which grows with the number of files.) Clocks
//! are too coarse near that point, so files of the last seconds before it are saved one by one ([`recent`]).
//!
//! See docs/decisions/034-new-files-are-known-by-time.md.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thalweg_engine::{Checkpoint, SourceOutput};
use xxhash_rust::xxh3::Xxh3;

use super::recent::{self, Recent};

/// The partition of the position.
const PARTITION: &str = "files";

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
    /// The files that the previous pass sent, and those that it deferred.
    known: Recent,
    /// The files that this pass sent or deferred and the next pass must know.
    recent: Recent,
    /// The starts of the earlier passes whose recent files are saved, the oldest first. They are kept until a
    /// later pass is committed.
    starts: Vec<i64>,
}

impl Pass {
    /// Resumes where an earlier run stopped.
    pub fn begin(out: &SourceOutput) -> Self {
        let kept: Kept = serde_json::from_value(out.saved(PARTITION).unwrap_or_default()).unwrap_or_default();
        let began = kept.began.unwrap_or_else(now);
        let starts: Vec<i64> = kept.since.into_iter().collect();
        recent::forget_others(out, &[starts.as_slice(), &[began]].concat());
        Self {
            since: kept.since,
            began,
            root: 0,
            after: kept.after.as_ref().map(|(root, path)| (*root, path_of(path))),
            known: kept.since.map_or_else(Recent::default, |since| Recent::load(out, since)),
            recent: Recent::load(out, began),
            starts,
        }
    }

    /// True if it resumes a pass that was interrupted.
    pub fn is_resumed(&self) -> bool {
        self.after.is_some()
    }

    /// Returns the index of the first root that is not finished.
    pub fn first_root(&self) -> usize {
        self.after.as_ref().map_or(0, |(root, _)| *root)
    }

    /// Starts a root.
    pub fn enter(&mut self, root: usize) {
        self.root = root;
    }

    /// Returns the change time before which no file is new, in nanoseconds since 1970.
    pub fn known_before(&self) -> i128 {
        self.since.map_or(i128::MIN, |since| i128::from(since) - SLACK_NS)
    }

    /// True if a file must be sent or deferred.
    pub fn is_new(&mut self, path: &Path, metadata: &Metadata) -> bool {
        if let Some((root, after)) = &self.after
            && *root == self.root
            && path <= after
        {
            return false;
        }
        if self.known.sent.contains(&fingerprint(path, Some(metadata))) {
            self.add_sent(path, metadata);
            return false;
        }
        let is_changed = changed(metadata) >= self.known_before();
        is_changed || self.known.deferred.contains(&fingerprint(path, None))
    }

    /// Records that a file is sent.
    pub fn add_sent(&mut self, path: &Path, metadata: &Metadata) {
        let is_recent = changed(metadata) >= i128::from(self.began) - SLACK_NS;
        // A run that was interrupted in this pass may have deferred the file.
        if is_recent || self.recent.deferred.contains(&fingerprint(path, None)) {
            self.recent.add_sent(fingerprint(path, Some(metadata)));
        }
    }

    /// Records that a file is too young to be sent.
    pub fn defer(&mut self, path: &Path) {
        self.recent.add_deferred(fingerprint(path, None));
    }

    /// Returns where a run resumes once this file and all files before it are settled.
    pub fn checkpoint(&self, path: &Path) -> Checkpoint {
        let after = Some((self.root, digits(path)));
        checkpoint(&Kept { since: self.since, began: Some(self.began), after })
    }

    /// Saves the files that were sent or deferred, before a checkpoint is sent that comes after them. They
    /// are in partitions that do not wait until the files are settled: what comes after the checkpoint is
    /// sent again all the same.
    pub fn save_recent(&mut self, out: &SourceOutput) {
        self.recent.take_change(self.began).into_iter().for_each(|checkpoint| out.checkpoint(checkpoint));
    }

    /// Saves where a run resumes once this whole pass is settled.
    pub fn save_finished(&mut self, out: &SourceOutput) {
        self.save_recent(out);
        out.checkpoint(checkpoint(&Kept { since: Some(self.began), began: None, after: None }));
        let saved = out.saved(PARTITION).and_then(|saved| serde_json::from_value::<Kept>(saved).ok());
        let since = saved.and_then(|kept| kept.since);
        if let Some(at @ 1..) = self.starts.iter().position(|start| Some(*start) == since) {
            self.starts.drain(..at);
            recent::forget_others(out, &[self.starts.as_slice(), &[self.began]].concat());
        }
    }

    /// Starts the next pass.
    pub fn begin_next(&mut self) {
        self.starts.push(self.began);
        self.since = Some(self.began);
        self.began = now();
        self.after = None;
        self.known = std::mem::take(&mut self.recent);
    }
}

fn changed(metadata: &Metadata) -> i128 {
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}

fn checkpoint(kept: &Kept) -> Checkpoint {
    Checkpoint { partition: PARTITION.into(), offset: serde_json::to_value(kept).unwrap_or_default() }
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
