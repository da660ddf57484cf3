//! Checks that a page of `docs` agrees with the tables of a dialect.

use std::path::Path;

/// The comments before and after the generated part of a page.
const BEGIN: &str = "cargo test --release -p thalweg-dialects -->\n";
const END: &str = "<!-- END -->\n";

/// Wraps paragraphs at 110 columns, as `make fmt` does. Tables and headings keep their lines.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let keeps_line = line.starts_with(['|', '#']);
        let mut column = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if column > 0 {
                let fits = keeps_line || column + 1 + length <= 110;
                out.push(if fits { ' ' } else { '\n' });
                column = if fits { column + 1 } else { 0 };
            }
            out.push_str(word);
            column += length;
        }
        out.push('\n');
    }
    out
}

/// Tests that the generated part of a page is this text. With `UPDATE_DOCS` in the environment, it is written
/// there.
///
/// # Panics
/// If it is another one.
pub(crate) fn agrees(name: &str, generated: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(&file).expect("the page is there");
    let (head, rest) = page.split_once(BEGIN).expect("the comment before the generated part");
    let (written, tail) = rest.split_once(END).expect("the comment after it");
    let generated = wrapped(generated);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{head}{BEGIN}{generated}{END}{tail}");
        std::fs::write(&file, text).expect("the page can be written");
    } else {
        assert!(written == generated, "docs/{name} is out of date: set UPDATE_DOCS=1 and run this test");
    }
}
