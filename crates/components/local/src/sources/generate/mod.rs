//! Makes messages: for measurements, for examples and for trying a configuration before there is data.
//!
//! The pattern language is printf's, as in gollum's profiler, so its configurations carry over. A few
//! *templates* are made beforehand, and each message is a copy of one chosen at random. Otherwise a
//! measurement would show the speed of the random numbers and not of the components behind the source.
//!
//! Message number *n* is a function of the seed and *n* alone: the random numbers are a hash of a counter,
//! not a chain. A run that continues an earlier one therefore makes exactly the messages that were still
//! missing.

mod pattern;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::List;
use thalweg_engine::{
    Checkpoint, Component, Context, Endless, Error, KnownFields, Mistake, Reading, Source, SourceConfig,
    SourceOutput,
};
use thalweg_record::ViewBuilder;

use pattern::{MessagePattern, PatternWriter, Piece, Random, below};

/// The size of a batch in bytes. Batches of this size stay in a core's second-level cache. Larger ones were
/// slower, and smaller ones cost more for each batch.
const BATCH_BYTES: usize = 256 << 10;

/// The only partition: all messages are numbered in one sequence.
const PARTITION: &str = "messages";

/// Makes messages from a pattern or a list.
///
/// Without options it makes random texts of 256 characters until it is stopped. Use it to measure a pipeline
/// or to try one. `lines` sends literal messages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateConfig {
    /// The pattern of a message: text with placeholders. `%256s` is a random text of 256 characters, and `%c`
    /// one random character. `%6d` is a random whole number below 10 to the 6th; `%6x`, `%6X`, `%6o` and
    /// `%6b` write it in hexadecimal, octal or binary. `%2f` is a random number from 0 to 10 to the 2nd;
    /// `%2e` writes it in exponent form, `%2g` as short as possible. `%%` is a percent sign. `%q`, `%v` and
    /// `%T` mean the same as `%s`. The default is `%256s`.
    message: Option<MessagePattern>,
    /// Messages to send as they are, in turn. It replaces `message`.
    lines: Option<List<String, 1>>,
    /// The characters of random texts. The default is the letters and digits of ASCII.
    #[schemars(length(min = 1))]
    characters: String,
    /// The number of different messages to make beforehand. Each message is then a copy of one of them,
    /// chosen at random. With `0` every message is made individually, which is far slower. The default is 10.
    #[schemars(range(max = 100_000))]
    templates: u32,
    /// The total number of messages. By default each of the `lines` is sent once; without `lines` there is no
    /// end.
    count: Option<u64>,
    /// The average number of messages per second, evenly spread. By default there is no limit.
    rate: Option<f64>,
    /// A number that determines all random choices: the same seed yields the same messages. By default each
    /// run uses another seed.
    seed: Option<u64>,
}

impl Default for GenerateConfig {
    fn default() -> Self {
        Self {
            message: None,
            lines: None,
            characters: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789".to_owned(),
            templates: 10,
            count: None,
            rate: None,
            seed: None,
        }
    }
}

impl Component for GenerateConfig {
    const NAME: &'static str = "generate";
    const EXAMPLE: &'static str = r#"
sources:
  messages:
    generate:
      message: '{"id": %6d, "name": "%12s", "score": %2f}'
      count: 1000
pipelines:
  main: { from: messages, to: nowhere }
sinks:
  nowhere: { discard: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if self.lines.is_some() && self.message.is_some() {
            let mistake = Mistake::new("lines", "`lines` and `message` exclude each other.");
            mistakes.push(mistake.help("Remove one of the two."));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            let mistake = Mistake::new("rate", "`rate` must be greater than 0.");
            mistakes.push(mistake.help("Leave it out to make as many messages as possible."));
        }
        mistakes
    }
}

impl SourceConfig for GenerateConfig {
    fn endless(&self) -> Option<Endless> {
        Endless::unless("count", self.count.is_some() || self.lines.is_some())
    }

    fn fields(&self) -> KnownFields {
        KnownFields::none()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn has_growing_positions(&self) -> bool {
        false
    }

    fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..));
        let pattern = match &self.message {
            Some(pattern) => pattern.clone(),
            None => MessagePattern { pieces: vec![Piece::Text(256)] },
        };
        let writer = PatternWriter { pattern, characters: self.characters.chars().collect() };
        let (maker, count) = match &self.lines {
            Some(lines) => {
                let lines: Vec<_> =
                    lines.iter().map(|line| with_line_feed(line.clone().into_bytes())).collect();
                let count = self.count.unwrap_or(lines.len() as u64);
                (Maker::InTurn(lines), Some(count))
            }
            None if self.templates == 0 => (Maker::Anew(writer), self.count),
            None => {
                let make = |number| {
                    let mut message = Vec::new();
                    // The numbers of the templates count down from the maximum, so they differ from those of
                    // the messages.
                    writer.write(&mut Random::new(seed, u64::MAX - number), &mut message);
                    with_line_feed(message)
                };
                (Maker::AtRandom((0..u64::from(self.templates)).map(make).collect()), self.count)
            }
        };
        let filler = Filler { maker, seed, made: 0, pending: Vec::new() };
        Ok(Box::new(Generate { filler, count, rate: self.rate, lengths: Vec::new(), resumed: false }))
    }
}

fn with_line_feed(mut message: Vec<u8>) -> Vec<u8> {
    message.push(b'\n');
    message
}

/// Where messages come from. Each ends in a line feed already.
enum Maker {
    InTurn(Vec<Vec<u8>>),
    AtRandom(Vec<Vec<u8>>),
    Anew(PatternWriter),
}

/// Fills memory with messages, each followed by a line feed.
struct Filler {
    maker: Maker,
    seed: u64,
    /// The number of messages made so far, which is the number of the next.
    made: u64,
    /// The message that is being made, or that did not fit.
    pending: Vec<u8>,
}

impl Filler {
    /// Fills `memory` with at most `limit` messages, and appends their lengths to `lengths`. If not even one
    /// message fits, returns the number of bytes needed.
    fn fill(&mut self, memory: &mut [u8], limit: u64, lengths: &mut Vec<u32>) -> Result<(), usize> {
        let mut at = 0;
        let end = self.made.saturating_add(limit);
        while self.made < end {
            let message = match &self.maker {
                Maker::InTurn(lines) => &lines[(self.made % lines.len() as u64) as usize],
                Maker::AtRandom(templates) => {
                    &templates[below(Random::at(self.seed, self.made), templates.len() as u64) as usize]
                }
                Maker::Anew(writer) => {
                    if self.pending.is_empty() {
                        writer.write(&mut Random::new(self.seed, self.made), &mut self.pending);
                        self.pending.push(b'\n');
                    }
                    &self.pending
                }
            };
            let Some(room) = memory.get_mut(at..at + message.len()) else {
                return if at == 0 { Err(message.len()) } else { Ok(()) };
            };
            room.copy_from_slice(message);
            at += message.len();
            lengths.push(message.len() as u32 - 1);
            self.pending.clear();
            self.made += 1;
        }
        Ok(())
    }
}

struct Generate {
    filler: Filler,
    count: Option<u64>,
    rate: Option<f64>,
    lengths: Vec<u32>,
    resumed: bool,
}

#[async_trait]
impl Source for Generate {
    async fn run(&mut self, out: &mut SourceOutput) -> Result<(), Error> {
        if !std::mem::replace(&mut self.resumed, true) {
            let saved = out.saved(PARTITION);
            self.filler.made = saved.and_then(|saved| saved.get("made")?.as_u64()).unwrap_or(0);
        }
        let (began, first) = (Instant::now(), self.filler.made);
        let mut arena_bytes = out.batch_bytes().clamp(1, BATCH_BYTES);
        while !out.is_stopping() {
            let mut limit = self.count.map_or(u64::MAX, |count| count.saturating_sub(self.filler.made));
            if limit == 0 {
                break;
            }
            if let Some(rate) = self.rate {
                match self.due(rate, began.elapsed(), first) {
                    Ok(due) => limit = limit.min(due),
                    Err(wait) => {
                        out.sleep(wait).await;
                        continue;
                    }
                }
            }
            limit = limit.min(out.next_rows() as u64);
            let mut arena = out.arena(arena_bytes).await;
            self.lengths.clear();
            if let Err(needed) = self.filler.fill(&mut arena, limit, &mut self.lengths) {
                arena_bytes = needed;
                continue;
            }
            let memory = arena.freeze();
            let mut payload = ViewBuilder::over(std::slice::from_ref(&memory), self.lengths.len());
            let mut at = 0;
            for &length in &self.lengths {
                payload.push_range(0, at, length as usize);
                at += length as usize + 1;
            }
            let position = serde_json::json!({ "made": self.filler.made });
            let checkpoint = Some(Checkpoint { partition: PARTITION.into(), offset: position });
            out.send(Reading { payload: payload.finish(), path: None, positions: None, checkpoint }).await?;
            // Nothing above ever waits if the sink is fast. The next stage should get the batch while it is
            // in the cache, and before the source makes more.
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

impl Generate {
    /// Returns the number of messages that the rate allows now, or the time to wait for the next ones. At a
    /// high rate it waits for more than one message, since waking up for each would be slower than the rate.
    fn due(&self, rate: f64, elapsed: Duration, first: u64) -> Result<u64, Duration> {
        const PAUSE_SECONDS: f64 = 0.01;
        let made = (self.filler.made - first) as f64;
        let allowed = (elapsed.as_secs_f64() * rate).floor() + 1.0;
        if allowed > made {
            return Ok((allowed - made) as u64);
        }
        let next = made + (rate * PAUSE_SECONDS).floor();
        let seconds = (next / rate - elapsed.as_secs_f64()).max(0.0001);
        Err(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}
