//! Writes messages into files.
//!
//! One worker writes each file, in the order in which messages arrive. The file takes over the acks of its
//! messages. They are settled together with the file, or by a checkpoint that has the unfinished file: see
//! the module `kept`. After a kill, the next run continues that file, and reads the other messages again.
//!
//! A file of the age `max_age` is finished also while no messages come. Its source may be waiting for their
//! acks, and send no other messages until then.

mod growing;
mod kept;
mod name;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Array, BinaryViewArray};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Component, Context, Error, Flow, Mistake, Output, Outputs, Temporaries, Transform, TransformConfig,
};
use thalweg_record::{Ack, Batch, Budget, File, Lease, Origin, Outcome};

use growing::Growing;
use kept::{Kept, KeptFiles, Saved};
use name::PackName;
use thalweg_codec::compress::{Compression, level_mistake};
use thalweg_codec::delimited::Delimited;
use thalweg_stream::encode::EncodeConfig;

/// Combines messages into files.
///
/// Each message is written as it is, or as `encode` says, followed by `delimiter`. A file is finished before
/// it exceeds `max_file_bytes`, when it has `max_count` messages, when it is older than `max_age`, and at the
/// end of the run. Finished files continue to components that take files, such as the sink `directory`. A
/// message is acknowledged when its file is delivered. With `--state`, messages that their source reads again
/// are acknowledged by a checkpoint, which has the unfinished file.
///
/// A file of up to 1 MiB is kept in memory, a larger one in a temporary file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    /// The name of each file, for example `part-{number}.jsonl`. It may contain:
    ///
    /// - `{number}`: counts the files, starting at 1. With `--state`, a run continues the count of the run
    ///   before it. `{number:5}` pads it with zeros to five digits.
    /// - `{date}`: the day on which the file was begun, in UTC, as in `2024-02-14`.
    /// - `{time:%Y-%m-%dT%H%M%S}`: the time at which the file was begun, in UTC, in a format as for
    ///   `strftime`.
    /// - `{id}`: an identifier that no other file has.
    ///
    /// Write braces themselves as `{{` and `}}`.
    name: PackName,
    /// The maximum size of the messages in a file, before compression. The default is 8 MiB. A message is
    /// never split; a larger message gets a file of its own.
    #[serde(default = "eight_mebibytes")]
    max_file_bytes: ByteSize,
    /// The maximum number of messages in a file. By default there is no limit.
    #[serde(default)]
    max_count: Option<NonZeroU64>,
    /// The maximum age of a file, for example `10m`. A file of that age is finished, also while no messages
    /// come. By default there is no limit.
    #[serde(default)]
    max_age: Option<TimeSpan>,
    /// The format of messages, for example `json`. By default messages are written as they are. This option
    /// encodes on one core. A transform `encode` before `pack` uses all cores, but writes no header of `csv`.
    #[serde(default)]
    encode: EncodeConfig,
    /// The text after each message. The default is a line feed.
    #[serde(default = "line_feed")]
    delimiter: String,
    /// How files are compressed; by default they are not. `name` should then end in `.gz` or `.zst`.
    #[serde(default)]
    compression: Compression,
    /// The compression level: 0 to 9 for `gzip` (the default is 6), 1 to 22 for `zstd` (the default is 3).
    #[serde(default)]
    compression_level: Option<i32>,
}

fn eight_mebibytes() -> ByteSize {
    ByteSize::mib(8)
}

fn line_feed() -> String {
    "\n".to_owned()
}

impl Component for Pack {
    const NAME: &'static str = "pack";
    const EXAMPLE: &'static str = r#"
sources:
  messages: { generate: { message: '{"name": "%12s"}', count: 1000 } }
pipelines:
  main:
    from: messages
    transforms:
      - pack: { name: "part-{number}.jsonl.gz", max_count: 100, compression: gzip }
    to: parts
sinks:
  parts: { directory: { path: parts } }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = self.encode.mistakes();
        if self.max_file_bytes.bytes() == 0 {
            mistakes.push(Mistake::new("max_file_bytes", "The size of a file cannot be 0."));
        }
        if self.max_age.is_some_and(|age| age.duration().is_zero()) {
            mistakes.push(Mistake::new("max_age", "`max_age` cannot be 0."));
        }
        mistakes.extend(level_mistake(self.compression, self.compression_level));
        mistakes
    }
}

impl TransformConfig for Pack {
    fn gives(&self) -> Flow {
        Flow::Files
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn ticks(&self) -> bool {
        self.max_age.is_some()
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let encoder = self.encode.encoder().map(|encoder| encoder.build(context)).transpose()?;
        let component: Arc<str> = context.name.as_str().into();
        Ok(Box::new(Packing {
            encoder,
            encoded: Outputs::new(component.clone()),
            delimited: Delimited::new(&self.delimiter),
            delimiter: self.delimiter.len() as u64,
            max_file_bytes: self.max_file_bytes.bytes(),
            max_count: self.max_count.map_or(u64::MAX, NonZeroU64::get),
            max_age: self.max_age.map(TimeSpan::duration),
            is_repeatable: context.resumes && context.resends && context.starts_over,
            budget: context.memory.budget().clone(),
            temporaries: context.temporary.clone(),
            config: self.clone(),
            component,
            number: 0,
            saved: None,
            file: None,
            kept: context.journal.clone().filter(|_| context.resumes).map(KeptFiles::new),
        }))
    }
}

struct Packing {
    config: Pack,
    component: Arc<str>,
    encoder: Option<Box<dyn Transform>>,
    encoded: Outputs,
    delimited: Delimited,
    /// The length of the delimiter, in bytes.
    delimiter: u64,
    max_file_bytes: u64,
    max_count: u64,
    max_age: Option<Duration>,
    /// True if all messages of a file that is not saved come again, and get the same number.
    is_repeatable: bool,
    budget: Budget,
    temporaries: Temporaries,
    /// The number of the last file.
    number: u64,
    /// The state that was saved last.
    saved: Option<Saved>,
    file: Option<Begun>,
    /// The unfinished files in the state directory, if checkpoints are kept.
    kept: Option<KeptFiles>,
}

/// A file that is being written.
struct Begun {
    content: Growing,
    number: u64,
    at: DateTime<Utc>,
    since: Instant,
    /// The bytes before compression, and the number of messages.
    bytes: u64,
    count: u64,
    /// The acks of these messages, except of those that a checkpoint has.
    ack: Ack,
    /// The bytes that the state directory has.
    kept: Option<Kept>,
    /// The memory of the compressor, which is tens of mebibytes at high levels.
    _compressor: Lease,
}

impl Transform for Packing {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.finish_old(out)?;
        let Some(encoder) = &mut self.encoder else { return self.add(batch, out) };
        encoder.apply(batch, &mut self.encoded)?;
        self.add_encoded(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(encoder) = &mut self.encoder {
            encoder.resume(&mut self.encoded)?;
        }
        self.add_encoded(out)
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.finish_file(out)
    }

    fn due(&self) -> Option<Instant> {
        self.file.as_ref()?.since.checked_add(self.max_age?)
    }

    fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.finish_old(out)
    }

    fn has_news(&self) -> bool {
        self.kept.as_ref().is_some_and(KeptFiles::has_news)
    }

    fn pre_commit(&mut self) -> Result<(), Error> {
        let no_ack = self.no_ack();
        let Some(kept) = &mut self.kept else { return Ok(()) };
        kept.forget_old()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        self.delimited.flush(&mut file.content).map_err(unwritable)?;
        let encoder = self.config.compression.begin(self.config.compression_level).map_err(unwritable)?;
        file.content.end_member(encoder).map_err(unwritable)?;
        kept.keep(file, self.config.compression)?;
        std::mem::replace(&mut file.ack, no_ack).settle(Outcome::Delivered);
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.kept.as_ref().is_some_and(KeptFiles::has_failed)
    }

    fn is_delivering(&self) -> bool {
        self.kept.as_ref().is_some_and(KeptFiles::is_delivering)
    }

    /// The number of the next file, and what the state directory has of it. The other messages of a file that
    /// is not finished come again, so a later run gives its number again.
    fn state(&mut self) -> Option<Value> {
        let saved = match &self.file {
            Some(file) => Saved { next: file.number, file: file.kept },
            None => Saved { next: self.number + 1, file: None },
        };
        let changed = self.saved.replace(saved) != Some(saved);
        changed.then(|| serde_json::to_value(saved).ok()).flatten()
    }

    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let Saved { next, file } = serde_json::from_value(saved.clone()).map_err(|_| {
            Error::permanent(format!("the saved number of files is `{saved}`; use another state folder"))
        })?;
        self.number = next.saturating_sub(1);
        let Some(files) = &self.kept else { return Ok(()) };
        let Some(kept) = file else { return files.forget_others(None) };
        if kept.compression != self.config.compression {
            return Err(Error::permanent(
                "an earlier run left an unfinished file with another `compression`. Set `compression` back until that \
                 file is finished, or use another state folder, with which all input is read from its beginning",
            ));
        }
        let mut begun = self.new_file(kept.begun()).map_err(unwritable)?;
        files.read(next, kept, |bytes| begun.content.add_stored(&bytes).map_err(unwritable))?;
        files.forget_others(Some(next))?;
        (begun.bytes, begun.count, begun.kept) = (kept.bytes, kept.count, Some(kept));
        self.number = next;
        self.file = Some(Begun { number: next, ..begun });
        Ok(())
    }
}

impl Packing {
    /// Adds what the encoder gave to the file. If it holds messages back, so does this transform.
    fn add_encoded(&mut self, out: &mut Outputs) -> Result<(), Error> {
        for (output, batch) in self.encoded.take() {
            match output {
                Output::Main => self.add(batch, out)?,
                other => out.pass(other, batch),
            }
        }
        if let Some(pause) = self.encoded.take_held() {
            out.hold(pause);
        }
        Ok(())
    }

    /// Adds messages to the file, and to further files if it becomes full.
    fn add(&mut self, mut batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let ack = batch.take_ack();
        let payload = batch.payload();
        let mut from = 0;
        while from < payload.len() {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => self.begin(&batch).map_err(unwritable)?,
            };
            let rest = payload.slice(from, payload.len() - from);
            let fitting =
                self.delimited.fitting(&rest, self.max_file_bytes.saturating_sub(file.bytes)) as u64;
            // A message larger than a whole file gets a file of its own.
            let least = u64::from(file.count == 0);
            let count = fitting.min(self.max_count - file.count).max(least) as usize;
            if count > 0 {
                let part = rest.slice(0, count);
                self.delimited.write(&part, &mut file.content).map_err(unwritable)?;
                file.bytes += length(&part) + count as u64 * self.delimiter;
                file.count += count as u64;
                file.ack.merge(ack.split());
                from += count;
            }
            let is_full = count == 0 || file.bytes >= self.max_file_bytes || file.count >= self.max_count;
            self.file = Some(file);
            if is_full {
                self.finish_file(out)?;
            }
        }
        // All messages were split off; the rest of the ack covers none.
        ack.settle(Outcome::Filtered);
        Ok(())
    }

    /// Begins a file; the batch's schema decides its header.
    fn begin(&mut self, batch: &Batch) -> io::Result<Begun> {
        self.number += 1;
        let mut begun = self.new_file(Utc::now())?;
        if let Some(mut header) = self.config.encode.header(&batch.fields().schema()) {
            header.extend_from_slice(self.config.delimiter.as_bytes());
            begun.content.write_all(&header)?;
            begun.bytes = header.len() as u64;
        }
        Ok(begun)
    }

    /// Returns the ack of no messages.
    fn no_ack(&self) -> Ack {
        let mut ack = Ack::noop();
        ack.enter(&self.component);
        ack
    }

    /// Returns an empty file that was begun at this time.
    fn new_file(&self, at: DateTime<Utc>) -> io::Result<Begun> {
        let (compression, level) = (self.config.compression, self.config.compression_level);
        let lease = self.budget.claim(compression.encoder_memory(level));
        let content = Growing::new(&self.budget, &self.temporaries, compression.begin(level)?);
        let age = (Utc::now() - at).to_std().unwrap_or_default();
        Ok(Begun {
            content,
            number: self.number,
            at,
            since: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            bytes: 0,
            count: 0,
            ack: self.no_ack(),
            kept: None,
            _compressor: lease,
        })
    }

    /// Finishes the file if it is older than `max_age`.
    fn finish_old(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let is_old = |file: &Begun| self.max_age.is_some_and(|age| file.since.elapsed() >= age);
        match self.file.as_ref().is_some_and(is_old) {
            true => self.finish_file(out),
            false => Ok(()),
        }
    }

    /// Finishes the file, if there is one, and sends it.
    fn finish_file(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let Some(mut begun) = self.file.take() else { return Ok(()) };
        if let Some(kept) = self.kept.as_mut().filter(|_| begun.kept.is_some()) {
            begun.ack.merge(kept.finished(begun.number, &self.component));
        }
        self.delimited.flush(&mut begun.content).map_err(unwritable)?;
        let (content, size) = begun.content.finish().map_err(unwritable)?;
        let mut origin = Origin::new(self.component.clone(), "".into(), size);
        let name = self.config.name.render(begun.number, begun.at, origin.id());
        origin.name = name.into();
        origin.key = self.is_repeatable.then(|| format!("{}", begun.number).into());
        let lease = self.budget.claim(File::WEIGHT);
        let mut file = File::new(origin, content).with_lease(Arc::new(lease));
        file.ack_mut().merge(begun.ack);
        out.send_file(file);
        Ok(())
    }
}

/// Returns the total size of payloads in bytes.
fn length(payload: &BinaryViewArray) -> u64 {
    payload.lengths().map(u64::from).sum()
}

fn unwritable(error: io::Error) -> Error {
    Error::permanent(format!("a packed file cannot be written: {error}"))
}
