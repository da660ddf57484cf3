//! The pattern of a message: text with placeholders for random values.

use std::borrow::Cow;
use std::io::Write as _;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use thalweg_config::{FormatError, register_format};

/// The maximum number of random characters in a message.
const LONGEST_TEXT: usize = 1 << 20;

/// The parts of a random message.
#[derive(Debug, Clone)]
pub(super) struct MessagePattern {
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Literal(String),
    Text(usize),
    Integer { below: u64, base: Base },
    Float { scale: f64, form: Form },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Base {
    Decimal,
    Binary,
    Octal,
    Hexadecimal,
    UpperHexadecimal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
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
            // A number that does not fit into `usize` exceeds the limit of every verb.
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
pub(super) struct Random(u64);

impl Random {
    /// Creates the sequence of message `number`.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Self(Self::at(seed, number))
    }

    /// Returns one random number for message `number`.
    #[inline]
    pub(super) fn at(seed: u64, number: u64) -> u64 {
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

/// Scales a random number to a nearly uniform one below `bound`.
#[inline]
pub(super) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Makes messages from a pattern.
pub(super) struct PatternWriter {
    pub(super) pattern: MessagePattern,
    pub(super) characters: Vec<char>,
}

impl PatternWriter {
    /// Appends a message to `message`.
    pub(super) fn write(&self, random: &mut Random, message: &mut Vec<u8>) {
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
            // 32 bits of a number are enough for a character.
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
