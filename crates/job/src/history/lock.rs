//! Whether a run has the file of its record locked.

use std::fs::{File, TryLockError};

/// Whether a run has the file of its record locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// A run has it.
    Held,
    /// No run has it.
    Free,
    /// The file system has no locks.
    Unknown,
}

impl Lock {
    pub(super) fn of(file: &File) -> Self {
        match file.try_lock_shared() {
            Ok(()) => {
                // A reader that is slow must not look like a run.
                let _ = file.unlock();
                Self::Free
            }
            Err(TryLockError::WouldBlock) => Self::Held,
            Err(TryLockError::Error(_)) => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_without_locks_is_not_taken_for_a_locked_one() {
        use std::os::unix::fs::OpenOptionsExt;

        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Lock::of(file.as_file()), Lock::Free);
        let held = File::open(file.path()).unwrap();
        held.lock().unwrap();
        assert_eq!(Lock::of(file.as_file()), Lock::Held);
        let flags = rustix::fs::OFlags::PATH.bits().cast_signed();
        let unlockable = File::options().read(true).custom_flags(flags).open(file.path()).unwrap();
        assert_eq!(Lock::of(&unlockable), Lock::Unknown);
    }
}
