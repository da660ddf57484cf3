//! Makes messages: for measurements, for examples and for trying a configuration before there is data.
//!
//! The pattern language is printf's, as gollum's profiler has it, so its configurations carry over. A few
//! *templates* are made beforehand and each message is a copy of one chosen at random, since otherwise one would
//! measure the random numbers and not what comes after them.
//!
//! Message number *n* is a function of the seed and *n* alone (the random numbers are a hash of a counter, not a
//! chain), so a run that continues a former one makes exactly the messages that were still to come.

use std::borrow::Cow;
use std::io::Write as _;
use std::str::FromStr;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, register_format};
use thalweg_engine::{Context, Error, Mark, Mistake, Outlet, Reading, Source, SourceConfig};
use thalweg_record::ViewBuilder;

/// Batches stay in a core's second-level cache: larger ones were slower and smaller ones cost more for each batch.
const BATCH_BYTES: usize = 256 << 10;

/// The most random characters in a message.
const LONGEST_TEXT: usize = 1 << 20;

/// The only lane: messages are numbered through.
const LANE: &str = "messages";

/// Makes messages from a pattern or a list.
///
/// Without options it makes random texts of 256 characters until it is stopped. Use it to measure a pipeline, or
/// to try one: `lines` gives literal messages.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateConfig {
    /// What a message looks like: text in which `%256s` is a random text of 256 characters, `%6d` a random whole
    /// number below 10 to the 6th (`%6x`, `%6X`, `%6o` and `%6b` write it in hexadecimal, octal or binary), `%2f`
    /// a random number from 0 to 10 to the 2nd (`%2e` in exponent form, `%2g` as short as possible), `%c` one
    /// random character and `%%` a percent sign. `%q`, `%v` and `%T` mean the same as `%s`. The default is `%256s`.
    message: Option<MessagePattern>,
    /// Messages to give as they are, in turn, instead of making them from `message`.
    #[schemars(length(min = 1))]
    lines: Option<Vec<String>>,
    /// The characters that random texts are made of. The default is the letters and digits of ASCII.
    #[schemars(length(min = 1))]
    characters: String,
    /// How many different messages to make beforehand; each message is then a copy of one of them, chosen at
    /// random. With `0` every message is made anew, which is far slower. The default is 10.
    #[schemars(range(max = 100_000))]
    templates: u32,
    /// How many messages to make in all. The default is as many as there are `lines`, and without `lines`: no end.
    count: Option<u64>,
    /// How many messages a second on average, evenly spread. The default is as many as possible.
    rate: Option<f64>,
    /// A number that decides all random choices: with the same seed the same messages come again. The default is
    /// another one in each run.
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

impl SourceConfig for GenerateConfig {
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
            mistakes.push(mistake.help("Keep the one that says what the messages are to be."));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            let mistake = Mistake::new("rate", "`rate` must be more than nothing.");
            mistakes.push(mistake.help("Leave it out to make as many messages as possible."));
        }
        mistakes
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
                    // The templates' numbers come from the other end, so that they are not the messages' choices.
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

/// What a random message is made of.
#[derive(Debug, Clone)]
struct MessagePattern {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Literal(String),
    Text(usize),
    Integer { below: u64, base: Base },
    Float { scale: f64, form: Form },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Base {
    Decimal,
    Binary,
    Octal,
    Hexadecimal,
    UpperHexadecimal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Fixed,
    Exponent,
    Shortest,
}

impl MessagePattern {
    const FORMAT: &'static str = "message-pattern";
}

impl FromStr for MessagePattern {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        const HELP: &str = "After `%` comes a number and one of `s`, `d`, `x`, `X`, `o`, `b`, `f`, `e`, `g` or `c`, \
                            for example `%8s`. A percent sign itself is written `%%`.";
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut characters = 0usize;
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let percent = rest.find('%').unwrap_or(rest.len());
            literal.push_str(&rest[..percent]);
            at += percent;
            let Some(after) = rest.get(percent + 1..) else { break };
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let Some(verb) = after[digits..].chars().next() else {
                return Err(FormatError::new("Something is missing after the `%`.")
                    .at(at..text.len())
                    .help(HELP));
            };
            let end = at + 1 + digits + verb.len_utf8();
            let wrong = |message: String| FormatError::new(message).at(at..end);
            // More digits than fit a number are more than any verb takes.
            let number = match digits {
                0 => 1,
                _ => after[..digits].parse::<usize>().unwrap_or(usize::MAX),
            };
            let integer = |base| match u32::try_from(number).ok().and_then(|n| 10u64.checked_pow(n)) {
                Some(below) => Ok(Piece::Integer { below, base }),
                None => Err(wrong("A whole number has at most 19 digits.".to_owned())),
            };
            let float = |form| match i32::try_from(number).ok().filter(|&n| n <= 300) {
                Some(n) => Ok(Piece::Float { scale: 10f64.powi(n), form }),
                None => Err(wrong("A number is at most 10 to the 300th.".to_owned())),
            };
            let piece = match verb {
                '%' if digits == 0 => {
                    literal.push('%');
                    at = end;
                    continue;
                }
                's' | 'q' | 'v' | 'T' | 'c' => {
                    let number = if verb == 'c' { 1 } else { number };
                    characters = characters.saturating_add(number);
                    if characters > LONGEST_TEXT {
                        let message = format!("A message has at most {LONGEST_TEXT} random characters.");
                        return Err(wrong(message));
                    }
                    Piece::Text(number)
                }
                'd' => integer(Base::Decimal)?,
                'b' => integer(Base::Binary)?,
                'o' => integer(Base::Octal)?,
                'x' => integer(Base::Hexadecimal)?,
                'X' => integer(Base::UpperHexadecimal)?,
                'f' => float(Form::Fixed)?,
                'e' => float(Form::Exponent)?,
                'g' => float(Form::Shortest)?,
                _ => return Err(wrong(format!("`{}` is not known.", &text[at..end])).help(HELP)),
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            at = end;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self { pieces })
    }
}

impl<'de> Deserialize<'de> for MessagePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for MessagePattern {
    fn schema_name() -> Cow<'static, str> {
        "MessagePattern".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        register_format(Self::FORMAT, |text| Self::from_str(text).map(|_| ()));
        json_schema!({
            "type": "string",
            "format": Self::FORMAT,
            "examples": ["%256s", "{\"id\": %6d, \"name\": \"%12s\"}"],
        })
    }
}

/// Random numbers that are a hash of a counter (SplitMix64).
struct Random(u64);

impl Random {
    /// The sequence that belongs to message `number`.
    fn new(seed: u64, number: u64) -> Self {
        Self(Self::at(seed, number))
    }

    /// One number for message `number`.
    #[inline]
    fn at(seed: u64, number: u64) -> u64 {
        let mut x = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        Self::at(self.0, 1)
    }
}

/// A number below `bound` from a random one, nearly evenly.
#[inline]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

struct PatternWriter {
    pattern: MessagePattern,
    characters: Vec<char>,
}

impl PatternWriter {
    fn write(&self, random: &mut Random, message: &mut Vec<u8>) {
        for piece in &self.pattern.pieces {
            // Writing to memory does not fail.
            let _ = match piece {
                Piece::Literal(text) => message.write_all(text.as_bytes()),
                Piece::Text(length) => {
                    self.write_text(random, *length, message);
                    Ok(())
                }
                Piece::Integer { below: bound, base } => {
                    let number = below(random.next(), *bound);
                    match base {
                        Base::Decimal => write!(message, "{number}"),
                        Base::Binary => write!(message, "{number:b}"),
                        Base::Octal => write!(message, "{number:o}"),
                        Base::Hexadecimal => write!(message, "{number:x}"),
                        Base::UpperHexadecimal => write!(message, "{number:X}"),
                    }
                }
                Piece::Float { scale, form } => {
                    let number = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * scale;
                    match form {
                        Form::Fixed => write!(message, "{number:.6}"),
                        Form::Exponent => write!(message, "{number:e}"),
                        Form::Shortest => write!(message, "{number}"),
                    }
                }
            };
        }
    }

    fn write_text(&self, random: &mut Random, length: usize, message: &mut Vec<u8>) {
        let count = self.characters.len() as u64;
        let mut bits = 0;
        for position in 0..length {
            // 32 of a number's bits are enough for a character.
            bits = if position % 2 == 0 { random.next() } else { bits << 32 };
            let Some(&character) = self.characters.get(below(bits, count) as usize) else { return };
            if character.is_ascii() {
                message.push(character as u8);
            } else {
                message.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

/// Where messages come from; each has its line feed already.
enum Maker {
    InTurn(Vec<Vec<u8>>),
    AtRandom(Vec<Vec<u8>>),
    Anew(PatternWriter),
}

/// Fills memory with messages, each followed by a line feed.
struct Filler {
    maker: Maker,
    seed: u64,
    /// How many messages were made: the number of the next.
    made: u64,
    /// The message that is being made anew, or that found no room.
    pending: Vec<u8>,
}

impl Filler {
    /// Fills `memory` with at most `limit` messages, the lengths of which it adds to `lengths`. If not even one
    /// fits, it gives the bytes that are needed.
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
    async fn run(&mut self, out: &mut Outlet) -> Result<(), Error> {
        if !std::mem::replace(&mut self.resumed, true) {
            let saved = out.saved(LANE);
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
                match self.due(rate, began, first) {
                    Ok(due) => limit = limit.min(due),
                    Err(wait) => {
                        out.sleep(wait).await;
                        continue;
                    }
                }
            }
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
            let mark = Some(Mark { lane: LANE.into(), position });
            out.send(Reading { payload: payload.finish(), path: None, positions: None, mark }).await?;
            // Nothing above ever waits when the sink is fast. Whoever takes the batch should have it while it is in
            // the cache, and before there are more.
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

impl Generate {
    /// How many messages the rate allows now, or how long to wait until it allows some. At a high rate it waits
    /// for more than one, since waking up for each would be slower than the rate.
    fn due(&self, rate: f64, began: Instant, first: u64) -> Result<u64, Duration> {
        const PAUSE_SECONDS: f64 = 0.01;
        let made = (self.filler.made - first) as f64;
        let allowed = (began.elapsed().as_secs_f64() * rate).floor() + 1.0;
        if allowed > made {
            return Ok((allowed - made) as u64);
        }
        let next = made + (rate * PAUSE_SECONDS).floor();
        let seconds = (next / rate - began.elapsed().as_secs_f64()).max(0.0001);
        Err(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thalweg_engine::testing::{options, read_all, start, try_options};
    use thalweg_record::{Outcome, Parcel, payload_runs};

    async fn made(yaml: &str) -> Vec<String> {
        let sent = read_all::<GenerateConfig>(yaml, 4096).await;
        assert!(sent.result.is_none());
        sent.payloads()
    }

    #[tokio::test]
    async fn lines_come_in_turn_each_once_by_default() {
        assert_eq!(made("{ lines: [a, '', 'a longer line than a view holds'] }").await.len(), 3);
        assert_eq!(made("{ lines: [a, b], count: 5 }").await, ["a", "b", "a", "b", "a"]);
        assert!(made("{ count: 0 }").await.is_empty());
    }

    #[tokio::test]
    async fn verbs_are_filled_in() {
        let message = "100%% %3d|%4s|%c|%2f|%1e|%1g|%3x|%3X|%3o|%3b|%2q";
        for templates in [0, 10] {
            let messages =
                made(&format!("{{ message: '{message}', templates: {templates}, count: 50 }}")).await;
            assert_eq!(messages.len(), 50);
            for message in messages {
                let parts: Vec<_> = message.strip_prefix("100% ").unwrap().split('|').collect();
                assert!(parts[0].parse::<u32>().unwrap() < 1000);
                assert_eq!((parts[1].len(), parts[2].len(), parts[10].len()), (4, 1, 2));
                assert!(parts[3..6].iter().all(|part| part.parse::<f64>().unwrap() < 100.0));
                assert!(u32::from_str_radix(parts[9], 2).unwrap() < 1000);
            }
        }
    }

    #[tokio::test]
    async fn the_same_seed_makes_the_same_messages_and_another_run_others() {
        for templates in [0, 3] {
            let yaml = format!("{{ seed: 7, templates: {templates}, count: 20, characters: 'äß€x' }}");
            let messages = made(&yaml).await;
            assert_eq!(messages, made(&yaml).await);
            assert_ne!(messages, made(&yaml.replace('7', "8")).await);
            assert!(messages.iter().all(|message| message.chars().count() == 256));
        }
    }

    #[tokio::test]
    async fn a_batch_is_one_run_of_lines() {
        let sent = read_all::<GenerateConfig>(
            "{ lines: ['', short, 'a longer line than a view holds'], count: 99 }",
            999,
        )
        .await;
        assert!(sent.main.len() > 1);
        for batch in &sent.main {
            let runs = payload_runs(batch.payload(), b'\n').filter(Result::is_ok).count();
            assert!(runs <= batch.rows().div_ceil(2));
        }
        let long =
            read_all::<GenerateConfig>("{ message: 'a message of some length', count: 99 }", 999).await;
        assert!(long.main.iter().all(|batch| payload_runs(batch.payload(), b'\n').count() == 1));
    }

    #[tokio::test]
    async fn a_message_longer_than_a_batch_is_made() {
        for templates in [0, 1] {
            let messages = made(&format!("{{ message: '%9000s', templates: {templates}, count: 3 }}")).await;
            assert!(messages.len() == 3 && messages.iter().all(|message| message.len() == 9000));
        }
    }

    #[tokio::test]
    async fn a_later_run_makes_what_was_still_to_come() {
        let yaml = "{ seed: 1, message: '%8d', templates: 0, count: 10 }";
        let all = made(yaml).await;
        let saved = BTreeMap::from([(LANE.to_owned(), serde_json::json!({ "made": 6 }))]);
        let running = start::<GenerateConfig>(yaml, 4096, saved);
        let mut rest = Vec::new();
        while let Some((_, Parcel::Messages(batch))) = running.main.take().await {
            rest.extend(thalweg_engine::testing::payloads(&batch));
            batch.settle(Outcome::Delivered);
        }
        assert_eq!(rest, all[6..]);
        assert_eq!(running.positions.saved(LANE), Some(serde_json::json!({ "made": 10 })));
    }

    #[tokio::test]
    async fn a_rate_is_kept_from_the_first_message_on() {
        let config = options::<GenerateConfig>("{ rate: 1000 }");
        let generate = |made| Generate {
            filler: Filler {
                maker: Maker::InTurn(vec![b"x\n".to_vec()]),
                seed: 0,
                made,
                pending: Vec::new(),
            },
            count: None,
            rate: config.rate,
            lengths: Vec::new(),
            resumed: true,
        };
        let second_ago = Instant::now() - Duration::from_secs(1);
        let due = generate(10).due(1000.0, second_ago, 10).unwrap();
        assert!((1001..1500).contains(&due), "{due}");
        let wait = generate(100_010).due(1000.0, second_ago, 10).unwrap_err();
        assert!(wait > Duration::from_secs(98) && wait < Duration::from_secs(100), "{wait:?}");
        assert_eq!(made("{ message: x, rate: 100000, count: 7 }").await.len(), 7);
    }

    #[test]
    fn a_wrong_verb_is_shown_where_it_is() {
        let place = |text: &str| {
            let error = text.parse::<MessagePattern>().unwrap_err();
            text[error.range.unwrap()].to_owned()
        };
        assert_eq!(place("a %8y"), "%8y");
        assert_eq!(place("a %8é"), "%8é");
        assert_eq!(place("a %s 12%"), "%");
        assert_eq!(place("%99999999999999999999999s"), "%99999999999999999999999s");
        assert_eq!(place("%20d"), "%20d");
        assert!(
            try_options::<GenerateConfig>("{ message: '%8y' }").unwrap_err().contains("`%8y` is not known")
        );
        assert!(try_options::<GenerateConfig>("{ characters: '' }").is_err());
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        let mistakes = |yaml: &str| options::<GenerateConfig>(yaml).check().len();
        assert_eq!(mistakes("{ lines: [a], message: b }"), 1);
        assert_eq!(mistakes("{ rate: 0 }"), 1);
        assert_eq!(mistakes("{ rate: 0.5 }"), 0);
    }
}
