//! Writing files into a folder: the sink `directory`, and the transform `write`, after which they go on.
//!
//! Each is written without a name first, and gets its own when it is complete: nobody ever sees a part of it, and nothing is
//! left of it if the process is killed. [`names`] says which name that is where it is taken already.

pub mod draft;
pub mod names;
mod options;
pub mod place;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use thalweg_engine::{Disposition, FileError, FileTransform};
use thalweg_record::{Content, File};

use crate::content;
pub use options::DirectoryOptions;
use thalweg_stream::io_error::io_error;

use draft::Draft;
use names::{Names, Taken};
use options::Kept;
use place::{place_of, same_content};

/// One copy of what writes into a folder.
pub struct Directory {
    options: DirectoryOptions,
    /// Which names the run has written; shared by the copies.
    names: Arc<Names>,
    /// Whether a former run may have written some of the files before it was killed.
    resumes: bool,
    /// Whether nothing comes after: a temporary file then need not be copied.
    is_last: bool,
}

impl Directory {
    /// With these options.
    pub fn new(options: DirectoryOptions, names: Arc<Names>, resumes: bool, is_last: bool) -> Self {
        Self { options, names, resumes, is_last }
    }

    fn write(&self, file: &mut File) -> Result<Disposition, FileError> {
        let name = self.options.name.render(file)?;
        let wanted = place_of(&self.options.path, Path::new(&name))?;
        let folder = wanted.parent().unwrap_or(&self.options.path);
        let mut draft = self.draft(file, folder)?;
        let mut number = 1;
        loop {
            let candidate = names::numbered(&wanted, number);
            match self.names.take(&candidate, file, self.options.on_exists) {
                Ok(replaces) => match draft.publish(&candidate, replaces) {
                    Ok(()) => return Ok(Disposition::Continue),
                    // Somebody else was faster: the name is taken now, and is asked for again.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    // Another file system, say, or one that knows no links.
                    Err(_) if draft.is_over() => {
                        self.names.give_back(&candidate);
                        draft = self.copied(file, folder)?;
                    }
                    Err(error) => {
                        self.names.give_back(&candidate);
                        return Err(unwritable("write", &candidate, &error));
                    }
                },
                Err(Taken::NextName) => number += 1,
                Err(Taken::LeftAlone) => return Ok(Disposition::Continue),
                Err(Taken::Refused) if self.resumes && same_content(&mut draft.file, &candidate) => {
                    let path = candidate.display();
                    tracing::warn!("`{path}` is there already: a run that was cut off had written it");
                    return Ok(Disposition::Continue);
                }
                Err(Taken::Refused) => {
                    let reason = format!("there is already a file at `{}`", candidate.display());
                    return Err(FileError::coded(UNWRITABLE, reason));
                }
            }
        }
    }

    /// The file as it will be, in a folder, without its name.
    fn draft(&self, file: &File, folder: &Path) -> Result<Draft, FileError> {
        if let Content::Temporary(temporary) = file.content()
            && self.is_last
            && let Ok(draft) = in_folder(folder, || Draft::over(temporary.path(), folder))
        {
            self.complete(file, &draft.file, folder, None)?;
            return Ok(draft);
        }
        self.copied(file, folder)
    }

    /// The same as a copy.
    fn copied(&self, file: &File, folder: &Path) -> Result<Draft, FileError> {
        let mut from = content::open(file)?;
        let mut draft = in_folder(folder, || Draft::new(folder))
            .map_err(|error| unwritable("write into", folder, &error))?;
        let failed = |error: io::Error| unwritable("write into", folder, &error);
        let mode = match &mut from {
            // Between two files the system copies by itself.
            content::Opened::File(from) => {
                io::copy(from, &mut draft.file).map_err(failed)?;
                from.metadata().ok().map(|metadata| metadata.permissions())
            }
            content::Opened::Memory(_) | content::Opened::Ranges(_) => {
                content::copy(&mut from, &mut draft.file, |error| unwritable("write into", folder, error))?;
                None
            }
        };
        self.complete(file, &draft.file, folder, mode)?;
        Ok(draft)
    }

    fn complete(
        &self,
        file: &File,
        written: &fs::File,
        path: &Path,
        mode: Option<fs::Permissions>,
    ) -> Result<(), FileError> {
        let failed = |error: io::Error| unwritable("write", path, &error);
        if self.options.keep.contains(&Kept::Mode)
            && let Some(mode) = mode
        {
            written.set_permissions(mode).map_err(failed)?;
        }
        let times = &file.origin().times;
        if self.options.keep.contains(&Kept::Times)
            && let Some(modified) = times.modified
        {
            let accessed = times.accessed.unwrap_or(modified);
            let times = fs::FileTimes::new().set_modified(modified).set_accessed(accessed);
            written.set_times(times).map_err(failed)?;
        }
        if self.options.fsync {
            written.sync_all().map_err(failed)?;
        }
        Ok(())
    }
}

#[async_trait]
impl FileTransform for Directory {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        let fate = self.write(file)?;
        if self.options.fsync {
            // The name is an entry of the folder, which lasts only when that does.
            let synced = fs::File::open(&self.options.path).and_then(|folder| folder.sync_all());
            synced.map_err(|error| unwritable("write", &self.options.path, &error))?;
        }
        Ok(fate)
    }
}

/// The code of files that cannot be written.
const UNWRITABLE: &str = "FILE_INPUT_IS_UNWRITABLE";

/// Does something in a folder, which is made if it is not there.
pub fn in_folder<T>(folder: &Path, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            work()
        }
        done => done,
    }
}

/// What passes is waited for; else it is the file that is rejected, and the next may fare better.
pub fn unwritable(what: &str, path: &Path, error: &io::Error) -> FileError {
    let error = io_error(what, path, error);
    match error.kind() {
        thalweg_engine::ErrorKind::Permanent => FileError::coded(UNWRITABLE, error.to_string()),
        _ => FileError::Failed(error),
    }
}

#[cfg(test)]
mod tests;
