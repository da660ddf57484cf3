use crate::{Error, Options, SparseFile};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Many sparse files, by their ids.
///
/// ```
/// use thalweg_sparse::SparseFileSystem;
///
/// let files = SparseFileSystem::default();
/// files.insert("a.tif", 1.0)?.write(0, b"II*\0")?;
/// assert_eq!(files.get("a.tif")?.read_to_vec(0, 4)?, b"II*\0");
/// assert_eq!((files.len(), files.bytes()), (1, 4));
/// # Ok::<(), thalweg_sparse::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct SparseFileSystem {
    options: Options,
    files: RwLock<HashMap<String, Arc<SparseFile>>>,
}

impl SparseFileSystem {
    /// Creates an empty file system. Its files get `options`, and share one limit if those have a pool.
    pub fn new(options: Options) -> Self {
        Self { options, files: RwLock::default() }
    }

    /// Returns the options of its files.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Adds an empty file; see [`SparseFile::new`].
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a file of this id already.
    pub fn insert(&self, id: impl Into<String>, modified: f64) -> Result<Arc<SparseFile>, Error> {
        let id = id.into();
        let mut files = self.files.write();
        if files.contains_key(&id) {
            return Err(Error::Exists { id });
        }
        let file = Arc::new(SparseFile::with_options(id.as_str(), modified, self.options.clone()));
        files.insert(id, file.clone());
        Ok(file)
    }

    /// Returns the file of this id.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none.
    pub fn get(&self, id: &str) -> Result<Arc<SparseFile>, Error> {
        self.files.read().get(id).cloned().ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    /// Removes a file. It lives on while other handles refer to it.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none.
    pub fn remove(&self, id: &str) -> Result<Arc<SparseFile>, Error> {
        self.files.write().remove(id).ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    /// True if there is a file of this id.
    pub fn has(&self, id: &str) -> bool {
        self.files.read().contains_key(id)
    }

    /// Returns how many files there are.
    pub fn len(&self) -> usize {
        self.files.read().len()
    }

    /// True if there is no file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ids of all files, in no particular order.
    pub fn ids(&self) -> Vec<String> {
        self.files.read().keys().cloned().collect()
    }

    /// Returns how many bytes all files hold.
    pub fn bytes(&self) -> u64 {
        self.files.read().values().map(|file| file.bytes()).sum()
    }

    /// Returns how many blocks all files hold.
    pub fn count_blocks(&self) -> u64 {
        self.files.read().values().map(|file| file.count_blocks()).sum()
    }

    /// Returns the memory that all files take, in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.files.read().values().map(|file| file.heap_bytes()).sum::<usize>()
    }

    /// Calls [`SparseFile::evict_blocks`] for each file. Returns how many bytes were erased.
    pub fn evict_blocks(&self, bound: u64) -> u64 {
        self.files.read().values().map(|file| file.evict_blocks(bound)).sum()
    }
}
