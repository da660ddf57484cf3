//! Lists what a copy would read and write.

use std::io;
use std::pin::pin;
use std::sync::mpsc::{Receiver, sync_channel};

use thalweg_engine::Error;
use thalweg_files::sinks::objects::Finder;
use thalweg_files::sources::objects::ObjectsSource;
use thalweg_store::{Object, Store};
use tokio::runtime::Runtime;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{CopyJob, Existing};
use crate::error::LoadError;
use crate::run::TICK;

/// Receives an object and its name relative to the prefix. Returns false to stop.
type Each<'a> = &'a mut (dyn FnMut(&str, &Object) -> bool + Send);

/// The objects that may be listed before it is known whether the target has them.
const AHEAD: usize = 1000;

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
    wait(async { source.look(each).await.map_err(LoadError::from) }, goes_on)
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
    /// Lists what would be copied: with `existing: skip` or `update`, without the objects that stay. `each`
    /// receives the name of an object, its target, and its size, and returns false to stop. `goes_on` is
    /// called ten times a second, and returns false to stop with an error.
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
        let mut each = |below: &str, object: &Object| each(&object.name(), target(below), object.size());
        if !matches!(self.options.existing, Some(Existing::Skip | Existing::Update)) {
            return list(&self.source, &mut each, goes_on).map(drop);
        }
        let path_of = |below: &str| if is_folder { format!("{path}{below}") } else { path.clone() };
        let (listed, objects) = sync_channel(AHEAD);
        std::thread::scope(|scope| {
            let listing = scope.spawn(move || {
                let mut pass =
                    |below: &str, object: &Object| listed.send((below.to_owned(), object.clone())).is_ok();
                list(&self.source, &mut pass, &mut || true).map(drop)
            });
            let copied = self.each_copied(objects, &store, &path, path_of, &mut each, goes_on);
            let ended = listing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            copied.and(ended)
        })
    }

    /// Calls `each` for the objects that the target does not have, or that replace what it has.
    fn each_copied(
        &self,
        objects: Receiver<(String, Object)>,
        store: &Store,
        prefix: &str,
        path_of: impl Fn(&str) -> String,
        each: Each<'_>,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), LoadError> {
        let (runtime, existing) = (runtime()?, Finder::default());
        for (below, object) in objects {
            if !goes_on() {
                return Err(LoadError::Stopped);
            }
            let found = runtime.block_on(existing.find(store, prefix, &path_of(&below)));
            let found = found.map_err(|error| Error::permanent(error.to_string()))?;
            let stays = found.is_some_and(|found| match self.options.existing {
                Some(Existing::Update) => {
                    let (there, here) = (found.state(), object.state());
                    let is_newer =
                        here.modified.zip(there.modified).is_some_and(|(here, there)| here > there);
                    there.length == here.length && !is_newer
                }
                _ => true,
            });
            if !stays && !each(&below, &object) {
                break;
            }
        }
        Ok(())
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
