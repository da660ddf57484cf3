//! The limits that a container or a service manager sets for this process: control groups of Linux, of
//! version 1 and 2.
//!
//! `/proc/self/cgroup` names the group of the process, `/proc/self/mountinfo` where its files are. The limits
//! of the groups above it apply as well, so the lowest one counts. A file that cannot be read is no limit: a
//! program outside of a container has none.
//!
//! The number of threads is not derived here: the standard library reads the quota of the processor by itself
//! (see [`cores`](crate::cores)).

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use thalweg_config::ByteSize;
use thalweg_engine::DEFAULT_MEMORY;

/// At most this many bytes of a file are read. A machine with many containers has thousands of mounts.
const LONGEST: u64 = 4 << 20;
/// Version 1 writes a number near this one if there is no limit.
const UNLIMITED: u64 = 1 << 60;
/// The memory that the process needs beside the budget, by measurement: see docs/operating/README.md.
const BESIDE: u64 = 64 << 20;
/// A container with less than [`BESIDE`] still gets this part of its memory as budget.
const LEAST_PART: u64 = 4;
/// The smallest usual budget, in bytes.
const LEAST: u64 = 1 << 20;

/// The limits of the control groups of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// The memory of all processes of the group, in bytes.
    pub memory: Option<u64>,
    /// How many processors the group may use, on average.
    pub processors: Option<f64>,
}

impl Limits {
    /// Returns the limits of this process, as they were when it started.
    #[must_use]
    pub fn of_this_process() -> Self {
        static LIMITS: LazyLock<Limits> = LazyLock::new(|| Limits::below(Path::new("/")));
        *LIMITS
    }

    /// Returns the limits that the files below a root directory have.
    fn below(root: &Path) -> Self {
        let read = |path: &str| text_of(&root.join(path)).unwrap_or_default();
        let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
        let mut limits = Self::default();
        for group in groups.lines().filter_map(Group::parse) {
            let mounts = mounts.lines().filter_map(Mount::parse);
            let Some(mount) = mounts.into_iter().find(|mount| mount.has(&group)) else { continue };
            for folder in mount.folders_of(&group) {
                let folder = root.join(folder.strip_prefix("/").unwrap_or(&folder));
                limits.lower(&folder, &group);
            }
        }
        limits
    }

    /// Takes the limits of one group into account.
    fn lower(&mut self, folder: &Path, group: &Group<'_>) {
        let number = |name: &str| text_of(&folder.join(name))?.trim().parse::<u64>().ok();
        if group.has("memory") {
            let names: &[&str] =
                if group.is_unified() { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
            let found = names.iter().filter_map(|name| number(name)).filter(|bytes| *bytes < UNLIMITED);
            self.memory = found.chain(self.memory).min();
        }
        if group.has("cpu") {
            let quota = if group.is_unified() {
                let text = text_of(&folder.join("cpu.max")).unwrap_or_default();
                let mut words = text.split_whitespace().map(str::parse::<u64>);
                words.next().and_then(Result::ok).zip(words.next().and_then(Result::ok))
            } else {
                number("cpu.cfs_quota_us").zip(number("cpu.cfs_period_us"))
            };
            let processors = quota.filter(|(_, period)| *period > 0);
            let processors = processors.map(|(quota, period)| quota as f64 / period as f64);
            self.processors = processors.into_iter().chain(self.processors).reduce(f64::min);
        }
    }

    /// The budget of a run whose configuration has none: [`DEFAULT_MEMORY`], or less if the process may not
    /// have so much.
    #[must_use]
    pub fn usual_memory(&self) -> ByteSize {
        let Some(limit) = self.memory else { return DEFAULT_MEMORY };
        let left = limit.saturating_sub(BESIDE).max(limit / LEAST_PART);
        ByteSize(left.clamp(LEAST, DEFAULT_MEMORY.bytes()))
    }
}

/// A line of `/proc/self/cgroup`: `4:cpu,cpuacct:/docker/ab`, or `0::/system.slice/x.service` of version 2.
struct Group<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Self { controllers, path })
    }

    /// True if it is of version 2, whose one tree has all controllers that no tree of version 1 has.
    fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }

    fn has(&self, controller: &str) -> bool {
        self.is_unified() || self.controllers.split(',').any(|known| known == controller)
    }
}

/// A line of `/proc/self/mountinfo`.
struct Mount<'a> {
    /// The directory of the mounted file system that is seen at `point`.
    root: PathBuf,
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (first, last) = line.split_once(" - ")?;
        let mut first = first.split(' ').skip(3);
        let (root, point) = (first.next()?, first.next()?);
        let mut last = last.split(' ');
        let (kind, options) = (last.next()?, last.nth(1).unwrap_or_default());
        Some(Self { root: unescaped(root), point: unescaped(point), kind, options })
    }

    fn has(&self, group: &Group<'_>) -> bool {
        match group.is_unified() {
            true => self.kind == "cgroup2",
            false => {
                let known = || group.controllers.split(',');
                self.kind == "cgroup"
                    && self.options.split(',').any(|option| known().any(|name| name == option))
            }
        }
    }

    /// The directories of a group and of those above it. In a container, the directory of its group may be
    /// mounted in place of the whole tree.
    fn folders_of(&self, group: &Group<'_>) -> Vec<PathBuf> {
        let below = Path::new(group.path).strip_prefix(&self.root).unwrap_or(Path::new(""));
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let below = if below.components().all(is_plain) { below } else { Path::new("") };
        below.ancestors().map(|below| self.point.join(below)).collect()
    }
}

/// Returns a path of `mountinfo`, in which a space is `\040`.
fn unescaped(path: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let mut text = path.to_owned();
    for (escape, character) in escapes {
        text = text.replace(escape, character);
    }
    text.into()
}

fn text_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits that a tree of these files has.
    fn limits(files: &[(&str, &str)]) -> Limits {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Limits::below(root.path())
    }

    const UNIFIED: &str = "22 1 0:20 / /proc rw - proc proc rw\n\
                           30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_lowest_limit_of_a_group_and_those_above_counts() {
        let found = limits(&[
            ("proc/self/cgroup", "0::/system.slice/thalweg.slice/thalweg@orders.service\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/system.slice/thalweg.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/thalweg.slice/memory.high", "536870912\n"),
            ("sys/fs/cgroup/system.slice/thalweg.slice/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/system.slice/thalweg.slice/thalweg@orders.service/memory.max", "805306368\n"),
            ("sys/fs/cgroup/system.slice/thalweg.slice/thalweg@orders.service/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(found, Limits { memory: Some(512 << 20), processors: Some(1.5) });
    }

    #[test]
    fn the_group_of_a_container_is_mounted_in_place_of_the_tree() {
        let files = [("sys/fs/cgroup/memory.max", "134217728"), ("sys/fs/cgroup/cpu.max", "50000 100000")];
        for (group, mounts) in [
            ("0::/\n", UNIFIED),
            // Without a namespace of its own.
            ("0::/docker/ab\n", "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
            ("0::/../other\n", UNIFIED),
        ] {
            let files: Vec<_> = files
                .into_iter()
                .chain([("proc/self/cgroup", group), ("proc/self/mountinfo", mounts)])
                .collect();
            assert_eq!(limits(&files), Limits { memory: Some(128 << 20), processors: Some(0.5) }, "{group}");
        }
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let found = limits(&[
            ("proc/self/cgroup", "12:cpu,cpuacct:/a b\n4:memory:/docker/ab\n1:name=systemd:/x\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 23 0:27 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 32 23 0:28 / /sys/fs/cgroup\\040x/cpu ro - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
            ("sys/fs/cgroup x/cpu/a b/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup x/cpu/a b/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup x/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup x/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(found, Limits { memory: Some(256 << 20), processors: Some(2.0) });
    }

    #[test]
    fn what_is_missing_or_wrong_is_no_limit() {
        assert_eq!(limits(&[]), Limits::default());
        let found = limits(&[
            ("proc/self/cgroup", "nothing\n0:\n4:memory:/\n0::/a\n"),
            (
                "proc/self/mountinfo",
                "- - -\n1 2 3\n33 1 0:29 / /m - cgroup c memory\n30 23 0:26 / /c rw - cgroup2 c rw\n",
            ),
            ("m/memory.limit_in_bytes", "9223372036854771712\n"),
            ("c/a/memory.max", "-5\n"),
            ("c/a/cpu.max", "100000 0\n"),
        ]);
        assert_eq!(found, Limits::default());
    }

    #[test]
    fn the_usual_budget_leaves_memory_for_the_process() {
        let usual = |mebibytes: Option<u64>| {
            let memory = mebibytes.map(|mebibytes| mebibytes << 20);
            Limits { memory, processors: None }.usual_memory().bytes() >> 20
        };
        assert_eq!([None, Some(4096), Some(320)].map(usual), [256; 3]);
        assert_eq!([Some(256), Some(128), Some(64), Some(0)].map(usual), [192, 64, 16, 1]);
    }
}
