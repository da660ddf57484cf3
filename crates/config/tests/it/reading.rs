//! Correct values are read, whatever the shape of their type.

use thalweg_config::ByteSize;

use crate::common::{Output, Source, Start, To, Transform, read};

#[test]
fn what_is_right_is_read() {
    let config = read(
        r"
memory: 256MiB
threads: '4'           # As it comes from a quoted variable.
drain: 1m
verbose: true
name: 007              # A number, but asked for as text.
sources:
  access: { file: { path: logs/*.log, start: end } }
  posted: { http: }
  typed: stdin
transforms:
  - match: { pattern: '^(?<a>\d+)$' }
  - set: { kib: size / 1024.0, one: 1, yes: true }
  - filter: status >= 500
output: { type: console, colour: false }
to: [a, b]
",
    );
    assert_eq!(config.memory, ByteSize::mib(256));
    assert_eq!(config.threads, Some(4));
    assert_eq!(config.name.as_deref(), Some("007"));
    assert!(matches!(&config.sources["access"], Source::File(file) if matches!(file.start, Start::End)));
    assert!(matches!(&config.sources["posted"], Source::Http(http) if http.address.is_empty()));
    assert!(matches!(&config.sources["typed"], Source::Stdin));
    assert!(
        matches!(&config.transforms[1], Transform::Set(set) if set["one"] == "1" && set["yes"] == "true")
    );
    assert!(matches!(config.to, To::Many(names) if names == ["a", "b"]));
    assert!(matches!(config.output, Some(Output::Console { colour: Some(false) })));
}

#[test]
fn numbers_are_text_where_text_is_asked_for_whatever_the_enum() {
    let config = read("to: 5\noutput: { type: file, path: 0010 }\n");
    assert!(matches!(config.to, To::One(name) if name == "5"));
    assert!(matches!(config.output, Some(Output::File { path }) if path == "0010"));
    let config = read("to: [1.50, true]\noutput: { type: console, colour: 'true' }\n");
    assert!(matches!(config.to, To::Many(names) if names == ["1.50", "true"]));
    assert!(matches!(config.output, Some(Output::Console { colour: Some(true) })));
}

#[test]
fn json_is_read_as_well() {
    let config =
        read("{\n\t\"memory\": \"1GB\",\n\t\"sources\": {\"a\": {\"file\": {\"path\": \"x\\/y\"}}}\n}");
    assert_eq!(config.memory, ByteSize(1_000_000_000));
    assert!(matches!(&config.sources["a"], Source::File(file) if file.path == "x/y"));
}
