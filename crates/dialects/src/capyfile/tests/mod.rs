//! Tests the conversion of service definitions.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use insta::assert_snapshot;
use thalweg_config::{Document, Node, write};

use super::{
    Environment, LoadError, Phase, Request, is_capyfile, needs_request, read, refuse_requests, service,
};

mod documents;
mod mistakes;
mod page;
mod sources;

/// An environment of these variables and files, and perhaps a request.
#[derive(Default)]
struct TestEnvironment {
    variables: BTreeMap<&'static str, &'static str>,
    files: BTreeMap<&'static str, &'static str>,
    request: Option<Request>,
}

impl TestEnvironment {
    fn read(&self, document: &Document, processor: Option<&str>) -> Result<Vec<Phase>, LoadError> {
        let etcd = |key: &str| match key {
            "/broken" => Err("the connection was refused".to_owned()),
            "/region" => Ok(Some("us-east-1".to_owned())),
            _ => Ok(None),
        };
        read(
            document,
            processor,
            Environment {
                variable: &|name| self.variables.get(name).map(|&value| value.to_owned()),
                file: &|path| {
                    let found = path.to_str().and_then(|path| self.files.get(path));
                    found.map(|&text| text.to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
                },
                secrets: Path::new("/run/secrets"),
                request: self.request.as_ref(),
                etcd: Some(&etcd),
            },
        )
    }

    /// Returns the converted definition as text, or all its mistakes.
    fn converted(&self, text: &str) -> String {
        let document = Document::parse("service.yml", text).unwrap();
        match self.read(&document, None) {
            Ok(phases) => {
                phases.iter().map(|phase| printed(phase, text)).collect::<Vec<_>>().join("\n---\n\n")
            }
            Err(wrong) => wrong.to_string(),
        }
    }
}

/// Prints a phase, and checks that the printed text reads back as the same document.
fn printed(phase: &Phase, text: &str) -> String {
    let root = phase.conversion.document.root();
    let printed = write(root, &phase.conversion.comments);
    let mut again =
        Document::parse("converted.yaml", &printed).unwrap_or_else(|wrong| panic!("{wrong}\n{printed}"));
    let mut diagnostics = again.diagnostics();
    again.substitute(&|_| None, &mut diagnostics);
    assert!(diagnostics.is_empty(), "{diagnostics}");
    assert_eq!(again.root(), root, "{printed}");
    for node in all(root) {
        assert!(node.span.end <= text.len(), "a place outside of the file");
    }
    let transforms = root.get("pipelines").and_then(|all| all.get(&phase.pipeline)?.get("transforms"));
    assert_eq!(transforms.map_or(0, |list| list.items().len()), phase.steps.len());
    for (node, step) in transforms.map_or(&[][..], Node::items).iter().zip(&phase.steps) {
        assert!(node.get(step.component).is_some(), "{printed}");
    }
    printed
}

fn all(node: &Node) -> Vec<&Node> {
    let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    std::iter::once(node).chain(below.flat_map(all)).collect()
}

fn converted(text: &str) -> String {
    let document = Document::parse("service.yml", text).unwrap();
    assert!(is_capyfile(&document), "it is not recognised");
    TestEnvironment::default().converted(text)
}

/// A definition with one processor, which reads files and then performs these operations.
fn operation(lines: &str) -> String {
    let mut text = String::from(
        "name: s\nprocessors:\n  - name: p\n    operations:\n      - name: filesystem_input_read\n        \
         params: { target: { sourceType: value, source: /in/* } }\n",
    );
    for line in lines.lines() {
        text.push_str(&format!("      {line}\n"));
    }
    text
}

/// Returns the printed transforms of these operations, or the mistakes.
fn transforms(lines: &str) -> String {
    let converted = converted(&operation(lines));
    let transforms = converted.split_once("    transforms:\n").map(|(_, rest)| rest);
    transforms
        .and_then(|rest| rest.split_once("    to:"))
        .map_or(converted.clone(), |(part, _)| part.to_owned())
}
