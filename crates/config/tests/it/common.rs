//! A configuration similar to the real ones, and functions that read texts into it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{ByteSize, Document, Node, Pattern, TimeSpan, decode};

/// A small configuration, with one of each shape that the real ones have.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The most memory to use.
    pub(crate) memory: ByteSize,
    /// The number of threads.
    #[schemars(range(min = 1))]
    pub(crate) threads: Option<u32>,
    /// The port of the dashboard.
    pub(crate) port: Option<u16>,
    pub(crate) sources: BTreeMap<String, Source>,
    pub(crate) transforms: Vec<Transform>,
    pub(crate) output: Option<Output>,
    pub(crate) drain: TimeSpan,
    /// True for more output.
    pub(crate) verbose: bool,
    pub(crate) to: To,
    pub(crate) name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(dead_code)]
pub(crate) enum Source {
    /// Reads files.
    File(FileSource),
    /// Reads what is sent over HTTP.
    Http(HttpSource),
    Stdin,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(crate) struct FileSource {
    /// The files to read, as a path or a pattern. Directories are read with all they contain.
    #[schemars(example = "logs/*.log")]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) start: Start,
    #[serde(default)]
    pub(crate) max_line: ByteSize,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpSource {
    pub(crate) address: String,
    pub(crate) timeout: TimeSpan,
}

/// Where reading starts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Start {
    /// At the first byte.
    #[default]
    Beginning,
    /// At what is written from now on.
    End,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)]
pub(crate) enum Transform {
    Match { pattern: Pattern },
    Set(BTreeMap<String, String>),
    Filter(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(dead_code)]
pub(crate) enum Output {
    File { path: String },
    Console { colour: Option<bool> },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum To {
    One(String),
    Many(#[schemars(length(min = 1))] Vec<String>),
}

impl Default for To {
    fn default() -> Self {
        To::Many(Vec::new())
    }
}

/// Returns the rendered mistakes of a document.
pub(crate) fn shown(text: &str) -> String {
    let document = match Document::parse("pipeline.yaml", text) {
        Ok(document) => document,
        Err(diagnostics) => return diagnostics.render(false),
    };
    let mut diagnostics = document.diagnostics();
    let config: Option<Config> = decode(document.root(), &mut diagnostics);
    assert_eq!(config.is_some(), diagnostics.is_empty(), "a value, or mistakes: {config:?}");
    diagnostics.render(false)
}

/// Returns the value of a document without mistakes.
pub(crate) fn read(text: &str) -> Config {
    let document = Document::parse("pipeline.yaml", text).unwrap();
    let mut diagnostics = document.diagnostics();
    let config = decode(document.root(), &mut diagnostics);
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
    config.unwrap()
}

/// Parses a text into a document.
pub(crate) fn parsed(text: &str) -> Document {
    Document::parse("x.yaml", text).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false)))
}

/// Returns the tree as JSON, for easy comparison.
pub(crate) fn json(node: &Node) -> serde_json::Value {
    serde_json::Value::deserialize(node).unwrap()
}

/// Returns the variables of the tests.
pub(crate) fn variables(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("8080".into()),
        "SECRET" => Some("a: {b} # ${PORT}".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}
