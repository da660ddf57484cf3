//! Names of files: safe ones, numbered ones, and the one that a file has while it is written.

use std::io;
use std::path::{Path, PathBuf};

/// What a file's name ends with while it is written.
pub(super) const PART: &str = ".part";
/// What comes before that if it was finished before and is continued.
const CONTINUED: &str = ".continued";

/// The longest name of a file or folder that common file systems take.
const LONGEST_NAME: usize = 255;
/// The longest path that systems take, with room for what is added to it.
const LONGEST_PATH: usize = 4000;

/// Whether a name made from a message's values may be used: it may not lead out of the folder that the
/// configuration names (`fixed`, the beginning that every name shares, up to its last `/`), and must be one
/// that the system can take. Gives the name, or says why not.
pub(super) fn safe<'a>(rendered: &'a [u8], fixed: &str) -> Result<&'a str, String> {
    let shown = || String::from_utf8_lossy(&rendered[..rendered.len().min(200)]).escape_debug().to_string();
    let Ok(name) = std::str::from_utf8(rendered) else {
        return Err(format!("the file name `{}` is not UTF-8", shown()));
    };
    let root = fixed.rfind('/').map_or(0, |at| at + 1);
    let free = name.get(root..).unwrap_or_default();
    if name.contains('\0') {
        return Err(format!("the file name `{}` holds a NUL byte", shown()));
    }
    if name.len() > LONGEST_PATH {
        return Err(format!("the file name `{}...` is {} bytes long", shown(), name.len()));
    }
    let longest = LONGEST_NAME - CONTINUED.len() - PART.len() - NUMBER_ROOM;
    let mut may_hide = fixed.get(root..).is_some_and(|rest| rest.starts_with('.'));
    for part in free.split('/') {
        match part {
            "" => return Err(format!("the file name `{}` has an empty part", shown())),
            "." | ".." => return Err(format!("the file name `{}` has `{part}` in it", shown())),
            _ if part.starts_with('.') && !may_hide => {
                return Err(format!(
                    "the file name `{}` has a part that begins with `.`: a field may be missing or empty",
                    shown()
                ));
            }
            _ if part.len() > longest => {
                let length = part.len();
                return Err(format!("the file name `{}...` is {length} bytes long", shown()));
            }
            _ if is_reserved(part) => {
                return Err(format!(
                    "the file name `{}` ends in `{PART}` or `{CONTINUED}`, as unfinished ones do",
                    shown()
                ));
            }
            _ => {}
        }
        may_hide = false;
    }
    Ok(name)
}

/// Whether a name could be that of another file while that is written.
pub(super) fn is_reserved(name: &str) -> bool {
    name.ends_with(PART) || name.ends_with(CONTINUED)
}

/// How many bytes a number adds to a name at most.
const NUMBER_ROOM: usize = 11;

/// Parts a name before its extension: `a/out.jsonl.gz` is `a/out` and `.jsonl.gz`.
fn parted(name: &str) -> (&str, &str) {
    let base = name.rfind('/').map_or(0, |at| at + 1);
    let bare = [".gz", ".gzip", ".zst", ".zstd"].iter().find_map(|suffix| name.strip_suffix(suffix));
    let bare = bare.unwrap_or(name);
    let dot = bare.get(base..).and_then(|file| file.rfind('.')).filter(|&at| at > 0).map(|at| base + at);
    name.split_at(dot.unwrap_or(bare.len()))
}

/// `out.jsonl` with the number 7 is `out-00007.jsonl`.
pub(super) fn numbered(name: &str, number: Option<u32>) -> PathBuf {
    match number {
        Some(number) => {
            let (stem, extension) = parted(name);
            format!("{stem}-{number:05}{extension}").into()
        }
        None => name.into(),
    }
}

/// The numbers of the files that exist of a name, ascending: of those that are finished, or of those that are not as well.
pub(super) fn numbers(name: &str, and_unfinished: bool) -> io::Result<Vec<u32>> {
    let (stem, extension) = parted(name);
    let (folder, stem) = match stem.rsplit_once('/') {
        Some(("", stem)) => ("/", stem),
        Some((folder, stem)) => (folder, stem),
        None => (".", stem),
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry?.file_name();
        let Some(mut file) = file.to_str() else { continue };
        if and_unfinished && let Some(bare) = file.strip_suffix(PART) {
            file = bare.strip_suffix(CONTINUED).unwrap_or(bare);
        }
        let digits = file.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
        let Some(digits) = digits.and_then(|rest| rest.strip_suffix(extension)) else { continue };
        // Only what `numbered` writes: nothing else may be taken for a piece, since pieces get pruned.
        // After the highest number of all there is no next.
        if let Ok(number) = digits.parse::<u32>()
            && number < u32::MAX
            && digits == format!("{number:05}")
        {
            found.push(number);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The name while it is written.
pub(super) fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// The name of one that was finished before, while it is written.
pub(super) fn continued(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(CONTINUED);
    name.push(PART);
    name.into()
}

/// The folder that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_stands_before_the_extension() {
        for (name, expected) in [
            ("out.jsonl", "out-00007.jsonl"),
            ("a.b/out", "a.b/out-00007"),
            ("a/out.jsonl.gz", "a/out-00007.jsonl.gz"),
            ("out.zst", "out-00007.zst"),
            ("a/.hidden", "a/.hidden-00007"),
            ("access.2024-01-02.log", "access.2024-01-02-00007.log"),
            (".gz", "-00007.gz"),
        ] {
            assert_eq!(numbered(name, Some(7)), Path::new(expected));
            assert_eq!(numbered(name, None), Path::new(name));
        }
    }

    #[test]
    fn numbers_are_found_again_and_nothing_else_is_taken_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("out.jsonl");
        for name in [
            "out-00003.jsonl",
            "out-00001.jsonl",
            "out-123456.jsonl",
            "out-1.jsonl",
            "out-000009.jsonl",
            "out-00004.jsonl.part",
            "out-00005.json",
            "out.jsonl",
            "xout-00006.jsonl",
            "out--0007.jsonl",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let base = base.to_str().unwrap();
        assert_eq!(numbers(base, false).unwrap(), [1, 3, 123_456]);
        assert_eq!(numbers(base, true).unwrap(), [1, 3, 4, 123_456]);
        assert!(numbers("/does/not/exist", true).unwrap().is_empty());
    }

    #[test]
    fn a_name_that_leads_out_or_cannot_be_is_refused_with_the_reason() {
        let refused = |name: &[u8]| safe(name, "out/x-").unwrap_err();
        assert_eq!(safe(b"out/x-a/b.jsonl", "out/x-").unwrap(), "out/x-a/b.jsonl");
        assert_eq!(safe(b"../logs/a", "../logs/").unwrap(), "../logs/a");
        assert_eq!(
            refused(b"out/x-/../../etc/passwd"),
            "the file name `out/x-/../../etc/passwd` has `..` in it"
        );
        assert_eq!(refused(b"out/x-/"), "the file name `out/x-/` has an empty part");
        assert_eq!(refused(b"out/x-\0"), "the file name `out/x-\\0` holds a NUL byte");
        assert_eq!(refused(b"out/x-\xff"), "the file name `out/x-\u{fffd}` is not UTF-8");
        assert_eq!(
            refused(b"out/x-a.part"),
            "the file name `out/x-a.part` ends in `.part` or `.continued`, as unfinished ones do"
        );
        assert!(refused(format!("out/x-{}", "é".repeat(130)).as_bytes()).ends_with("is 262 bytes long"));
        assert_eq!(
            safe(b"out/.jsonl", "out/").unwrap_err(),
            "the file name `out/.jsonl` has a part that begins with `.`: a field may be missing or empty"
        );
        assert!(safe(b"out/.a/b", "out/.").is_ok() && safe(b"out/.a/.b", "out/.").is_err());
        assert!(safe(b"/etc/passwd", "").is_err());
        assert!(safe(b"out//abs", "out/").is_err());
        assert!(safe(b"", "").is_err());
    }

    proptest! {
        #[test]
        fn no_value_leads_out_of_the_folder(value in "[a./\\x00é]{0,12}") {
            if let Ok(name) = safe(format!("out/{value}").as_bytes(), "out/") {
                let mut parts = Path::new(name).components();
                prop_assert_eq!(parts.next(), Some(std::path::Component::Normal("out".as_ref())));
                prop_assert!(parts.clone().next().is_some());
                prop_assert!(parts.all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }
}
