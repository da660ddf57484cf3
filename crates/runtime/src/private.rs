//! Directories and files that only this user may read: state, dead letters, spools, caches, temporary files.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, create_dir_all};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The mode of a private directory.
const DIRECTORY: u32 = 0o700;
/// The mode of a private file.
const FILE: u32 = 0o600;
/// Others may enter, list or change.
const OTHERS: u32 = 0o007;
/// The same for the group.
const GROUP: u32 = 0o070;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// Only the owner of a file may rename or remove it.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// Creates a directory that only this user may enter, unless it exists. Missing parents are created as usual.
/// An empty directory of this user, such as one that a service manager made, is closed to others: to all
/// users, and to writes of a group that is not one of this process. The rights of a directory in use stay as
/// they are.
///
/// # Errors
/// If it cannot be created.
pub fn create_private(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return close_if_empty(path);
    }
    if let Some(parent) = path.parent() {
        create_dir_all(parent)?;
    }
    match create_private_new(path) {
        // Another process has created it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// Creates a directory that only this user may enter.
///
/// # Errors
/// If it cannot be created, or exists.
pub fn create_private_new(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY).create(path)
}

/// Options for opening a file that only this user may read, if it is created.
#[must_use]
pub fn private_file() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE);
    options
}

fn close_if_empty(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    let is_shared = found.mode() & STICKY != 0;
    let closed = if is_of_process(found.gid()) { OTHERS } else { OTHERS | GROUP_WRITES };
    if is_own && !is_shared && found.mode() & closed != 0 && fs::read_dir(path)?.next().is_none() {
        let mode = found.mode() & 0o7777 & !closed;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Refuses a directory in which another user can replace the files of this one: it belongs to another user
/// than this one or root, or others may write to it and it has no sticky bit.
///
/// # Errors
/// The reason, and how to correct it.
pub fn check_trusted(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    check_owner(path, &found, "remove it")?;
    match others_write(&found) && found.mode() & STICKY == 0 {
        true => Err(shared(path, "`chmod go-w` or `chmod +t` on it, or use another directory")),
        false => Ok(()),
    }
}

/// Refuses a directory in which another user can create files as well: as [`check_trusted`], also with a
/// sticky bit. For directories whose files have fixed names.
///
/// A share of another system may have one user for all files, or no rights. Its directories are not refused
/// for that, because no directory there would be better.
///
/// # Errors
/// The reason, and how to correct it.
pub fn check_own(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    if let Err(error) = check_owner(path, &found, "run as that user")
        && !tried(path).is_ok_and(|new| new.uid() == found.uid())
    {
        return Err(error);
    }
    if others_write(&found) {
        if !tried(path).is_ok_and(|new| new.mode() & (GROUP | OTHERS) != 0) {
            return Err(shared(
                path,
                "`chmod go-w` on it, or use another directory, such as a new one in it",
            ));
        }
        let shown = path.display();
        tracing::warn!(
            "the file system of `{shown}` has no rights: others may read and change the files in it"
        );
    }
    Ok(())
}

/// Returns what the file system says of a private file that this process creates in a directory. The file is
/// removed again.
fn tried(directory: &Path) -> io::Result<Metadata> {
    let path = directory.join(format!(".rights.{}", std::process::id()));
    let found = private_file().write(true).create_new(true).open(&path)?.metadata();
    fs::remove_file(&path)?;
    found
}

/// Refuses a directory of another user than this one or root.
fn check_owner(path: &Path, found: &Metadata, help: &str) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if [user, ROOT].contains(&found.uid()) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "`{}` belongs to another user (uid {}), who could replace the files in it: {help}, or use another directory",
        path.display(),
        found.uid()
    )))
}

/// True if more than the user and the groups of this process may write.
fn others_write(found: &Metadata) -> bool {
    let of_other_group = !is_of_process(found.gid());
    found.mode() & OTHERS_WRITE != 0 || (of_other_group && found.mode() & GROUP_WRITES != 0)
}

/// True if this process is in a group. The group of a volume of Kubernetes (`fsGroup`) is a supplementary one
/// of the process, and may write to all of the volume.
fn is_of_process(group: u32) -> bool {
    let others = rustix::process::getgroups().unwrap_or_default();
    others.into_iter().chain([rustix::process::getegid()]).any(|own| own.as_raw() == group)
}

fn shared(path: &Path, help: &str) -> io::Error {
    let shown = path.display();
    io::Error::other(format!("others may write to `{shown}` and replace the files in it: run {help}"))
}

/// Closes an open file or directory to all other users, if it belongs to this one. For what a library
/// creates, which gives it the usual rights.
///
/// # Errors
/// If its rights cannot be changed: some file systems have none.
pub fn close_to_others(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !is_own || found.mode() & (GROUP | OTHERS) == 0 {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(found.mode() & 0o7777 & !(GROUP | OTHERS)))
}

/// Opens a file that must be a regular one: a link is not followed, and a pipe does not block.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(File::options().read(true), path)
}

/// As [`open_regular`], with these options.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("`{}` is not a regular file", path.display()))),
    }
}

/// A file of a private directory that is not a regular file of its user.
#[derive(Debug)]
pub struct Foreign {
    /// The path.
    pub path: PathBuf,
    /// The reason in words, after the path: `is a symbolic link`.
    pub what: &'static str,
}

/// Finds a file in a private directory, or below it, that is not a regular file of this user, of root, or of
/// the user of the directory. Such a file could lead to other files, or block for ever when it is opened.
///
/// # Errors
/// If a directory cannot be read.
pub fn find_foreign(directory: &Path) -> io::Result<Option<Foreign>> {
    let users = [rustix::process::geteuid().as_raw(), ROOT, fs::metadata(directory)?.uid()];
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        let entries = match fs::read_dir(next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let what = match fs::symlink_metadata(&path) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
                Ok(found) if !users.contains(&found.uid()) => "belongs to another user",
                Ok(found) if found.is_dir() => {
                    open.push(path);
                    continue;
                }
                // A killed run leaves its socket. To open one as a file is an error at once.
                Ok(found) if found.is_file() || found.file_type().is_socket() => continue,
                Ok(found) if found.is_symlink() => "is a symbolic link",
                Ok(_) => "is not a file, but a pipe or a device",
            };
            return Ok(Some(Foreign { path, what }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_new_directory_is_private_and_an_empty_one_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let (new, empty, used) =
            (folder.path().join("a/new"), folder.path().join("empty"), folder.path().join("used"));
        for path in [&empty, &used] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        private_file().create(true).write(true).truncate(true).open(used.join("file")).unwrap();
        for path in [&new, &empty, &used] {
            create_private(path).unwrap();
        }
        assert_eq!((mode(&new), mode(&empty), mode(&used)), (0o700, 0o750, 0o755));
        assert_eq!(mode(&used.join("file")), 0o600);
    }

    #[test]
    fn the_socket_of_a_killed_run_is_not_foreign_and_a_link_is() {
        let folder = tempfile::tempdir().unwrap();
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap());
        assert!(find_foreign(folder.path()).unwrap().is_none());
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        assert_eq!(find_foreign(folder.path()).unwrap().unwrap().what, "is a symbolic link");
    }

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        fs::create_dir(&path).unwrap();
        let refused = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            check_trusted(&path)
                .map_err(|error| error.to_string().replace(&path.display().to_string(), "DIR"))
        };
        assert_eq!(refused(0o700), Ok(()));
        assert_eq!(refused(0o775), Ok(()));
        assert_eq!(refused(0o1777), Ok(()));
        let shared = "others may write to `DIR` and replace the files in it: run `chmod go-w` or `chmod +t` on it, or \
                      use another directory";
        assert_eq!(refused(0o777), Err(shared.to_owned()));
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        chown(&path, Some(65534), None).unwrap();
        let foreign = "`DIR` belongs to another user (uid 65534), who could replace the files in it: remove it, or use \
                       another directory";
        assert_eq!(refused(0o700), Err(foreign.to_owned()));
    }

    #[test]
    fn a_sticky_bit_does_not_make_a_directory_ones_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shared");
        fs::create_dir(&path).unwrap();
        let refused = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            check_own(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "DIR"))
        };
        assert_eq!((refused(0o700), refused(0o755)), (Ok(()), Ok(())));
        let shared = "others may write to `DIR` and replace the files in it: run `chmod go-w` on it, or use another \
                      directory, such as a new one in it";
        assert_eq!(refused(0o777), Err(shared.to_owned()));
        assert_eq!(refused(0o1777), Err(shared.to_owned()));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        assert_eq!(tried(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_group_of_the_process_may_write_and_another_group_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let (used, empty) = (folder.path().join("used"), folder.path().join("empty"));
        for path in [&used, &empty] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o2775)).unwrap();
        }
        fs::write(used.join("file"), "").unwrap();
        for group in rustix::process::getgroups().unwrap() {
            chown(&used, None, Some(group.as_raw())).unwrap();
            fs::set_permissions(&used, fs::Permissions::from_mode(0o2775)).unwrap();
            check_own(&used).unwrap();
        }
        create_private(&empty).unwrap();
        assert_eq!(mode(&empty) & 0o777, 0o770);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another group");
            return;
        }
        for path in [&used, &empty] {
            chown(path, None, Some(54_321)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o775)).unwrap();
            create_private(path).unwrap();
        }
        assert!(check_own(&used).is_err());
        assert_eq!(mode(&empty), 0o750);
        check_own(&empty).unwrap();
    }

    #[test]
    fn what_a_library_creates_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let (file, below) = (folder.path().join("file"), folder.path().join("below"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&below).unwrap();
        for (path, from, to) in [(&file, 0o644, 0o600), (&file, 0o400, 0o400), (&below, 0o755, 0o700)] {
            fs::set_permissions(path, fs::Permissions::from_mode(from)).unwrap();
            close_to_others(&File::open(path).unwrap()).unwrap();
            assert_eq!(mode(path), to, "{}", path.display());
        }
    }

    #[test]
    fn a_pipe_and_a_link_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(open_regular(&pipe).is_err() && open_regular(&link).is_err());
    }
}
