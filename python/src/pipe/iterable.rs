//! An iterable as a source.
//!
//! A thread of its own asks the iterable for items, because an item may take any time. Meanwhile the source
//! sends what came before. Messages wait [`LONGEST`] for others, so that a slow iterable does not make a
//! batch for each message, and at most that long, so that it keeps nothing back. All items come from the one
//! thread: a generator may use objects that belong to a thread, such as a connection of `sqlite3`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use async_trait::async_trait;
use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple};
use thalweg_engine::{Context, Error, Reading, Source, SourceConfig, SourceOutput};
use thalweg_record::{Arena, ViewBuilder};
use thalweg_stream::arenas::Arenas;
use tokio::sync::Notify;

use super::capsules;
use super::objects::{Cause, Object, bridged};
use super::source::send_rows;
use crate::attach::attach;
use crate::buffer::Buffer as Bytes;

/// The maximum number of messages in a batch.
const MOST_ROWS: usize = 32 << 10;
/// The longest time that a message waits for others of its batch.
const LONGEST: Duration = Duration::from_millis(20);

/// The number of steps without a message after which other threads get the interpreter lock.
const EMPTY: usize = 1 << 10;
/// The maximum depth of lists in lists. A list that contains itself has no end.
const DEEPEST: usize = 64;

/// An iterable as a source.
pub struct IterableObject {
    /// The iterable.
    pub object: Object,
    /// Records the exceptions that the iterable raises.
    pub cause: Cause,
}

impl SourceConfig for IterableObject {
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Iterating {
            object: self.object.clone(),
            cause: self.cause.clone(),
            arenas: Arenas::new(context.batch_bytes),
        }))
    }
}

struct Iterating {
    object: Object,
    cause: Cause,
    arenas: Arenas,
}

#[async_trait]
impl Source for Iterating {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let shared = Asking(Arc::default());
        shared.0.begin(self.object.clone())?;
        let mut large = 0;
        loop {
            let arena = self.arenas.take(large, out).await;
            let batch = shared.0.collected(arena, out).await;
            large = batch.large;
            self.send(batch.arena, &batch.ends, batch.dicts, out).await?;
            match batch.end {
                None => {}
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => return Err(self.cause.permanent(error)),
            }
        }
    }
}

impl Iterating {
    async fn send(
        &mut self,
        arena: Option<Arena>,
        ends: &[usize],
        dicts: Vec<Py<PyAny>>,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        if let (Some(arena), Some(&filled)) = (arena, ends.last()) {
            let buffer = self.arenas.freeze(arena, filled);
            return out.send(payloads(buffer, ends)).await;
        }
        // A task that waits for the budget must not hold any of it: the arena is dropped here.
        if dicts.is_empty() {
            return Ok(());
        }
        let rows = bridged("rows", |py, rows| capsules::batch(&rows.call1((PyList::new(py, dicts)?,))?));
        send_rows(out, &rows.map_err(|error| self.cause.permanent(error))?).await
    }
}

fn payloads(buffer: Buffer, ends: &[usize]) -> Reading {
    let mut views = ViewBuilder::over(&[buffer], ends.len());
    let mut start = 0;
    for &end in ends {
        views.push_range(0, start, end - start);
        start = end;
    }
    Reading { payload: views.finish(), path: None, positions: None, checkpoint: None }
}

/// The messages of a batch: payloads or rows, never both.
#[derive(Default)]
struct Collected {
    /// Memory for payloads. `None` while the source sends: then nothing may be added.
    arena: Option<Arena>,
    /// The offsets in the arena where each payload ends.
    ends: Vec<usize>,
    dicts: Vec<Py<PyAny>>,
    /// When the first message came.
    since: Option<Instant>,
    /// True if the next message does not belong into this batch.
    is_complete: bool,
    /// The length of the next payload if it is larger than a whole arena.
    large: usize,
    /// The end of the iterable, or its exception.
    end: Option<PyResult<()>>,
    /// True if the iterable is not asked any more. An item that it has given already is still sent.
    is_stopping: bool,
    /// True if the source has ended, so that nothing is sent any more.
    is_over: bool,
}

impl Collected {
    /// Adds a message. Returns false if it belongs into the next batch.
    fn add(&mut self, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(arena) = self.arena.as_mut().filter(|_| !self.is_complete) else { return Ok(false) };
        if item.is_instance_of::<PyDict>() {
            if !self.ends.is_empty() {
                return Ok(false);
            }
            self.dicts.push(item.clone().unbind());
            return Ok(true);
        }
        if !self.dicts.is_empty() {
            return Ok(false);
        }
        let filled = self.ends.last().copied().unwrap_or_default();
        match copy(item, arena.get_mut(filled..).unwrap_or_default())? {
            Ok(length) => self.ends.push(filled + length),
            Err(length) => {
                self.large = if self.ends.is_empty() { length } else { 0 };
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rows(&self) -> usize {
        self.ends.len() + self.dicts.len()
    }
}

/// The state of the source and of its thread. The thread locks it with the interpreter lock held, so the
/// source must not ask for that lock meanwhile.
#[derive(Default)]
struct Shared {
    batch: Mutex<Collected>,
    /// Signals the thread that there is room for messages.
    room: Condvar,
    /// Signals the source that a batch begins, or is complete.
    news: Notify,
}

/// Ends the thread when the source has ended.
struct Asking(Arc<Shared>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.batch.lock().is_over = true;
        self.0.room.notify_all();
    }
}

impl Shared {
    fn begin(self: &Arc<Self>, object: Object) -> Result<(), Error> {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("thalweg-iterable".to_owned());
        let thread = thread.spawn(move || {
            let ended = || Err(crate::errors::Error::new_err("the interpreter has ended"));
            let end = attach(|py| shared.ask(py, &object)).unwrap_or_else(ended);
            shared.batch.lock().end = Some(end);
            shared.news.notify_one();
        });
        thread.map(drop).map_err(|error| Error::temporary(format!("a thread cannot be started: {error}")))
    }

    /// Asks the iterable for all items.
    fn ask(&self, py: Python<'_>, object: &Object) -> PyResult<()> {
        let mut items = Items(vec![object.bind(py).try_iter()?]);
        let goes_on = || {
            // Between two messages no code releases the interpreter lock: the iterator may be compiled.
            py.detach(std::thread::yield_now);
            let batch = self.batch.lock();
            !batch.is_stopping && !batch.is_over
        };
        while let Some(item) = items.next(goes_on)? {
            if !self.put(py, &item)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds a message, when there is room for it. Returns false if no more messages are wanted.
    fn put(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        loop {
            {
                let mut batch = self.batch.lock();
                if batch.add(item)? {
                    if batch.rows() >= MOST_ROWS {
                        batch.is_complete = true;
                    }
                    if batch.rows() == 1 {
                        batch.since = Some(Instant::now());
                    }
                    if batch.is_complete || batch.rows() == 1 {
                        self.news.notify_one();
                    }
                    return Ok(!batch.is_stopping);
                }
                batch.is_complete = true;
            }
            self.news.notify_one();
            let goes_on = py.detach(|| {
                let mut batch = self.batch.lock();
                while batch.is_complete && !batch.is_over {
                    self.room.wait(&mut batch);
                }
                !batch.is_complete
            });
            if !goes_on {
                return Ok(false);
            }
        }
    }

    /// Lets the thread fill an arena. Returns the messages when they make a batch, when the first one has
    /// waited long enough, or at the end.
    async fn collected(&self, arena: Arena, out: &SourceOutput) -> Collected {
        {
            let mut batch = self.batch.lock();
            batch.arena = Some(arena);
            batch.is_complete = false;
        }
        self.room.notify_all();
        loop {
            let due = {
                let mut batch = self.batch.lock();
                let due = batch.since.map(|since| since + LONGEST);
                let is_due = due.is_some_and(|due| due <= Instant::now());
                if batch.end.is_some() || batch.is_complete || is_due {
                    let (is_stopping, end) = (batch.is_stopping, batch.end.take());
                    let taken = std::mem::take(&mut *batch);
                    // Until the next arena comes.
                    batch.is_complete = true;
                    batch.is_stopping = is_stopping;
                    return Collected { end, ..taken };
                }
                due
            };
            tokio::select! {
                () = self.news.notified() => {}
                () = until(due) => {}
                () = out.stopping(), if !self.batch.lock().is_stopping => self.batch.lock().is_stopping = true,
            }
        }
    }
}

/// Waits until a time; for ever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// The items of an iterable. Lists and tuples among them are flattened.
struct Items<'py>(Vec<Bound<'py, PyIterator>>);

impl<'py> Items<'py> {
    /// Returns the next item that is not a list. `goes_on` is called every [`EMPTY`] steps without one. If it
    /// returns false, there are no more items.
    fn next(&mut self, goes_on: impl Fn() -> bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut steps: usize = 0;
        while let Some(iterator) = self.0.last_mut() {
            steps += 1;
            if steps.is_multiple_of(EMPTY) && !goes_on() {
                return Ok(None);
            }
            match iterator.next().transpose()? {
                Some(list) if list.is_instance_of::<PyList>() || list.is_instance_of::<PyTuple>() => {
                    if self.0.len() > DEEPEST {
                        return Err(PyValueError::new_err(format!(
                            "lists of messages are nested more than {DEEPEST} deep: one may contain itself"
                        )));
                    }
                    self.0.push(list.try_iter()?);
                }
                Some(item) => return Ok(Some(item)),
                None => drop(self.0.pop()),
            }
        }
        Ok(None)
    }
}

/// Copies the bytes of an item if they fit. Returns their number either way: `Ok` if they were copied.
fn copy(item: &Bound<'_, PyAny>, into: &mut [u8]) -> PyResult<Result<usize, usize>> {
    let mut put = |bytes: &[u8]| match into.get_mut(..bytes.len()) {
        Some(free) => {
            free.copy_from_slice(bytes);
            Ok(bytes.len())
        }
        None => Err(bytes.len()),
    };
    if let Ok(text) = item.cast::<PyString>() {
        return Ok(put(text.encode_utf8()?.as_bytes()));
    }
    match Bytes::readable(item) {
        Ok(buffer) => Ok(put(buffer.bytes())),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a message is bytes, text or a dict of fields, not {}",
            item.get_type().name()?
        ))),
    }
}
