//! Keeps messages on disk until a source reads them, in [segments](thalweg_engine::segments).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::segments::write::{Bounds, Refusal, Writer};
use thalweg_engine::{Component, Context, Error, Mistake, Rejects, Sink, SinkConfig, WriteOutcome};
use thalweg_record::Batch;

use crate::clock::Clock;

/// Keeps messages in a folder until a source `spool` reads them.
///
/// Use it as the last resort of a `failover`, for messages that another sink cannot accept at the moment. A
/// source `spool` of the same folder, in the same run or another, sends them later. Messages keep their
/// payload, fields, source and time. They count as delivered when they are in the folder.
///
/// Files are numbered. The file that is being written ends in `.open`. It is finished when it reaches
/// `max_file_bytes` or `max_file_age`, and at the end of the run; only then is it read. A file left behind by
/// a killed process is read as well.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpoolSink {
    /// The folder. It is created if it does not exist. Several runs may write to it.
    path: String,
    /// The size in bytes at which a file is finished and the next one started. A batch is not divided. The
    /// default is 64 MiB.
    #[serde(default = "file_bytes")]
    max_file_bytes: ByteSize,
    /// The time, counted from its first message, after which a file is finished. The default is 60 s.
    #[serde(default = "file_age")]
    max_file_age: TimeSpan,
    /// The maximum size in bytes of all files of the folder together. By default there is no limit.
    #[serde(default)]
    max_bytes: Option<ByteSize>,
    /// The reaction when the folder has reached `max_bytes`. The default is `wait`.
    #[serde(default)]
    when_full: WhenFull,
    /// Whether messages count as delivered only when they are on the disk. This protects against a power
    /// failure of the machine. If only the process is killed, nothing is lost in any case. The default is
    /// `false`.
    #[serde(default)]
    fsync: bool,
}

/// The reaction when the spool is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// Wait until some messages were read, and retry. In a `failover`, the next sink takes over meanwhile.
    #[default]
    Wait,
    /// Reject the messages: they leave by the `errors` output.
    Reject,
}

fn file_bytes() -> ByteSize {
    ByteSize::mib(64)
}

fn file_age() -> TimeSpan {
    TimeSpan::seconds(60)
}

impl Component for SpoolSink {
    const NAME: &'static str = "spool";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: "%256s", count: 1000 } }
pipelines:
  main: { from: messages, to: buffer }
sinks:
  buffer: { spool: { path: out/spool, max_bytes: 1GiB } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.path.is_empty() || self.path.contains('\0') {
            let mistake = Mistake::new("path", format!("`{}` names no folder.", self.path.escape_debug()));
            mistakes.push(mistake.help("Write for example `path: spool`."));
        }
        if self.max_file_bytes.bytes() == 0 {
            mistakes.push(Mistake::new("max_file_bytes", "`max_file_bytes` cannot be 0."));
        }
        if self.max_file_age.duration().is_zero() {
            mistakes.push(Mistake::new("max_file_age", "`max_file_age` cannot be 0."));
        }
        if self.max_bytes.is_some_and(|bytes| bytes.bytes() == 0) {
            mistakes.push(Mistake::new("max_bytes", "`max_bytes` cannot be 0."));
        }
        mistakes
    }
}

impl SinkConfig for SpoolSink {
    fn build(&self, _: &Context) -> Result<Box<dyn Sink>, Error> {
        let bounds = Bounds {
            folder: self.path.clone().into(),
            file_bytes: self.max_file_bytes.bytes(),
            file_age: self.max_file_age.duration(),
            bytes: self.max_bytes.map(ByteSize::bytes),
            fsync: self.fsync,
        };
        Ok(Box::new(Spooling {
            config: self.clone(),
            writer: Arc::new(Mutex::new(Writer::new(bounds))),
            clock: None,
        }))
    }
}

struct Spooling {
    config: SpoolSink,
    /// Shared with the clock task.
    writer: Arc<Mutex<Writer>>,
    /// The task that finishes a file whose time limit has passed while nothing is written.
    clock: Option<Clock>,
}

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Sink for Spooling {
    async fn open(&mut self, _: Option<Value>) -> Result<(), Error> {
        thalweg_runtime::blocking(|| lock(&self.writer).open())?;
        if self.clock.is_none() {
            let age = self.config.max_file_age.duration();
            let beat = (age / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
            self.clock = Some(Clock::every(beat, &self.writer, |writer| {
                // The engine's next call meets the same error, and reports it.
                let _ = thalweg_runtime::blocking(|| lock(writer).look_at_clock());
            }));
        }
        Ok(())
    }

    async fn write(&mut self, batch: &Batch, rejects: &mut Rejects) -> Result<WriteOutcome, Error> {
        let written = thalweg_runtime::blocking(|| {
            let mut writer = lock(&self.writer);
            writer.look_at_clock().map_err(Refusal::Failed)?;
            writer.append(batch)
        });
        let path = &self.config.path;
        let reason = match (written, self.config.max_bytes) {
            (Ok(()), _) if self.config.fsync => return Ok(WriteOutcome::Buffered),
            (Ok(()), _) => return Ok(WriteOutcome::Durable),
            (Err(Refusal::Failed(error)), _) => return Err(error),
            (Err(Refusal::TooLarge), most) => {
                let most = most.unwrap_or_default();
                format!("does not fit into `{path}`: its batch is larger than `max_bytes` ({most})")
            }
            (Err(Refusal::Full), most) => {
                let most = most.unwrap_or_default();
                if self.config.when_full == WhenFull::Wait {
                    return Err(Error::temporary(format!(
                        "`{path}` is full: it holds `max_bytes` ({most}), and waits to be read"
                    )));
                }
                format!("`{path}` is full: it holds `max_bytes` ({most})")
            }
        };
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        (0..rows).for_each(|row| rejects.reject(row, reason.clone()));
        Ok(WriteOutcome::Durable)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        match self.config.fsync {
            true => thalweg_runtime::blocking(|| lock(&self.writer).sync()),
            false => Ok(()),
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.clock = None;
        thalweg_runtime::blocking(|| lock(&self.writer).finish_segment())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{batch, context, options, refused, sink_conforms, write_all};

    fn yaml(folder: &tempfile::TempDir, more: &str) -> String {
        format!("{{ path: '{}', {more} }}", folder.path().join("spool").display())
    }

    fn names(folder: &tempfile::TempDir) -> Vec<String> {
        let listed = std::fs::read_dir(folder.path().join("spool")).unwrap();
        let mut names: Vec<String> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn it_conforms() {
        for more in ["", "fsync: true", "max_file_bytes: 1", "max_bytes: 1MiB, when_full: reject"] {
            let folder = tempfile::tempdir().unwrap();
            sink_conforms::<SpoolSink>(&yaml(&folder, more)).await;
            assert!(names(&folder).iter().all(|name| name.ends_with(".spool")));
        }
    }

    #[tokio::test]
    async fn a_file_that_is_large_or_old_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let batches = || (0..3).map(|number| batch([format!("message {number}")]));
        write_all::<SpoolSink>(&yaml(&folder, "max_file_bytes: 1kB"), batches()).await.unwrap();
        assert_eq!(names(&folder).len(), 3, "{:?}", names(&folder));

        let folder = tempfile::tempdir().unwrap();
        let config = options::<SpoolSink>(&yaml(&folder, "max_file_age: 20ms"));
        let mut sink = config.build(&context()).unwrap();
        sink.open(None).await.unwrap();
        sink.write(&batch(["one"]), &mut Rejects::default()).await.unwrap();
        // Nothing more is written; the clock task finishes it.
        while names(&folder) != ["00000001.spool"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sink.write(&batch(["two"]), &mut Rejects::default()).await.unwrap();
        sink.finish().await.unwrap();
        assert_eq!(names(&folder), ["00000001.spool", "00000002.spool"]);
    }

    #[tokio::test]
    async fn a_full_folder_makes_wait_or_reject_until_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = options::<SpoolSink>(&yaml(&folder, "max_bytes: 3kB, max_file_bytes: 1"))
            .build(&context())
            .unwrap();
        sink.open(None).await.unwrap();
        let mut rejects = Rejects::default();
        let mut written = 0;
        let error = loop {
            match sink.write(&batch(["x".repeat(300)]), &mut rejects).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(written > 0);
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Temporary);
        assert!(error.full().contains("is full: it holds `max_bytes` (3kB)"), "{}", error.full());
        std::fs::remove_file(folder.path().join("spool/00000001.spool")).unwrap();
        sink.write(&batch(["x".repeat(300)]), &mut rejects).await.unwrap();
        // A batch larger than the whole spool is rejected at once.
        assert!(rejects.take().is_empty());
        sink.write(&batch(["x".repeat(4000), "y".to_owned()]), &mut rejects).await.unwrap();
        assert_eq!(rejects.take().len(), 2);

        let folder = tempfile::tempdir().unwrap();
        let yaml = yaml(&folder, "max_bytes: 3kB, when_full: reject");
        let batches = (0..20).map(|number| batch([format!("{number}{}", "x".repeat(300))]));
        let rejected = write_all::<SpoolSink>(&yaml, batches).await.unwrap();
        assert!(!rejected.is_empty() && rejected.len() < 20);
        let reason = rejected[0].2.replace(&folder.path().display().to_string(), "FOLDER");
        assert_eq!(reason, "`FOLDER/spool` is full: it holds `max_bytes` (3kB)");
    }

    #[tokio::test]
    async fn a_folder_that_is_removed_is_an_error_before_more_messages_are_acknowledged() {
        for more in ["", "fsync: true"] {
            let folder = tempfile::tempdir().unwrap();
            let mut sink = options::<SpoolSink>(&yaml(&folder, more)).build(&context()).unwrap();
            sink.open(None).await.unwrap();
            let mut rejects = Rejects::default();
            sink.write(&batch(["one"]), &mut rejects).await.unwrap();
            std::fs::remove_dir_all(folder.path().join("spool")).unwrap();
            let error = sink.write(&batch(["two"]), &mut rejects).await.unwrap_err();
            assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
            let expected = "00000001.open` was removed while the sink was writing to it";
            assert!(error.full().contains(expected), "{}", error.full());
        }
    }

    #[test]
    fn what_cannot_be_is_a_mistake() {
        let check = |yaml: &str| -> Vec<_> {
            options::<SpoolSink>(yaml).check().into_iter().map(|mistake| mistake.option).collect()
        };
        assert_eq!(
            check("{path: '', max_file_bytes: 0, max_file_age: '0', max_bytes: 0}"),
            ["path", "max_file_bytes", "max_file_age", "max_bytes"]
        );
        assert_eq!(refused::<SpoolSink>("{}"), "The option `path` is missing. The folder.");
    }
}
