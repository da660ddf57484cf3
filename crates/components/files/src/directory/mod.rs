//! Writes files into a folder: the sink `directory`, and the transform `write`, which then passes the files
//! on.
//!
//! Each file is written without a name first, and gets its name when it is complete. No reader ever sees a
//! part of a file, and a killed process leaves nothing behind. [`names`] chooses another name if the first is
//! taken.
//!
//! See docs/decisions/035-a-file-has-no-name-until-it-is-complete.md.

pub mod draft;
mod given;
pub mod names;
mod options;
pub mod path;
pub(crate) mod presence;
mod sparse_copy;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use thalweg_beneath::{CopyOf, make_folder};
use thalweg_engine::{Context, Disposition, FileError, FileTransform, Journal};
use thalweg_record::{Content, File};

use crate::content;
pub use options::DirectoryOptions;
use thalweg_stream::io_error::io_error;

use draft::Draft;
use names::{Names, Taken};
use options::{Existing, Kept};
use path::{path_below, same_content};
use presence::Presence;
use sparse_copy::copy_file;

/// One worker that writes into a folder.
pub struct Directory {
    options: DirectoryOptions,
    existing: Existing,
    /// The names that the run has written, shared by all workers.
    names: Arc<Names>,
    /// Keeps the names for later runs, if there is a state.
    journal: Option<Journal>,
    /// True if an earlier run may have written some of the files before it was killed.
    resumes: bool,
    /// True for a sink. No component needs the temporary file afterwards, so it is linked instead of copied.
    is_last: bool,
    presence: Presence,
}

impl Directory {
    /// Creates a worker with these options.
    pub fn new(options: DirectoryOptions, names: Arc<Names>, context: &Context, is_last: bool) -> Self {
        let journal = context.journal.clone().filter(|_| context.resumes);
        names.spill_to(&context.temporary);
        let existing = options.existing.unwrap_or(match context.starts_over {
            true => Existing::Replace,
            false => Existing::Rename,
        });
        let presence = Presence::of(&options.path);
        Self { options, existing, names, journal, resumes: context.resumes, is_last, presence }
    }

    /// Writes the file unless an existing one stays. Returns the folder of the file.
    fn write(&self, file: &mut File) -> Result<PathBuf, FileError> {
        let wanted = self.wanted(file)?;
        let folder = wanted.parent().unwrap_or(&self.options.path);
        let mut draft = self.draft(file, folder)?;
        let mut number = 1;
        loop {
            let candidate = names::numbered(&wanted, number);
            match self.names.take(self.journal.as_ref(), &candidate, file, self.existing)? {
                Ok(replaces) => match draft.publish(&candidate, replaces) {
                    Ok(()) => return Ok(folder.to_owned()),
                    // Another process was faster: the name is taken now. The loop checks the name again.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    // For example another file system, or one without links.
                    Err(_) if draft.is_over() => {
                        self.names.give_back(&candidate);
                        draft = self.copied(file, folder)?;
                    }
                    Err(error) => {
                        self.names.give_back(&candidate);
                        return Err(unwritable("write", &candidate, &error));
                    }
                },
                Err(Taken::NextNameIfOther) if same_content(&mut draft.file, &candidate) => {
                    return Ok(folder.to_owned());
                }
                Err(Taken::NextName | Taken::NextNameIfOther) => number += 1,
                Err(Taken::LeftAlone) => return Ok(folder.to_owned()),
                Err(Taken::Refused) if self.resumes && same_content(&mut draft.file, &candidate) => {
                    let path = candidate.display();
                    tracing::warn!("`{path}` is there already: an interrupted run had written it");
                    return Ok(folder.to_owned());
                }
                Err(Taken::Refused) => {
                    let reason = format!("there is already a file at `{}`", candidate.display());
                    return Err(FileError::coded(UNWRITABLE, reason));
                }
            }
        }
    }

    /// Returns the path that the file gets if it is free.
    fn wanted(&self, file: &mut File) -> Result<PathBuf, FileError> {
        let earlier = self.names.earlier(self.journal.as_ref(), file.origin())?;
        // The configured folder may have changed since.
        if let Some(path) = earlier.filter(|path| path.starts_with(&self.options.path)) {
            return Ok(path);
        }
        let name = self.options.name.render(file)?;
        path_below(&self.options.path, Path::new(&name))
    }

    /// Creates the draft of the file in its folder, with content and properties.
    fn draft(&self, file: &mut File, folder: &Path) -> Result<Draft, FileError> {
        if let Content::Temporary(temporary) = file.content()
            && self.is_last
            && let Ok(draft) =
                in_folder(folder, self.copy(file).as_ref(), || Draft::over(temporary.path(), folder))
        {
            self.complete(file, &draft.file, folder, None)?;
            return Ok(draft);
        }
        self.copied(file, folder)
    }

    /// Creates the draft as a copy.
    fn copied(&self, file: &mut File, folder: &Path) -> Result<Draft, FileError> {
        content::keep_open(file)?;
        let open = file.take_open();
        let own = open.as_ref().filter(|_| matches!(file.content(), Content::Path(_)));
        let mode = own.map(|open| open.metadata.mode());
        let allowed = mode.or(file.origin().times.mode).unwrap_or(0o666);
        let copy = self.copy(file);
        let failed = |error: &io::Error| unwritable("write into", folder, error);
        let (mut draft, limited) = in_folder(folder, copy.as_ref(), || {
            let limited = copy.as_ref().map_or(allowed, |copy| copy.mode_in(folder, allowed));
            Ok((Draft::new(folder, Some(limited))?, limited))
        })
        .map_err(|error| failed(&error))?;
        match open {
            Some(mut from) => {
                let copied = copy_file(&mut from, &mut draft.file).map_err(|error| failed(&error))?;
                content::AsFound::of(file).warn_if_larger(copied);
            }
            None => drop(content::copy(&mut content::open(file)?, &mut draft.file, failed)?),
        }
        self.complete(file, &draft.file, folder, mode.map(|_| limited))?;
        Ok(draft)
    }

    /// Returns the file as one that is copied into the folder of this worker.
    fn copy(&self, file: &File) -> Option<CopyOf> {
        file.origin().copy_to(&self.options.path)
    }

    fn complete(
        &self,
        file: &File,
        written: &fs::File,
        path: &Path,
        mode: Option<u32>,
    ) -> Result<(), FileError> {
        let failed = |error: io::Error| unwritable("write", path, &error);
        if self.options.keep.contains(&Kept::Mode)
            && let Some(mode) = mode
        {
            // Without setuid, setgid and the sticky bit: the copy belongs to us, not to the owner of the
            // file.
            let mode = fs::Permissions::from_mode(mode & 0o777);
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

    /// Makes the names in `folder` durable, and those of the folders that lead to it. A name is an entry of
    /// its folder, and a new folder is an entry of its parent.
    fn sync(&self, folder: &Path) -> Result<(), FileError> {
        for folder in folder.ancestors().take_while(|folder| folder.starts_with(&self.options.path)) {
            let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(|error| unwritable("write", folder, &error))?;
        }
        Ok(())
    }
}

#[async_trait]
impl FileTransform for Directory {
    async fn apply(&mut self, file: &mut File) -> Result<Disposition, FileError> {
        self.presence.check().map_err(FileError::Failed)?;
        let folder = self.write(file)?;
        self.presence.note();
        if self.options.fsync {
            self.sync(&folder)?;
        }
        Ok(Disposition::Continue)
    }

    fn only_reads(&self) -> bool {
        true
    }
}

/// The error code of files that cannot be written.
const UNWRITABLE: &str = "FILE_INPUT_IS_UNWRITABLE";

/// Runs `work` in a folder. If the folder does not exist, creates it for the copy and runs `work` again.
pub fn in_folder<T>(
    folder: &Path,
    copy: Option<&CopyOf>,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(folder, copy, &mut |_| Ok(()))?;
            work()
        }
        done => done,
    }
}

/// Converts an I/O error. Temporary errors are retried. Any other error rejects this file only, since the
/// next one may succeed.
pub fn unwritable(action: &str, path: &Path, error: &io::Error) -> FileError {
    let error = io_error(action, path, error);
    match error.kind() {
        thalweg_engine::ErrorKind::Permanent => FileError::coded(UNWRITABLE, error.to_string()),
        _ => FileError::Failed(error),
    }
}

#[cfg(test)]
mod tests;
