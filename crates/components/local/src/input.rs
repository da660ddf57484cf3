//! An input that is read from its beginning to its end and does not say when there is more: a pipe, a terminal.
//!
//! A read of a pipe cannot be interrupted, and a source must stop when it is told to. So a thread of its own
//! reads, in pieces as they come; it is left behind when the run stops, since a thread that waits for input
//! does not keep a process from ending. Pieces that are there already are put together in one buffer, which
//! costs a copy and makes large batches when input comes fast; when it trickles, each piece goes on at once.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::mpsc as sync;
use std::time::Duration;

use async_trait::async_trait;
use thalweg_config::ByteSize;
use thalweg_engine::{Error, Source, SourceOutput};
use tokio::sync::mpsc;

use thalweg_codec::decompress::{Compression, Damage, Decoder};
use thalweg_codec::framing::{After, Cutter, Framing, StreamPosition};
use thalweg_stream::arenas::Arenas;
use thalweg_stream::cut;
use thalweg_stream::io_error::io_error;

/// How much is read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

/// How long to wait for more where the input does not wait itself.
const PAUSE: Duration = Duration::from_millis(5);

/// How many pieces may wait.
const PIECES: usize = 4;

/// How an input is read.
#[derive(Debug, Clone)]
pub(crate) struct InputOptions {
    /// How it is compressed.
    pub(crate) compression: Compression,
    /// How it is cut.
    pub(crate) framing: Framing,
    /// The longest that a message may be.
    pub(crate) max_message_bytes: ByteSize,
    /// What it is called in sentences.
    pub(crate) shown: String,
    /// What messages say that they come from.
    pub(crate) path: Option<Arc<str>>,
}

/// A source that reads one input from its beginning to its end.
pub(crate) struct Input {
    manner: InputOptions,
    arenas: Arenas,
    cutter: Cutter,
    /// What was read of the message that is not complete.
    carry: Vec<u8>,
    /// A piece of which only what follows this place was not used: the buffer was full.
    piece: Option<(Vec<u8>, usize)>,
    pieces: Pieces,
    is_stopping: bool,
}

enum Pieces {
    /// Nothing was read yet.
    Unread(Option<Box<dyn Read + Send>>),
    /// A thread reads. It gives the pieces, and gets them back to be filled again.
    Reading { filled: mpsc::Receiver<io::Result<Vec<u8>>>, used: sync::Sender<Vec<u8>> },
}

/// What came next.
enum Came {
    Bytes(usize),
    End,
    Failed(io::Error),
}

impl Input {
    /// Of something that may wait in a read for any time.
    pub(crate) fn new(manner: InputOptions, batch_bytes: usize, input: impl Read + Send + 'static) -> Self {
        let cutter = Cutter::new(&manner.framing, manner.max_message_bytes, StreamPosition::default());
        let pieces = Pieces::Unread(Some(Box::new(input)));
        let arenas = Arenas::new(batch_bytes);
        Self { manner, arenas, cutter, carry: Vec::new(), piece: None, pieces, is_stopping: false }
    }

    /// Starts the thread that reads, once.
    fn begin(&mut self) -> Result<(), Error> {
        let Pieces::Unread(input) = &mut self.pieces else { return Ok(()) };
        let Some(input) = input.take() else { return Ok(()) };
        let (fill, filled) = mpsc::channel(PIECES);
        let (used, reuse) = sync::channel();
        let compression = self.manner.compression;
        std::thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || read_pieces(input, compression, &fill, &reuse))
            .map_err(|error| {
                Error::permanent("cannot start a thread that reads the input").caused_by(error)
            })?;
        self.pieces = Pieces::Reading { filled, used };
        Ok(())
    }

    /// Takes no more from the thread than what it has read already, which would be lost.
    fn stop(&mut self) {
        self.is_stopping = true;
        if let Pieces::Reading { filled, .. } = &mut self.pieces {
            filled.close();
        }
    }

    /// Waits for bytes, then takes all that are there, as far as they fit.
    async fn fill(&mut self, buffer: &mut [u8]) -> Came {
        let Pieces::Reading { filled, used } = &mut self.pieces else { return Came::End };
        let mut bytes = 0;
        loop {
            if self.piece.is_none() {
                let next = if bytes == 0 { filled.recv().await } else { filled.try_recv().ok() };
                self.piece = match next {
                    Some(Ok(piece)) => Some((piece, 0)),
                    // An end is met again by the next call, and an error can come only last; but it must not
                    // be taken before what came before it was used.
                    Some(Err(error)) if bytes == 0 => return Came::Failed(error),
                    Some(Err(error)) => {
                        let (fill, failed) = mpsc::channel(1);
                        let _ = fill.try_send(Err(error));
                        *filled = failed;
                        return Came::Bytes(bytes);
                    }
                    None if bytes == 0 => return Came::End,
                    None => return Came::Bytes(bytes),
                };
            }
            let Some((piece, from)) = &mut self.piece else { return Came::Bytes(bytes) };
            let rest = piece.get(*from..).unwrap_or_default();
            let free = buffer.get_mut(bytes..).unwrap_or_default();
            let copied = rest.len().min(free.len());
            if let (Some(free), Some(rest)) = (free.get_mut(..copied), rest.get(..copied)) {
                free.copy_from_slice(rest);
            }
            bytes += copied;
            *from += copied;
            if *from < piece.len() {
                return Came::Bytes(bytes);
            }
            if let Some((piece, _)) = self.piece.take() {
                // The thread may have ended.
                let _ = used.send(piece);
            }
        }
    }
}

/// Reads what whoever started the program may have set not to wait for input, which is no error of the input.
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

/// Reads to the end, or until nobody listens.
fn read_pieces(
    input: Box<dyn Read + Send>,
    compression: Compression,
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
        Some(format) => Box::new(Decoder::new(format, input)),
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
        self.begin()?;
        let quiet = self.manner.framing.quiet();
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
            let (read, after) = match &came {
                Some(Came::Bytes(read)) => (*read, After::More),
                Some(Came::End) => (0, After::End),
                Some(Came::Failed(_)) => (0, After::More),
                None => (0, After::Quiet),
            };
            self.carry.clear();
            let filled = carried + read;
            let buffer = self.arenas.freeze(memory, filled);
            cut::send(&mut self.cutter, &buffer, after, self.manner.path.as_ref(), |_| None, out).await?;
            let done = self.cutter.advance();
            self.carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
            match came {
                Some(Came::End) => {
                    self.arenas.clear();
                    return Ok(());
                }
                Some(Came::Failed(error)) => {
                    let InputOptions { shown, path, .. } = &self.manner;
                    let reason = match Damage::of(&error) {
                        Some(damage) => format!("breaks off: of {shown}, {damage}"),
                        None => format!("breaks off: {shown} cannot be read on: {error}"),
                    };
                    cut::reject_rest(&self.cutter, &self.carry, &reason, path.as_ref(), out).await?;
                    self.carry.clear();
                    self.arenas.clear();
                    return Err(Error::permanent(match Damage::of(&error) {
                        Some(damage) => {
                            format!("cannot read {shown} to its end: {damage}. What comes before was read.")
                        }
                        // Not temporary, whatever it is: the thread that read has ended.
                        None => io_error("read", path.as_deref().unwrap_or("stdin"), &error).full(),
                    }));
                }
                Some(Came::Bytes(_)) | None => {}
            }
        }
    }
}
