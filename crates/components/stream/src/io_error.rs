//! Errors of the operating system, as sentences about a file.

use std::io::{self, ErrorKind};
use std::path::Path;

use thalweg_engine::Error;

/// An error of the operating system as one of a component: what could not be done to which file, why, and
/// what to do about it. `what` is a verb, such as `read` or `create`.
///
/// It is temporary where it can pass while nobody does anything to the configuration: a network file system
/// that is away, too many open files, a full disk.
pub fn io_error(what: &str, path: impl AsRef<Path>, error: &io::Error) -> Error {
    let path = path.as_ref().display();
    let sentence = |reason: &str, help: &str| format!("cannot {what} `{path}`: {reason}{help}");
    match error.kind() {
        ErrorKind::NotFound => {
            Error::permanent(sentence("it does not exist.", " Look for a typing error, or create it."))
        }
        ErrorKind::PermissionDenied => Error::permanent(sentence(
            "permission was denied.",
            " Look at the permissions of the file and of the folders that it is in.",
        )),
        ErrorKind::IsADirectory => {
            Error::permanent(sentence("it is a folder.", " Name a file, or the files in it as `FOLDER/*`."))
        }
        ErrorKind::NotADirectory => {
            Error::permanent(sentence("a part of its path is a file where a folder is needed.", ""))
        }
        ErrorKind::ReadOnlyFilesystem => {
            Error::permanent(sentence("it is on a file system that is read-only.", ""))
        }
        ErrorKind::StorageFull => Error::temporary(sentence(
            "no space is left on the device.",
            " Make room there; it goes on from where it stopped.",
        )),
        ErrorKind::QuotaExceeded => Error::temporary(sentence(
            "the quota of disk space is used up.",
            " Make room there; it goes on from where it stopped.",
        )),
        ErrorKind::Interrupted
        | ErrorKind::WouldBlock
        | ErrorKind::TimedOut
        | ErrorKind::ResourceBusy
        | ErrorKind::StaleNetworkFileHandle
        | ErrorKind::NetworkDown
        | ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted => Error::temporary(sentence(&format!("{error}."), "")),
        _ if has_too_many_files(error) => Error::temporary(sentence(
            "too many files are open.",
            " Raise the limit (`ulimit -n`) if this does not pass.",
        )),
        _ => Error::permanent(sentence(&format!("{error}."), "")),
    }
}

/// `ErrorKind` has no name for these: `ENFILE` (the system's limit) and `EMFILE` (the process's).
fn has_too_many_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_says_what_to_do() {
        let error = io_error("read", "/nowhere/a.log", &io::Error::from(ErrorKind::NotFound));
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert_eq!(
            error.full(),
            "cannot read `/nowhere/a.log`: it does not exist. Look for a typing error, or create it."
        );
    }

    #[test]
    fn what_may_pass_by_itself_is_temporary() {
        for error in
            [ErrorKind::TimedOut.into(), ErrorKind::StorageFull.into(), io::Error::from_raw_os_error(24)]
        {
            assert_eq!(
                io_error("write", "a", &error).kind(),
                thalweg_engine::ErrorKind::Temporary,
                "{error}"
            );
        }
    }
}
