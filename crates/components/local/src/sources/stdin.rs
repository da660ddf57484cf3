//! `stdin`: messages from the standard input, see [`crate::input`].

use std::io;
use std::os::fd::AsFd;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Source, SourceConfig};

use crate::input::last::Opened;
use crate::input::{Input, InputOptions};
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::CutOptions;
use thalweg_runtime::standard_streams;

/// Reads messages from the standard input: lines, or parts separated by another delimiter or a pattern.
///
/// It ends when the input ends. Compressed input (gzip, zstd) is recognised. A run that is asked to stop
/// still reads what a pipe contains at that moment. The input cannot be read a second time, so a run that is
/// killed loses the messages in flight.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdinSource {
    /// The compression of the input. The default is `auto`, which recognises it by its first bytes.
    #[serde(default)]
    pub compression: Compression,
    #[serde(flatten)]
    cut: CutOptions,
}

impl Component for StdinSource {
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
        self.cut.check()
    }
}

impl SourceConfig for StdinSource {
    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn reads_stdin(&self) -> bool {
        true
    }

    fn resends(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        standard_streams::input().map_err(Error::permanent)?;
        // Not `io::stdin()`, whose buffer would hide what is left.
        let file = io::stdin().as_fd().try_clone_to_owned();
        let file =
            file.map_err(|error| Error::permanent("cannot open the standard input").caused_by(error))?;
        let (input, flag) = Opened::new(file.into());
        Ok(Box::new(Input::new(self.options(), context.batch_bytes, input, flag)))
    }
}

impl StdinSource {
    fn options(&self) -> InputOptions {
        InputOptions {
            compression: self.compression,
            cut: self.cut.clone(),
            shown: "the standard input".to_owned(),
            path: None,
            partition: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::time::Duration;

    use thalweg_engine::ErrorKind as Kind;
    use thalweg_engine::testing::{Arrived, Sent, options, payloads, start_source};

    /// An input that ends by itself.
    fn input(yaml: &str, batch_bytes: usize, input: impl Read + Send + 'static) -> Box<dyn Source> {
        Box::new(Input::new(options::<StdinSource>(yaml).options(), batch_bytes, input, Arc::default()))
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

    /// Fails before each byte but the last, and at the end if an error kind is set.
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
        // A timeout is temporary elsewhere; here the reading thread has ended.
        let sent = read(Some(ErrorKind::TimedOut)).await;
        assert_eq!(sent.payloads(), ["one", "two"]);
        assert_eq!(sent.errors.iter().flat_map(payloads).collect::<Vec<_>>(), ["thr"]);
        let error = sent.result.unwrap();
        assert_eq!(error.kind(), Kind::Permanent);
        assert!(error.full().starts_with("cannot read `stdin`"), "{}", error.full());
    }

    #[tokio::test]
    async fn other_character_sets_become_utf_8() {
        let text: Vec<u8> = "\u{feff}ähm\nzwei\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for batch_bytes in [1, 1 << 16] {
            let sent = read("charset: utf-16le", batch_bytes, text.clone()).await;
            assert_eq!(sent.payloads(), ["ähm", "zwei"]);
        }
        let sent = read("charset: windows-1252", 1 << 16, b"\x80 5\n".to_vec()).await;
        assert_eq!(sent.payloads(), ["€ 5"]);
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
        let (reader, mut writer) = io::pipe().unwrap();
        let yaml = "{ framing: { start_pattern: '^a', timeout: 10ms } }";
        let (pipe, flag) = Opened::new(OwnedFd::from(reader).into());
        let source = Input::new(options::<StdinSource>(yaml).options(), 1 << 20, pipe, flag);
        let running = start_source(Box::new(source), 1 << 20, Default::default());
        let next = async || {
            let taken = tokio::time::timeout(Duration::from_secs(20), running.main.take()).await;
            let Some((_, Arrived::Messages(batch))) = taken.unwrap() else { panic!("it ended") };
            payloads(&batch)
        };
        writer.write_all(b"a1\n b\na2").unwrap();
        assert_eq!(next().await, ["a1\n b"]);
        writer.write_all(b"\nab").unwrap();
        assert_eq!(next().await, ["a2"]);
        running.stop.request();
        assert_eq!(next().await, ["ab"]);
        tokio::time::timeout(Duration::from_secs(20), running.task).await.unwrap().unwrap().unwrap();
    }
}
