//! Compresses finished pieces.
//!
//! Compression takes long, so each piece is compressed by a thread of its own beside the sink. The current
//! piece stays uncompressed so that other programs can follow it. The uncompressed piece is removed once the
//! compressed one is on disk. If the process is killed after a piece was compressed, a run that continues
//! this piece decompresses it again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use super::files::Register;
use super::identity::Identity;
use super::link::Link;
use super::names;
use super::opening::open_file;
use thalweg_beneath::place_if_free;
use thalweg_codec::compress::Compression;

/// Returns the name of the compressed piece.
pub(super) fn packed(path: &Path, how: Compression) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(how.suffix());
    name.into()
}

/// A finished piece to be compressed.
#[derive(Debug, Clone)]
pub(super) struct Packable {
    pub(super) path: PathBuf,
    pub(super) how: Compression,
    /// The link of a name. If it leads to the piece, it then leads to the compressed one.
    pub(super) link: Option<(Link, String)>,
    /// True if a file that has the name of the compressed piece is replaced.
    pub(super) replaces: bool,
    /// The notes of pieces, if checkpoints are kept.
    pub(super) register: Option<Register>,
}

/// A thread that compresses a finished piece. If it is dropped before it has ended, it leaves the piece and a
/// part of the compressed one, as a killed process does, and the next run compresses the piece again.
pub(super) struct Packing {
    thread: Option<JoinHandle<()>>,
    is_stopped: Arc<AtomicBool>,
}

impl Packing {
    /// Begins to compress a piece; without a thread, if none can be started.
    pub(super) fn begin(piece: Packable) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (own, stopped) = (piece.clone(), is_stopped.clone());
        let thread = Builder::new().name("thalweg-pack".to_owned());
        let thread = thread.spawn(move || pack(own, &stopped)).ok();
        if thread.is_none() {
            pack(piece, &is_stopped);
        }
        Self { thread, is_stopped }
    }

    /// True if the thread has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the piece is compressed.
    pub(super) fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread logs its own errors.
            let _ = thread.join();
        }
    }
}

impl Drop for Packing {
    /// Waits for the thread, because the sink that follows in this process may read or remove the piece.
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.join();
    }
}

/// Compresses a finished piece. An error is logged, and leaves the piece as it is.
fn pack(piece: Packable, is_stopped: &AtomicBool) {
    let path = piece.path.clone();
    match try_pack(piece, is_stopped) {
        Ok(()) => {}
        // The piece has been pruned meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!("`{}` could not be compressed, and stays as it is: {error}", path.display());
        }
    }
}

fn try_pack(piece: Packable, is_stopped: &AtomicBool) -> io::Result<()> {
    let Packable { path, how, link, replaces, register } = piece;
    let target = packed(&path, how);
    let part = names::part(&target);
    let mut from = open_file(&path, OpenOptions::new().read(true))?;
    let mut to = open_file(&part, &mut new_file())?;
    let noted = register.map_or(Ok(()), |register| register.add(&path, Identity::of(&to.metadata()?)));
    let written = match noted.and_then(|()| write_packed(&mut from, &mut to, how, is_stopped)) {
        Ok(false) => return Ok(()),
        Ok(true) if replaces => fs::rename(&part, &target),
        Ok(true) => place_if_free(&part, &target),
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        // A partial file is useless.
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    if let Some((link, name)) = link {
        link.follow(&name, &path, &target)?;
    }
    fs::remove_file(&path)
}

/// Returns false if it was stopped.
fn write_packed(
    from: &mut File,
    to: &mut File,
    how: Compression,
    is_stopped: &AtomicBool,
) -> io::Result<bool> {
    let Some(mut encoder) = how.begin(None)? else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut piece = vec![0; 256 << 10];
    let mut out = Vec::new();
    loop {
        if is_stopped.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let read = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        encoder.write_all(piece.get(..read).unwrap_or_default())?;
        encoder.take(&mut out);
        to.write_all(&out)?;
        out.clear();
    }
    encoder.end(&mut out)?;
    to.write_all(&out)?;
    let metadata = from.metadata()?;
    to.set_permissions(metadata.permissions())?;
    // The time of the last message tells the age of the piece, and with `numbers: if_taken` its place.
    to.set_times(fs::FileTimes::new().set_modified(metadata.modified()?))?;
    // The file is synced, because the uncompressed piece, which may already be on the disk, is removed next.
    to.sync_all()?;
    Ok(true)
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options
}

/// Decompresses a piece that is to be continued. `note` notes the decompressed file before it has the name of
/// the piece.
pub(super) fn unpack(
    from: &Path,
    path: &Path,
    how: Compression,
    note: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let file = open_file(from, OpenOptions::new().read(true))?;
    let mut plain = path.as_os_str().to_owned();
    plain.push(".unpacked");
    let mut to = open_file(Path::new(&plain), &mut new_file())?;
    match how {
        Compression::None => return Ok(()),
        Compression::Gzip => io::copy(&mut flate2::read::MultiGzDecoder::new(file), &mut to)?,
        Compression::Zstd => io::copy(&mut zstd::stream::read::Decoder::new(file)?, &mut to)?,
    };
    to.sync_all()?;
    note(&to)?;
    fs::rename(&plain, path)?;
    fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packable(path: &Path, how: Compression) -> Packable {
        Packable { path: path.to_owned(), how, link: None, replaces: false, register: None }
    }

    #[test]
    fn a_file_with_the_name_of_the_compressed_piece_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out-00001.log");
        let other = packed(&path, Compression::Gzip);
        for replaces in [false, true] {
            fs::write(&path, "line").unwrap();
            fs::write(&other, "of another program").unwrap();
            let piece = Packable { replaces, ..packable(&path, Compression::Gzip) };
            Packing::begin(piece).wait();
            assert_eq!(fs::read(&other).unwrap() == b"of another program", !replaces);
            assert_eq!(path.exists(), !replaces);
            assert!(!names::part(&other).exists());
        }
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed_and_only_one_of_the_two_is_there() {
        for how in [Compression::Gzip, Compression::Zstd] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out-00001.log");
            let text = "line\n".repeat(200_000);
            fs::write(&path, &text).unwrap();
            Packing::begin(packable(&path, how)).wait();
            let names = || -> Vec<_> {
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
            };
            assert_eq!(names(), [packed(&path, how).file_name().unwrap()]);
            assert!(fs::metadata(packed(&path, how)).unwrap().len() < 10_000);
            unpack(&packed(&path, how), &path, how, |_| Ok(())).unwrap();
            assert_eq!(names(), ["out-00001.log"]);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            // A missing file is left out.
            Packing::begin(packable(&folder.path().join("none"), how)).wait();
            assert_eq!(names(), ["out-00001.log"]);
        }
    }

    #[test]
    fn nothing_happens_to_a_piece_after_its_sink_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out-00001.log");
        fs::write(&path, "line\n".repeat(2_000_000)).unwrap();
        drop(Packing::begin(packable(&path, Compression::Gzip)));
        let packed = packed(&path, Compression::Gzip);
        let is_whole = || (path.exists(), names::part(&packed).exists(), packed.exists());
        let (piece, part, whole) = is_whole();
        assert!(piece && part && !whole || !piece && !part && whole, "{:?}", is_whole());
        // A thread that still runs would remove the piece.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(is_whole(), (piece, part, whole));
    }
}
