//! Configuration documents: YAML and JSON, variables in them, and what is written of them.

use thalweg_config::{Comments, Document, write};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "yaml",
    components: &[],
    longest: 8 << 10,
    words: &[
        "&a ",
        "*a",
        "<<: ",
        "- ",
        ": ",
        "${A}",
        "${A:-b}",
        "$$",
        "|\n  ",
        ">-\n",
        "!!str ",
        "? ",
        "{",
        "[",
        "\"\\x41\"",
        "0x1f",
        "---\n",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let text = Input(bytes).text();
    // Aliases may repeat nodes, up to a limit.
    let parsed = bounded((64 << 20) + 500 * bytes.len(), || Document::parse("fuzz.yaml", text));
    let mut document = match parsed {
        Ok(document) => document,
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            mistakes.render(false);
            return;
        }
    };
    let written = write(document.root(), &Comments::default());
    if written.len() < 1 << 20 {
        reads_back(&document, &written);
    }
    let mut mistakes = document.diagnostics();
    document.substitute(&|name| (name == "A").then(|| "value: [1".to_owned()), &mut mistakes);
    mistakes.render(false);
}

/// A document that is written reads back as the same document. The writer doubles each `$` that would begin a
/// variable.
fn reads_back(document: &Document, written: &str) {
    let mut again = Document::parse("written.yaml", written)
        .unwrap_or_else(|mistakes| panic!("{mistakes}\nin what was written:\n{written}"));
    let mut mistakes = again.diagnostics();
    again.substitute(&|_| None, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes}\nin what was written:\n{written}");
    assert_eq!(again.root(), document.root(), "what was written:\n{written}");
}
