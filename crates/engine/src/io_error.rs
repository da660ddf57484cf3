//! Errors of the operating system, as sentences about a file.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::Error;

/// Converts an error of the operating system to an error of a component. It says what could not be done to
/// which file, why, and what to do about it. `action` is a verb, such as `read` or `create`.
///
/// The error is temporary if its cause can pass without a change of the configuration: an unreachable network
/// file system, too many open files, a full disk.
pub fn io_error(action: &str, path: impl AsRef<Path>, error: &io::Error) -> Error {
    let path = path.as_ref().display();
    let sentence = |reason: &str, help: &str| format!("cannot {action} `{path}`: {reason}{help}");
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
            " Free some space there; writing resumes where it stopped.",
        )),
        ErrorKind::QuotaExceeded => Error::temporary(sentence(
            "the quota of disk space is used up.",
            " Free some space there; writing resumes where it stopped.",
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
            &format!("too many files are open{}.", open_file_limit()),
            " Raise the limit (`ulimit -n`) if this does not pass.",
        )),
        _ => Error::permanent(sentence(&format!("{error}."), "")),
    }
}

/// The number of files that this process may have open, as a part of a sentence.
fn open_file_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map(|limit| format!("; this process may have {limit}")).unwrap_or_default()
}

/// True for `ENFILE` (the system's limit) and `EMFILE` (the process's limit). `ErrorKind` has no name for
/// them.
fn has_too_many_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_says_what_to_do() {
        let error = io_error("read", "/nowhere/a.log", &io::Error::from(ErrorKind::NotFound));
        assert_eq!(error.kind(), crate::ErrorKind::Permanent);
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
            assert_eq!(io_error("write", "a", &error).kind(), crate::ErrorKind::Temporary, "{error}");
        }
    }
}
