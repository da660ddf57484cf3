//! Sends the messages that a sink `spool` has kept, in [segments](thalweg_engine::segments).
//!
//! Segments are read one after the other. A segment is removed when all of it is committed: settled and, in a
//! run with `--state`, covered by a saved checkpoint. Continuing such a run cuts off the output that its
//! sinks wrote after the last checkpoint, so the messages must still be here. A run with `--state` resumes in
//! the middle of a segment; any other run sends the segment again from its beginning.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thalweg_config::TimeSpan;
use thalweg_engine::segments::read::{Messages, Next, Segment, dispose, list};
use thalweg_engine::{
    Checkpoint, Component, Context, Endless, Error, Mistake, Reading, Source, SourceConfig, SourceOutput,
};
use thalweg_record::PayloadWriter;
use thalweg_runtime::blocking;

use thalweg_stream::io_error::io_error;

/// Sends the messages that a sink `spool` has kept in a folder.
///
/// Messages keep their payload, fields, source and time. A file is removed when all its messages are
/// delivered, or have left by the `errors` output. A sink `file` appends them to the output of earlier runs.
/// A damaged file is read as far as possible, and kept as `NUMBER.damaged`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpoolSource {
    /// The folder. Only one source at a time may read it.
    path: String,
    /// The maximum number of messages to send per second. By default there is no limit.
    #[serde(default)]
    rate: Option<f64>,
    /// The time to wait at the start, so that the destinations of the messages can get ready. The default is
    /// 0 s.
    #[serde(default)]
    delay: TimeSpan,
    /// Whether to wait for more messages when the folder is empty. With `false` the source ends when
    /// everything is read and no file is being written. The default is `true`.
    #[serde(default = "yes")]
    follow: bool,
    /// With `follow`: whether to end when all other sources have ended, so that a run with an end still ends.
    /// Messages that are not read by then stay in the folder. The default is `false`.
    #[serde(default)]
    ends_with_others: bool,
    /// The time between two checks for new files. The default is 250 ms.
    #[serde(default = "poll_interval")]
    poll_interval: TimeSpan,
}

fn yes() -> bool {
    true
}

fn poll_interval() -> TimeSpan {
    TimeSpan::milliseconds(250)
}

/// How long the source waits at its end until the segments that it sent are committed. The first value
/// applies if the run is being stopped, the second otherwise. Both count from the last segment that was
/// committed. Messages that take longer are sent again by a later run, unless it continues this one.
const COMMIT_WAIT: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];

impl Component for SpoolSource {
    const NAME: &'static str = "spool";
    const EXAMPLE: &'static str = r#"
sources:
  kept: { spool: { path: out/spool, follow: false } }
pipelines:
  main: { from: kept, to: screen }
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.path.is_empty() || self.path.contains('\0') {
            let mistake = Mistake::new("path", format!("`{}` names no folder.", self.path.escape_debug()));
            mistakes.push(mistake.help("Write for example `path: spool`."));
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            let mistake =
                Mistake::new("rate", "The rate must be greater than 0: nothing would ever be sent.");
            mistakes.push(mistake.help("Remove it to send messages as fast as possible."));
        }
        if self.ends_with_others && !self.follow {
            let message = "Without `follow` it ends by itself, when the folder is empty.";
            mistakes.push(Mistake::new("ends_with_others", message).help("Remove one of the two."));
        }
        if self.poll_interval.duration().is_zero() {
            let message = "`poll_interval` is 0, which would keep a core busy.";
            mistakes.push(Mistake::new("poll_interval", message).help("The default is `250ms`."));
        }
        mistakes
    }
}

impl SourceConfig for SpoolSource {
    fn endless(&self) -> Option<Endless> {
        Endless::by("follow", self.follow)
    }

    fn is_auxiliary(&self) -> bool {
        self.ends_with_others
    }

    // It removes what it has sent.
    fn starts_over(&self) -> bool {
        false
    }

    // It removes only segments that a checkpoint covers.
    fn rereads(&self) -> bool {
        true
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Reader {
            folder: self.path.clone().into(),
            config: self.clone(),
            has_begun: false,
            has_ended: false,
            current: None,
            unsettled: Vec::new(),
            known: HashSet::new(),
            due: Instant::now(),
        }))
    }
}

/// A position in a segment: the offset of a block, and the number of its messages that come before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentPosition {
    offset: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    row: usize,
}

fn is_zero(row: &usize) -> bool {
    *row == 0
}

fn position_of(saved: Option<Value>) -> Option<SegmentPosition> {
    serde_json::from_value(saved?).ok()
}

fn checkpoint(partition: &str, position: SegmentPosition) -> Option<Checkpoint> {
    Some(Checkpoint { partition: partition.into(), offset: serde_json::to_value(position).ok()? })
}

struct Reader {
    config: SpoolSource,
    folder: PathBuf,
    has_begun: bool,
    /// True once everything is sent.
    has_ended: bool,
    current: Option<Segment>,
    /// Segments that were read to their end, and the offsets that must be committed before they are removed.
    unsettled: Vec<Read>,
    /// The numbers of these, and of the current segment.
    known: HashSet<u32>,
    /// When the next message may be sent, if there is a rate.
    due: Instant,
}

/// A segment that was read to its end.
struct Read {
    number: u32,
    path: PathBuf,
    partition: String,
    end: u64,
    is_damaged: bool,
}

#[async_trait]
impl Source for Reader {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !self.has_begun {
            if out.sleep(self.config.delay.duration()).await {
                return Ok(());
            }
            self.has_begun = true;
            blocking(|| self.forget_missing(out))?;
        }
        while !self.has_ended {
            self.remove_settled(out)?;
            if out.is_stopping() {
                break;
            }
            if self.current.is_some() {
                self.step(out).await?;
                continue;
            }
            let found = blocking(|| list(&self.folder)).map_err(|error| self.unreadable(&error))?;
            if let Some(&number) = found.finished.iter().find(|number| !self.known.contains(number)) {
                self.begin(number, out)?;
                continue;
            }
            if !self.config.follow && !found.is_written {
                break;
            }
            out.sleep(self.config.poll_interval.duration()).await;
        }
        self.has_ended = true;
        // Some sinks settle messages when all input has ended, such as those of an object.
        out.end();
        self.wait_for_commits(out).await
    }
}

impl Reader {
    fn unreadable(&self, error: &std::io::Error) -> Error {
        io_error("read", &self.folder, error)
    }

    /// Deletes the checkpoints of segments that no longer exist.
    fn forget_missing(&self, out: &SourceOutput) -> Result<(), Error> {
        let found = list(&self.folder).map_err(|error| self.unreadable(&error))?;
        for partition in out.partitions() {
            let number = partition.split('-').next().and_then(|number| number.parse().ok());
            if number.is_none_or(|number| !found.finished.contains(&number)) {
                out.forget(&partition);
            }
        }
        Ok(())
    }

    fn begin(&mut self, number: u32, out: &SourceOutput) -> Result<(), Error> {
        let mut segment = match blocking(|| Segment::open(&self.folder, number)) {
            Ok(segment) => segment,
            // Another reader of this folder, which is not supported, has already dealt with it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io_error("read", &self.folder, &error)),
        };
        if let Some(position) = position_of(out.saved(&segment.partition())) {
            segment.seek(position.offset);
        }
        self.known.insert(number);
        self.current = Some(segment);
        Ok(())
    }

    /// Sends the next block of the current segment.
    async fn step(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        let Some(segment) = &mut self.current else { return Ok(()) };
        let partition = segment.partition();
        let begin = segment.offset();
        let shown = segment.path().display().to_string();
        let failed = |error: &std::io::Error| io_error("read", &shown, error);
        match blocking(|| segment.next()).map_err(|error| failed(&error))? {
            Next::End => {
                self.end(partition);
                Ok(())
            }
            Next::Rubbish { bytes } => {
                let reason =
                    format!("the last {bytes} bytes of `{shown}`, from byte {begin} on, are not messages");
                segment.skip_rest();
                let position = SegmentPosition { offset: segment.offset(), row: 0 };
                self.reject(&reason, &partition, position, out).await
            }
            Next::Block { bytes, rows } => {
                let mut arena = tokio::select! {
                    arena = out.arena(bytes.max(1)) => arena,
                    () = out.stopping() => return Ok(()),
                };
                let memory = arena.get_mut(..bytes).unwrap_or_default();
                blocking(|| segment.fill(memory)).map_err(|error| failed(&error))?;
                let body = arena.freeze().slice_with_length(0, bytes);
                let decoded = blocking(|| segment.decode(body)).map_err(|error| failed(&error))?;
                let end = segment.offset();
                match decoded {
                    Ok(messages) => self.send(&messages, &partition, begin, end, out).await,
                    Err(why) => {
                        let reason =
                            format!("{rows} messages at byte {begin} of `{shown}` cannot be read: {why}");
                        self.reject(&reason, &partition, SegmentPosition { offset: end, row: 0 }, out).await
                    }
                }
            }
        }
    }

    /// Sends the messages of the block from `begin` to `end`, at the configured rate.
    async fn send(
        &mut self,
        messages: &Messages,
        partition: &str,
        begin: u64,
        end: u64,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        let rows = messages.rows();
        let before = position_of(out.saved(partition))
            .filter(|position| position.offset == begin)
            .map_or(0, |position| position.row);
        let mut row = before.min(rows);
        // Ten portions a second make a steady flow.
        let most =
            self.config.rate.map_or(rows, |rate| (rate / 10.0).clamp(1.0, rows.max(1) as f64) as usize);
        while row < rows || rows == 0 {
            let count = most.min(rows - row).min(out.next_rows());
            if self.pause(count, out).await {
                // A later run sends the rest: the checkpoint is still before it.
                if let Some(segment) = &mut self.current {
                    segment.back_to(begin);
                }
                return Ok(());
            }
            let (mut reading, fields) = messages.part(row, count)?;
            row += count;
            let position = if row < rows {
                SegmentPosition { offset: begin, row }
            } else {
                SegmentPosition { offset: end, row: 0 }
            };
            reading.checkpoint = checkpoint(partition, position);
            out.send_again(reading, messages.meta.clone(), Some(fields)).await?;
            if rows == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Waits until `count` more messages may be sent. Returns true if the run is being stopped.
    async fn pause(&mut self, count: usize, out: &SourceOutput) -> bool {
        let Some(rate) = self.config.rate else { return out.is_stopping() };
        let now = Instant::now();
        if self.due > now && out.sleep(self.due - now).await {
            return true;
        }
        let span = Duration::try_from_secs_f64(count as f64 / rate).unwrap_or(Duration::MAX);
        let from = self.due.max(now);
        self.due = from.checked_add(span).unwrap_or(from);
        out.is_stopping()
    }

    /// Reports and rejects data that cannot be read.
    async fn reject(
        &mut self,
        reason: &str,
        partition: &str,
        position: SegmentPosition,
        out: &mut SourceOutput,
    ) -> Result<(), Error> {
        tracing::error!("{reason}; the file is kept");
        let mut payload = PayloadWriter::default();
        payload.push(b"");
        let path = self.current.as_ref().map(|segment| segment.path().to_string_lossy().into());
        let checkpoint = checkpoint(partition, position);
        out.reject(Reading { payload: payload.finish(), path, positions: None, checkpoint }, reason).await
    }

    fn end(&mut self, partition: String) {
        let Some(segment) = self.current.take() else { return };
        self.unsettled.push(Read {
            number: segment.number(),
            path: segment.path().to_owned(),
            partition,
            end: segment.offset(),
            is_damaged: segment.is_damaged(),
        });
    }

    /// Removes the segments that are committed.
    fn remove_settled(&mut self, out: &SourceOutput) -> Result<(), Error> {
        if out.is_dry() {
            self.unsettled.clear();
        }
        let mut at = 0;
        while let Some(read) = self.unsettled.get(at) {
            // A segment without messages has nothing to commit.
            let is_empty = read.end <= Segment::first();
            let reached = position_of(out.committed(&read.partition));
            if !is_empty && reached.is_none_or(|position| position.offset < read.end) {
                at += 1;
                continue;
            }
            blocking(|| dispose(&read.path, read.is_damaged))
                .map_err(|error| io_error("remove", Path::new(&read.path), &error))?;
            out.forget(&read.partition);
            self.known.remove(&read.number);
            self.unsettled.remove(at);
        }
        Ok(())
    }

    /// Waits for a limited time until the segments that were sent are committed.
    async fn wait_for_commits(&mut self, out: &SourceOutput) -> Result<(), Error> {
        let mut begun = Instant::now();
        let mut left = self.unsettled.len();
        while left > 0 && begun.elapsed() < COMMIT_WAIT[usize::from(!out.is_stopping())] {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.remove_settled(out)?;
            if self.unsettled.len() < left {
                (begun, left) = (Instant::now(), self.unsettled.len());
            }
        }
        Ok(())
    }
}
