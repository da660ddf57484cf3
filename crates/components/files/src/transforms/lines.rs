//! Reads the lines of files.
//!
//! A file is read into an arena of the budget, split there, and sent on without a copy, as in the source
//! `file`. That source follows growing files and records its position in each. Here a file has an end, and is
//! done when all its messages are.
//!
//! See docs/decisions/020-file-readers-checkpoint-within-a-file.md.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{
    Checkpoint, Component, Context, Error, FileError, FileReader, FileReaderConfig, Mistake, SourceOutput,
};
use thalweg_record::File;

use crate::plain::Plain;
use thalweg_codec::decompress::Compression;
use thalweg_codec::framing::{After, CutOptions, StreamPosition};
use thalweg_stream::arenas::Arenas;
use thalweg_stream::cut;

/// Reads files line by line. Another delimiter or a pattern may separate the messages.
///
/// Each line becomes a message. The last line need not end with a line feed. Compressed files (gzip, zstd)
/// are recognised. A file is acknowledged when all its messages are.
///
/// A file that cannot be read to its end goes to the dead letters. The complete messages before the damage
/// are sent on.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// How the files are compressed: `auto` (the default) detects it from the first bytes of each file.
    #[serde(default)]
    compression: Compression,
    #[serde(flatten)]
    cut: CutOptions,
}

impl Component for Lines {
    const NAME: &'static str = "lines";
    const EXAMPLE: &'static str = r#"
sources:
  logs: { files: { path: "logs/**/*.log*" } }
pipelines:
  main: { from: logs, transforms: [lines: {}], to: all }
sinks:
  all: { file: { path: out/all.log } }
"#;

    fn check(&self) -> Vec<Mistake> {
        self.cut.check()
    }
}

impl FileReaderConfig for Lines {
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        Ok(Box::new(Cutting {
            config: self.clone(),
            arenas: Arenas::new(context.batch_bytes),
            memory: context.memory.budget().limit(),
        }))
    }
}

struct Cutting {
    config: Lines,
    arenas: Arenas,
    /// The whole budget, in bytes.
    memory: usize,
}

#[async_trait]
impl FileReader for Cutting {
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError> {
        let Self { config, arenas, memory } = self;
        let from: StreamPosition =
            out.saved_in_file().and_then(|saved| serde_json::from_value(saved).ok()).unwrap_or_default();
        let keeps = out.keeps_checkpoints();
        let checkpoint = |position: StreamPosition| {
            serde_json::to_value(position).ok().filter(|_| keeps).map(Checkpoint::in_file)
        };
        let mut plain = Plain::open(file, config.compression, from.offset, *memory, out)?;
        let mut cutter = config.cut.cutter(from);
        cutter.within(out.share().budget().limit());
        loop {
            let buffer = plain.more(arenas, out).await;
            let after = if plain.is_end() { After::End } else { After::More };
            cut::send(&mut cutter, &buffer, after, None, checkpoint, out).await?;
            plain.check()?;
            if plain.is_end() {
                return Ok(());
            }
            let done = cutter.advance();
            plain.carry(buffer.get(done..).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ahead::testing::{sliced, unfetchable_after};
    use proptest::prelude::*;
    use thalweg_engine::testing::{Arrived, Unpacked, file_at, file_of, file_output, options, unpack};
    use thalweg_record::{Budget, Outcome};

    async fn lines(yaml: &str, content: &[u8], batch_bytes: usize) -> Unpacked {
        unpack::<Lines>(yaml, &mut file_of("a.log", content), batch_bytes).await
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn each_line_is_a_message_and_the_last_one_needs_no_line_feed() {
        let read = lines("{}", b"one\ntwo\r\n\nfour", 1 << 10).await;
        assert_eq!(read.payloads(), ["one", "two", "", "four"]);
        assert_eq!(read.positions(), [0, 4, 9, 10]);
        assert_eq!(read.main[0].meta().path.as_deref(), Some("a.log"));
        assert!(lines("{}", b"", 1 << 10).await.payloads().is_empty());
    }

    #[tokio::test]
    async fn compressed_files_are_recognised_and_taken_as_they_are_where_that_is_asked_for() {
        let packed = gzip(b"one\ntwo\n");
        assert_eq!(lines("{}", &packed, 1 << 10).await.payloads(), ["one", "two"]);
        let packed = zstd::encode_all(&b"one\ntwo\n"[..], 1).unwrap();
        assert_eq!(lines("{ compression: zstd }", &packed, 1 << 10).await.payloads(), ["one", "two"]);
        assert_eq!(
            lines("{ compression: none }", b"\x1f\x8b\n", 16).await.main[0].payload().value(0),
            b"\x1f\x8b"
        );
        let read = lines("{ compression: gzip }", b"one\n", 16).await;
        assert_eq!(
            read.problem.unwrap().reason,
            "the file cannot be read to its end: its gzip data is corrupt near byte 0: it does not begin as gzip data does. The messages before that were sent."
        );
    }

    #[tokio::test]
    async fn other_character_sets_become_utf_8_and_positions_stay_those_of_the_file() {
        let read = lines("charset: latin1", b"Caf\xe9\n\xfc\n", 1 << 10).await;
        assert_eq!(read.payloads(), ["Café", "ü"]);
        assert_eq!(read.positions(), [0, 5]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_fetched_in_slices_may_be_compressed() {
        let text: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let packed = gzip(text.as_bytes());
        for slice in [1, 4, 100, 1 << 20] {
            let read = unpack::<Lines>("{}", &mut sliced("a.log.gz", &packed, slice, 3), 1 << 10).await;
            assert_eq!(read.payloads().len(), 5_000, "{slice}");
        }
    }

    #[tokio::test]
    async fn a_slice_that_cannot_be_fetched_rejects_the_file_after_the_messages_before_it() {
        let mut file = unfetchable_after("a.log", b"> a\n> b\n", 12, 4);
        let read = unpack::<Lines>("{ framing: { start_pattern: '^>' } }", &mut file, 1 << 10).await;
        assert_eq!(read.payloads(), ["> a"]);
        assert_eq!(
            read.problem.unwrap().reason,
            "the file cannot be read to its end: unexpected end of file. The messages before that were sent."
        );
    }

    #[tokio::test]
    async fn of_a_damaged_file_what_can_be_read_goes_on_and_the_file_is_rejected() {
        let text: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
        let mut packed = gzip(text.as_bytes());
        packed.truncate(packed.len() / 2);
        let read = lines("{}", &packed, 4 << 10).await;
        let payloads = read.payloads();
        assert!(payloads.len() > 1_000 && text.starts_with(&(payloads.join("\n") + "\n")));
        let reason = read.problem.unwrap().reason;
        let end = packed.len();
        assert_eq!(
            reason,
            format!(
                "the file cannot be read to its end: its gzip data is truncated: it ends at byte {end}, in the middle. \
                 The messages before that were sent."
            )
        );
    }

    #[tokio::test]
    async fn messages_may_have_several_lines_and_one_that_is_too_long_is_rejected() {
        let yaml = "{ framing: { start_pattern: '^>' }, max_message_bytes: 10B }";
        let read = lines(yaml, b"> a\n  b\n> c\n> 123456789\n> d", 4).await;
        assert_eq!(read.payloads(), ["> a\n  b", "> c", "> d"]);
        assert_eq!(read.errors()[0].0, "> 12345678");
        assert_eq!(
            read.errors()[0].1,
            "is longer than `max_message_bytes` (10B): it begins at byte 12, and only its first 10 bytes are kept"
        );
    }

    #[tokio::test]
    async fn a_file_that_has_gone_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "1").unwrap();
        let mut file = file_at(&path);
        std::fs::remove_file(&path).unwrap();
        let problem = unpack::<Lines>("{}", &mut file, 16).await.problem.unwrap();
        assert_eq!(problem.code, Some("FILE_CAN_NOT_BE_OPENED"));
    }

    #[tokio::test]
    async fn however_large_a_file_is_it_takes_no_more_than_a_few_batches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        std::fs::write(&path, "a line of the file\n".repeat(500_000)).unwrap();
        let mut file = file_at(&path);
        let budget = Budget::new(256 << 10);
        let context = Context { batch_bytes: 16 << 10, ..thalweg_engine::testing::context() };
        let mut cutting = options::<Lines>("{}").build(&context).unwrap();
        let (mut out, main, _errors) = file_output(&budget, 16 << 10, &file);
        let read = async {
            let read = cutting.unpack(&mut file, &mut out).await;
            drop(out);
            read
        };
        let count = async {
            let mut rows = 0;
            while let Some((_, Arrived::Messages(batch))) = main.take().await {
                rows += batch.rows();
                batch.settle(Outcome::Delivered);
            }
            rows
        };
        let (read, rows) = tokio::join!(read, count);
        read.unwrap();
        assert_eq!(rows, 500_000);
        assert!(budget.peak() <= 512 << 10, "{}", budget.peak());
    }

    proptest! {
        #[test]
        fn any_file_gives_the_same_lines_in_arenas_of_any_size(
            lines in prop::collection::vec("[a-z]{0,40}", 0..40),
            ends in any::<bool>(),
            packed in any::<bool>(),
            batch_bytes in 1..200usize,
        ) {
            let mut text = lines.join("\n");
            if ends && !text.is_empty() {
                text.push('\n');
            }
            let content = if packed { gzip(text.as_bytes()) } else { text.clone().into_bytes() };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(super::tests::lines("{}", &content, batch_bytes));
            prop_assert!(read.problem.is_none());
            let expected: Vec<&str> = text.lines().collect();
            prop_assert_eq!(read.payloads(), expected);
            for (payload, at) in read.payloads().iter().zip(read.positions()) {
                prop_assert!(text[at as usize..].starts_with(payload.as_str()));
            }
        }

        #[test]
        fn any_file_that_is_fetched_in_slices_gives_the_same_lines_as_in_one_piece(
            text in "[a-c\r\n]{0,200}",
            limit in prop_oneof![2..10usize, Just(10_000)],
            (slice, at_once) in (1..40usize, 1..5usize),
        ) {
            let yaml = format!("{{ max_message_bytes: {limit}B }}");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let read = |mut file| {
                let read = runtime.block_on(unpack::<Lines>(&yaml, &mut file, 1 << 20));
                (read.payloads(), read.positions(), read.errors(), read.problem.is_none())
            };
            let whole = read(file_of("a.log", text.as_bytes()));
            prop_assert_eq!(&read(sliced("a.log", text.as_bytes(), slice, at_once)), &whole);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_keeps_no_memory_that_its_next_file_would_wait_for() {
        let budget = Budget::new(1 << 20);
        let mut reader = options::<Lines>("{}").build(&thalweg_engine::testing::context()).unwrap();
        let mut small = file_of("small.log", b"a\n");
        let (mut out, main, _) = file_output(&budget, 64 << 10, &small);
        reader.unpack(&mut small, &mut out).await.unwrap();
        drop(main.take().await);
        // A sink that collects a part may hold more than the budget.
        let _part = budget.claim(1 << 20);
        let mut fetched = sliced("fetched.log", b"b\nc\n", 100, 1);
        let unpacked = reader.unpack(&mut fetched, &mut out);
        tokio::time::timeout(std::time::Duration::from_secs(20), unpacked).await.unwrap().unwrap();
    }
}
