//! Tests wrong files: all mistakes are reported at once, each at its position.

use super::*;

#[test]
fn fifteen_kinds_of_mistakes_in_one_file() {
    let text = r#"
In:
  Type: consumer.Profiler
  Streams: s
  Rnus: 10
  Batches: many
  KeepRunning: perhaps
  Modulators:
    - format.Evelope
    - format.Move:
      Source: a
    - format.Timestamp: { Timestamp: "15:04:05.00" }
    - format.Template: { Template: "{{call .f}}" }
    - filter.RegExp: { Expression: "(" }
    - format.Copy: { Source: "list[0]", Target: first }
    - format.MetadataCopy
    - consumer.Console
Broker:
  Type: producer.Scribe
  Streams: s
Out:
  Type: producer.File
  Streams: s
  FallbackStream: s
  Batch: 10
  Rotation: { Enable: true, At: noon }
NoType:
  Streams: s
Typo:
  Type: consumer.Fiel
  Streams: s
NoStreams:
  Type: producer.Null
Socket:
  Type: consumer.Socket
  Streams: s
  Address: udp://:5880
  Acknowledge: OK
  Partitioner: binary
  Size: 3
Odd: 5
"#;
    let document = Document::parse("gollum.conf", text).unwrap();
    assert_snapshot!(read(&document).unwrap_err().render(false));
}

#[test]
fn mistakes_of_the_old_form() {
    let text = r#"
- "consumer.Console":
    Stream: s
    Fuse: f
    EOFCheckSpeed: 3
- "stream.Broadcast":
    Stream: s
    Formatter: format.JSON
    Filter: filter.JSON
- "producer.Console":
  Stream: s
- "producer.File":
    Stream: s
    RotatedSizeMB: 3
    Formatter: format.Enveloppe
"#;
    let document = Document::parse("gollum.conf", text).unwrap();
    assert_snapshot!(read(&document).unwrap_err().render(false));
}

#[test]
fn filters_of_a_producer_belong_into_its_modulators() {
    let text = "In: { Type: consumer.Console, Streams: a }\n\
                Out: { Type: producer.Console, Streams: a, Filters: [filter.None] }\n";
    let mistakes = read(&Document::parse("gollum.conf", text).unwrap()).unwrap_err().to_string();
    assert_eq!(
        mistakes,
        "gollum.conf:2:44: `Filters` is not a setting of `producer.Console`. (Put its elements into \
         `Modulators`, before the formatters of their messages.)"
    );
}

#[test]
fn what_is_no_file_of_gollum_is_not_taken_for_one() {
    for text in ["sources: { a: { generate: {} } }", "[1, 2]", "a: { Type: other }", "5", "a: b"] {
        assert!(!is_gollum(&Document::parse("x", text).unwrap()), "{text}");
    }
    for text in ["a: { type: consumer.X }", "- producer.Null: {}", "a: { Type: aggregate, Plugins: {} }"] {
        assert!(is_gollum(&Document::parse("x", text).unwrap()), "{text}");
    }
}

#[test]
fn nothing_that_is_read_makes_it_panic() {
    let pieces = [
        "Type: consumer.Console",
        "Type: 5",
        "Type: Aggregate",
        "Plugins: {a: {}}",
        "Plugins: 3",
        "Streams: []",
        "Streams: [[]]",
        "Modulators: {}",
        "Modulators: [[], {}, 5, {a: 1, b: 2}, format.Double, format.Template]",
        "Modulators: [format.StreamRoute, format.ProcessJSON: {Directives: [\"\", \":\", \"a:b:c\"]}]",
        "Enable: maybe",
        "Files: \"\\u0000\"",
        "Filters: [filter.Any: {AnyFilters: [filter.Any]}]",
        "Type: router.Metadata",
        "Type: producer.Spooling",
        "FallbackStream: \"*\"",
        "Stream: \"\"",
    ];
    for first in pieces {
        for second in pieces {
            for rest in [
                "",
                "B: {Type: producer.Null, Streams: \"*\"}\n",
                "B: {Type: router.Distribute, Stream: a, TargetStreams: [a, \"*\"]}\n",
            ] {
                let text = format!(
                    "A:\n  {first}\n  {second}\nC: {{Type: consumer.Console, Streams: [a, \"*\"]}}\n{rest}"
                );
                if let Ok(document) = Document::parse("x", &text) {
                    let _ = read(&document)
                        .map(|conversion| write(conversion.document.root(), &conversion.comments));
                }
                let text = format!(
                    "- consumer.Console:\n    {first}\n    {second}\n- producer.Null: {{ Stream: a }}\n"
                );
                if let Ok(document) = Document::parse("x", &text) {
                    let _ = read(&document)
                        .map(|conversion| write(conversion.document.root(), &conversion.comments));
                }
            }
        }
    }
}

#[test]
fn routers_that_lead_in_a_circle_are_shown_at_the_target() {
    let text = "In: { Type: consumer.Console, Streams: a }\n\
                Out: { Type: producer.Console, Streams: [a, b] }\n\
                RA: { Type: router.Distribute, Stream: a, TargetStreams: [a, b] }\n\
                RB: { Type: router.Distribute, Stream: b, TargetStreams: [b, a] }\n";
    let mistakes = read(&Document::parse("gollum.conf", text).unwrap()).unwrap_err().to_string();
    assert!(mistakes.contains("`b` leads to `a`, which leads back to `b`"), "{mistakes}");
    assert!(mistakes.contains("gollum.conf:4:"), "{mistakes}");
}
