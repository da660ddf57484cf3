//! A table that is read again when its file changes.
//!
//! All workers share it. The worker whose batch comes when it is time looks at the file, and reads it if it
//! has changed; the others continue with the former table. A thread that looks was rejected: it would outlive
//! the run, or the run would wait for it.
//!
//! A changed file is read at the second look that finds it the same: at the first one, a program may be
//! writing it, and the half of a table is a table too. One that was modified long ago is read at the first
//! look: if messages are rare, the second may come much later.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thalweg_record::{FileState, Share};

use super::file;
use super::source::Source;
use super::table::Table;
use super::unusable::Unusable;

/// A file that was modified longer ago is complete, if looks follow each other faster.
const COMPLETE: Duration = Duration::from_secs(5);

/// A table, and what is needed to read it again.
pub(super) struct Watched {
    source: Source,
    /// The name of the transform, for the log.
    name: String,
    every: Duration,
    memory: Share,
    current: Mutex<Arc<Table>>,
    looking: Mutex<Looking>,
}

/// The states of the file, and when to look again.
struct Looking {
    /// The file whose table is in use, or cannot be used.
    read: Option<FileState>,
    /// The file at the last look.
    seen: Option<FileState>,
    /// The file of the last warning.
    warned: Option<Option<FileState>>,
    due: Instant,
}

impl Watched {
    /// Reads the table.
    pub(super) fn open(
        source: Source,
        name: &str,
        every: Duration,
        memory: &Share,
    ) -> Result<Self, Unusable> {
        let (table, state) = source.read(memory)?;
        let looking = Looking { read: Some(state), seen: Some(state), warned: None, due: after(every) };
        Ok(Self {
            source,
            name: name.to_owned(),
            every,
            memory: memory.clone(),
            current: Mutex::new(Arc::new(table)),
            looking: Mutex::new(looking),
        })
    }

    /// Returns the table, read again if it is time and the file has changed.
    pub(super) fn table(&self) -> Arc<Table> {
        if let Ok(mut looking) = self.looking.try_lock()
            && looking.due <= Instant::now()
        {
            self.look(&mut looking);
        }
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self, looking: &mut Looking) {
        let now = file::state_at(&self.source.path);
        let is_old = now.is_some_and(|state| state.is_older_than(self.every.max(COMPLETE)));
        let is_settled = std::mem::replace(&mut looking.seen, now) == now || is_old;
        if is_settled && now != looking.read {
            match self.source.read(&self.memory) {
                Ok((table, state)) => {
                    (looking.read, looking.warned) = (Some(state), None);
                    *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
                    tracing::info!(
                        "`{}`: read `{}`, which has changed",
                        self.name,
                        self.source.path.display()
                    );
                }
                Err(unusable) => {
                    if !unusable.may_pass() {
                        looking.read = now;
                    }
                    // It is read when it is complete.
                    if !unusable.is_changing() && looking.warned.replace(now) != Some(now) {
                        tracing::warn!("`{}`: {unusable} The former table stays in use.", self.name);
                    }
                }
            }
        }
        looking.due = after(self.every);
    }
}

/// Returns a time in the future. One beyond what clocks count never comes.
fn after(every: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(every.min(FAR)).unwrap_or(now)
}
