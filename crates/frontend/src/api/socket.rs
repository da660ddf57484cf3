//! The socket of a run, in its state directory.
//!
//! Only the user of the run may open the file. It is made in a folder that no other user can enter, because a
//! socket has the rights that the process gives to all its files until they are changed. It gets its final
//! place after its rights, in one step that also replaces the socket of a killed run: the directory belongs
//! to one run at a time. At the end it is removed, unless the next run has already replaced it.
//!
//! The address of a socket has at most 107 bytes. Where the path is longer, it leads through a descriptor of
//! the directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// The name of the socket in a state directory.
pub(crate) const NAME: &str = "control.sock";
/// The folder where it is until it has its rights.
const NEW: &str = "control.sock.new";
/// Only this user may enter the folder.
const FOLDER_MODE: u32 = 0o700;
/// Only this user may connect.
const MODE: u32 = 0o600;
/// The longest path in the address of a socket, in bytes.
const LONGEST: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A socket file, which is removed when this is dropped.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and the inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Creates the socket of a state directory that this process has locked.
    pub(crate) fn create(folder: &Path) -> io::Result<(Self, UnixListener)> {
        let (path, new) = (folder.join(NAME), folder.join(NEW));
        // It may be there from a run that was killed between two steps.
        remove(&new)?;
        DirBuilder::new().mode(FOLDER_MODE).create(&new)?;
        let made = place(&new, &path);
        // The next run removes what stays.
        let _ = remove(&new);
        let (identity, listener) = made?;
        Ok((Self { path, identity }, listener))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A socket that stays is replaced by the next run.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket in a folder, and moves it to its place. Returns its identity.
fn place(new: &Path, path: &Path) -> io::Result<((u64, u64), UnixListener)> {
    let listener = UnixListener::bind(&Address::of(new, NAME)?.path)?;
    let socket = new.join(NAME);
    fs::set_permissions(&socket, Permissions::from_mode(MODE))?;
    let identity = identity(&socket)?;
    fs::rename(&socket, path)?;
    listener.set_nonblocking(true)?;
    Ok((identity, listener))
}

/// Connects to the run that uses a state directory. A blocking call would wait for as long as a process that
/// was halted accepts no one.
pub(crate) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let address = Address::of(folder, NAME)?;
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(&address.path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// True if a directory has a socket, perhaps one of a killed run.
pub(crate) fn is_in(folder: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(folder.join(NAME)).is_ok_and(|found| found.file_type().is_socket())
}

/// The path of a file in a folder, or a short one that leads there.
struct Address {
    path: PathBuf,
    /// The folder, if the path leads through its descriptor.
    _folder: Option<File>,
}

impl Address {
    fn of(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        if path.as_os_str().len() <= LONGEST {
            return Ok(Self { path, _folder: None });
        }
        if cfg!(not(target_os = "linux")) {
            let reason =
                format!("the path of the socket may have {LONGEST} bytes: choose a shorter state directory");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

/// Removes a file or a folder, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_killed_run_is_replaced_and_each_removes_only_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (killed, listener) = SocketFile::create(folder).unwrap();
        drop(listener);
        assert!(connect(folder).is_err() && is_in(folder));
        // Of a run that was killed while it made its socket.
        fs::create_dir(folder.join(NEW)).unwrap();
        fs::write(folder.join(NEW).join(NAME), "").unwrap();
        let (next, _listener) = SocketFile::create(folder).unwrap();
        assert_eq!(fs::metadata(folder.join(NAME)).unwrap().permissions().mode() & 0o777, MODE);
        connect(folder).unwrap();
        drop(killed);
        connect(folder).unwrap();
        drop(next);
        assert!(!is_in(folder));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }

    /// A client waited without end for a process that was halted.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_socket_that_accepts_no_one_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (_file, listener) = SocketFile::create(folder.path()).unwrap();
        // It now keeps the fewest clients waiting.
        rustix::net::listen(&listener, 0).unwrap();
        let clients: Vec<_> = (0..3).map(|_| connect(folder.path())).collect();
        let refused = clients.iter().find_map(|client| client.as_ref().err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(clients);
        while listener.accept().is_ok() {}
        assert!(connect(folder.path()).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_path_may_have_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        let (_file, _listener) = SocketFile::create(&deep).unwrap();
        assert!(is_in(&deep));
        connect(&deep).unwrap();
    }
}
