//! Copies bytes from the standard input, or to the standard output: `thalweg copy s3://b/x.gz - | head`.
//!
//! A stream has no size, cannot be read twice, and is not resumed. So it takes none of the ways of the other
//! copies, in which parts are read and written in parallel: the bytes go through one after the other. Rows
//! (`--parse`) of a stream go through the engine.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use thalweg_engine::Error;
use thalweg_files::sources::objects::ObjectsSource;
use thalweg_runtime::{blocking, standard_streams};
use thalweg_store::{Object, OnExisting, Store, StoreError, Upload, UploadedPart, Writing, part_size};
use tokio::runtime::Runtime;

use super::endpoints::{is_stream, shown};
use super::{CopyOptions, Existing};
use crate::error::LoadError;
use crate::run::Signals;

/// The preferred size of a part that is written, and the memory that it takes.
const PART: u64 = 8 << 20;
/// The bytes that are read from the standard input at once.
const PIECE: usize = 256 << 10;

/// A copy of bytes with a stream at one end, or at both.
pub struct StreamCopy<'a> {
    options: &'a CopyOptions,
}

/// The result of a stream copy.
#[derive(Debug, Clone, Copy)]
pub struct Streamed {
    /// The bytes that went through.
    pub bytes: u64,
    /// The duration.
    pub elapsed: Duration,
}

impl Streamed {
    /// The summary for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "event": "summary",
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "copy": { "read_bytes": self.bytes, "written_bytes": self.bytes },
        })
    }
}

/// Why a stream copy ended early.
#[derive(Debug)]
pub enum StreamError {
    /// The options are wrong, or an end cannot be read or written.
    Failed(LoadError),
    /// The standard input or output failed. A reader that is gone is [`io::ErrorKind::BrokenPipe`].
    Stream(io::Error),
    /// A signal stopped it.
    Stopped,
}

impl From<LoadError> for StreamError {
    fn from(error: LoadError) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

impl From<StoreError> for StreamError {
    fn from(error: StoreError) -> Self {
        Self::Failed(Error::permanent(error.to_string()).into())
    }
}

impl<'a> StreamCopy<'a> {
    /// Returns the copy, if these options are one.
    ///
    /// # Errors
    /// If other options mean nothing for a stream.
    pub fn of(options: &'a CopyOptions) -> Result<Option<Self>, LoadError> {
        if !is_stream(&options.from) && !is_stream(&options.to) {
            return Ok(None);
        }
        refuse_options(options)?;
        Ok(options.rows.parse.is_none().then_some(Self { options }))
    }

    /// Copies until the end of the input, or a signal.
    ///
    /// # Errors
    /// [`StreamError`]. An object that is not complete is not written.
    pub fn run(&self, mut signals: Signals) -> Result<Streamed, StreamError> {
        self.options.rows.check()?;
        self.check_streams()?;
        let begun = Instant::now();
        let runtime: Runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let copied = runtime.block_on(self.copy(&mut signals));
        // A thread may still wait for input.
        runtime.shutdown_background();
        Ok(Streamed { bytes: copied?, elapsed: begun.elapsed() })
    }

    /// Refuses streams that were closed: the input would be empty, and the output dropped.
    fn check_streams(&self) -> Result<(), StreamError> {
        if is_stream(&self.options.from) {
            standard_streams::input().map_err(|reason| LoadError::Options(reason.to_owned()))?;
        }
        if is_stream(&self.options.to) && standard_streams::was_closed(1) {
            let reason = "the standard output was closed when the program started".to_owned();
            return Err(LoadError::Options(reason).into());
        }
        Ok(())
    }

    async fn copy(&self, signals: &mut Signals) -> Result<u64, StreamError> {
        match (is_stream(&self.options.from), is_stream(&self.options.to)) {
            (true, true) => unless_stopped(signals, through()).await,
            (true, false) => self.upload(signals).await,
            (false, _) => unless_stopped(signals, self.download()).await,
        }
    }

    /// Writes an object to the standard output.
    async fn download(&self) -> Result<u64, StreamError> {
        let source = ObjectsSource::new(&self.options.from, Vec::new(), Vec::new());
        let from = shown(&self.options.from);
        if source.is_many().map_err(LoadError::Options)? {
            let text =
                format!("`{from}` names several objects; name one to write its bytes to the standard output");
            return Err(LoadError::Options(text).into());
        }
        let mut found = None;
        let mut each = |_: &str, object: &Object| {
            found = Some(object.clone());
            false
        };
        source.look(&mut each).await.map_err(LoadError::from)?;
        let object = found.ok_or(LoadError::NothingToCopy(from))?;
        // On a worker: a reader that takes nothing blocks the writing, and a signal must end it all the same.
        let written = tokio::spawn(async move { written_out(&object).await });
        written.await.map_err(io::Error::other)?
    }

    /// Writes the standard input to an object. A small one is written in one request.
    async fn upload(&self, signals: &mut Signals) -> Result<u64, StreamError> {
        let (store, path) =
            Store::from_url(&self.options.to).map_err(|error| LoadError::Options(error.to_string()))?;
        if path.is_empty() || path.ends_with('/') {
            let to = shown(&self.options.to);
            return Err(LoadError::Options(format!(
                "the standard input has no name: `{to}` must name an object"
            ))
            .into());
        }
        let writing = self.writing();
        let limits = store.limits();
        let size = |number| part_size(PART, None, number, &limits);
        let first = unless_stopped(signals, next_part(size(1))).await?;
        if (first.len() as u64) < size(1) {
            let length = first.len() as u64;
            store.put(&path, Bytes::from(first), &writing).await?;
            return Ok(length);
        }
        let upload = store.begin(&path, &writing).await?;
        match unless_stopped(signals, parts(&upload, first, &size)).await {
            Ok(parts) => {
                upload.complete(&parts).await?;
                Ok(parts.iter().map(|part| part.size).sum())
            }
            Err(error) => {
                // The first error says why; the store removes what is left of an upload in time.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    fn writing(&self) -> Writing {
        let on_existing = match self.options.existing {
            Some(Existing::Error) => OnExisting::Keep,
            _ => OnExisting::Replace,
        };
        Writing {
            content_type: self.options.content_type.clone(),
            on_existing,
            once: true,
            ..Writing::default()
        }
    }
}

/// Waits for a step of a copy, or for a signal.
async fn unless_stopped<T, E: Into<StreamError>>(
    signals: &mut Signals,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, StreamError> {
    tokio::select! {
        done = step => done.map_err(Into::into),
        _ = signals.next() => Err(StreamError::Stopped),
    }
}

/// Copies the standard input to the standard output.
async fn through() -> io::Result<u64> {
    let copy = || io::copy(&mut io::stdin().lock(), &mut io::stdout());
    tokio::task::spawn_blocking(copy).await.map_err(io::Error::other)?
}

/// Sends parts until the end of the standard input.
async fn parts(
    upload: &Upload,
    first: Vec<u8>,
    size: &impl Fn(u32) -> u64,
) -> Result<Vec<UploadedPart>, StreamError> {
    let (mut parts, mut offset, mut part) = (Vec::new(), 0, first);
    while !part.is_empty() {
        let number = parts.len() as u32 + 1;
        let length = part.len() as u64;
        // The next part is read meanwhile.
        let sending = upload.part(number, offset, Bytes::from(part));
        let (sent, next) = tokio::join!(sending, next_part(size(number + 1)));
        parts.push(sent?.part);
        (part, offset) = (next?, offset + length);
    }
    Ok(parts)
}

/// Reads a part of the standard input. It is smaller than `size` only at the end.
async fn next_part(size: u64) -> io::Result<Vec<u8>> {
    let read = move || {
        let mut part = Vec::with_capacity(PIECE);
        io::stdin().lock().take(size).read_to_end(&mut part).map(|_| part)
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// Writes an object to the standard output. Returns its size.
async fn written_out(object: &Object) -> Result<u64, StreamError> {
    let mut written = 0_u64;
    let failure = Arc::new(parking_lot::Mutex::new(None));
    let failed = failure.clone();
    let mut take = |position: u64, bytes: &[u8]| {
        // After a broken connection, bytes may come again. They are those of the same state of the object.
        let known = usize::try_from(written.saturating_sub(position)).unwrap_or(usize::MAX);
        let new = bytes.get(known..).unwrap_or_default();
        blocking(|| io::stdout().write_all(new)).map_err(|error| {
            let kind = error.kind();
            *failed.lock() = Some(error);
            io::Error::from(kind)
        })?;
        written += new.len() as u64;
        Ok(())
    };
    let streamed = object.stream(0..object.size(), &mut take).await;
    if let Some(error) = failure.lock().take() {
        return Err(error.into());
    }
    streamed?;
    io::stdout().flush()?;
    Ok(object.size())
}

/// Finds options that mean nothing for a stream.
fn refuse_options(options: &CopyOptions) -> Result<(), LoadError> {
    let (from, to) = (is_stream(&options.from), is_stream(&options.to));
    let of_input = [
        ("--include", !options.include.is_empty()),
        ("--exclude", !options.exclude.is_empty()),
        ("--symlinks", options.symlinks.is_some()),
        ("--slice-size", options.pace.slice_size.is_some()),
        ("--readers", options.pace.readers.is_some()),
        ("--dry-run", options.dry_run),
    ];
    let of_output = [
        ("--content-type", options.content_type.is_some()),
        ("--existing", options.existing.is_some()),
        ("--part-size", options.pace.part_size.is_some()),
        ("--writers", options.pace.writers.is_some()),
        ("--dry-run", options.dry_run),
    ];
    let of_both = [("--state", options.state.state.is_some()), ("--restart", options.state.restart)];
    let given = of_input.into_iter().filter(|_| from).chain(of_output.into_iter().filter(|_| to));
    if let Some((option, _)) = given.chain(of_both).find(|(_, is_given)| *is_given) {
        return Err(LoadError::Options(format!(
            "`{option}` cannot be used with `-`: a stream has no objects and no state"
        )));
    }
    if from && matches!(options.existing, Some(Existing::Update | Existing::Skip)) {
        let text =
            "`--existing` can be `replace` or `error` for the standard input, which has no time and no size";
        return Err(LoadError::Options(text.to_owned()));
    }
    if to && options.rows.parse.is_some() && options.rows.written() == super::Encode::Parquet {
        let text = "Parquet cannot be written to the standard output: name an object, such as `out.parquet`";
        return Err(LoadError::Options(text.to_owned()));
    }
    Ok(())
}
