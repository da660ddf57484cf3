//! Which files are new.
//!
//! A pass goes through everything once. A later one, of the same run that watches or of the next one, sends what was made,
//! moved there or written since: what has a *change time* (Unix's ctime) not before the beginning of the pass before. So
//! what is kept of a folder is a point in time, however many files it has. Keeping each file's time was rejected for
//! that. Near that point clocks are not fine enough to tell, so the files of its last seconds are kept one by one.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thalweg_engine::{Checkpoint, SourceOutput};
use xxhash_rust::xxh3::Xxh3;

/// The lane of where it is.
const LANE: &str = "files";
/// The lane of what it sent lately.
const RECENT: &str = "files.recent";

/// How far the clocks of the system and of its file system may differ.
const SLACK_NS: i128 = 2_000_000_000;

/// What is kept between runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    /// Only what changed since then is new, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// When the pass began that is not at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<i64>,
    /// Up to where it was safe: the number of the path in the configuration, and the last file, in bytes as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<(usize, String)>,
    /// Whether the pass that is at its end was cut off in between: what was sent of late before that is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_doubtful: bool,
}

/// What is kept at the end of a pass, of files one by one. It has a lane of its own, since it may be long.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Recent {
    /// When the pass began.
    of: i64,
    /// What was sent, of the last seconds before the pass began and of what came later.
    sent: Vec<u64>,
    /// What was too young.
    deferred: Vec<u64>,
}

/// One way through everything.
#[derive(Debug)]
pub struct Pass {
    /// Only what changed since then is new.
    since: Option<i64>,
    began: i64,
    root: usize,
    /// Where a former run got to in this pass.
    after: Option<(usize, PathBuf)>,
    /// Whether files may come that came before.
    is_doubtful: bool,
    /// Sent or deferred in the pass before.
    known: (HashSet<u64>, HashSet<u64>),
    /// The same, to be kept until all of this pass is safe.
    former: Recent,
    /// Sent or deferred in this one, of what the next one will have to know.
    recent: Recent,
}

impl Pass {
    /// Begins where a former run left off.
    pub fn begin(out: &SourceOutput) -> Self {
        let saved = |partition| out.saved(partition).unwrap_or_default();
        let kept: Kept = serde_json::from_value(saved(LANE)).unwrap_or_default();
        let recent: Vec<Recent> = serde_json::from_value(saved(RECENT)).unwrap_or_default();
        // What was sent in a pass is known to be safe when the pass is.
        let recent = recent.into_iter().find(|recent| Some(recent.of) == kept.since).unwrap_or_default();
        let after = kept.after.as_ref().map(|(root, path)| (*root, path_of(path)));
        let is_doubtful = kept.is_doubtful || after.is_some();
        let began = kept.began.unwrap_or_else(now);
        Self { began, after, is_doubtful, ..Self::after(kept.since, recent) }
    }

    /// The pass after one that left this.
    fn after(since: Option<i64>, former: Recent) -> Self {
        let known = (former.sent.iter().copied().collect(), former.deferred.iter().copied().collect());
        let recent = Recent::default();
        Self { since, began: now(), root: 0, after: None, is_doubtful: false, known, former, recent }
    }

    /// Whether files may come a second time, since a run was cut off.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// The first root in which something is left to do.
    pub fn first_root(&self) -> usize {
        self.after.as_ref().map_or(0, |(root, _)| *root)
    }

    /// Begins with a root.
    pub fn enter(&mut self, root: usize) {
        self.root = root;
    }

    /// Whether a file is to be sent.
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

    /// Notes that a file is not to be sent yet.
    pub fn defer(&mut self, path: &Path) {
        self.recent.deferred.push(fingerprint(path, None));
    }

    /// Where a run is to go on once this file and all before it are safe.
    pub fn checkpoint(&self, path: &Path) -> Checkpoint {
        let after = Some((self.root, digits(path)));
        checkpoint(LANE, &Kept { since: self.since, began: Some(self.began), after, is_doubtful: false })
    }

    /// Where a run is to go on once all of this pass is safe. What was sent of late is in a lane that does not wait for
    /// that, so it is kept for the pass before as well, in case this one is not.
    pub fn finished(&mut self) -> [Checkpoint; 2] {
        self.recent.of = self.began;
        let is_doubtful = self.after.is_some();
        let kept = Kept { since: Some(self.began), began: None, after: None, is_doubtful };
        [checkpoint(RECENT, &[&self.former, &self.recent]), checkpoint(LANE, &kept)]
    }

    /// Begins the next one.
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

/// What tells a file from others, and from itself after a change.
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

/// A path in hexadecimal digits: it need not be text.
fn digits(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path_of(digits: &str) -> PathBuf {
    let digits: Vec<u8> =
        digits.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}
