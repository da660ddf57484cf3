//! `stdin`: messages from the standard input.
//!
//! A read of a pipe cannot be interrupted, and a source must stop when it is told to. So a thread of its own
//! reads, in pieces as they come; it is left behind when the run stops, since a thread that waits for input
//! does not keep a process from ending. Pieces that are there already are put together in one buffer, which
//! costs a copy and makes large batches when input comes fast; when it trickles, each piece goes on at once.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc as sync;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::ByteSize;
use thalweg_engine::{Context, Error, Mistake, Outlet, Source, SourceConfig};
use tokio::sync::mpsc;

use crate::shared::decompress::{Compression, Damage, Decoder};
use crate::shared::framing::{After, Cutter, DEFAULT_LIMIT, Framing, Place};
use crate::shared::io::io_error;

/// How much is read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

/// How long to wait for more where the input does not wait itself.
const PAUSE: Duration = Duration::from_millis(5);

/// How many pieces may wait.
const PIECES: usize = 4;

/// Reads messages from the standard input: lines, or what another delimiter or a pattern separates.
///
/// It ends when the input ends. Compressed input (gzip, zstd) is recognised. What is read cannot be read
/// again, so a run that is killed loses what was on its way.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StdinSource {
    /// How the input is compressed: as its first bytes tell (`auto`), or as is said here.
    pub compression: Compression,
    /// Where one message ends and the next begins. The default: each line is one.
    pub framing: Framing,
    /// The longest that a message may be, at most 1 GiB. Of a longer one, the first 4 KiB leave by the
    /// `errors` output.
    pub max_message_bytes: ByteSize,
}

impl Default for StdinSource {
    fn default() -> Self {
        Self { compression: Compression::Auto, framing: Framing::default(), max_message_bytes: DEFAULT_LIMIT }
    }
}

impl SourceConfig for StdinSource {
    const NAME: &'static str = "stdin";
    const EXAMPLE: &'static str = "\
sources:
  input: { stdin: {} }

pipelines:
  main: { from: input, to: all }

sinks:
  all: { file: { path: out/input.log } }
";

    fn check(&self) -> Vec<Mistake> {
        self.framing.check(self.max_message_bytes)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Input::new(self.clone(), context.batch_bytes, io::stdin())))
    }
}

struct Input {
    config: StdinSource,
    batch_bytes: usize,
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
    fn new(config: StdinSource, batch_bytes: usize, input: impl Read + Send + 'static) -> Self {
        let cutter = Cutter::new(&config.framing, config.max_message_bytes, Place::default());
        let pieces = Pieces::Unread(Some(Box::new(input)));
        let batch_bytes = batch_bytes.max(1);
        Self { config, batch_bytes, cutter, carry: Vec::new(), piece: None, pieces, is_stopping: false }
    }

    /// Starts the thread that reads, once.
    fn begin(&mut self) -> Result<(), Error> {
        let Pieces::Unread(input) = &mut self.pieces else { return Ok(()) };
        let Some(input) = input.take() else { return Ok(()) };
        let (fill, filled) = mpsc::channel(PIECES);
        let (used, reuse) = sync::channel();
        let compression = self.config.compression;
        std::thread::Builder::new()
            .name("stdin".to_owned())
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
    async fn run(&mut self, out: &mut Outlet) -> Result<(), Error> {
        self.begin()?;
        let quiet = self.config.framing.quiet();
        let mut arena = None;
        loop {
            let capacity = self.batch_bytes.max(2 * self.carry.len());
            let mut memory =
                match arena.take().filter(|arena: &thalweg_record::Arena| arena.len() >= capacity) {
                    Some(memory) => memory,
                    None => out.arena(capacity).await,
                };
            let carried = self.carry.len();
            if let Some(front) = memory.get_mut(..carried) {
                front.copy_from_slice(&self.carry);
            }
            let wait = quiet.filter(|_| carried > 0);
            let came = tokio::select! {
                came = self.fill(memory.get_mut(carried..).unwrap_or_default()) => Some(came),
                () = out.stopping(), if !self.is_stopping => {
                    self.stop();
                    arena = Some(memory);
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
            let buffer = if filled < memory.len() / 4 {
                let copy = arrow_buffer::Buffer::from(memory.get(..filled).unwrap_or_default());
                arena = Some(memory);
                copy
            } else {
                memory.freeze().slice_with_length(0, filled)
            };
            self.cutter.send(&buffer, after, None, |_| None, out).await?;
            let done = self.cutter.advance();
            self.carry.extend_from_slice(buffer.get(done..).unwrap_or_default());
            match came {
                Some(Came::End) => return Ok(()),
                Some(Came::Failed(error)) => {
                    let reason = match Damage::of(&error) {
                        Some(damage) => format!("breaks off: of the standard input, {damage}"),
                        None => format!("breaks off: the standard input cannot be read on: {error}"),
                    };
                    self.cutter.reject_rest(&self.carry, &reason, None, out).await?;
                    self.carry.clear();
                    return Err(Error::permanent(match Damage::of(&error) {
                        Some(damage) => format!(
                            "cannot read the standard input to its end: {damage}. What comes before was read."
                        ),
                        // Not temporary, whatever it is: the thread that read has ended.
                        None => io_error("read", "stdin", &error).full(),
                    }));
                }
                Some(Came::Bytes(_)) | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::ErrorKind as Kind;
    use thalweg_engine::testing::{Sent, options, payloads, start_source};
    use thalweg_record::Parcel;

    /// Gives what a channel brings; it blocks as a pipe does.
    struct Pipe(sync::Receiver<Vec<u8>>, io::Cursor<Vec<u8>>);

    impl Read for Pipe {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.1.position() == self.1.get_ref().len() as u64 {
                let Ok(bytes) = self.0.recv() else { return Ok(0) };
                self.1 = io::Cursor::new(bytes);
            }
            self.1.read(into)
        }
    }

    fn input(yaml: &str, batch_bytes: usize, input: impl Read + Send + 'static) -> Box<dyn Source> {
        Box::new(Input::new(options(yaml), batch_bytes, input))
    }

    async fn read(yaml: &str, batch_bytes: usize, bytes: Vec<u8>) -> Sent {
        start_source(input(yaml, batch_bytes, io::Cursor::new(bytes)), batch_bytes, Default::default())
            .finish()
            .await
    }

    #[tokio::test]
    async fn all_lines_are_read_however_they_come() {
        let lines: Vec<String> = (0..5000).map(|n| format!("line {n}")).collect();
        for batch_bytes in [1, 100, 1 << 20] {
            let sent = read("{}", batch_bytes, lines.join("\n").into_bytes()).await;
            assert!(sent.result.is_none(), "{:?}", sent.result);
            assert_eq!(sent.payloads(), lines);
        }
    }

    /// Fails before each byte but the last, and then at the end if it is to.
    struct Hesitant(Vec<u8>, Option<ErrorKind>, bool);

    impl Read for Hesitant {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            match (self.0.is_empty(), self.1) {
                (true, Some(kind)) => Err(kind.into()),
                (true, None) => Ok(0),
                (false, _) if self.2 => Err(ErrorKind::WouldBlock.into()),
                (false, _) => {
                    into[0] = self.0.remove(0);
                    Ok(1)
                }
            }
        }
    }

    #[tokio::test]
    async fn an_input_that_does_not_wait_is_waited_for_and_one_that_fails_is_told() {
        let read = async |end| {
            let source = input("{}", 100, Hesitant(b"one\ntwo\nthr".to_vec(), end, false));
            start_source(source, 100, Default::default()).finish().await
        };
        let sent = read(None).await;
        assert!(sent.result.is_none());
        assert_eq!(sent.payloads(), ["one", "two", "thr"]);
        // A time that is over is temporary elsewhere; here nobody would go on reading.
        let sent = read(Some(ErrorKind::TimedOut)).await;
        assert_eq!(sent.payloads(), ["one", "two"]);
        assert_eq!(sent.errors.iter().flat_map(payloads).collect::<Vec<_>>(), ["thr"]);
        let error = sent.result.unwrap();
        assert_eq!(error.kind(), Kind::Permanent);
        assert!(error.full().starts_with("cannot read `stdin`"), "{}", error.full());
    }

    #[tokio::test]
    async fn compressed_input_is_recognised_and_reported_where_it_breaks_off() {
        let text = b"first line\nsecond line\n".repeat(1000);
        let packed = zstd::encode_all(&text[..], 1).unwrap();
        let sent = read("{}", 1 << 16, packed.clone()).await;
        assert_eq!(sent.payloads().len(), 2000);
        let sent = read("{}", 1 << 16, packed[..packed.len() - 3].to_vec()).await;
        let error = sent.result.unwrap();
        assert_eq!(error.kind(), Kind::Permanent);
        assert!(error.full().contains("its zstd data is truncated"), "{}", error.full());
    }

    #[tokio::test]
    async fn what_trickles_goes_on_at_once_and_a_stop_does_not_wait_for_more() {
        let (give, pipe) = sync::channel();
        let yaml = "{ framing: { start_pattern: '^a', timeout: 10ms } }";
        let running = start_source(
            input(yaml, 1 << 20, Pipe(pipe, io::Cursor::default())),
            1 << 20,
            Default::default(),
        );
        let next = async || {
            let taken = tokio::time::timeout(Duration::from_secs(20), running.main.take()).await;
            let Some((_, Parcel::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
            payloads(&batch)
        };
        give.send(b"a1\n b\na2".to_vec()).unwrap();
        assert_eq!(next().await, ["a1\n b"]);
        give.send(b"\nab".to_vec()).unwrap();
        assert_eq!(next().await, ["a2"]);
        running.stop.request();
        assert_eq!(next().await, ["ab"]);
        assert!(tokio::time::timeout(Duration::from_secs(20), running.task).await.unwrap().unwrap().is_ok());
    }
}
