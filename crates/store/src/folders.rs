//! The folders of a WebDAV server, listed one after the other.
//!
//! A server decides what its folders contain. Each folder that it lists must be directly in the folder that
//! was asked for, and have a name of its own. So no folder is listed twice, and the bounds on the depth and
//! on what waits end folders that nest for ever. (OpenDAL's recursive lister was rejected: it follows any
//! path that a server gives, also back to the same folder, and holds all entries of all folders above.)

use crate::StoreError;

/// The maximum number of folders in each other, below the one that is listed.
const DEEPEST: usize = 128;
/// The maximum length of all names of folders that wait to be listed.
const MOST_WAITING: usize = 16 << 20;

/// The folders that are to be listed.
pub(crate) struct Folders {
    /// The folder that the listing began with.
    first: String,
    /// The next folder is the last.
    waiting: Vec<String>,
    /// The folders found in the present one.
    found: Vec<String>,
    /// The length of the names of both.
    bytes: usize,
}

impl Folders {
    /// Starts at the folder of a prefix.
    pub(crate) fn of(prefix: &str) -> Self {
        let first = prefix.rfind('/').map_or("/", |end| prefix.get(..=end).unwrap_or_default()).to_owned();
        Self { bytes: first.len(), waiting: vec![first.clone()], found: Vec::new(), first }
    }

    /// Returns the folder to list now, or `None` at the end.
    pub(crate) fn present(&self) -> Option<&str> {
        self.waiting.last().map(String::as_str)
    }

    /// Continues with the folders in the present one, then with those beside it.
    pub(crate) fn done(&mut self) {
        self.bytes -= self.waiting.pop().map_or(0, |folder| folder.len());
        let all: usize = self.found.iter().map(String::len).sum();
        self.found.sort_unstable();
        self.found.dedup();
        self.bytes -= all - self.found.iter().map(String::len).sum::<usize>();
        self.waiting.extend(self.found.drain(..).rev());
    }

    /// Forgets what was found in the present folder. It is listed again.
    pub(crate) fn again(&mut self) {
        self.bytes -= self.found.drain(..).map(|folder| folder.len()).sum::<usize>();
    }

    /// Returns why a path cannot be an entry of the present folder.
    pub(crate) fn wrong(&self, path: &str) -> Option<String> {
        let folder = self.present()?;
        let name = match folder {
            "/" => Some(path),
            folder => path.strip_prefix(folder),
        };
        let name = name.map(|name| name.strip_suffix('/').unwrap_or(name));
        match name {
            Some("" | "." | "..") | None => {}
            Some(name) if name.contains('/') => {}
            Some(_) => return None,
        }
        Some(format!("the server lists it in `{folder}`, where no entry can have this path"))
    }

    /// Adds a folder that was found in the present one. Returns why it will not be listed, if it will not.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if too many folders wait. `name` is the name of the listing.
    pub(crate) fn add(&mut self, path: &str, name: &str) -> Result<Option<String>, StoreError> {
        let depth = |path: &str| path.matches('/').count();
        if depth(path) > depth(&self.first) + DEEPEST {
            return Ok(Some(format!("more than {DEEPEST} folders are in each other")));
        }
        if self.bytes + path.len() > MOST_WAITING {
            return Err(StoreError::Failed {
                name: name.to_owned(),
                what: "listing it".to_owned(),
                attempts: 1,
                why: format!(
                    "the names of its folders have more than {} MiB; list fewer folders at once",
                    MOST_WAITING >> 20
                ),
                is_temporary: false,
            });
        }
        self.bytes += path.len();
        self.found.push(path.to_owned());
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_contains_only_what_is_directly_in_it() {
        let mut folders = Folders::of("d/");
        for path in ["d/", "d//", "d/./", "d/..", "d/../", "d/x/../", "d/x/y", "e/x", "http://h/d/x", ""] {
            assert!(folders.wrong(path).is_some(), "{path}");
        }
        for path in ["d/x", "d/x/", "d/ä..", "d/.x/"] {
            assert_eq!(folders.wrong(path), None, "{path}");
        }
        for found in ["d/b/", "d/a/", "d/b/"] {
            assert_eq!(folders.add(found, "n").unwrap(), None);
        }
        folders.done();
        let mut listed = Vec::new();
        while let Some(folder) = folders.present() {
            listed.push(folder.to_owned());
            if folder == "d/a/" {
                folders.add("d/a/c/", "n").unwrap();
            }
            folders.done();
        }
        assert_eq!((listed.join(" "), folders.bytes), ("d/a/ d/a/c/ d/b/".to_owned(), 0));
    }

    #[test]
    fn neither_depth_nor_number_of_folders_is_unbounded() {
        let mut folders = Folders::of("d/");
        let mut path = "d/".to_owned();
        let why = loop {
            path += "sub/";
            if let Some(why) = folders.add(&path, "n").unwrap() {
                break why;
            }
            folders.done();
        };
        assert_eq!(why, "more than 128 folders are in each other");
        let mut folders = Folders::of("");
        assert_eq!(folders.present(), Some("/"));
        let error = (0..).find_map(|at| folders.add(&format!("{at:0>1000}/"), "webdav://h/").err()).unwrap();
        assert_eq!(
            error.to_string(),
            "`webdav://h/`: listing it failed: the names of its folders have more than 16 MiB; list fewer folders at once"
        );
        folders.again();
        assert_eq!(folders.bytes, 1);
    }
}
