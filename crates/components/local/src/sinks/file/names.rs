//! File names: the check of names from messages, numbered names, and the names of unfinished files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::piece::Piece;
use super::stamp::{self, Shape};
use thalweg_codec::compress::Compression;
use thalweg_codec::part_name;
use thalweg_codec::safe_path::{CONTINUED, PART, is_reserved};

/// Which pieces have a number in their names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// All. The numbers increase from piece to piece.
    #[default]
    Always,
    /// Those whose name would be taken without a number: after `out-2026-01-31.log`, `out-2026-01-31-1.log`.
    /// It needs a `timestamp`.
    IfTaken,
}

/// The naming scheme of the pieces of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Style {
    /// The text before the time stamp and before the number.
    pub(super) separator: String,
    pub(super) numbers: Numbers,
    /// The minimum number of digits.
    pub(super) digits: usize,
    /// The `strftime` format of the time at which a piece was started.
    pub(super) timestamp: Option<String>,
    /// The compression of finished pieces.
    pub(super) pack: Compression,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            separator: "-".to_owned(),
            numbers: Numbers::Always,
            digits: 5,
            timestamp: None,
            pack: Compression::None,
        }
    }
}

/// An existing piece.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// The number in its name, or 0 if it has none.
    pub(super) number: u32,
    /// Its final name.
    pub(super) path: PathBuf,
    /// The time stamp in its name.
    pub(super) stamp: Option<String>,
}

impl Found {
    /// True if both are files of one piece, which may exist twice while it is being compressed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.number == other.number && self.stamp == other.stamp
    }

    /// True if it is a file of this piece.
    pub(super) fn is_of(&self, piece: &Piece, style: &Style) -> bool {
        let has_stamp = style.numbers == Numbers::Always || piece.stamp == self.stamp;
        piece.number == Some(self.number) && has_stamp
    }

    /// The names that the piece has while it is being written.
    pub(super) fn unfinished(&self) -> [PathBuf; 2] {
        [part(&self.path), continued(&self.path)]
    }
}

/// True if the format is valid and its text can be part of a file name.
pub(super) fn is_timestamp(format: &str) -> bool {
    let is_part = |text: String| !text.is_empty() && !text.contains(['/', '\0']) && !is_reserved(&text);
    stamp::now(format).is_some_and(is_part)
}

/// The names that messages can give to the files of a sink: all begin and end with the same texts.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) prefix: String,
    pub(super) suffix: String,
}

impl Names {
    fn has(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.prefix);
        rest.is_some_and(|rest| rest.ends_with(&*self.suffix))
    }
}

impl Style {
    /// Returns the time stamp for the name of a piece that starts now.
    pub(super) fn stamp(&self) -> Option<String> {
        self.timestamp.as_deref().and_then(stamp::now)
    }

    /// The number of the first piece.
    pub(super) fn first(&self) -> u32 {
        match self.numbers {
            Numbers::Always => 1,
            Numbers::IfTaken => 0,
        }
    }

    /// Returns the path of a piece: `out.jsonl` with the number 7 is `out-00007.jsonl`, and with a time stamp
    /// `out-2026-01-02-00007.jsonl`.
    pub(super) fn path(&self, name: &str, number: Option<u32>, stamp: Option<&str>) -> PathBuf {
        let Some(number) = number else { return name.into() };
        let (stem, extension) = part_name::split(name);
        let (separator, digits) = (&self.separator, self.digits);
        let mut path = stem.to_owned();
        if let Some(stamp) = stamp {
            path += &format!("{separator}{stamp}");
        }
        if number > 0 || self.numbers == Numbers::Always {
            path += &format!("{separator}{number:0digits$}");
        }
        path += extension;
        path.into()
    }

    /// Returns the existing pieces of a name, the oldest first: the finished ones, and on request the
    /// unfinished ones too. Numbers tell their order, or, if not all have one, the times of the last writes.
    /// `names` are those that other files of the sink may have.
    pub(super) fn pieces(
        &self,
        name: &str,
        names: Option<&Names>,
        and_unfinished: bool,
    ) -> io::Result<Vec<Found>> {
        let folder = folder_of(name);
        let entries = match fs::read_dir(if folder.is_empty() { "." } else { folder }) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let reader = Reader::new(self, names);
        let mut found = Vec::new();
        for entry in entries {
            let file = entry?.file_name();
            let Some(mut file) = file.to_str() else { continue };
            if and_unfinished && let Some(bare) = file.strip_suffix(PART) {
                file = bare.strip_suffix(CONTINUED).unwrap_or(bare);
            }
            if let Some((number, stamp)) = reader.of_name(name, file) {
                // Equal to the path that `path` returns, without `./`: pieces that a run replaces are found
                // by it.
                found.push(Found { number, path: Path::new(folder).join(file), stamp });
            }
        }
        found.sort_unstable();
        found.dedup();
        if self.numbers == Numbers::IfTaken {
            sort_by_time(&mut found);
        }
        Ok(found)
    }

    /// Returns the number and the time stamp of a piece of `name` from the name of its file. `None` if
    /// another name could have a piece whose file is called so.
    pub(super) fn label(
        &self,
        name: &str,
        names: Option<&Names>,
        path: &Path,
    ) -> Option<(u32, Option<String>)> {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        Reader::new(self, names).of_name(name, file)
    }

    /// Returns the highest number of a finished piece, or 0.
    pub(super) fn last(&self, name: &str) -> io::Result<u32> {
        Ok(self.pieces(name, None, false)?.last().map_or(0, |found| found.number))
    }
}

/// Reads the names of pieces.
///
/// Of `a` and `a-25`, both could have a piece `a-25-10.log`, if the format is `%d`. Such a file belongs to
/// neither: a piece gets no name that could be one of another name, so it is from another program. (Rejected:
/// a register of the pieces of each name. It would grow with each piece, and runs without a state have none.)
struct Reader<'a> {
    style: &'a Style,
    shape: Option<Shape>,
    names: Option<&'a Names>,
}

impl<'a> Reader<'a> {
    fn new(style: &'a Style, names: Option<&'a Names>) -> Self {
        Self { style, shape: style.timestamp.as_deref().map(Shape::new), names }
    }

    /// Returns the number and the time stamp of a piece of this name from the name of its file.
    fn of_name(&self, name: &str, file: &str) -> Option<(u32, Option<String>)> {
        let (stem, extension) = part_name::split(name);
        let stem = stem.rsplit_once('/').map_or(stem, |(_, stem)| stem);
        let label = |file: &str| {
            let label = file.strip_prefix(stem)?.strip_prefix(&*self.style.separator)?;
            self.number_of(label.strip_suffix(extension)?)
        };
        let found = label(file).or_else(|| label(self.unpacked(file)?))?;
        let is_other = |other: String| other != name;
        let is_shared = self.names.is_some_and(|names| {
            [Some(file), self.unpacked(file)]
                .into_iter()
                .flatten()
                .any(|file| self.could_be_of(folder_of(name), file, names).any(is_other))
        });
        (!is_shared).then_some(found)
    }

    /// Returns the name of a file without the suffix of a compressed piece.
    fn unpacked<'f>(&self, file: &'f str) -> Option<&'f str> {
        let pack = Some(self.style.pack).filter(|pack| *pack != Compression::None)?;
        file.strip_suffix(pack.suffix())
    }

    /// Returns the names of which a file in this folder could be a piece.
    fn could_be_of(&self, folder: &str, file: &str, names: &Names) -> impl Iterator<Item = String> {
        let separator = &*self.style.separator;
        let starts = file.char_indices().map(|(at, _)| at);
        let starts = starts.filter(move |at| file.get(*at..).is_some_and(|rest| rest.starts_with(separator)));
        starts.flat_map(move |start| {
            let label = start + separator.len();
            let dots = file.match_indices('.').map(|(at, _)| at).filter(move |at| *at > label);
            let ends = dots.chain([file.len()]);
            ends.filter_map(move |end| {
                let (stem, label, extension) = (file.get(..start)?, file.get(label..end)?, file.get(end..)?);
                let name =
                    format!("{folder}{}{stem}{extension}", if matches!(folder, "" | "/") { "" } else { "/" });
                let is_name = names.has(&name) && part_name::split(&name).1 == extension;
                (is_name && self.number_of(label).is_some()).then_some(name)
            })
        })
    }

    /// Returns the number and the time stamp of a piece from the text between stem and extension, or `None`
    /// if the name is not exactly that of a piece. The check is strict because pieces get pruned.
    fn number_of(&self, label: &str) -> Option<(u32, Option<String>)> {
        let (stamp, digits) = match &self.shape {
            None => (None, label),
            Some(shape) => {
                if self.style.numbers == Numbers::IfTaken && shape.has(label) {
                    return Some((0, Some(label.to_owned())));
                }
                let (stamp, digits) = label.rsplit_once(&self.style.separator)?;
                (Some(shape.has(stamp).then_some(stamp)?.to_owned()), digits)
            }
        };
        // The highest possible number is excluded because it has no successor.
        let lowest = u32::from(self.style.numbers == Numbers::IfTaken);
        let number = digits.parse().ok().filter(|number| (lowest..u32::MAX).contains(number))?;
        let width = self.style.digits;
        (digits == format!("{number:0width$}")).then_some((number, stamp))
    }
}

/// Returns the folder of a name, as the name has it.
fn folder_of(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => "",
    }
}

/// Sorts pieces by the times of their last writes. The files of one piece, which may exist twice while it is
/// being compressed, stay together.
fn sort_by_time(found: &mut [Found]) {
    let mut times: HashMap<(u32, Option<String>), SystemTime> = HashMap::new();
    for piece in &*found {
        let paths = [piece.path.clone()].into_iter().chain(piece.unfinished());
        let mut modified = paths.filter_map(|path| fs::symlink_metadata(path).ok()?.modified().ok());
        // A piece without a time has just been removed.
        let time = modified.next().unwrap_or(SystemTime::UNIX_EPOCH);
        let known = times.entry((piece.number, piece.stamp.clone())).or_insert(time);
        *known = time.min(*known);
    }
    found.sort_by_cached_key(|piece| {
        let identity = (piece.number, piece.stamp.clone());
        (times.get(&identity).copied(), identity.1, identity.0)
    });
}

/// Returns the name of a new file while it is being written.
pub(super) fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// Returns the name, while it is being written, of a file that was finished before.
pub(super) fn continued(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(CONTINUED);
    name.push(PART);
    name.into()
}

/// Returns the folder of a file.
pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_before_the_extension() {
        for (name, expected) in [
            ("out.jsonl", "out-00007.jsonl"),
            ("a.b/out", "a.b/out-00007"),
            ("a/out.jsonl.gz", "a/out-00007.jsonl.gz"),
            ("out.zst", "out-00007.zst"),
            ("a/.hidden", "a/.hidden-00007"),
            ("access.2024-01-02.log", "access.2024-01-02-00007.log"),
            ("app.2026.jsonl", "app.2026-00007.jsonl"),
            ("out/日誌.jsonl", "out/日誌-00007.jsonl"),
            (".gz", "-00007.gz"),
        ] {
            let style = Style::default();
            assert_eq!(style.path(name, Some(7), None), Path::new(expected));
            assert_eq!(style.path(name, None, None), Path::new(name));
        }
        let style = Style { digits: 2, timestamp: Some("%Y-%m-%d_%H".into()), ..Style::default() };
        let path = style.path("a/out.log", Some(7), Some("2026-01-02_03"));
        assert_eq!(path, Path::new("a/out-2026-01-02_03-07.log"));
        assert!(is_timestamp("%Y-%m-%d_%H"));
        assert!(!is_timestamp("%Y/%m") && !is_timestamp("%!") && !is_timestamp(""));
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
        let numbers = |style: &Style, and_unfinished| -> Vec<u32> {
            style.pieces(base, None, and_unfinished).unwrap().into_iter().map(|found| found.number).collect()
        };
        let style = Style::default();
        assert_eq!(numbers(&style, false), [1, 3, 123_456]);
        assert_eq!(numbers(&style, true), [1, 3, 4, 123_456]);
        assert!(style.pieces("/does/not/exist", None, true).unwrap().is_empty());
        for name in [
            "out-2026-01-02_03-02.jsonl",
            "out-2026-01-02_03-05.jsonl.gz",
            "out-2026-01-02_03-07.jsonl.zst",
            "out-2026-01-99_03-06.jsonl",
            "out-backup-08.jsonl",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let timestamp = Some("%Y-%m-%d_%H".to_owned());
        let stamped = Style { digits: 2, timestamp, pack: Compression::Gzip, ..Style::default() };
        assert_eq!(numbers(&stamped, false), [2, 5]);
        assert_eq!(numbers(&style, false), [1, 3, 123_456]);
    }
}
