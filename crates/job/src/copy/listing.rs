//! Lists what a copy would read and write.

use thalweg_files::sources::objects::ObjectsSource;
use thalweg_store::Store;

use super::CopyJob;
use crate::error::LoadError;

/// Receives an object: its name relative to the prefix, its name for people, and its size. Returns false to
/// stop.
type Each<'a> = &'a mut (dyn FnMut(&str, &str, u64) -> bool + Send);

/// Lists the objects of a source.
pub(super) fn list(source: &ObjectsSource, each: Each<'_>) -> Result<(), LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(source.look(&mut |below, object| each(below, &object.name(), object.size())))?;
    Ok(())
}

impl CopyJob<'_> {
    /// Lists what would be copied. `each` receives the name of an object, its target, and its size, and
    /// returns false to stop.
    ///
    /// # Errors
    /// If the source cannot be listed.
    pub fn list(&self, each: &mut (dyn FnMut(&str, String, u64) -> bool + Send)) -> Result<(), LoadError> {
        let (store, path) =
            Store::from_url(&self.endpoints.to).map_err(|error| LoadError::Options(error.to_string()))?;
        let is_folder = path.is_empty() || path.ends_with('/');
        let target =
            |below: &str| store.name(&if is_folder { format!("{path}{below}") } else { path.clone() });
        list(&self.source, &mut |below, name, size| each(name, target(below), size))
    }

    /// Lists the source, the target and the size of each object.
    pub(super) fn targets(&self) -> Result<Vec<(String, String, u64)>, LoadError> {
        let mut targets = Vec::new();
        self.list(&mut |from, to, size| {
            targets.push((from.to_owned(), to, size));
            true
        })?;
        Ok(targets)
    }
}
