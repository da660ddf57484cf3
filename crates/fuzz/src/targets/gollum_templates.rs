//! The small languages within configurations of gollum: Go's templates, Go's layouts of times, and
//! expressions. The first byte says where the rest is written.

use thalweg_config::Document;

use super::gollum::converted;
use crate::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "gollum_templates",
    components: &[],
    longest: 2 << 10,
    words: &[
        "{{.a}}",
        "{{if .a}}",
        "{{else}}",
        "{{end}}",
        "{{range .b}}",
        "{{with .c}}",
        "{{- ",
        " -}}",
        "{{index .a \"b\"}}",
        "2006-01-02",
        "${1}",
        "%s",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(6);
    // JSON's texts are YAML's.
    let Ok(text) = serde_json::to_string(input.text()) else { return };
    let modulator = match choice {
        0 => format!("format.Template: {{ Template: {text} }}"),
        1 => format!("format.Timestamp: {{ Timestamp: {text} }}"),
        2 => format!("format.RegExp: {{ Expression: '(a|b)', Template: {text} }}"),
        3 => format!("format.RegExp: {{ Expression: {text}, Template: '${{1}}' }}"),
        4 => format!("format.ExtractJSON: {{ Field: {text} }}"),
        _ => format!("filter.RegExp: {{ FilterExpression: {text} }}"),
    };
    let whole = format!(
        "In: {{ Type: consumer.Console, Streams: s, Modulators: [{modulator}] }}\nOut: {{ Type: producer.Null, Streams: s }}\n"
    );
    // An escape that YAML does not know.
    let Ok(document) = Document::parse("gollum.conf", &whole) else { return };
    converted(&document);
}
