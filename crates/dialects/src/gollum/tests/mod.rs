//! Tests what gollum's files become.

use insta::assert_snapshot;
use thalweg_config::{Document, Node, write};

use super::{is_gollum, read, tables};

mod documents;
mod mistakes;
mod page;
mod plugins;
mod stores;

/// Returns the converted file as text, or all its mistakes.
fn converted(text: &str) -> String {
    let document = Document::parse("gollum.conf", text).unwrap();
    assert!(is_gollum(&document));
    match read(&document) {
        Ok(conversion) => {
            // The printed text must read back as the same document.
            let printed = write(conversion.document.root(), &conversion.comments);
            let mut again = Document::parse("converted.yaml", &printed)
                .unwrap_or_else(|wrong| panic!("{wrong}\n{printed}"));
            let mut diagnostics = again.diagnostics();
            again.substitute(&|_| None, &mut diagnostics);
            assert!(diagnostics.is_empty(), "{diagnostics}");
            assert_eq!(again.root(), conversion.document.root(), "{printed}");
            for node in all(conversion.document.root()) {
                assert!(node.span.end <= text.len(), "a place outside of the file");
            }
            printed
        }
        Err(mistakes) => mistakes.to_string(),
    }
}

fn all(node: &Node) -> Vec<&Node> {
    let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
    std::iter::once(node).chain(below.flat_map(all)).collect()
}

/// A consumer with these modulators, and a producer.
fn modulated(modulators: &str) -> String {
    let modulators: String = modulators.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!(
        "In:\n  Type: consumer.Console\n  Streams: s\n  Modulators:\n{modulators}\nOut:\n  Type: producer.Null\n  Streams: s\n"
    );
    let converted = converted(&text);
    let transforms = converted.split_once("    transforms:\n").map(|(_, rest)| rest);
    transforms
        .and_then(|rest| rest.split_once("    to:"))
        .map_or(converted.clone(), |(part, _)| part.to_owned())
}
