//! Lists what a copy would read and write.

use std::io;
use std::pin::pin;

use thalweg_files::sources::objects::ObjectsSource;
use thalweg_store::{Object, Store};
use tokio::runtime::Runtime;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::CopyJob;
use crate::error::LoadError;
use crate::run::TICK;

/// Receives an object: its name relative to the prefix, its name for people, and its size. Returns false to
/// stop.
type Each<'a> = &'a mut (dyn FnMut(&str, &str, u64) -> bool + Send);

/// Returns a runtime for what happens before the run.
fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Lists the objects of a source. Returns the first link that it skips. See [`wait`] for `goes_on`.
pub(super) fn list(
    source: &ObjectsSource,
    each: Each<'_>,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<String>, LoadError> {
    let mut each = |below: &str, object: &Object| each(below, &object.name(), object.size());
    wait(async { source.look(&mut each).await.map_err(LoadError::from) }, goes_on)
}

/// Waits for requests before the run. `goes_on` is called at each tick, also while the store does not answer,
/// and returns false to stop.
pub(super) fn wait<T>(
    work: impl Future<Output = Result<T, LoadError>>,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<T, LoadError> {
    runtime()?.block_on(async {
        let mut work = pin!(work);
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => if !goes_on() {
                    return Err(LoadError::Stopped);
                },
            }
        }
    })
}

impl CopyJob<'_> {
    /// Lists what would be copied. `each` receives the name of an object, its target, and its size, and
    /// returns false to stop. `goes_on` is called ten times a second, and returns false to stop with an
    /// error.
    ///
    /// # Errors
    /// If the source cannot be listed, or `goes_on` returned false.
    pub fn list(
        &self,
        each: &mut (dyn FnMut(&str, String, u64) -> bool + Send),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), LoadError> {
        let (store, path) =
            Store::from_url(&self.endpoints.to).map_err(|error| LoadError::Options(error.to_string()))?;
        let is_folder = path.is_empty() || path.ends_with('/');
        let target =
            |below: &str| store.name(&if is_folder { format!("{path}{below}") } else { path.clone() });
        list(&self.source, &mut |below, name, size| each(name, target(below), size), goes_on).map(drop)
    }

    /// Lists the source, the target and the size of each object.
    pub(super) fn targets(
        &self,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<(String, String, u64)>, LoadError> {
        let mut targets = Vec::new();
        let mut each = |from: &str, to: String, size: u64| {
            targets.push((from.to_owned(), to, size));
            true
        };
        self.list(&mut each, goes_on)?;
        Ok(targets)
    }
}
