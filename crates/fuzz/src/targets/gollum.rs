//! Configurations of gollum: what they become can be printed and read back.

use thalweg_config::{Document, Node, write};
use thalweg_dialects::gollum::{is_gollum, read};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "gollum",
    components: &[],
    longest: 8 << 10,
    words: &[
        "Type: consumer.Console",
        "Type: producer.File",
        "Streams: a",
        "Modulators:",
        "- format.Cut",
        "- filter.RegExp",
        "router.Distribute",
        "ApplyTo: x",
        "\"*\"",
        "_GOLLUM_",
        "StreamModulators:",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let Ok(document) = Document::parse("gollum.conf", Input(bytes).text()) else { return };
    if is_gollum(&document) {
        converted(&document);
    }
}

/// Converts a document, and reads back what is printed.
pub(super) fn converted(document: &Document) {
    let conversion = match bounded((32 << 20) + 500 * document.text().len(), || read(document)) {
        Ok(conversion) => conversion,
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            mistakes.render(false);
            return;
        }
    };
    let printed = write(conversion.document.root(), &conversion.comments);
    let mut again =
        Document::parse("printed.yaml", &printed).unwrap_or_else(|wrong| panic!("{wrong}\n{printed}"));
    let mut mistakes = again.diagnostics();
    again.substitute(&|_| None, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes}\n{printed}");
    assert_eq!(again.root(), conversion.document.root(), "{printed}");
    check_places(conversion.document.root(), document.text().len());
}

fn check_places(node: &Node, length: usize) {
    assert!(node.span.end <= length, "a place outside of the document");
    node.items().iter().for_each(|item| check_places(item, length));
    node.entries().iter().for_each(|(_, value)| check_places(value, length));
}
