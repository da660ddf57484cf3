//! Reads an input from its beginning to its end that does not announce new data: a pipe or a terminal.
//!
//! A read cannot be interrupted, but a source must stop on request. A dedicated thread therefore reads the
//! input in pieces, and looks at a flag before each read: see [`last`]. Pieces that are available at the same
//! time are copied into one buffer. The copy buys large batches when input arrives quickly; when input
//! arrives slowly, each piece is sent at once.

pub(crate) mod last;
mod rest;

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as sync;
use std::time::Duration;

use arrow_buffer::Buffer;
use async_trait::async_trait;
use thalweg_engine::{Error, Source, SourceOutput};
use tokio::sync::mpsc;

use thalweg_codec::decompress::{Compression, Damage, Decoder};
use thalweg_codec::framing::{After, CutOptions, Cutter, StreamPosition};
use thalweg_stream::arenas::Arenas;
use thalweg_stream::cut;
use thalweg_stream::io_error::io_error;

use self::rest::Beginning;

/// The number of bytes to read at once: the capacity of a pipe.
const PIECE_BYTES: usize = 64 << 10;

/// The time between two reads of a non-blocking input that has no data.
const PAUSE: Duration = Duration::from_millis(5);

/// Why the first message after a run that was killed is rejected.
const TORN: &str = "a run that was killed may have read its beginning";

/// Why a message is rejected that is too long to be kept for the next run.
const STOPPED: &str = "the run was asked to stop before the end of this message";

/// The number of pieces that may wait in the channel.
const PIECES: usize = 4;

/// How to read an input.
#[derive(Debug, Clone)]
pub(crate) struct InputOptions {
    /// The compression of the input.
    pub(crate) compression: Compression,
    /// How the input is cut into messages.
    pub(crate) cut: CutOptions,
    /// The name of the input in error messages.
    pub(crate) shown: String,
    /// The path that messages carry as their origin.
    pub(crate) path: Option<Arc<str>>,
    /// The partition of an input that the next run reads on, where this one stopped. Ignored by a run that
    /// keeps no checkpoints: what it has read of a message ends with it.
    pub(crate) partition: Option<&'static str>,
}

/// A source that reads one input from its beginning to its end.
pub(crate) struct Input {
    options: InputOptions,
    arenas: Arenas,
    cutter: Cutter,
    /// The bytes of the message that is not complete yet.
    carry: Vec<u8>,
    /// A piece that did not fit into the buffer, and the index of its first unused byte.
    piece: Option<(Vec<u8>, usize)>,
    pieces: Pieces,
    /// Asks the input to end.
    ends: Arc<AtomicBool>,
    is_stopping: bool,
    /// True until the first message has ended, if a run that was killed may have read its beginning.
    is_torn: bool,
}

enum Pieces {
    /// The input was not read yet.
    Unread(Option<Box<dyn Read + Send>>),
    /// The reading thread sends filled pieces and gets them back for reuse.
    Reading { filled: mpsc::Receiver<io::Result<Vec<u8>>>, used: sync::Sender<Vec<u8>> },
}

/// The result of waiting for input.
enum Filled {
    Bytes(usize),
    End,
    Failed(io::Error),
}

impl Input {
    /// Creates a source for an input. A read ends soon after the flag `ends` is set.
    pub(crate) fn new(
        options: InputOptions,
        batch_bytes: usize,
        input: impl Read + Send + 'static,
        ends: Arc<AtomicBool>,
    ) -> Self {
        let cutter = options.cut.cutter(StreamPosition::default());
        let pieces = Pieces::Unread(Some(Box::new(input)));
        let arenas = Arenas::new(batch_bytes);
        Self {
            options,
            arenas,
            cutter,
            carry: Vec::new(),
            piece: None,
            pieces,
            ends,
            is_stopping: false,
            is_torn: false,
        }
    }

    /// Starts the reading thread at the first call. Returns false if the run was asked to stop before.
    async fn begin(&mut self, out: &SourceOutput) -> Result<bool, Error> {
        let Pieces::Unread(input) = &mut self.pieces else { return Ok(true) };
        let Some(input) = input.take() else { return Ok(true) };
        if !out.keeps_checkpoints() {
            self.options.partition = None;
        }
        if let Some(partition) = self.options.partition {
            match rest::begin(partition, out).await {
                Beginning::Message(rest) => self.carry = rest,
                Beginning::Unknown => self.is_torn = true,
                Beginning::Stopped => return Ok(false),
            }
        }
        let (fill, filled) = mpsc::channel(PIECES);
        let (used, reuse) = sync::channel();
        let compression = self.options.compression;
        let memory = out.share().budget().limit();
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || read_pieces(input, compression, memory, &fill, &reuse))
            .map_err(|error| {
                Error::permanent("cannot start a thread that reads the input").caused_by(error)
            })?;
        self.pieces = Pieces::Reading { filled, used };
        Ok(true)
    }

    /// Sends the messages that end in a buffer.
    async fn send(&mut self, buffer: &Buffer, after: After, out: &mut SourceOutput) -> Result<(), Error> {
        let path = self.options.path.as_ref();
        if self.is_torn {
            self.is_torn = !cut::reject_first(&mut self.cutter, buffer, after, TORN, path, out).await?;
        } else {
            cut::send(&mut self.cutter, buffer, after, path, |_| None, out).await?;
        }
        let done = self.cutter.advance();
        self.carry.clear();
        self.carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
        Ok(())
    }

    /// Ends the input. A message whose rest another run reads is left to it.
    async fn end(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        self.arenas.clear();
        let Some(partition) = self.options.partition else { return Ok(()) };
        let is_whole = !self.is_torn && !self.cutter.is_skipping();
        let mut rest = self.cutter.unfinished_lines();
        rest.extend_from_slice(&self.carry);
        if is_whole && rest.len() <= rest::MOST_KEPT {
            rest::end(partition, &rest, out);
            return Ok(());
        }
        // The next run rejects the rest of this message.
        let path = self.options.path.as_ref();
        cut::reject_rest(&mut self.cutter, &self.carry, STOPPED, path, out).await
    }

    /// Asks the input to end. Bytes that the thread reads until then are still used: they would be lost
    /// otherwise.
    fn stop(&mut self) {
        self.is_stopping = true;
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Waits for bytes, then copies all available pieces that fit into the buffer.
    async fn fill(&mut self, buffer: &mut [u8]) -> Filled {
        let Pieces::Reading { filled, used } = &mut self.pieces else { return Filled::End };
        let mut bytes = 0;
        loop {
            if self.piece.is_none() {
                let next = if bytes == 0 { filled.recv().await } else { filled.try_recv().ok() };
                self.piece = match next {
                    Some(Ok(piece)) => Some((piece, 0)),
                    // The next call meets the end again. An error can only be last, but must not be reported
                    // before the bytes that precede it are used.
                    Some(Err(error)) if bytes == 0 => return Filled::Failed(error),
                    Some(Err(error)) => {
                        let (fill, failed) = mpsc::channel(1);
                        let _ = fill.try_send(Err(error));
                        *filled = failed;
                        return Filled::Bytes(bytes);
                    }
                    None if bytes == 0 => return Filled::End,
                    None => return Filled::Bytes(bytes),
                };
            }
            let Some((piece, from)) = &mut self.piece else { return Filled::Bytes(bytes) };
            let rest = piece.get(*from..).unwrap_or_default();
            let free = buffer.get_mut(bytes..).unwrap_or_default();
            let copied = rest.len().min(free.len());
            if let (Some(free), Some(rest)) = (free.get_mut(..copied), rest.get(..copied)) {
                free.copy_from_slice(rest);
            }
            bytes += copied;
            *from += copied;
            if *from < piece.len() {
                return Filled::Bytes(bytes);
            }
            if let Some((piece, _)) = self.piece.take() {
                // The thread may have ended.
                let _ = used.send(piece);
            }
        }
    }
}

/// A reader that retries when the input is non-blocking. The parent process may have set the input so; that
/// is not an error of the input.
struct Patient<R>(R);

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// Reads until the end of the input, or until the receiver is closed. `memory` is that of the whole process,
/// in bytes.
fn read_pieces(
    input: Box<dyn Read + Send>,
    compression: Compression,
    memory: usize,
    fill: &mpsc::Sender<io::Result<Vec<u8>>>,
    reuse: &sync::Receiver<Vec<u8>>,
) {
    let mut input = Patient(input);
    let mut first = Vec::new();
    let format = loop {
        if let Some(format) = compression.of(&first) {
            break format;
        }
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break None,
            Ok(_) => first.extend_from_slice(&byte),
            Err(error) => {
                let _ = fill.blocking_send(Err(error));
                return;
            }
        }
    };
    let input = io::Cursor::new(first).chain(input);
    let mut input: Box<dyn Read> = match format {
        Some(format) => Box::new(Decoder::new(format, input).within(memory)),
        None => Box::new(input),
    };
    loop {
        let mut piece = reuse.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let message = match input.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => {
                piece.truncate(read);
                Ok(piece)
            }
            Err(error) => Err(error),
        };
        let is_last = message.is_err();
        if fill.blocking_send(message).is_err() || is_last {
            return;
        }
    }
}

#[async_trait]
impl Source for Input {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !self.begin(out).await? {
            return Ok(());
        }
        self.cutter.within(out.share().budget().limit());
        let quiet = self.options.cut.framing.quiet();
        loop {
            let mut memory = self.arenas.take(self.carry.len(), out).await;
            let carried = self.carry.len();
            if let Some(front) = memory.get_mut(..carried) {
                front.copy_from_slice(&self.carry);
            }
            let wait = quiet.filter(|_| carried > 0);
            let came = tokio::select! {
                came = self.fill(memory.get_mut(carried..).unwrap_or_default()) => Some(came),
                () = out.stopping(), if !self.is_stopping => {
                    self.stop();
                    self.arenas.keep(memory);
                    continue;
                }
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => None,
            };
            let is_left = self.is_stopping && self.options.partition.is_some();
            let (read, after) = match &came {
                Some(Filled::Bytes(read)) => (*read, After::More),
                Some(Filled::End) if !is_left => (0, After::End),
                Some(Filled::End | Filled::Failed(_)) => (0, After::More),
                None => (0, After::Quiet),
            };
            let buffer = self.arenas.freeze(memory, carried + read);
            self.send(&buffer, after, out).await?;
            match came {
                // The request to stop has cut the compressed data off.
                Some(Filled::Failed(error))
                    if self.is_stopping && Damage::of(&error).is_some_and(Damage::is_truncation) =>
                {
                    return self.end(out).await;
                }
                Some(Filled::End) => return self.end(out).await,
                Some(Filled::Failed(error)) => {
                    let InputOptions { shown, path, .. } = &self.options;
                    let reason = match Damage::of(&error) {
                        Some(damage) => format!("breaks off in {shown}: {damage}"),
                        None => format!("breaks off: cannot read more of {shown}: {error}"),
                    };
                    cut::reject_rest(&mut self.cutter, &self.carry, &reason, path.as_ref(), out).await?;
                    self.carry.clear();
                    self.arenas.clear();
                    return Err(Error::permanent(match Damage::of(&error) {
                        Some(damage) => {
                            format!(
                                "cannot read {shown} to its end: {damage}. Everything before the damage was read."
                            )
                        }
                        // Never temporary, whatever the cause: the reading thread has ended.
                        None => io_error("read", path.as_deref().unwrap_or("stdin"), &error).full(),
                    }));
                }
                Some(Filled::Bytes(_)) | None => {}
            }
        }
    }
}
