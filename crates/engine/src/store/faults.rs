//! Errors of the store when its directory cannot be used.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_runtime::private::Foreign;

use crate::Error;

/// The way on from damage.
const WAY_OUT: &str = "Restore the directory from a backup. Or move it away to start over: its checkpoints and dead letters are \
                       then not used, and all input is processed again";

/// The errors of one state directory.
#[derive(Debug, Clone)]
pub(super) struct Faults(Arc<PathBuf>);

impl Faults {
    pub(super) fn of(folder: &Path) -> Self {
        Self(Arc::new(folder.to_owned()))
    }

    fn folder(&self) -> std::path::Display<'_> {
        self.0.display()
    }

    pub(super) fn locked(&self) -> Error {
        self.unopened("another run is using it: stop that run, or give another directory")
    }

    pub(super) fn unopened(&self, why: &str) -> Error {
        Error::permanent(format!("the state in `{}` cannot be opened: {why}", self.folder()))
    }

    /// The directory belongs to another configuration.
    pub(super) fn owned(&self, known: &str, given: &str, record: &Path) -> Error {
        Error::permanent(format!(
            "the state in `{}` belongs to another configuration: to `{known}`, and this is `{given}`. Give this one \
             another directory. If it takes the place of the other, delete `{}`: it then continues with those \
             checkpoints and dead letters",
            self.folder(),
            record.display()
        ))
    }

    /// The directory of dead letters belongs to another configuration. Its place follows from that of the
    /// configuration.
    pub(super) fn copied(&self, known: &str, given: &str, record: &Path) -> Error {
        Error::permanent(format!(
            "the dead letters in `{}` belong to another configuration: to `{known}`, and this is `{given}`. If the \
             directory was copied with the configuration, remove it. If this configuration takes the place of the \
             other, delete `{}`: it then continues with those dead letters",
            self.folder(),
            record.display()
        ))
    }

    /// A file is one that the store does not create.
    pub(super) fn foreign(&self, file: &Foreign) -> Error {
        let path = file.path.display();
        self.unopened(&format!(
            "`{path}` {}, which this program does not create there. Nothing was processed. Find out who has put it \
             there, and remove it or put the original file in its place; or give another directory",
            file.what
        ))
    }

    /// A file is not as the store left it.
    pub(super) fn damaged(&self, file: &Path, what: &str) -> Error {
        Error::permanent(format!(
            "the state in `{}` is damaged: `{}` {what}. Nothing was processed, and the directory was not changed. \
             {WAY_OUT}",
            self.folder(),
            file.display()
        ))
    }

    /// A file with unfinished output is not as the checkpoint says.
    pub(super) fn damaged_output(&self, file: &Path, what: &str) -> Error {
        Error::permanent(format!(
            "the state in `{}` is damaged: `{}` {what}. It had output that is not finished. {WAY_OUT}",
            self.folder(),
            file.display()
        ))
    }

    pub(super) fn opening(&self, error: fjall::Error) -> Error {
        match error {
            fjall::Error::Locked => self.locked(),
            other => self.unopened(&cause(&other)),
        }
    }

    pub(super) fn reading(&self, error: fjall::Error) -> Error {
        Error::permanent(format!("the state in `{}` cannot be read: {}", self.folder(), cause(&error)))
    }

    pub(super) fn writing(&self, error: fjall::Error) -> Error {
        Error::permanent(format!("the state in `{}` cannot be written: {}", self.folder(), cause(&error)))
    }

    pub(super) fn recording(&self, error: &io::Error) -> Error {
        Error::permanent(format!("the state in `{}` cannot be written: {error}", self.folder()))
    }

    /// An entry is not of this version of the store.
    pub(super) fn parsing(&self, error: serde_json::Error) -> Error {
        Error::permanent(format!("the state in `{}` cannot be understood", self.folder())).caused_by(error)
    }
}

/// The cause of an error of the database in plain words. Its own texts are for those who write it.
fn cause(error: &fjall::Error) -> String {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    let io = causes.find_map(|cause| cause.downcast_ref::<io::Error>());
    // Such an error is that of a file that is missing, too short or not as it was written.
    let is_damage = |io: &&io::Error| {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
        matches!(io.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof)
            || io.raw_os_error().is_none()
    };
    match (error, io.filter(|io| !is_damage(io))) {
        (_, Some(io)) => io.to_string(),
        (fjall::Error::Poisoned, _) => {
            "an earlier write to it failed. The next run resumes at the last checkpoint".to_owned()
        }
        (fjall::Error::InvalidVersion(_), _) => {
            "another version of thalweg wrote it: use that version, or another directory".to_owned()
        }
        _ => format!("one of its files is damaged. {WAY_OUT}"),
    }
}
