//! Patterns of paths, templates of messages, and the small values of configurations.

use std::path::Path;

use thalweg_codec::pattern::Root;
use thalweg_codec::template::Template;
use thalweg_codec::testing::with_text;
use thalweg_config::{ByteRange, ByteSize, TimeSpan};
use thalweg_redact::without_secrets;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "patterns",
    components: &[],
    longest: 1 << 10,
    words: &[
        "**/",
        "*",
        "[a-z]",
        "{payload}",
        "{a:%Y}",
        "{{",
        "1KiB",
        "5 min",
        "0o644",
        "https://u:p@h/?q",
        "../",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(3);
    let line = input.text_line();
    bounded((4 << 20) + 1000 * bytes.len(), || match choice {
        0 => pattern(&line, input.text()),
        1 => template(&line, input.text()),
        _ => values(&line),
    });
}

fn pattern(pattern: &str, path: &str) {
    let Ok(root) = Root::new(pattern) else { return };
    let path = Path::new(path);
    if root.finds(path, false) {
        assert!(root.finds(path, true), "hidden names are found as well");
    }
    root.leads_into(path, true);
}

fn template(template: &str, field: &str) {
    let Ok(mut template) = template.parse::<Template>() else { return };
    let batch = with_text(&[field], &[("a", &[Some(field)])]);
    let mut bound = template.bind(&batch);
    let mut written = Vec::new();
    bound.render(0, &mut written);
}

/// A value that is printed reads back as the same value.
fn values(text: &str) {
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size), "{text:?} is {size}");
    }
    if let Ok(span) = text.parse::<TimeSpan>() {
        assert!(span.to_string().parse::<TimeSpan>().is_ok(), "{text:?} is {span}");
    }
    let _ = text.parse::<ByteRange>();
    let shown = without_secrets(text);
    assert_eq!(without_secrets(&shown), shown.clone(), "{text:?} is {shown:?}");
}
