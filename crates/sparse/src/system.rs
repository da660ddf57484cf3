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
    /// An empty one, whose files are kept as `options` say: under one limit, if that has a pool.
    pub fn new(options: Options) -> Self {
        Self { options, files: RwLock::default() }
    }

    /// How its files are kept.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Adds an empty file; see [`SparseFile::new`].
    ///
    /// # Errors
    /// [`Error::Exists`] if there is one of this id.
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

    /// The file of this id.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none.
    pub fn get(&self, id: &str) -> Result<Arc<SparseFile>, Error> {
        self.files.read().get(id).cloned().ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    /// Takes a file out. It lives on while others hold it.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none.
    pub fn remove(&self, id: &str) -> Result<Arc<SparseFile>, Error> {
        self.files.write().remove(id).ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    /// Whether there is a file of this id.
    pub fn has(&self, id: &str) -> bool {
        self.files.read().contains_key(id)
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ids of all files, in no order.
    pub fn ids(&self) -> Vec<String> {
        self.files.read().keys().cloned().collect()
    }

    /// How many bytes all files hold.
    pub fn bytes(&self) -> u64 {
        self.files.read().values().map(|file| file.bytes()).sum()
    }

    /// How many blocks all files hold.
    pub fn count_blocks(&self) -> u64 {
        self.files.read().values().map(|file| file.count_blocks()).sum()
    }

    /// The memory that all files take, in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.files.read().values().map(|file| file.heap_bytes()).sum::<usize>()
    }

    /// [`SparseFile::evict_blocks`] for each file by itself; says how many bytes went.
    pub fn evict_blocks(&self, bound: u64) -> u64 {
        self.files.read().values().map(|file| file.evict_blocks(bound)).sum()
    }
}
