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
use thalweg_config::{Diagnostics, Document, Key, Node, Span};

use crate::{Converted, Dialect, Environment, Selection};

/// A program whose configurations are recognised.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    name: &'static str,
    /// How its parts are written here.
    parts: &'static str,
    /// The page about migrating from it, if there is one.
    page: Option<&'static str>,
}

const VECTOR: Program = Program {
    name: "Vector",
    parts: "Here `type: file` is written `file: { … }`. Transforms are a list in a pipeline, which has `from` and \
            `to` instead of `inputs`. VRL is written as SQL expressions in `filter` and `set`.",
    page: Some("vector"),
};
const BENTHOS: Program = Program {
    name: "Redpanda Connect (Benthos)",
    parts: "Here `input` is an entry of `sources`, `output` one of `sinks`, and `processors` are the `transforms` of a \
            pipeline with `from` and `to`. Bloblang is written as SQL expressions in `filter` and `set`.",
    page: Some("redpanda-connect"),
};
const FLUENT_BIT: Program = Program {
    name: "Fluent Bit",
    parts: "Here an input is an entry of `sources`, an output one of `sinks`, and filters and parsers are the `transforms` \
            of a pipeline, which has `from` and `to` instead of tags and `match`.",
    page: Some("fluent-bit"),
};
const FLUENTD: Program = Program {
    name: "Fluentd",
    parts: "Here `<source>` is an entry of `sources`, `<match>` one of `sinks`, and `<filter>` is a transform of a \
            pipeline, which has `from` and `to` instead of tags.",
    page: Some("fluent-bit"),
};
const LOGSTASH: Program = Program {
    name: "Logstash",
    parts: "Here an input is an entry of `sources`, an output one of `sinks`, and filters are the `transforms` of a pipeline \
            with `from` and `to`: `grok` is `parse_grok`, `mutate` is `set`, `rename` and `drop`.",
    page: Some("logstash"),
};
const FILEBEAT: Program = Program {
    name: "Filebeat",
    parts: "Here an input is an entry of `sources`, such as `file: { path: …, follow: true }`, an output one of `sinks`, \
            and processors are the `transforms` of a pipeline with `from` and `to`.",
    page: None,
};
const OPEN_TELEMETRY: Program = Program {
    name: "the OpenTelemetry Collector",
    parts: "Here a receiver is an entry of `sources`, an exporter one of `sinks`, and processors are the `transforms` of a \
            pipeline with `from` and `to`. The source and the sink `otlp` speak OTLP.",
    page: None,
};
const PROMTAIL: Program = Program {
    name: "Promtail",
    parts: "Here a file to scrape is a source `file: { path: …, follow: true }`, and stages are the `transforms` of a \
            pipeline with `from` and `to`. There is no sink for Loki yet.",
    page: None,
};
const TELEGRAF: Program = Program {
    name: "Telegraf",
    parts: "Here `[[inputs.…]]` is an entry of `sources`, `[[outputs.…]]` one of `sinks`, and processors are the \
            `transforms` of a pipeline with `from` and `to`.",
    page: None,
};
const SYSLOG_NG: Program = Program {
    name: "syslog-ng",
    parts: "Here `source` is an entry of `sources`, such as `syslog: { address: … }`, `destination` one of `sinks`, and \
            `log` is a pipeline with `from`, `transforms` and `to`.",
    page: None,
};
const RSYSLOG: Program = Program {
    name: "rsyslog",
    parts: "Here an input is an entry of `sources`, such as `syslog: { address: … }`, an action one of `sinks`, and a rule \
            is a pipeline with `from`, a `filter` among its `transforms`, and `to`.",
    page: None,
};
const RCLONE: Program = Program {
    name: "rclone",
    parts: "Here a remote is a URL, such as `s3://bucket/folder/`, whose credentials are in the environment: `thalweg copy \
            s3://bucket/folder/ folder/` copies.",
    page: Some("rclone"),
};

/// Returns the program whose configuration a document is, with the place that tells so.
fn of_document(root: &Node) -> Option<(&'static Program, Span)> {
    let has = |node: &Node, names: [&str; 2]| names.iter().all(|name| node.get(name).is_some());
    let is_vectors = |section: &Node| section.entries().iter().any(|(_, node)| has(node, ["type", "inputs"]));
    for name in ["transforms", "sinks"] {
        if root.get(name).is_some_and(is_vectors) {
            return Some((&VECTOR, root.key(name)?.span));
        }
    }
    let is_mapping = |name| root.get(name).is_some_and(|node| node.as_mapping().is_some());
    if is_mapping("input")
        && (is_mapping("output") || is_mapping("pipeline"))
        && root.get("sources").is_none()
    {
        return Some((&BENTHOS, root.key("input")?.span));
    }
    if let Some((program, key)) = by_key(root) {
        return Some((program, key.span));
    }
    let pipeline = root.get("pipeline")?;
    let is_list = |name| pipeline.get(name).is_some_and(|node| node.as_sequence().is_some());
    (is_list("inputs") || is_list("outputs")).then_some((&FLUENT_BIT, root.key("pipeline")?.span))
}

/// Returns the program whose configurations alone have some of the keys of a document, with one of these
/// keys.
fn by_key(root: &Node) -> Option<(&'static Program, &Key)> {
    /// Keys that a document has together. One that ends in a dot is the beginning of a key.
    const KEYS: &[(&Program, &[&str])] = &[
        (&BENTHOS, &["cache_resources"]),
        (&BENTHOS, &["input_resources"]),
        (&BENTHOS, &["output_resources"]),
        (&BENTHOS, &["processor_resources"]),
        (&BENTHOS, &["rate_limit_resources"]),
        (&FILEBEAT, &["filebeat."]),
        (&FILEBEAT, &["filebeat"]),
        (&OPEN_TELEMETRY, &["receivers", "exporters"]),
        (&OPEN_TELEMETRY, &["receivers", "service"]),
        (&PROMTAIL, &["scrape_configs", "clients"]),
        (&PROMTAIL, &["scrape_configs", "positions"]),
    ];
    let found = |wanted: &str| {
        let is_wanted = |name: &str| match wanted.ends_with('.') {
            true => name.starts_with(wanted),
            false => name == wanted,
        };
        root.entries().iter().map(|(key, _)| key).find(|key| is_wanted(&key.name))
    };
    KEYS.iter().find_map(|(program, keys)| {
        let keys: Option<Vec<&Key>> = keys.iter().map(|key| found(key)).collect();
        Some((*program, *keys?.first()?))
    })
}

/// Returns the program whose configuration a text is that is not YAML, or only by chance.
fn of_text(text: &str) -> Option<(&'static Program, Span)> {
    const SIGNS: &[(&Program, &str)] = &[
        (&LOGSTASH, r"(?m)^\s*(?:input|filter|output)\s*\{\s*(?:$|\w+\s*\{)"),
        (&FLUENT_BIT, r"(?mi)^\s*\[(?:SERVICE|INPUT|FILTER|OUTPUT)\]\s*$"),
        (&VECTOR, r"(?m)^\s*\[(?:sources|transforms|sinks)\.[\w-]+\]\s*$"),
        (&TELEGRAF, r"(?m)^\s*\[\[(?:inputs|outputs|processors|aggregators)\.\w+\]\]\s*$"),
        (&FLUENTD, r"(?m)^\s*<(?:source|match|filter)\b[^>\n]*>\s*$"),
        (&SYSLOG_NG, r"(?m)^\s*@version:\s*\d[\d.]*\s*$"),
        (&RSYSLOG, r#"(?m)^\s*(?:module\s*\(\s*load="|\$ModLoad\s)"#),
        (&RCLONE, r"(?m)^\[[\w. -]+\]\s*\n\s*type\s*=\s*[a-z]\w*\s*$"),
    ];
    static READ: LazyLock<Vec<(&Program, Option<Regex>)>> =
        LazyLock::new(|| SIGNS.iter().map(|(program, sign)| (*program, Regex::new(sign).ok())).collect());
    READ.iter().find_map(|(program, sign)| {
        let found = sign.as_ref()?.find(text)?;
        let shown = found.as_str().trim();
        let line = shown.lines().next().unwrap_or(shown).trim_end();
        let start = found.start() + (found.as_str().len() - found.as_str().trim_start().len());
        Some((*program, Span::new(start, start + line.len())))
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

fn refused(mut mistakes: Diagnostics, program: &Program, span: Span) -> Diagnostics {
    let message = format!("This is a configuration of {}, which thalweg does not read.", program.name);
    let mut help = format!("{} `thalweg new` writes a configuration to begin with", program.parts);
    if let Some(page) = program.page {
        help += &format!("; docs/migrating/{page}.md has a table of the components");
    }
    help.push('.');
    mistakes.error(span, message).help(help);
    mistakes
}

/// The configurations of other programs, which are refused.
#[derive(Debug, Clone, Copy)]
pub struct Foreign;

impl Foreign {
    fn found(document: &Document) -> Option<(&'static Program, Span)> {
        let root = document.root();
        // Only for what is no mapping: the patterns take a fifth of the start of a short run, and a MiB.
        of_document(root).or_else(|| root.as_mapping().is_none().then_some(document.text()).and_then(of_text))
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
        let (program, span) = Self::found(document).unwrap_or((&VECTOR, Span::default()));
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
                    format!("{}: {}", program.name, &text[span.start..span.end])
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
        assert_eq!(said(vector), "Vector: sinks");
        assert_eq!(
            said("input: { stdin: {} }\noutput: { stdout: {} }\n"),
            "Redpanda Connect (Benthos): input"
        );
        let fluent =
            "service: { flush: 1 }\npipeline:\n  inputs:\n    - name: tail\n  outputs:\n    - name: stdout\n";
        assert_eq!(said(fluent), "Fluent Bit: pipeline");
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
    fn each_program_is_recognised_by_what_only_it_has() {
        for (text, said_of) in [
            ("[archive]\ntype = s3\nprovider = AWS\n", "rclone"),
            ("[agent]\n  interval = \"10s\"\n[[inputs.cpu]]\n  percpu = true\n", "Telegraf"),
            ("@version: 4.5\n@include \"scl.conf\"\nsource s_local { system(); };\n", "syslog-ng"),
            ("# rules\nmodule(load=\"imuxsock\")\n*.*  -/var/log/syslog\n", "rsyslog"),
            ("<source>\n  @type tail\n</source>\n<match **>\n  @type stdout\n</match>\n", "Fluentd"),
            ("# a comment\ninput{stdin{}}\noutput{stdout{codec=>rubydebug}}\n", "Logstash"),
            ("filebeat.inputs:\n- type: filestream\noutput.elasticsearch: { hosts: [a] }\n", "Filebeat"),
            (
                "receivers: { otlp: {} }\nexporters: { debug: {} }\nservice: { pipelines: {} }\n",
                "the OpenTelemetry Collector",
            ),
            ("server: {}\nclients: [{ url: a }]\nscrape_configs: [{ job_name: a }]\n", "Promtail"),
            ("cache_resources:\n  - label: seen\n    memory: {}\n", "Redpanda Connect (Benthos)"),
        ] {
            assert!(said(text).contains(said_of), "{said_of}: {}", said(text));
        }
    }

    #[test]
    fn our_own_form_with_mistakes_is_not_taken_for_another() {
        for text in [
            "sources: { in: { type: file, path: a } }\npipelines: { main: { from: in, to: out } }\nsinks: { out: stdout }\n",
            "source: { in: { file: { path: a } } }\npipeline: { main: { from: in, to: out } }\nsink: { out: stdout }\n",
            "input: a\n",
            "sources: { in: { file: { path: a } } }\npipeline: { main: { inputs: in } }\n",
            "receivers: { main: { from: in, to: out } }\n",
            "sources: { in: { file: { path: '[inputs.a]' } } }\n",
            "services: { web: { image: nginx } }\n",
        ] {
            assert_eq!(said(text), "", "{text}");
        }
    }
}
