//! The local files that a source reads, as far as its configuration says it.

use std::path::{Component as Part, Path, PathBuf};

/// The characters of patterns.
const WILD: [char; 4] = ['*', '?', '[', ']'];

/// The files that one path or pattern of a source leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reads {
    /// The folder of the files, without a pattern.
    pub folder: PathBuf,
    /// True if files of its subfolders are read as well.
    pub is_deep: bool,
    /// The names of the files, as patterns; empty if all names are possible.
    pub names: Vec<String>,
    /// Patterns of names that are not read.
    pub except: Vec<String>,
    /// Folders that are not read.
    pub without: Vec<PathBuf>,
}

impl Reads {
    /// Returns the files that a path or pattern leads to. A path without a pattern may be a file or a folder.
    #[must_use]
    pub fn of(text: &str) -> Vec<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let plain = parts.iter().take_while(|part| !part.contains(WILD)).count();
        let folder = |count: usize| PathBuf::from(format!("{}/", parts[..count].join("/")));
        let folder = |count: usize| if count == 0 { PathBuf::from(".") } else { folder(count) };
        let files = |folder, is_deep, name: Option<&str>| {
            let names = name.filter(|name| !matches!(*name, "" | "**")).map(str::to_owned);
            Self {
                folder,
                is_deep,
                names: names.into_iter().collect(),
                except: Vec::new(),
                without: Vec::new(),
            }
        };
        let name = parts.last().copied();
        if plain < parts.len() {
            return vec![files(folder(plain), parts.len() > plain + 1 || name == Some("**"), name)];
        }
        vec![files(folder(plain - 1), false, name), files(folder(plain), true, None)]
    }

    /// Restricts them to names that one of the patterns `include` matches, if there are any, and none of
    /// `exclude`. A pattern with `/` is for a path: its last part is for the name. An excluded name may be
    /// that of a folder.
    #[must_use]
    pub fn filtered(mut self, include: &[String], exclude: &[String]) -> Self {
        let name = |pattern: &String| pattern.rsplit('/').next().unwrap_or_default().to_owned();
        if !include.is_empty() {
            self.names = include.iter().map(name).collect();
            if self.names.iter().any(|name| name == "**") {
                self.names.clear();
            }
        }
        self.except = exclude.iter().filter(|pattern| !pattern.contains('/')).cloned().collect();
        let folders = exclude.iter().map(|pattern| pattern.strip_suffix("/**").unwrap_or(pattern));
        let folders = folders.filter(|folder| !folder.contains(WILD));
        self.without = folders.map(|folder| self.folder.join(folder)).collect();
        self
    }

    /// True if a file may be read by both.
    #[must_use]
    pub fn may_meet(&self, other: &Self) -> bool {
        let (own, others) = (normalised(&self.folder), normalised(&other.folder));
        let is_one_folder = own == others
            || self.is_deep && others.starts_with(&own)
            || other.is_deep && own.starts_with(&others);
        let leaves_out = |reads: &Self, folder: &Path| {
            reads.without.iter().any(|left| folder.starts_with(normalised(left)))
        };
        let is_left_out = leaves_out(self, &others) || leaves_out(other, &own);
        is_one_folder && !is_left_out && may_share_a_name(self, other)
    }

    /// True if this file is read for certain. A pattern with more than one `*` is not evaluated.
    #[must_use]
    pub fn includes(&self, file: &Path) -> bool {
        let (file, own) = (normalised(file), normalised(&self.folder));
        let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str()))
        else {
            return false;
        };
        let is_within = folder == own || self.is_deep && folder.starts_with(&own);
        let is_left_out = self.without.iter().any(|left| file.starts_with(normalised(left)));
        let is_named =
            self.names.is_empty() || self.names.iter().any(|pattern| matches_simply(pattern, name));
        // A pattern that is not evaluated may except it.
        let is_excepted = self.except.iter().any(|except| except.contains(WILD) || except == name);
        is_within && is_named && !is_left_out && !is_excepted
    }
}

/// True if a name matches a pattern without wildcards, or with a single `*`.
fn matches_simply(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) if !start.contains(WILD) && !end.contains(WILD) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        _ => pattern == name,
    }
}

fn may_share_a_name(one: &Reads, other: &Reads) -> bool {
    let is_excepted = |reads: &Reads, by: &Reads| {
        let matches_all = |except: &String, name: &String| match except.strip_prefix('*') {
            Some(end) if !end.contains(WILD) => name.ends_with(end),
            _ => except == name,
        };
        let is_excepted = |name| by.except.iter().any(|except| matches_all(except, name));
        !reads.names.is_empty() && reads.names.iter().all(is_excepted)
    };
    if is_excepted(one, other) || is_excepted(other, one) {
        return false;
    }
    let any = one.names.is_empty() || other.names.is_empty();
    any || one.names.iter().any(|name| other.names.iter().any(|others| may_match_one(name, others)))
}

/// True unless the texts before or after the wildcards of two patterns exclude each other.
fn may_match_one(one: &str, other: &str) -> bool {
    let start = |pattern: &str| pattern.split(WILD).next().unwrap_or_default().to_owned();
    let end = |pattern: &str| pattern.rsplit(WILD).next().unwrap_or_default().to_owned();
    let (starts, ends) = ((start(one), start(other)), (end(one), end(other)));
    let begins_alike = starts.0.starts_with(&starts.1) || starts.1.starts_with(&starts.0);
    let ends_alike = ends.0.ends_with(&ends.1) || ends.1.ends_with(&ends.0);
    begins_alike && ends_alike && (one.contains(WILD) || other.contains(WILD) || one == other)
}

/// Returns the absolute form of a path, without `.` and `..`. Links are not followed: the check of a
/// configuration must not depend on the files that there are.
pub(crate) fn normalised(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.components().fold(PathBuf::new(), |mut found, part| {
        match part {
            Part::ParentDir => drop(found.pop()),
            Part::CurDir => {}
            part => found.push(part),
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(folder: &str, is_deep: bool, names: &[&str], except: &[&str]) -> Reads {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Reads {
            folder: folder.into(),
            is_deep,
            names: owned(names),
            except: owned(except),
            without: Vec::new(),
        }
    }

    #[test]
    fn a_pattern_has_a_folder_and_names_and_a_path_may_be_both() {
        assert_eq!(Reads::of("in/*.csv"), [reads("in/", false, &["*.csv"], &[])]);
        assert_eq!(Reads::of("/in/**/*.csv"), [reads("/in/", true, &["*.csv"], &[])]);
        assert_eq!(Reads::of("*"), [reads(".", false, &["*"], &[])]);
        assert_eq!(Reads::of("in/**"), [reads("in/", true, &[], &[])]);
        assert_eq!(Reads::of("in"), [reads(".", false, &["in"], &[]), reads("in/", true, &[], &[])]);
        let [filtered] = &Reads::of("in/**")[..] else { panic!("one") };
        let of_all = filtered.clone().filtered(&["x/**".into(), "*.csv".into()], &[]);
        assert_eq!(of_all, *filtered);
        let filtered = filtered.clone().filtered(&["x/*.csv".into()], &["a*".into(), "b/c".into()]);
        let expected = reads("in/", true, &["*.csv"], &["a*"]);
        assert_eq!(filtered, Reads { without: vec!["in/b/c".into()], ..expected });
    }

    #[test]
    fn files_meet_in_folders_that_are_equal_or_contain_each_other() {
        let all = |folder, is_deep| reads(folder, is_deep, &[], &[]);
        for (one, other, expected) in [
            (all("in", true), all("./in", true), true),
            (all("in", false), all("x/../in/", false), true),
            (all("in", true), all("in/below", false), true),
            (all("in", false), all("in/below", true), false),
            (all("in", true), all("inside", true), false),
            (all("/in", true), all("in", true), false),
        ] {
            assert_eq!(
                (one.may_meet(&other), other.may_meet(&one)),
                (expected, expected),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn files_do_not_meet_in_a_folder_that_is_excluded() {
        let all = reads("in", true, &[], &[]);
        for exclude in ["done", "done/**"] {
            let rest = all.clone().filtered(&[], &[exclude.to_owned()]);
            let done = reads("in/done/old", true, &[], &[]);
            assert!(!rest.may_meet(&done) && !done.may_meet(&rest) && all.may_meet(&done));
            assert!(rest.may_meet(&reads("in/doneness", true, &[], &[])));
        }
    }

    #[test]
    fn a_file_is_included_only_if_that_is_certain() {
        let named = |names: &[&str], except: &[&str]| reads("in", false, names, except);
        for (reads, file, expected) in [
            (named(&[], &[]), "x/../in/all.csv", true),
            (named(&[], &[]), "in/below/all.csv", false),
            (named(&[], &[]), "all.csv", false),
            (named(&["*.csv"], &[]), "in/all.csv", true),
            (named(&["a*l.csv"], &[]), "in/al.csv", true),
            (named(&["al*l.csv"], &[]), "in/al.csv", false),
            (named(&["a[0-9].csv"], &[]), "in/all.csv", false),
            (named(&["b.csv", "all.csv"], &[]), "in/all.csv", true),
            (named(&["*.csv"], &["a*"]), "in/all.csv", false),
            (reads("in", true, &[], &[]), "in/below/all.csv", true),
            (reads("in", true, &[], &[]).filtered(&[], &["below".to_owned()]), "in/below/all.csv", false),
        ] {
            assert_eq!(reads.includes(Path::new(file)), expected, "{reads:?} {file}");
        }
    }

    #[test]
    fn files_do_not_meet_if_their_names_exclude_each_other() {
        let named = |names: &[&str], except: &[&str]| reads("in", true, names, except);
        for (one, other, expected) in [
            (named(&["*.csv"], &[]), named(&["*.log"], &[]), false),
            (named(&["*.csv"], &[]), named(&["a*"], &[]), true),
            (named(&["a*.csv"], &[]), named(&["b*.csv"], &[]), false),
            (named(&["*.csv", "*.log"], &[]), named(&["app.log"], &[]), true),
            (named(&["a.log"], &[]), named(&["b.log"], &[]), false),
            (named(&["*.csv"], &[]), named(&[], &["*.csv"]), false),
            (named(&["data-*.csv"], &[]), named(&[], &["*.csv"]), false),
            (named(&[], &[]), named(&[], &["*.csv"]), true),
        ] {
            assert_eq!(
                (one.may_meet(&other), other.may_meet(&one)),
                (expected, expected),
                "{one:?} {other:?}"
            );
        }
    }
}
