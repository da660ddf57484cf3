//! `pipe`: messages from a named pipe, see [`crate::input`].
//!
//! A pipe reaches its end when its last writer closes it, and continues when the next writer opens it. The
//! reading thread therefore reopens it each time, before it closes it: with no reader left, the system drops
//! what the next writer has written. It waits for input with a timeout, because it must not read what a run
//! that was asked to stop does not process. If a writer's last bytes have no delimiter, they are a complete
//! message: the next writer does not continue it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Endless, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::input::last::{Last, is_at_end};
use crate::input::{Input, InputOptions};
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::CutOptions;
use thalweg_config::FileMode;

/// Reads messages from a named pipe (made by `mkfifo`): lines, or parts separated by another delimiter or a
/// pattern.
///
/// The pipe is created if it does not exist. When a writer closes it, the source waits for the next writer. A
/// pipe that is removed and made again is opened again within about a second after its last writer closes it.
/// The input cannot be read a second time, so a run that is killed loses the messages in flight. With
/// `--state`, the next run rejects what comes before the first delimiter, because the killed run may have
/// read the beginning of that message. A run that is asked to stop reads what the pipe contains at that
/// moment. It keeps the beginning of a message for the next run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipeSource {
    /// The path of the pipe.
    path: String,
    /// The permissions in octal of a pipe that this source creates, for example `"0600"`. The default is
    /// `0644`, reduced by the `umask`.
    #[serde(default)]
    mode: Option<FileMode>,
    /// Whether to end when the last writer closes the pipe. With `false` the source waits for the next
    /// writer. The default is `false`.
    #[serde(default)]
    exit_on_eof: bool,
    #[serde(flatten)]
    cut: CutOptions,
}

impl Component for PipeSource {
    const NAME: &'static str = "pipe";
    const EXAMPLE: &'static str = "\
# Runs until it is stopped. Write to it with `echo hello > input.pipe`.
sources:
  input: { pipe: { path: input.pipe, mode: \"0600\" } }

pipelines:
  main: { from: input, to: all }

sinks:
  all: { file: { path: out/input.log } }
";

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.cut.check();
        if self.path.is_empty() || self.path.contains('\0') {
            let mistake = Mistake::new("path", format!("`{}` names no pipe.", self.path.escape_debug()));
            mistakes.push(mistake.help("Write for example `path: input.pipe`."));
        }
        if self.cut.charset.is_marked() {
            let mistake = Mistake::new("charset", "Each writer of a pipe may order the bytes differently.");
            mistakes.push(mistake.help("Write `utf-16le` or `utf-16be`."));
        }
        mistakes
    }
}

impl SourceConfig for PipeSource {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("exit_on_eof", self.exit_on_eof)
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn resends(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn starts_over(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        let options = InputOptions {
            compression: Compression::None,
            cut: self.cut.clone(),
            shown: format!("`{}`", self.path),
            path: Some(self.path.as_str().into()),
            partition: Some(PARTITION),
        };
        let pipe = Pipe {
            path: self.path.clone().into(),
            mode: self.mode,
            exit_on_eof: self.exit_on_eof,
            delimiter: self.cut.charset.encoded(self.cut.framing.delimiter.bytes()),
            file: None,
            tail: Vec::new(),
            waits: 0,
            last: Last::default(),
        };
        let flag = pipe.last.flag();
        Ok(Box::new(Input::new(options, context.batch_bytes, pipe, flag)))
    }
}

/// After how many waits without input the path is looked at: about once a second.
const LOOKS: u8 = 50;

/// The partition of what was read in part.
const PARTITION: &str = "pipe";

/// A pipe that is reopened at its end.
struct Pipe {
    path: PathBuf,
    mode: Option<FileMode>,
    exit_on_eof: bool,
    delimiter: Vec<u8>,
    file: Option<File>,
    /// The last bytes of the current writer, at most as many as a delimiter has.
    tail: Vec<u8>,
    /// The number of waits without input since the path was last looked at.
    waits: u8,
    last: Last,
}

impl Pipe {
    /// Counts a wait without input. Now and then, looks at the path. True if it leads to another pipe: the
    /// open one was removed, and no new writer can find it.
    fn is_left(&mut self) -> bool {
        self.waits += 1;
        if self.waits < LOOKS {
            return false;
        }
        self.waits = 0;
        let identity = |found: &Metadata| (found.dev(), found.ino());
        let open = self.file.as_ref().and_then(|file| file.metadata().ok());
        match (open, fs::metadata(&self.path)) {
            (Some(open), Ok(found)) => found.file_type().is_fifo() && identity(&open) != identity(&found),
            _ => false,
        }
    }

    /// Ends the last message of a writer: without a delimiter, it would continue with the next writer's.
    /// Returns the number of bytes that it adds.
    fn end_message(&mut self, into: &mut [u8]) -> usize {
        let tail = std::mem::take(&mut self.tail);
        match into.get_mut(..self.delimiter.len()) {
            Some(into) if !tail.is_empty() && tail != self.delimiter => {
                into.copy_from_slice(&self.delimiter);
                into.len()
            }
            _ => 0,
        }
    }

    /// Ends the input of a run that was asked to stop. A message that has no delimiter is complete if its
    /// writer has closed the pipe.
    fn end_last(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &self.file {
            Some(file) if is_at_end(file)? => Ok(self.end_message(into)),
            _ => Ok(0),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let most = self.last.most(self.file.as_ref(), into.len())?;
            if most == 0 {
                return self.end_last(into);
            }
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(open(&self.path, self.mode)?),
            };
            let is_idle = self.last.is_idle(file)?;
            if is_idle && self.last.is_stopping() {
                return Ok(0);
            }
            if is_idle && !self.is_left() {
                continue;
            }
            let Some(file) = &mut self.file else { continue };
            // A pipe that was removed is read as long as it has a writer.
            let read = match file.read(into.get_mut(..most).unwrap_or_default()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                read => read?,
            };
            if read > 0 {
                self.last.note(read);
                self.tail.extend_from_slice(into.get(..read).unwrap_or_default());
                let surplus = self.tail.len().saturating_sub(self.delimiter.len());
                self.tail.drain(..surplus);
                return Ok(read);
            }
            if self.exit_on_eof && !is_idle {
                return Ok(0);
            }
            self.file = Some(open(&self.path, self.mode)?);
            let ended = self.end_message(into);
            if ended > 0 {
                return Ok(ended);
            }
        }
    }
}

/// Opens a pipe, and creates it first if necessary. Does not wait for a writer.
fn open(path: &Path, mode: Option<FileMode>) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {}
        Ok(_) => {
            let message =
                "it exists, but it is not a named pipe. Remove it, or read it with the source `file`";
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match make(path, mode) {
            // Another process created it first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made?,
        },
        Err(error) => return Err(error),
    }
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

#[cfg(not(target_vendor = "apple"))]
fn make(path: &Path, mode: Option<FileMode>) -> io::Result<()> {
    let bits = mode.map_or(0o644, FileMode::bits);
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(bits))?;
    // Permissions that the user chose are not reduced by the `umask`.
    if mode.is_some() { fs::set_permissions(path, fs::Permissions::from_mode(bits)) } else { Ok(()) }
}

#[cfg(target_vendor = "apple")]
fn make(_: &Path, _: Option<FileMode>) -> io::Result<()> {
    Err(io::Error::new(ErrorKind::NotFound, "it does not exist. Make it with `mkfifo`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use thalweg_engine::testing::{Arrived, options, payloads, start};

    /// The time of one wait without input, in milliseconds.
    const LOOK: u64 = 20;

    /// A timeout far longer than any step takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Opens the pipe when it exists, writes, and closes it.
    fn say(path: &Path, text: &'static str) -> tokio::task::JoinHandle<()> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || {
            while !path.exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
            OpenOptions::new().write(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        })
    }

    #[tokio::test]
    async fn one_writer_after_the_other_is_read_and_a_stop_waits_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.pipe");
        let yaml = format!("{{ path: '{}', mode: '0600' }}", path.display());
        let running = start::<PipeSource>(&yaml, 1 << 20, BTreeMap::new());
        let next = async || {
            let taken = tokio::time::timeout(PATIENCE, running.main.take()).await;
            let Some((_, Arrived::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
            assert_eq!(batch.meta().path.as_deref(), Some(path.to_str().unwrap()));
            payloads(&batch)
        };
        for (text, lines) in
            [("one\ntwo\n", &["one", "two"][..]), ("three", &["three"]), ("four\n", &["four"])]
        {
            say(&path, text).await.unwrap();
            let mut found = Vec::new();
            while found.len() < lines.len() {
                found.extend(next().await);
            }
            assert_eq!(found, lines);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        running.stop.request();
        tokio::time::timeout(PATIENCE, running.task).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_pipe_that_is_removed_and_made_again_is_read_after_the_writers_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.pipe");
        let running = start::<PipeSource>(&format!("path: '{}'", path.display()), 1 << 20, BTreeMap::new());
        let next = async || {
            let taken = tokio::time::timeout(PATIENCE, running.main.take()).await;
            let Some((_, Arrived::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
            payloads(&batch)
        };
        say(&path, "zero\n").await.unwrap();
        assert_eq!(next().await, ["zero"]);
        let mut old = OpenOptions::new().write(true).open(&path).unwrap();
        let again = || {
            fs::remove_file(&path).unwrap();
            make(&path, None).unwrap();
            say(&path, "new\n")
        };
        // Its writer has it open for longer than until the path is looked at.
        let writer = again();
        tokio::time::sleep(Duration::from_millis(2 * LOOK * u64::from(LOOKS))).await;
        old.write_all(b"old\n").unwrap();
        drop(old);
        let mut found = next().await;
        while found.len() < 2 {
            found.extend(next().await);
        }
        assert_eq!(found, ["old", "new"]);
        writer.await.unwrap();
        // No writer has it open.
        again().await.unwrap();
        assert_eq!(next().await, ["new"]);
        running.stop.request();
    }

    #[test]
    fn a_stopped_run_reads_what_ended_writers_have_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.pipe");
        make(&path, None).unwrap();
        for (text, has_writer, expected) in [
            ("one\ntwo\n", false, "one\ntwo\n"),
            ("one\ntwo", false, "one\ntwo\n"),
            ("one\ntwo", true, "one\ntwo"),
        ] {
            let reader = open(&path, None).unwrap();
            let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            let writer = has_writer.then_some(writer);
            let last = Last::default();
            last.flag().store(true, Ordering::Relaxed);
            let mut pipe = Pipe {
                path: path.clone(),
                mode: None,
                exit_on_eof: false,
                delimiter: b"\n".to_vec(),
                file: Some(reader),
                tail: Vec::new(),
                waits: 0,
                last,
            };
            let mut found = String::new();
            pipe.read_to_string(&mut found).unwrap();
            assert_eq!(found, expected, "{text:?} {has_writer}");
            drop(writer);
        }
    }

    #[tokio::test]
    async fn it_can_end_with_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.pipe");
        let yaml =
            format!("{{ path: '{}', exit_on_eof: true, framing: {{ delimiter: '--' }} }}", path.display());
        let running = start::<PipeSource>(&yaml, 1 << 20, BTreeMap::new());
        let writer = say(&path, "one--two\n--three");
        let sent = tokio::time::timeout(PATIENCE, running.finish()).await.unwrap();
        writer.await.unwrap();
        assert_eq!(sent.payloads(), ["one", "two\n", "three"]);
        assert!(sent.result.is_none());
    }

    #[tokio::test]
    async fn what_is_no_pipe_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text\n").unwrap();
        let yaml = format!("path: '{}'", path.display());
        let sent = start::<PipeSource>(&yaml, 1 << 20, BTreeMap::new()).finish().await;
        let error = sent.result.unwrap().full();
        assert!(error.contains("it is not a named pipe"), "{error}");
        assert_eq!(options::<PipeSource>("path: ''").check()[0].option, "path");
        assert_eq!(options::<PipeSource>("{ path: a, charset: utf-16 }").check()[0].option, "charset");
    }
}
