//! The inventory of a state directory: what its files must contain.
//!
//! The database takes a missing or shortened file for one that was never written. It then starts with an
//! empty keyspace or without its last records, and a run processes everything again. So the store records
//! beside the database what must be there, and compares before it opens the database, which only reads:
//!
//! - While the store is open, the inventory has the start of each journal up to the last synced write, the
//!   manifest of each keyspace, and the tables that were there when it was opened. More may be there: a
//!   process that was killed wrote it after the record.
//! - When the store is closed, the inventory has every file as a whole.
//!
//! Without an inventory, only traces of a removed file are found. To parse the journals instead was rejected.
//! Their format is the database's own, and a parser cannot tell a torn end from a removed one.
//!
//! The inventory is overwritten in place, its first page last. A record of more than a page can be torn by a
//! kill, and is then as good as none. Any other record that does not fit its checksum is damaged: a page is
//! written as a whole, and the record of a closed store is complete before its first page says so.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thalweg_runtime::private::{close_to_others, open_regular_with, private_file};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::faults::Faults;
use crate::Error;

/// The name of the file, in the state directory. It is locked while the store is open.
pub(super) const NAME: &str = "inventory";
/// The first word of the file.
const MAGIC: &str = "thalweg-inventory-1";
/// The last word of the first line if the store is closed.
const CLOSED: &str = " closed";
/// Records are padded to multiples of this, so that overwriting one rarely needs space on the disk.
const PAGE: usize = 4096;
/// Files are read in pieces of this size.
const PIECE: usize = 64 << 10;
static ZEROS: [u8; PIECE] = [0; PIECE];

pub(super) const VERSION: &str = "version";
pub(super) const KEYSPACES: &str = "keyspaces";
/// The keyspace with the names of the others. The database creates it before it has a record.
const NAMES: &str = "0";
const CURRENT: &str = "current";
const TABLES: &str = "tables";
const JOURNAL: &str = "jnl";

/// The inventory of one state directory, held by the process that has the store open.
pub(super) struct Inventory {
    folder: PathBuf,
    file: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// False until the database is open.
    is_begun: bool,
    contents: Contents,
    /// The hashes of the journals so far.
    journals: BTreeMap<String, Xxh3>,
}

/// The expected contents of the store.
#[derive(Default, Serialize, Deserialize)]
struct Contents {
    /// True if no process has had the store open since. The files are then exactly these.
    closed: bool,
    /// The manifests of the keyspaces, by the names of their directories.
    keyspaces: BTreeMap<String, Manifest>,
    /// Other files by their paths. Journals may be longer.
    files: BTreeMap<String, Beginning>,
    /// Tables by their paths, which the database may have removed meanwhile. It never changes one.
    tables: BTreeMap<String, Beginning>,
}

/// The manifest of a keyspace. A keyspace that has written more has a higher version.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    version: u64,
    /// The hash of the file that names the version.
    current: u64,
    /// The hash of the version.
    content: u64,
}

/// The first bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Beginning {
    length: u64,
    hash: u64,
}

/// A file that is not as it must be.
struct Damage {
    path: PathBuf,
    what: &'static str,
}

impl Inventory {
    /// Locks the directory for this process and compares its files with its inventory. Changes nothing if
    /// they differ.
    ///
    /// # Errors
    /// If another process has the store open, or a file is damaged.
    pub(super) fn open(folder: &Path, faults: &Faults) -> Result<Self, Error> {
        let path = folder.join(NAME);
        let failed = |error: io::Error| faults.unopened(&error.to_string());
        let mut is_new = false;
        let file = match open_regular_with(File::options().read(true).write(true), &path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check(folder, None).map_err(|damage| faults.damaged(&damage.path, damage.what))?;
                is_new = true;
                open_regular_with(private_file().read(true).write(true).create(true), &path)
            }
            opened => opened,
        };
        let mut file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(faults.locked()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let record = read(&mut file).map_err(failed)?;
        let is_empty = matches!(record, Record::Empty);
        let contents = match record {
            Record::Contents(contents) => Some(contents),
            Record::Torn => None,
            // It was created, and a kill came before its first record.
            Record::Empty if is_new || !has_records(folder).map_err(failed)? => None,
            Record::Empty => return Err(faults.damaged(&path, "is empty")),
            Record::Damaged => return Err(faults.damaged(&path, "was changed")),
        };
        check(folder, contents.as_ref()).map_err(|damage| faults.damaged(&damage.path, damage.what))?;
        let inventory = Self { folder: folder.to_owned(), file, state: Mutex::default() };
        if is_empty {
            // Before the database has a record: an empty inventory beside records is damage.
            inventory.write(&Contents::default()).map_err(failed)?;
        }
        if let Some(contents) = contents {
            inventory.reopen(contents).map_err(failed)?;
        }
        Ok(inventory)
    }

    /// Expects no more than what a database that is open keeps: opening it may already change the rest.
    fn reopen(&self, mut contents: Contents) -> io::Result<()> {
        if contents.closed {
            contents.closed = false;
            let (kept, others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut contents.files)
                .into_iter()
                .partition(|(name, _)| name == VERSION || is_journal(Path::new(name)));
            contents.files = kept;
            contents.tables = others.into_iter().filter(|(name, _)| is_table(Path::new(name))).collect();
            self.write(&contents)?;
            // A record of the closed store must not come back after a loss of power.
            self.file.sync_all()?;
        }
        self.state.lock().contents = contents;
        Ok(())
    }

    /// Records that the database is open.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.is_begun = true;
        state.contents.keyspaces.clear();
        state.contents.files.clear();
        // The database gives the number of its last table again once that is gone.
        state.contents.tables.retain(|name, _| self.folder.join(name).exists());
        for name in directories(&self.folder.join(KEYSPACES))? {
            state.contents.keyspaces.insert(name.clone(), manifest(&self.folder, &name)?);
        }
        let version = beginning(&self.folder.join(VERSION))?;
        state.contents.files.insert(VERSION.to_owned(), version);
        self.follow_journals(&mut state)?;
        self.write(&state.contents)
    }

    /// Makes a change that is on the disk afterwards, and records it.
    pub(super) fn synced<E>(&self, change: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        change()?;
        // A file that is not recorded is not reported as missing, so an error here does not fail the change.
        let recorded = self.follow(&mut state).and_then(|()| self.write(&state.contents));
        if let Err(error) = recorded {
            tracing::debug!("the inventory of the state was not written: {error}");
        }
        Ok(())
    }

    /// Makes a change that may be lost with the power of the machine. It is recorded with the next change
    /// that may not.
    pub(super) fn unsynced<T>(&self, change: impl FnOnce() -> T) -> T {
        let _state = self.state.lock();
        change()
    }

    /// Expects a keyspace from now on.
    pub(super) fn add_keyspace(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(name) = file_name(path) else { return Ok(()) };
        state.contents.keyspaces.insert(name.clone(), manifest(&self.folder, &name)?);
        self.write(&state.contents)
    }

    /// Expects a keyspace no longer: it is about to be removed.
    pub(super) fn forget_keyspace(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(name) = file_name(path) else { return Ok(()) };
        state.contents.keyspaces.remove(&name);
        self.write(&state.contents)?;
        // After a loss of power, an older record would miss the keyspace.
        self.file.sync_data()
    }

    fn follow(&self, state: &mut State) -> io::Result<()> {
        self.follow_journals(state)?;
        for (name, known) in &mut state.contents.keyspaces {
            *known = manifest(&self.folder, name)?;
        }
        Ok(())
    }

    /// Takes what was added to the journals into their hashes.
    fn follow_journals(&self, state: &mut State) -> io::Result<()> {
        let names = journals(&self.folder)?;
        state.journals.retain(|name, _| names.contains(name));
        state.contents.files.retain(|name, _| !is_journal(Path::new(name)) || names.contains(name));
        for name in names {
            let hash = state.journals.entry(name.clone()).or_default();
            let from = state.contents.files.get(&name).map_or(0, |known| known.length);
            let length = match File::open(self.folder.join(&name)) {
                Ok(file) => {
                    if !state.contents.files.contains_key(&name)
                        && let Err(error) = close_to_others(&file)
                    {
                        tracing::debug!("the journal `{name}` cannot be closed to others: {error}");
                    }
                    follow(&file, from, hash)?
                }
                // A journal is removed when its records are in tables.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            state.contents.files.insert(name, Beginning { length, hash: hash.digest() });
        }
        Ok(())
    }

    fn write(&self, contents: &Contents) -> io::Result<()> {
        let text = serde_json::to_string(contents)?;
        let mut record = format!("{}{text}\n", head(text.as_bytes(), contents.closed));
        record.push_str(&" ".repeat(record.len().next_multiple_of(PAGE) - record.len()));
        let (first, rest) = record.as_bytes().split_at(PAGE);
        if !rest.is_empty() {
            self.file.write_all_at(rest, PAGE as u64)?;
            if contents.closed {
                self.file.sync_data()?;
            }
        }
        self.file.write_all_at(first, 0)
    }

    /// Records every file.
    fn close(&self, state: &mut State) -> io::Result<()> {
        self.follow(state)?;
        let mut contents = std::mem::take(&mut state.contents);
        contents.closed = true;
        let tables = std::mem::take(&mut contents.tables);
        for path in files_below(&self.folder.join(KEYSPACES))? {
            let Ok(relative) = path.strip_prefix(&self.folder) else { continue };
            let name = relative.to_string_lossy().into_owned();
            let file = match tables.get(&name) {
                Some(known) => *known,
                None => beginning(&path)?,
            };
            contents.files.insert(name, file);
        }
        self.write(&contents)
    }
}

impl Drop for Inventory {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut());
        // A store that could not be opened stays as it was found.
        if state.is_begun
            && let Err(error) = self.close(&mut state)
        {
            tracing::debug!("the inventory of the state was not written: {error}");
        }
    }
}

/// The record in an inventory.
enum Record {
    Contents(Contents),
    /// A kill or a loss of power has cut off the write of an open store.
    Torn,
    Empty,
    Damaged,
}

/// Returns the first line of a record.
pub(super) fn head(text: &[u8], is_closed: bool) -> String {
    let end = if is_closed { CLOSED } else { "" };
    format!("{MAGIC} {} {:016x}{end}\n", text.len(), xxh3_64(text))
}

fn read(file: &mut File) -> io::Result<Record> {
    let mut record = Vec::new();
    file.read_to_end(&mut record)?;
    if record.is_empty() {
        return Ok(Record::Empty);
    }
    Ok(parse(&record).unwrap_or(Record::Damaged))
}

fn parse(record: &[u8]) -> Option<Record> {
    let end = record.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(record.get(..end)?).ok()?.strip_prefix(MAGIC)?;
    let (head, is_closed) = head.strip_suffix(CLOSED).map_or((head, false), |head| (head, true));
    let (length, hash) = head.strip_prefix(' ')?.split_once(' ')?;
    let (length, hash): (usize, _) = (length.parse().ok()?, u64::from_str_radix(hash, 16).ok()?);
    let start = end + 1;
    let text = record.get(start..start.checked_add(length)?);
    let text = text.filter(|text| xxh3_64(text) == hash);
    match text.and_then(|text| serde_json::from_slice(text).ok()) {
        Some(contents) => Some(Record::Contents(contents)),
        None if !is_closed && start + length > PAGE => Some(Record::Torn),
        None => None,
    }
}

/// Compares the files of a directory with what must be there.
fn check(folder: &Path, contents: Option<&Contents>) -> Result<(), Damage> {
    check_traces(folder)?;
    let Some(contents) = contents else { return Ok(()) };
    let last_journal = journals(folder).unwrap_or_default().pop();
    for (name, expected) in &contents.files {
        let path = folder.join(name);
        let is_journal = is_journal(&path);
        // The database removes a journal when all its records are in tables.
        let may_be_gone =
            is_journal && !contents.closed && last_journal.as_ref().is_some_and(|last| is_before(name, last));
        if may_be_gone && !path.exists() {
            continue;
        }
        check_file(&path, *expected, !is_journal)?;
    }
    let tables = contents.tables.iter().map(|(name, expected)| (folder.join(name), expected));
    for (path, expected) in tables.filter(|(path, _)| path.exists()) {
        check_file(&path, *expected, true)?;
    }
    contents.keyspaces.iter().try_for_each(|(name, expected)| check_manifest(folder, name, *expected))
}

fn check_file(path: &Path, expected: Beginning, is_whole: bool) -> Result<(), Damage> {
    let damage = |what| Damage { path: path.to_owned(), what };
    let file = File::open(path).map_err(|error| damage(missing(&error)))?;
    let length = file.metadata().map_err(|error| damage(missing(&error)))?.len();
    if length < expected.length {
        return Err(damage("is shorter than it was"));
    }
    let found = hash_of(file.take(expected.length)).map_err(|error| damage(missing(&error)))?;
    match found == expected && (length == expected.length || !is_whole) {
        true => Ok(()),
        false => Err(damage("was changed")),
    }
}

fn check_manifest(folder: &Path, name: &str, expected: Manifest) -> Result<(), Damage> {
    let keyspace = folder.join(KEYSPACES).join(name);
    let (current, version) = (keyspace.join(CURRENT), version_path(&keyspace, expected.version));
    let damage = |path: &Path, what| Damage { path: path.to_owned(), what };
    let content = std::fs::read(&current).map_err(|error| damage(&current, missing(&error)))?;
    version_in(&content).map_err(|error| damage(&current, missing(&error)))?;
    let is_current = xxh3_64(&content) == expected.current;
    match manifest(folder, name) {
        Ok(found) if found == expected || found.version > expected.version => Ok(()),
        Ok(_) if is_current => Err(damage(&version, "was changed")),
        Err(error) if is_current => Err(damage(&version, missing(&error))),
        Ok(_) | Err(_) => Err(damage(&current, "was changed")),
    }
}

/// Finds what shows, without an inventory, that a file was removed.
fn check_traces(folder: &Path) -> Result<(), Damage> {
    let damage = |path: PathBuf, what| Damage { path, what };
    let unreadable = |error: io::Error| damage(folder.to_owned(), missing(&error));
    let version = folder.join(VERSION);
    let is_versioned = std::fs::metadata(&version).is_ok_and(|version| version.len() > 0);
    let names = folder.join(KEYSPACES).join(NAMES);
    let missing_part = match (is_versioned, names.exists()) {
        (true, true) => None,
        (true, false) => Some(damage(names, "is missing")),
        (false, _) => Some(damage(version, "is missing or empty")),
    };
    // A store whose creation was interrupted has no records.
    if let Some(damage) = missing_part
        && has_records(folder).map_err(unreadable)?
    {
        return Err(damage);
    }
    if is_versioned && journals(folder).map_err(unreadable)?.is_empty() {
        return Err(damage(folder.join("0.jnl"), "is missing"));
    }
    let keyspaces = folder.join(KEYSPACES);
    for name in directories(&keyspaces).map_err(unreadable)? {
        let current = keyspaces.join(&name).join(CURRENT);
        if !current.exists() && has_tables(&keyspaces.join(&name)).map_err(unreadable)? {
            return Err(damage(current, "is missing"));
        }
    }
    Ok(())
}

/// True if a state directory has tables or journal records. A store whose creation was interrupted has
/// neither.
pub(super) fn has_records(folder: &Path) -> io::Result<bool> {
    let keyspaces = folder.join(KEYSPACES);
    for name in directories(&keyspaces)? {
        if has_tables(&keyspaces.join(name))? {
            return Ok(true);
        }
    }
    for name in journals(folder)? {
        if follow(&File::open(folder.join(name))?, 0, &mut Xxh3::new())? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_tables(keyspace: &Path) -> io::Result<bool> {
    Ok(!files_below(&keyspace.join(TABLES))?.is_empty())
}

/// Returns what is wrong with a file that cannot be read, in words after its path.
pub(super) fn missing(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "is missing",
        ErrorKind::UnexpectedEof => "is shorter than it was",
        _ => "cannot be read",
    }
}

/// Returns the manifest of a keyspace.
fn manifest(folder: &Path, name: &str) -> io::Result<Manifest> {
    let keyspace = folder.join(KEYSPACES).join(name);
    loop {
        let current = std::fs::read(keyspace.join(CURRENT))?;
        let version = version_in(&current)?;
        match std::fs::read(version_path(&keyspace, version)) {
            Ok(content) => {
                return Ok(Manifest { version, current: xxh3_64(&current), content: xxh3_64(&content) });
            }
            // The database has replaced it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if std::fs::read(keyspace.join(CURRENT))? == current {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn version_path(keyspace: &Path, version: u64) -> PathBuf {
    keyspace.join(format!("v{version}"))
}

fn version_in(current: &[u8]) -> io::Result<u64> {
    let number = current.first_chunk().ok_or(ErrorKind::UnexpectedEof)?;
    Ok(u64::from_le_bytes(*number))
}

/// Hashes a file as a whole.
fn beginning(path: &Path) -> io::Result<Beginning> {
    hash_of(File::open(path)?)
}

fn hash_of(mut file: impl Read) -> io::Result<Beginning> {
    let (mut hash, mut length) = (Xxh3::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(Beginning { length, hash: hash.digest() }),
            Ok(read) => {
                hash.update(piece.get(..read).unwrap_or_default());
                length += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Hashes what was added to a journal after `from`. Returns its end: journals are extended with zeros before
/// they are written, so it ends before the first piece that has only zeros.
fn follow(file: &File, from: u64, hash: &mut Xxh3) -> io::Result<u64> {
    let mut end = from;
    let mut zeros = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let read = match file.read_at(&mut piece, end + zeros as u64) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        let piece = piece.get(..read).unwrap_or_default();
        let Some(last) = piece.iter().rposition(|byte| *byte != 0) else { return Ok(end) };
        // Zeros between records belong to them.
        hash.update(ZEROS.get(..zeros).unwrap_or_default());
        hash.update(piece.get(..=last).unwrap_or_default());
        end += (zeros + last + 1) as u64;
        zeros = read - last - 1;
    }
}

/// The names of the journals of a state directory, oldest first.
fn journals(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        names.extend(file_name(&path).filter(|_| is_journal(&path)));
    }
    names.sort_by_key(|name| journal_number(name));
    Ok(names)
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == JOURNAL)
}

fn is_table(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == TABLES)
}

fn journal_number(name: &str) -> Option<u64> {
    Path::new(name).file_stem()?.to_str()?.parse().ok()
}

fn is_before(journal: &str, other: &str) -> bool {
    journal_number(journal) < journal_number(other)
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The names of the directories in a directory; none if it does not exist.
fn directories(folder: &Path) -> io::Result<Vec<String>> {
    let found = entries(folder)?.into_iter();
    Ok(found.filter(|path| path.is_dir()).filter_map(|path| file_name(&path)).collect())
}

/// The files below a directory; none if it does not exist.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        match path.is_dir() {
            true => files.extend(files_below(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
