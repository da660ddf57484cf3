//! Lines of Prometheus' text format and of OpenMetrics. A sample is written again, and read as the same.

use thalweg_codec::exposition::{Form, Sample, sample};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "exposition",
    components: &["prometheus_scrape"],
    longest: 16 << 10,
    words: &[
        "a{b=\"c\"} 1 1395066363000",
        "{\"a b\",\"c d\"=\"e\"} +Inf",
        "\\\"",
        "\\n",
        "\",",
        "=\"",
        " NaN",
        " 1e3",
        " # {a=\"b\"} 1",
        "# EOF",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let form = if input.choice(2) == 0 { Form::Text } else { Form::OpenMetrics };
    bounded((1 << 20) + 100 * bytes.len(), || {
        for line in input.0.split(|byte| *byte == b'\n') {
            let Ok(Some(read)) = sample(line, form) else { continue };
            let written = written(&read);
            let again = sample(written.as_bytes(), Form::Text).expect("it is a sample").expect("it is one");
            assert_eq!((&again.name, &again.labels), (&read.name, &read.labels), "{written}");
            // The sign of what is no number is not written.
            let is_same = again.value == read.value || (again.value.is_nan() && read.value.is_nan());
            assert!(is_same && again.timestamp_ms == read.timestamp_ms, "{written}");
        }
    });
}

/// Writes a sample in the text format, with all names in quotes.
fn written(sample: &Sample<'_>) -> String {
    let quoted =
        |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let labels = sample.labels.iter().map(|(name, value)| format!(",{}={}", quoted(name), quoted(value)));
    let time = sample.timestamp_ms.map_or_else(String::new, |time| format!(" {time}"));
    format!("{{{}{}}} {}{time}", quoted(&sample.name), labels.collect::<String>(), sample.value)
}
