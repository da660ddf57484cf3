//! Configurations of programs that do what thalweg does, and that it does not read.
//!
//! They share words with thalweg's own form: a file of Vector has `sources` and `sinks`. Read as that form,
//! one such file was answered with a dozen mistakes, none of which named the cause. It is therefore
//! recognised, and answered with one: the program's name, and how its parts are written here.
//!
//! Recognition needs keys that only that program uses together. A file in thalweg's own form with mistakes
//! must not be taken for one of these.

use std::sync::LazyLock;

use regex::Regex;
use thalweg_config::{Diagnostics, Document, Node, Span};

use crate::{Converted, Dialect, Environment, Selection};

/// A program whose configurations are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Vector,
    Benthos,
    FluentBit,
    Logstash,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Vector => "Vector",
            Self::Benthos => "Redpanda Connect (Benthos)",
            Self::FluentBit => "Fluent Bit",
            Self::Logstash => "Logstash",
        }
    }

    /// How its parts are written here.
    fn parts(self) -> &'static str {
        match self {
            Self::Vector => {
                "Here `type: file` is written `file: { … }`. Transforms are a list in a pipeline, which has `from` and `to` \
                 instead of `inputs`. VRL is written as SQL expressions in `filter` and `set`."
            }
            Self::Benthos => {
                "Here `input` is an entry of `sources`, `output` one of `sinks`, and `processors` are the `transforms` of a \
                 pipeline with `from` and `to`. Bloblang is written as SQL expressions in `filter` and `set`."
            }
            Self::FluentBit => {
                "Here an input is an entry of `sources`, an output one of `sinks`, and filters and parsers are the `transforms` \
                 of a pipeline, which has `from` and `to` instead of tags and `match`."
            }
            Self::Logstash => {
                "Here an input is an entry of `sources`, an output one of `sinks`, and filters are the `transforms` of a pipeline \
                 with `from` and `to`: `grok` is `parse_grok`, `mutate` is `set`, `rename` and `drop`."
            }
        }
    }

    fn page(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Benthos => "redpanda-connect",
            Self::FluentBit => "fluent-bit",
            Self::Logstash => "logstash",
        }
    }
}

/// Returns the program whose configuration a document is, with the place that tells so.
fn of_document(root: &Node) -> Option<(Program, Span)> {
    let has = |node: &Node, names: [&str; 2]| names.iter().all(|name| node.get(name).is_some());
    let is_vectors = |section: &Node| section.entries().iter().any(|(_, node)| has(node, ["type", "inputs"]));
    for name in ["transforms", "sinks"] {
        if root.get(name).is_some_and(is_vectors) {
            return Some((Program::Vector, root.key(name)?.span));
        }
    }
    let is_mapping = |name| root.get(name).is_some_and(|node| node.as_mapping().is_some());
    if is_mapping("input")
        && (is_mapping("output") || is_mapping("pipeline"))
        && root.get("sources").is_none()
    {
        return Some((Program::Benthos, root.key("input")?.span));
    }
    let pipeline = root.get("pipeline")?;
    let is_list = |name| pipeline.get(name).is_some_and(|node| node.as_sequence().is_some());
    (is_list("inputs") || is_list("outputs")).then_some((Program::FluentBit, root.key("pipeline")?.span))
}

/// Returns the program whose configuration a text is that is not YAML, or only by chance.
fn of_text(text: &str) -> Option<(Program, Span)> {
    static SIGNS: LazyLock<Vec<(Program, Option<Regex>)>> = LazyLock::new(|| {
        let signs = [
            (Program::Logstash, r"(?m)^\s*(?:input|filter|output)\s*\{\s*$"),
            (Program::FluentBit, r"(?mi)^\s*\[(?:SERVICE|INPUT|FILTER|OUTPUT)\]\s*$"),
            (Program::Vector, r"(?m)^\s*\[(?:sources|transforms|sinks)\.[\w-]+\]\s*$"),
        ];
        signs.into_iter().map(|(program, sign)| (program, Regex::new(sign).ok())).collect()
    });
    SIGNS.iter().find_map(|(program, sign)| {
        let found = sign.as_ref()?.find(text)?;
        let start = found.start() + (found.as_str().len() - found.as_str().trim_start().len());
        Some((*program, Span::new(start, start + found.as_str().trim().len())))
    })
}

/// Replaces mistakes of syntax by one that names the program, if the text is the configuration of one that is
/// not written in YAML.
#[must_use]
pub fn explained(mistakes: Diagnostics) -> Diagnostics {
    match of_text(mistakes.text()) {
        Some((program, span)) => refused(Diagnostics::new(mistakes.name(), mistakes.text()), program, span),
        None => mistakes,
    }
}

fn refused(mut mistakes: Diagnostics, program: Program, span: Span) -> Diagnostics {
    let message = format!("This is a configuration of {}, which thalweg does not read.", program.name());
    let help = format!(
        "{} `thalweg new` writes a configuration to begin with; docs/migrating/{}.md has a table of the components.",
        program.parts(),
        program.page()
    );
    mistakes.error(span, message).help(help);
    mistakes
}

/// The configurations of other programs, which are refused.
#[derive(Debug, Clone, Copy)]
pub struct Foreign;

impl Foreign {
    fn found(document: &Document) -> Option<(Program, Span)> {
        let root = document.root();
        of_document(root).or_else(|| of_text(document.text()).filter(|_| root.as_mapping().is_none()))
    }
}

impl Dialect for Foreign {
    fn name(&self) -> &'static str {
        "of another program"
    }

    fn recognises(&self, document: &Document) -> bool {
        Self::found(document).is_some()
    }

    fn read(
        &self,
        document: &Document,
        _: Environment<'_>,
        _: Selection<'_>,
    ) -> Result<Converted, Diagnostics> {
        let (program, span) = Self::found(document).unwrap_or((Program::Vector, Span::default()));
        Err(refused(document.diagnostics(), program, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match Document::parse("x", text) {
            Ok(document) => {
                let found = Foreign::found(&document);
                found.map_or_else(String::new, |(program, span)| {
                    format!("{program:?} {}", &text[span.start..span.end])
                })
            }
            Err(mistakes) => {
                explained(mistakes).to_string().split(". ").next().unwrap_or_default().to_owned()
            }
        }
    }

    #[test]
    fn configurations_of_other_programs_are_recognised() {
        let vector =
            "sources:\n  in: { type: file, include: [a] }\nsinks:\n  out: { type: console, inputs: [in] }\n";
        assert_eq!(said(vector), "Vector sinks");
        assert_eq!(said("input: { stdin: {} }\noutput: { stdout: {} }\n"), "Benthos input");
        let fluent =
            "service: { flush: 1 }\npipeline:\n  inputs:\n    - name: tail\n  outputs:\n    - name: stdout\n";
        assert_eq!(said(fluent), "FluentBit pipeline");
    }

    #[test]
    fn those_that_are_not_yaml_are_recognised_by_their_text() {
        let vector = "[sources.in]\ntype = \"stdin\"\n[sinks.out]\ntype = \"console\"\n";
        assert_eq!(said(vector), "x:1:1: This is a configuration of Vector, which thalweg does not read");
        let fluent = "[SERVICE]\n    Flush 1\n[INPUT]\n    Name tail\n";
        assert_eq!(said(fluent), "x:1:1: This is a configuration of Fluent Bit, which thalweg does not read");
        let logstash = "input {\n  file { path => \"/var/log/*.log\" }\n}\nfilter {\n  grok { }\n}\n";
        assert!(said(logstash).contains("Logstash"), "{}", said(logstash));
    }

    #[test]
    fn our_own_form_with_mistakes_is_not_taken_for_another() {
        for text in [
            "sources: { in: { type: file, path: a } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: stdout }\n",
            "source: { in: { file: { path: a } } }\npipeline: { main: { from: in, to: out } }\nsink: { out: stdout }\n",
            "input: a\n",
            "sources: { in: { file: { path: a } } }\npipeline: { main: { inputs: in } }\n",
        ] {
            assert_eq!(said(text), "", "{text}");
        }
    }
}
