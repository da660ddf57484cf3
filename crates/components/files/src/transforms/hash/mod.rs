//! Computes hashes of files: to name files by their content, and to check that they are complete.

mod sums;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::digest::{Algorithm, Digest};
use thalweg_engine::{
    Component, Context, Disposition, Error, FileError, FileTransform, FileTransformConfig, Mistake,
};
use thalweg_record::File;

use crate::content::{open, unreadable};
use crate::directory::draft::Draft;
use crate::directory::path::path_below;
use crate::directory::{in_folder, unwritable};
use crate::file_template::{FileTemplate, HASH};

/// Computes the hash of files.
///
/// Later names and arguments may contain the hash as `{hash}`, for example `rename_file: { to:
/// "{hash}{suffix}" }`. It is the hash of the content at this transform. If a later transform changes the
/// content, `{hash}` stays the same.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// The algorithm. The default is `sha256`. `sha256` and `blake3`, which is faster, also detect deliberate
    /// changes. `xxh3` and `crc32c` are the fastest and detect accidental changes. `sha1` and `md5` are for
    /// existing hashes.
    #[serde(default)]
    algorithm: Algorithm,
    /// The file with the expected hash of each file. Files with another hash are rejected, and so are files
    /// without an entry. The file has the format of `sha256sum`, with one line per file, or contains only the
    /// hash. By default nothing is checked.
    #[schemars(example = "{original_path}.sha256")]
    verify: Option<FileTemplate>,
    /// A folder in which a file with the hash is written for each file, in the format of `sha256sum`. For
    /// `a/photo.jpg` it is `a/photo.jpg.sha256`. An existing file is replaced. By default none is written.
    #[schemars(example = &"sums")]
    sidecars: Option<PathBuf>,
}

impl Component for Hash {
    const NAME: &'static str = "hash";
    const EXAMPLE: &'static str = r#"
sources:
  photos: { files: { path: "photos/**" } }
pipelines:
  main:
    from: photos
    transforms:
      - hash: { algorithm: sha256, sidecars: archive }
    to: archive
sinks:
  archive: { directory: { path: archive } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.verify.as_ref().is_some_and(FileTemplate::is_empty) {
            mistakes.push(Mistake::new("verify", "The file with the hash has no name."));
        }
        if self.sidecars.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
            let help = "`.` is the current folder.";
            mistakes.push(Mistake::new("sidecars", "The folder has no name.").help(help));
        }
        mistakes
    }
}

impl FileTransformConfig for Hash {
    fn build(&self, _: &Context) -> Result<Box<dyn FileTransform>, Error> {
        Ok(Box::new(Hashing { options: self.clone(), piece: vec![0; 64 << 10] }))
    }
}

struct Hashing {
    options: Hash,
    /// The buffer for reading.
    piece: Vec<u8>,
}

#[async_trait]
impl FileTransform for Hashing {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let hash = self.hash(file).map_err(|error| match error {
            Failed::Open(error) => error,
            Failed::Read(error) => unreadable(&error),
        })?;
        if let Some(verify) = &self.options.verify {
            let path = PathBuf::from(verify.render(file)?);
            self.compare(file, &hash, &path)?;
        }
        if let Some(folder) = &self.options.sidecars {
            let mut name = file.origin().relative().with_file_name(file.name()).into_os_string();
            name.push(format!(".{}", self.options.algorithm.extension()));
            let path = path_below(folder, Path::new(&name))?;
            let line = sums::line(&hash, Path::new(file.name()).file_name().unwrap_or_default());
            write(&path, &line).map_err(|error| unwritable("write", &path, &error))?;
        }
        file.set_note(HASH, hash);
        Ok(Disposition::Continue)
    }
}

enum Failed {
    Open(FileError),
    Read(io::Error),
}

impl Hashing {
    fn hash(&mut self, file: &File) -> Result<String, Failed> {
        let mut from = open(file).map_err(Failed::Open)?;
        let mut digest = Digest::new(self.options.algorithm);
        loop {
            match from.read(&mut self.piece) {
                Ok(0) => return Ok(digest.finish()),
                Ok(read) => digest.update(self.piece.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failed::Read(error)),
            }
        }
    }

    fn compare(&self, file: &File, hash: &str, path: &Path) -> Result<(), FileError> {
        let algorithm = self.options.algorithm;
        let wrong = |reason| Err(FileError::coded("FILE_HASH_IS_DIFFERENT", reason));
        let names: [OsString; 2] = [file.origin().name.clone(), file.name().to_owned()];
        let found = fs::File::open(path).and_then(|sums| {
            sums::expected(BufReader::new(sums), hash.len(), names.each_ref().map(|name| &**name))
        });
        let path = path.display();
        match found {
            Ok(Some(expected)) if expected == hash => Ok(()),
            Ok(Some(expected)) => {
                wrong(format!("the file's {algorithm} is {hash}, but `{path}` says {expected}"))
            }
            Ok(None) => wrong(format!("`{path}` has no {algorithm} of this file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                wrong(format!("`{path}`, which should hold the file's {algorithm}, does not exist"))
            }
            Err(error) => {
                wrong(format!("`{path}`, which should hold the file's {algorithm}, cannot be read: {error}"))
            }
        }
    }
}

/// Writes a small file, which becomes visible only when it is complete.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = in_folder(folder, None, || Draft::new(folder, None))?;
    draft.file.write_all(bytes)?;
    draft.publish(path, true)
}
