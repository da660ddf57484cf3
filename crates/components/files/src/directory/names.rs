//! Keeps which file each name was given to, and decides what happens if a file exists.
//!
//! Two files of one name must not replace each other, also if they come in two runs that share a state. The
//! names are therefore claimed in the journal before a file is visible. A file that comes again, because its
//! delivery was not saved, finds its claim and gets the same name. A file that is built again, such as one of
//! packed messages, may have other content and another name then: it replaces the first one.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thalweg_engine::{Error, Journal, Temporaries};
use thalweg_record::{File, Origin};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::given::{Given, Table};
use super::options::Existing;

/// The names that a run has written, each as a hash of eight bytes, with the hash of the place that its file
/// came from. If two names have the same hash, the second file gets another name without need. For a million
/// files, that happens once in thirty million runs.
///
/// Of many names, most are in a temporary file: see [`given`](super::given).
#[derive(Debug, Default)]
pub struct Names(Mutex<Table>);

/// The hash of the path or address that a file came from, or of its key. `None` if it is stored nowhere, such
/// as an upload.
type Place = Option<u64>;

/// The owner of a name that a file claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It was free, and belongs to this file now.
    New,
    /// A file of the same place has it, which an earlier run wrote, or which this run has read again since.
    Same,
    /// An earlier run gave it to a file that cannot be compared by its place.
    Unknown,
    /// It belongs to another file, or to another output of this one.
    Other,
}

/// Why a name cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The caller tries the next name.
    NextName,
    /// If the existing file has the same content, it is this file, which was delivered before. If not, the
    /// caller tries the next name.
    NextNameIfOther,
    /// The existing file stays, and the new one is not written.
    LeftAlone,
    /// The file is rejected.
    Refused,
}

/// The beginning of the names of claims in the journal.
const CLAIM: &str = "claim/";
/// The beginning of the names of entries in the journal that have the path of a file with a key.
const KEY: &str = "key/";

impl Names {
    /// Says where names are kept that are too many for the memory. Only the first call counts.
    pub fn spill_to(&self, temporary: &Temporaries) {
        self.0.lock().spill_to(temporary);
    }

    /// Claims a name for a file, here and in the journal of runs that share a state.
    ///
    /// # Errors
    /// If the journal cannot be read or written.
    pub fn claim(&self, journal: Option<&Journal>, path: &Path, origin: &Origin) -> Result<Claim, Error> {
        let (place, file) = (place_of(origin), xxh3_64(origin.id().as_bytes()));
        // Held throughout, so that two workers do not claim one name.
        let mut names = self.0.lock();
        if let Some(known) = names.get(hash(path)).map_err(unkept)? {
            let is_same = known.place.is_some() && known.place == place && known.file != file;
            return Ok(if is_same { Claim::Same } else { Claim::Other });
        }
        let claim = match journal {
            Some(journal) => claim_in(journal, path, place)?,
            None => Claim::New,
        };
        if claim == Claim::New
            && let (Some(journal), Some(entry), Some(path)) = (journal, key_entry(origin), path.to_str())
        {
            journal.note(&entry, &path.into())?;
        }
        if matches!(claim, Claim::New | Claim::Same) {
            names.insert(hash(path), Given { place, file }).map_err(unkept)?;
        }
        Ok(claim)
    }

    /// Returns the path that an earlier run gave to the file with this key.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn earlier(&self, journal: Option<&Journal>, origin: &Origin) -> Result<Option<PathBuf>, Error> {
        let (Some(journal), Some(entry)) = (journal, key_entry(origin)) else { return Ok(None) };
        let entries = journal.entries(&entry)?;
        let known = entries.into_iter().find(|(name, _)| *name == entry);
        Ok(known.and_then(|(_, path)| path.as_str().map(PathBuf::from)))
    }

    /// True if this run has given the name away.
    fn is_given(&self, path: &Path) -> Result<bool, Error> {
        Ok(self.0.lock().get(hash(path)).map_err(unkept)?.is_some())
    }

    /// Gives a name away. Returns false if this run has done so before.
    fn give(&self, path: &Path) -> Result<bool, Error> {
        let given = self.0.lock().insert(hash(path), Given { place: None, file: 0 });
        Ok(given.map_err(unkept)?.is_none())
    }

    /// Takes a name for a file. Returns true if an existing file may be replaced, or why the name cannot be
    /// used.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn take(
        &self,
        journal: Option<&Journal>,
        path: &Path,
        file: &File,
        existing: Existing,
    ) -> Result<Result<bool, Taken>, Error> {
        let has_key = file.origin().key.is_some();
        if existing == Existing::Overwrite && !has_key {
            return Ok(Ok(true));
        }
        let is_given = self.is_given(path)?;
        let claim = self.claim(journal, path, file.origin())?;
        if has_key && !is_given && claim == Claim::Same {
            return Ok(Ok(true));
        }
        let is_there = || path.symlink_metadata().is_ok();
        let is_other = match claim {
            Claim::Other => true,
            // Of two workers that find the name free, one gets it.
            Claim::Unknown if !is_there() => !self.give(path)?,
            Claim::New | Claim::Same | Claim::Unknown => is_given,
        };
        Ok(match existing {
            Existing::Overwrite => Ok(true),
            Existing::Replace | Existing::Rename if is_other => Err(Taken::NextName),
            Existing::Replace | Existing::Rename if claim == Claim::Unknown && is_there() => {
                Err(Taken::NextNameIfOther)
            }
            Existing::Replace if is_read_from(path, file) => Err(Taken::NextName),
            Existing::Replace => Ok(true),
            Existing::Rename if claim == Claim::Same && is_there() => Err(Taken::NextNameIfOther),
            Existing::Rename if is_there() => Err(Taken::NextName),
            Existing::Skip if is_other || is_there() => Err(Taken::LeftAlone),
            Existing::Error if is_other || is_there() => Err(Taken::Refused),
            Existing::Rename | Existing::Skip | Existing::Error => Ok(false),
        })
    }

    /// Releases a name that was taken but not written. Its claim in the journal stays: the file comes again.
    pub fn give_back(&self, path: &Path) {
        // The name is not used again then, which is harmless.
        let _ = self.0.lock().remove(hash(path));
    }
}

/// Returns the error for names that cannot be kept in a temporary file.
fn unkept(error: io::Error) -> Error {
    Error::permanent(format!(
        "the names of written files cannot be kept in a temporary file: {error}. The option `temporary` names its folder."
    ))
}

/// Claims a name in the journal.
fn claim_in(journal: &Journal, path: &Path, place: Place) -> Result<Claim, Error> {
    let name = format!("{CLAIM}{:032x}", xxh3_128(path.as_os_str().as_bytes()));
    let claims = journal.entries(&name)?;
    let Some((_, claim)) = claims.first() else {
        journal.note(&name, &place.into())?;
        return Ok(Claim::New);
    };
    Ok(match (place, claim.as_u64()) {
        (Some(place), Some(known)) if place == known => Claim::Same,
        (None, None) => Claim::Unknown,
        _ => Claim::Other,
    })
}

fn place_of(origin: &Origin) -> Place {
    let address = || origin.address.as_deref().map(str::as_bytes);
    let place = origin.path.as_deref().map(|path| path.as_os_str().as_bytes()).or_else(address);
    place.map(xxh3_64).or_else(|| key_entry(origin).map(|entry| xxh3_64(entry.as_bytes())))
}

/// Returns the name of the journal's entry for a file with a key.
fn key_entry(origin: &Origin) -> Option<String> {
    // With a slash at its end, so that no entry is found by the beginning of another key.
    Some(format!("{KEY}{}/{}/", origin.source, origin.key.as_deref()?))
}

fn hash(path: &Path) -> u64 {
    xxh3_64(path.as_os_str().as_bytes())
}

/// True if the path is that of another file in the folder that the source reads. The source may not have read
/// it yet.
fn is_read_from(path: &Path, file: &File) -> bool {
    let origin = file.origin();
    let (Some(found), Ok(there)) = (&origin.path, path.symlink_metadata()) else { return false };
    let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    let folder = |path: &Path| path.parent().and_then(|folder| fs::metadata(folder_of(folder)).ok());
    let in_it = match (folder(path), folder(found)) {
        (Some(one), Some(other)) => same(&one, &other),
        _ => false,
    };
    let below = origin.folder.as_deref().is_some_and(|folder| path.starts_with(folder));
    (in_it || below) && !fs::symlink_metadata(found).is_ok_and(|found| same(&found, &there))
}

fn folder_of(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Returns the path with the number before its extension. Number 1 is left out.
pub fn numbered(path: &Path, number: u32) -> PathBuf {
    if number < 2 {
        return path.to_owned();
    }
    let mut name = path.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}
