//! Reads outputs back: files, folders and compressed files, finished or not.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Returns the content of a file, decompressed if its name says that it is compressed. Of a compressed file
/// that is cut off, what can be read. Of a Parquet table, its rows as lines of JSON. Nothing if there is no
/// file.
///
/// # Errors
/// If it cannot be read.
pub fn content(path: &Path) -> io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => BufReader::new(opened?),
    };
    let name = path.to_string_lossy().replace(".continued.part", "").replace(".part", "");
    let mut content = Vec::new();
    if name.ends_with(".gz") {
        let _ = flate2::bufread::MultiGzDecoder::new(file).read_to_end(&mut content);
    } else if name.ends_with(".zst") {
        let _ = zstd::stream::read::Decoder::with_buffer(file)?.read_to_end(&mut content);
    } else if name.ends_with(".parquet") {
        return rows(file.into_inner()).map_err(io::Error::other);
    } else {
        BufReader::new(file).read_to_end(&mut content)?;
    }
    Ok(content)
}

/// Returns the rows of a Parquet table as lines of JSON.
fn rows(file: File) -> Result<Vec<u8>, ParquetError> {
    let mut lines = Vec::new();
    for row in SerializedFileReader::new(file)?.get_row_iter(None)? {
        let row = row?;
        let members = row.get_column_iter().map(|(name, value)| format!("\"{name}\":{value}"));
        lines.extend(format!("{{{}}}\n", members.collect::<Vec<_>>().join(",")).into_bytes());
    }
    Ok(lines)
}

/// Returns the files below a folder, sorted by their paths. None if there is no folder.
///
/// # Errors
/// If it cannot be listed.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

/// True if a file is not finished, or was left behind: its name ends in `.part` or begins with a dot.
pub fn is_unfinished(path: &Path) -> bool {
    is_hidden(path) || path.extension().is_some_and(|extension| extension == "part")
}

/// True if readers do not see a file: the draft of an object.
fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Returns the finished files below a folder, sorted by their paths. `also_unfinished`: also those that are
/// seen although they are not finished.
///
/// # Errors
/// If it cannot be listed.
pub fn finished(folder: &Path, also_unfinished: bool) -> io::Result<Vec<PathBuf>> {
    let is_wanted = |path: &PathBuf| if also_unfinished { !is_hidden(path) } else { !is_unfinished(path) };
    Ok(files(folder)?.into_iter().filter(is_wanted).collect())
}

/// Returns the contents of the same files as [`finished`].
///
/// # Errors
/// If they cannot be read.
pub fn contents(folder: &Path, also_unfinished: bool) -> io::Result<Vec<Vec<u8>>> {
    finished(folder, also_unfinished)?.iter().map(|path| content(path)).collect()
}

/// Returns all pieces as one, in their order. A piece without a line feed at its end gets one.
pub fn joined(pieces: Vec<Vec<u8>>) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        all.extend_from_slice(&piece);
        if !piece.is_empty() && !piece.ends_with(b"\n") {
            all.push(b'\n');
        }
    }
    all
}
