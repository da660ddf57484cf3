//! The option `command`: a list of words, or a text that is split into words.
//!
//! A text is split by the rules of the shell for blanks, quotes and backslashes. Characters that only a shell
//! understands are a mistake unless they are quoted: without a shell, `ps aux | grep x` would pass `|` to
//! `ps`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thalweg_config::List;

/// The characters that a shell would treat in a special way, outside quotes.
const SPECIAL: &[char] = &['|', '&', ';', '<', '>', '(', ')', '$', '`', '*'];

/// A program and its arguments. There is at least the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

impl CommandLine {
    fn new(words: Vec<String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if !program.is_empty() => Ok(Self { program, arguments: words.collect() }),
            _ => Err("The command has no name: write for example `command: [df, -Pk]`.".to_owned()),
        }
    }
}

/// Splits a text into words.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    let unclosed = |quote: char| format!("`{text}` has a quote `{quote}` that is not closed.");
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().ok_or_else(|| unclosed('\''))? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '"' => quoted(&mut rest, word.get_or_insert_default()).ok_or_else(|| unclosed('"'))?,
            '\\' => match rest.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(format!("`{text}` ends in a backslash.")),
            },
            special if SPECIAL.contains(&special) => {
                return Err(format!(
                    "`{special}` means something to a shell, but no shell runs the command. Quote it, or write \
                     `command: [sh, -c, \"…\"]`."
                ));
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads to the end of a text in double quotes. `None` if it has no end.
fn quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '\\' => match rest.next()? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            other => word.push(other),
        }
    }
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrWords)
    }
}

struct TextOrWords;

impl<'de> Visitor<'de> for TextOrWords {
    type Value = CommandLine;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a command, or a list of its words")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CommandLine, E> {
        words(text).and_then(CommandLine::new).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<CommandLine, A::Error> {
        let words = Vec::deserialize(SeqAccessDeserializer::new(words))?;
        CommandLine::new(words).map_err(A::Error::custom)
    }
}

impl JsonSchema for CommandLine {
    fn schema_name() -> Cow<'static, str> {
        "CommandLine".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        List::<String, 1>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_as_a_shell_splits_it() {
        for (text, expected) in [
            ("df -Pk  /", &["df", "-Pk", "/"][..]),
            ("  a\t'b c' \"d e\"f ", &["a", "b c", "d ef"]),
            ("a '' \"\"", &["a", "", ""]),
            (r#"a\ b "\"\$\n\\" '\'"#, &["a b", r#""$\n\"#, r"\"]),
            ("grep 'a|b' \"x*\"", &["grep", "a|b", "x*"]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_only_a_shell_understands_is_a_mistake() {
        assert_eq!(
            words("ps aux | grep x").unwrap_err(),
            "`|` means something to a shell, but no shell runs the command. Quote it, or write `command: [sh, \
             -c, \"…\"]`."
        );
        assert!(words("ls *.log").unwrap_err().starts_with("`*` means"));
        assert_eq!(words("echo 'a").unwrap_err(), "`echo 'a` has a quote `'` that is not closed.");
        assert_eq!(words("echo \"a").unwrap_err(), "`echo \"a` has a quote `\"` that is not closed.");
        assert_eq!(words("echo \\").unwrap_err(), "`echo \\` ends in a backslash.");
        assert!(CommandLine::new(Vec::new()).unwrap_err().starts_with("The command has no name"));
    }
}
