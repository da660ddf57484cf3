//! Writes messages to the standard output.
//!
//! It bypasses the buffer of `std::io::stdout`. Batches are large already, and bytes must have left the
//! process before they are acknowledged.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, TransformConfig, WriteOutcome,
};
use thalweg_record::Batch;
use thalweg_redact::foreign;

use thalweg_codec::delimited::Delimited;
use thalweg_stream::encode::EncodeConfig;
use thalweg_stream::io_error::io_error;

/// The message of the error if the reader has closed the output (`thalweg run ... | head`).
const BROKEN_PIPE: &str = "the reader of the output has gone away";

/// The time between two attempts to write to a non-blocking terminal or pipe.
const PAUSE: Duration = Duration::from_millis(1);

/// Writes messages to the standard output.
///
/// Each message is written as it is, or as `encode` says, followed by `delimiter`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StdoutConfig {
    /// The format in which messages are written, for example `json`. By default the payload is written as it
    /// is.
    pub encode: EncodeConfig,
    /// The text written after each message. The default is a line feed.
    pub delimiter: String,
    /// Which standard stream to write to. The default is `stdout`.
    pub target: Target,
    /// Write escapes such as `\u{1b}` in place of what a terminal would obey or not show, line feeds within a
    /// message included. For messages that people read. The default is `false`.
    pub escape: bool,
}

/// A standard stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// The standard output.
    #[default]
    Stdout,
    /// The standard error output, which also carries the program's own log.
    Stderr,
}

impl Default for StdoutConfig {
    fn default() -> Self {
        Self {
            encode: EncodeConfig::default(),
            delimiter: "\n".to_owned(),
            target: Target::default(),
            escape: false,
        }
    }
}

impl Component for StdoutConfig {
    const NAME: &'static str = "stdout";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { lines: ["Hello!", "Goodbye!"], count: 2 } }
pipelines:
  main: { from: messages, to: screen }
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.encode.mistakes()
    }
}

impl SinkConfig for StdoutConfig {
    fn encoder(&self) -> Option<Box<dyn TransformConfig>> {
        self.encode.encoder()
    }

    fn writes_stdout(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(StdoutSink {
            target: self.target,
            encode: self.encode.clone(),
            delimited: Delimited::new(&self.delimiter),
            escape: self.escape,
            output: None,
            is_new: true,
        }))
    }
}

struct StdoutSink {
    target: Target,
    encode: EncodeConfig,
    delimited: Delimited,
    /// True if what a terminal would obey is escaped.
    escape: bool,
    output: Option<Output>,
    /// True if nothing was written yet, so that a header is due.
    is_new: bool,
}

impl StdoutSink {
    fn write_batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let Some(output) = &mut self.output else {
            return Err(Error::permanent("the sink `stdout` was not opened"));
        };
        let header = if self.is_new { self.encode.header(&batch.fields().schema()) } else { None };
        let result = header
            .map_or(Ok(()), |header| self.delimited.message(&header, output))
            .and_then(|()| match self.escape {
                true => batch.payload().iter().flatten().try_for_each(|message| {
                    let text = String::from_utf8_lossy(message);
                    self.delimited.message(foreign(&text).as_bytes(), output)
                }),
                false => self.delimited.write(batch.payload(), output),
            })
            .and_then(|()| self.delimited.flush(output));
        self.is_new = false;
        result.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Error::reader_gone(BROKEN_PIPE).caused_by(error),
            // Bytes that were written cannot be undone, so the batch must not be sent again.
            _ => Error::permanent(io_error("write to", self.target.path(), &error).full()),
        })
    }
}

impl Target {
    fn path(self) -> &'static str {
        match self {
            Target::Stdout => "/dev/stdout",
            Target::Stderr => "/dev/stderr",
        }
    }

    /// The number of its descriptor.
    fn number(self) -> u8 {
        match self {
            Target::Stdout => 1,
            Target::Stderr => 2,
        }
    }

    #[cfg(unix)]
    fn open(self) -> io::Result<File> {
        use std::os::fd::AsFd;
        Ok(match self {
            Target::Stdout => io::stdout().as_fd().try_clone_to_owned()?.into(),
            Target::Stderr => io::stderr().as_fd().try_clone_to_owned()?.into(),
        })
    }

    #[cfg(windows)]
    fn open(self) -> io::Result<File> {
        use std::os::windows::io::AsHandle;
        Ok(match self {
            Target::Stdout => io::stdout().as_handle().try_clone_to_owned()?.into(),
            Target::Stderr => io::stderr().as_handle().try_clone_to_owned()?.into(),
        })
    }
}

/// An output that waits even if it is non-blocking: another program that shares the terminal may have set it
/// so.
struct Output(File);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Sink for StdoutSink {
    async fn open(&mut self, _: Option<serde_json::Value>) -> Result<(), Error> {
        if thalweg_runtime::standard_streams::was_closed(self.target.number()) {
            return Err(Error::permanent(format!(
                "`{}` was closed when the program started. Redirect it to a file, or to `/dev/null`.",
                self.target.path()
            )));
        }
        let file = self.target.open().map_err(|error| io_error("open", self.target.path(), &error))?;
        self.output = Some(Output(file));
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, _: &mut Rejects) -> Result<WriteOutcome, Error> {
        thalweg_runtime::blocking(|| self.write_batch(batch))?;
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::OwnedFd;

    use super::*;
    use thalweg_engine::testing::{batch, context, refused, sink_conforms};

    /// Creates a sink that writes to a pipe in place of the program's output.
    fn to_pipe(delimiter: &str) -> (StdoutSink, io::PipeReader) {
        let (reader, writer) = pipe().unwrap();
        let sink = StdoutSink {
            target: Target::Stdout,
            encode: EncodeConfig::default(),
            delimited: Delimited::new(delimiter),
            escape: false,
            output: Some(Output(File::from(OwnedFd::from(writer)))),
            is_new: true,
        };
        (sink, reader)
    }

    #[tokio::test]
    async fn it_conforms() {
        sink_conforms::<StdoutConfig>("{}").await;
        sink_conforms::<StdoutConfig>("{ target: stderr, delimiter: \"\\r\\n\" }").await;
        assert_eq!(
            refused::<StdoutConfig>("{ target: stdin }"),
            "`target` cannot be `stdin`. It can be `stdout` or `stderr`."
        );
        StdoutConfig::default().build(&context()).unwrap();
    }

    #[tokio::test]
    async fn every_message_is_followed_by_the_delimiter() {
        for delimiter in ["\n", "\0", "--"] {
            let (mut sink, mut reader) = to_pipe(delimiter);
            let mut rejects = Rejects::default();
            assert_eq!(sink.write(&batch(["a", ""]), &mut rejects).await.unwrap(), WriteOutcome::Durable);
            sink.finish().await.unwrap();
            drop(sink);
            let mut read = String::new();
            reader.read_to_string(&mut read).unwrap();
            assert_eq!(read, format!("a{delimiter}{delimiter}"));
        }
    }

    #[tokio::test]
    async fn messages_for_people_have_escapes() {
        let (mut sink, mut reader) = to_pipe("\n");
        sink.escape = true;
        sink.write(&batch(["a\u{1b}[2Jb\nc", "é"]), &mut Rejects::default()).await.unwrap();
        drop(sink);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "a\\u{1b}[2Jb\\nc\né\n");
    }

    #[tokio::test]
    async fn that_the_reader_went_away_can_be_told_from_other_errors() {
        let (mut sink, reader) = to_pipe("\n");
        drop(reader);
        let error = sink.write(&batch(["a"]), &mut Rejects::default()).await.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::ReaderGone);
        assert!(error.full().starts_with(BROKEN_PIPE), "{}", error.full());
    }

    /// The test below runs this in a process without a standard output.
    #[tokio::test]
    #[ignore = "needs a process without a standard output"]
    async fn in_a_process_without_a_standard_output() {
        let mut sink = StdoutConfig::default().build(&context()).unwrap();
        let error = sink.open(None).await.unwrap_err().full();
        assert!(error.starts_with("`/dev/stdout` was closed when the program started."), "{error}");
        let mut sink =
            StdoutConfig { target: Target::Stderr, ..Default::default() }.build(&context()).unwrap();
        sink.open(None).await.unwrap();
    }

    #[test]
    fn a_closed_output_is_an_error_and_not_dropped() {
        let name = "sinks::stdout::tests::in_a_process_without_a_standard_output";
        for (redirection, succeeds) in [(">&-", true), (">/dev/null", false)] {
            let script = format!("exec \"$0\" --ignored --exact \"$1\" {redirection}");
            let mut shell = std::process::Command::new("sh");
            let run = shell.args(["-c", &script]).arg(std::env::current_exe().unwrap()).arg(name);
            assert_eq!(run.output().unwrap().status.success(), succeeds, "{redirection}");
        }
    }
}
