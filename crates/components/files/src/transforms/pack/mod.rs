//! Messages into files.
//!
//! A file is put together by one copy, in the order in which the messages come. It takes over the duty to acknowledge
//! them: they are done with when the file is, so that a run which is killed before reads them again.
//!
//! A transform has no clock: it is called when messages come. So a file that is older than `max_age` is finished by the
//! next message, or by the end.

mod growing;
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
use thalweg_config::{ByteSize, TimeSpan};
use thalweg_engine::{
    Context, Error, Flow, Mistake, Output, Outputs, Temporaries, Transform, TransformConfig,
};
use thalweg_record::{Ack, Batch, Budget, File, Origin, Outcome};

use growing::Growing;
use name::PackName;
use thalweg_codec::compress::{Compression, level_mistake};
use thalweg_codec::delimited::Delimited;
use thalweg_stream::encode::EncodeConfig;

/// Puts messages together into files.
///
/// Each message is written as it is, or as `encode` says, followed by `delimiter`. A file is finished before it would get
/// larger than `max_size`, when it has `max_count` messages, and at the end of the run; then it goes on to what takes files, a
/// sink `directory` for example. Messages are acknowledged when their file is delivered.
///
/// Up to 1 MiB of a file is kept in memory, a larger one in a temporary file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pack {
    /// What the files are called: `part-{number}.jsonl`. `{number}` counts them from 1, `{number:5}` with noughts to five
    /// digits; it begins anew with each run. `{date}` is the day when a file was begun, as 2024-02-14, and `{time:%Y-%m-%dT%H%M%S}`
    /// the moment as strftime writes it, both in UTC. `{id}` is a name that no other file has. Braces themselves are
    /// written `{{` and `}}`.
    name: PackName,
    /// The most bytes of messages in a file, before compression. A message is never divided, and one that is larger gets a file of
    /// its own.
    #[serde(default = "eight_mebibytes")]
    max_size: ByteSize,
    /// The most messages in a file.
    #[serde(default)]
    max_count: Option<NonZeroU64>,
    /// The longest that a file is added to, for example `10m`. It is looked at when messages come: while there are
    /// none, a file waits.
    #[serde(default)]
    max_age: Option<TimeSpan>,
    /// The form in which messages are written, for example `json`. By default they are written as they are. It takes one
    /// core; a transform `encode` before this one takes all of them, but writes no header of `csv`.
    #[serde(default)]
    encode: EncodeConfig,
    /// What is written after each message: by default a line feed.
    #[serde(default = "line_feed")]
    delimiter: String,
    /// Whether files are compressed, and how. Put `.gz` or `.zst` into `name`.
    #[serde(default)]
    compression: Compression,
    /// How hard to compress: 0 to 9 for `gzip` (by default 6), 1 to 22 for `zstd` (by default 3).
    #[serde(default)]
    compression_level: Option<i32>,
}

fn eight_mebibytes() -> ByteSize {
    ByteSize::mib(8)
}

fn line_feed() -> String {
    "\n".to_owned()
}

impl TransformConfig for Pack {
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
    const GIVES: Flow = Flow::Files;

    fn check(&self) -> Vec<Mistake> {
        let of_encode = TransformConfig::check(&self.encode).into_iter();
        let mut mistakes: Vec<Mistake> =
            of_encode.map(|mistake| Mistake { option: "encode", ..mistake }).collect();
        if self.max_size.bytes() == 0 {
            mistakes.push(Mistake::new("max_size", "The size of a file cannot be 0."));
        }
        if self.max_age.is_some_and(|age| age.duration().is_zero()) {
            mistakes.push(Mistake::new("max_age", "It cannot be 0."));
        }
        mistakes.extend(level_mistake(self.compression, self.compression_level));
        mistakes
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let encoder = self.encode.encoder().map(|encoder| encoder.build(context)).transpose()?;
        let component: Arc<str> = context.name.as_str().into();
        Ok(Box::new(Packing {
            encoder,
            encoded: Outputs::new(component.clone()),
            delimited: Delimited::new(&self.delimiter),
            delimiter: self.delimiter.len() as u64,
            max_size: self.max_size.bytes(),
            max_count: self.max_count.map_or(u64::MAX, NonZeroU64::get),
            max_age: self.max_age.map(TimeSpan::duration),
            budget: context.memory.budget().clone(),
            temporaries: context.temporary.clone(),
            config: self.clone(),
            component,
            number: 0,
            file: None,
        }))
    }
}

struct Packing {
    config: Pack,
    component: Arc<str>,
    encoder: Option<Box<dyn Transform>>,
    encoded: Outputs,
    delimited: Delimited,
    /// The length of the delimiter.
    delimiter: u64,
    max_size: u64,
    max_count: u64,
    max_age: Option<Duration>,
    budget: Budget,
    temporaries: Temporaries,
    /// That of the file begun last.
    number: u64,
    file: Option<Begun>,
}

/// A file that messages are added to.
struct Begun {
    content: Growing,
    number: u64,
    at: DateTime<Utc>,
    since: Instant,
    /// The bytes in it before compression, and the messages.
    bytes: u64,
    count: u64,
    /// The duty to acknowledge these.
    ack: Ack,
}

impl Transform for Packing {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.finish_old(out)?;
        let Some(encoder) = &mut self.encoder else { return self.add(batch, out) };
        encoder.apply(batch, &mut self.encoded)?;
        for (output, batch) in self.encoded.take() {
            match output {
                Output::Main => self.add(batch, out)?,
                other => out.pass(other, batch),
            }
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.finish_file(out)
    }
}

impl Packing {
    /// Adds messages to the file, and to as many more as it takes.
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
            let fitting = self.delimited.fitting(&rest, self.max_size.saturating_sub(file.bytes)) as u64;
            // One that is larger than a whole file has one of its own.
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
            let is_full = count == 0 || file.bytes >= self.max_size || file.count >= self.max_count;
            self.file = Some(file);
            if is_full {
                self.finish_file(out)?;
            }
        }
        // What is left of it stands for no message.
        ack.settle(Outcome::Filtered);
        Ok(())
    }

    /// Begins a file with a message of this batch.
    fn begin(&mut self, batch: &Batch) -> io::Result<Begun> {
        let encoder = self.config.compression.begin(self.config.compression_level)?;
        let mut content = Growing::new(&self.budget, &self.temporaries, encoder);
        let mut bytes = 0;
        if let Some(mut header) = self.config.encode.header(&batch.fields().schema()) {
            header.extend_from_slice(self.config.delimiter.as_bytes());
            content.write_all(&header)?;
            bytes = header.len() as u64;
        }
        self.number += 1;
        let mut ack = Ack::noop();
        ack.enter(&self.component);
        let (at, since) = (Utc::now(), Instant::now());
        Ok(Begun { content, number: self.number, at, since, bytes, count: 0, ack })
    }

    /// Finishes the file if it was begun too long ago.
    fn finish_old(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let is_old = |file: &Begun| self.max_age.is_some_and(|age| file.since.elapsed() >= age);
        match self.file.as_ref().is_some_and(is_old) {
            true => self.finish_file(out),
            false => Ok(()),
        }
    }

    /// Gives the file away, if there is one.
    fn finish_file(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let Some(mut begun) = self.file.take() else { return Ok(()) };
        self.delimited.flush(&mut begun.content).map_err(unwritable)?;
        let (content, size) = begun.content.finish().map_err(unwritable)?;
        let mut origin = Origin::new(self.component.clone(), "".into(), size);
        let name = self.config.name.render(begun.number, begun.at, origin.id());
        origin.name = name.into();
        let lease = self.budget.claim(File::WEIGHT);
        let mut file = File::new(origin, content).with_lease(Arc::new(lease));
        file.ack_mut().merge(begun.ack);
        out.send_file(file);
        Ok(())
    }
}

/// The bytes of payloads.
fn length(payload: &BinaryViewArray) -> u64 {
    payload.lengths().map(u64::from).sum()
}

fn unwritable(error: io::Error) -> Error {
    Error::permanent(format!("a file that messages are put together in cannot be written: {error}"))
}
