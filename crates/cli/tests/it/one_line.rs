//! Pipelines on one line, and what a run says about fields that no message had.

use crate::common::House;

const ACCESS: &[u8] = br#"{"host":"a","status":503,"ms":12}
{"host":"b","status":200,"ms":3}
{"host":"c","status":500,"ms":40}
"#;

#[test]
fn transforms_on_one_line_read_and_write_the_standard_streams() {
    let house = House::with(&[]);
    let said =
        house.run_with_input(&["pipe", "parse_json | filter status >= 500 | keep host, status"], ACCESS);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out, "{\"host\":\"a\",\"status\":503}\n{\"host\":\"c\",\"status\":500}\n");
    assert_eq!(said.err, "");
}

#[test]
fn without_a_parser_messages_stay_as_they_are() {
    let house = House::with(&[]);
    let said = house.run_with_input(&["pipe", "filter payload LIKE '%\"b\"%' || ''"], ACCESS);
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "{\"host\":\"b\",\"status\":200,\"ms\":3}\n"),
        "{}",
        said.err
    );
    let all = house.run_with_input(&["pipe"], ACCESS);
    assert_eq!(all.out.as_bytes(), ACCESS);
}

#[test]
fn files_are_read_and_written_in_other_formats() {
    let house = House::with(&[("a.csv", "name,n\nx,1\ny,20\n")]);
    let filter = "filter CAST(n AS BIGINT) > 5 | set n2: CAST(n AS BIGINT) * 2";
    house.run_well(&["pipe", "-p", "csv", "-i", "a.csv", "-o", "out/b.csv", "-e", "csv", filter]);
    assert_eq!(house.read("out/b.csv"), "name,n,n2\ny,20,40\n");
}

#[test]
fn input_of_another_character_set_is_decoded() {
    let house = House::with(&[]);
    house.write("a.log", b"\xe9\n");
    let from_file = house.run_well(&["pipe", "--charset", "latin1", "-i", "a.log"]);
    assert_eq!(from_file.out, "\u{e9}\n");
    let said = house.run_with_input(&["pipe", "--charset", "utf-16le"], b"a\0\n\0");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "a\n"), "{}", said.err);
}

#[test]
fn rejected_messages_are_lines_of_the_error_output() {
    let house = House::with(&[]);
    let said = house.run_with_input(&["pipe", "parse_json | keep a"], b"{\"a\":1}\nnot json\n{\"a\":2}\n");
    assert_eq!((said.code, said.out.as_str()), (Some(1), "{\"a\":1}\n{\"a\":2}\n"), "{}", said.err);
    assert!(said.err.starts_with("main.parse_json: is not a JSON object"), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert_eq!(std::fs::read_dir(house.path()).unwrap().count(), 0, "nothing is kept on the disk");
}

#[test]
fn its_configuration_does_the_same() {
    let house = House::with(&[("access.jsonl", std::str::from_utf8(ACCESS).unwrap())]);
    let arguments =
        ["pipe", "-p", "json", "-i", "access.jsonl", "filter ms > 10 | set slow: ms > 30", "--print-config"];
    let configuration = house.run_well(&arguments).out;
    house.write("c.yaml", configuration.as_bytes());
    let ran = house.run_well(&["run", "--quiet", "c.yaml"]).out;
    assert_eq!(ran, house.run_well(&arguments[..arguments.len() - 1]).out);
    assert_eq!(ran.lines().count(), 2);
}

#[test]
fn mistakes_are_shown_in_the_line() {
    let house = House::with(&[]);
    let said = house.run(&["pipe", "parse_jsn | filter statsu >="]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("There is no transform called `parse_jsn`."), "{}", said.err);
    assert!(said.err.contains("1 │ parse_jsn | filter statsu >="), "{}", said.err);
    assert!(said.err.contains("2 mistakes in pipe"), "{}", said.err);
}

#[test]
fn a_field_that_no_message_had_is_named_at_the_end() {
    let house = House::with(&[("access.jsonl", std::str::from_utf8(ACCESS).unwrap())]);
    let said = house.run_well(&[
        "pipe",
        "-i",
        "access.jsonl",
        "parse_json | filter statsu >= 500 AND coalesce(city, '') = ''",
    ]);
    assert_eq!(said.out, "");
    assert_eq!(said.err, "main.filter: no message had a field `statsu`; did you mean `status`?\n");
    let configuration = "\
sources: { in: { file: { path: access.jsonl } } }
pipelines:
  main: { from: in, transforms: [parse_json, { drop: [hots, ms] }, { rename: { x_y: z } }], to: out }
sinks: { out: discard }
";
    house.write("c.yaml", configuration.as_bytes());
    let said = house.run_well(&["run", "c.yaml"]).err;
    assert!(said.contains("main.drop: no message had a field `hots`; did you mean `host`?\n"), "{said}");
    assert!(said.contains("main.rename: no message had a field `x_y`\n"), "{said}");
    let json = house.run_well(&["run", "--json", "c.yaml"]).err;
    let summary: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let missing: Vec<_> =
        summary["components"].as_array().unwrap().iter().map(|of| &of["missing_fields"]).collect();
    assert_eq!(*missing[2], serde_json::json!([{"name": "hots", "similar": "host"}]), "{missing:?}");
}

#[test]
fn many_missing_fields_are_few_lines() {
    let house = House::with(&[]);
    let names: Vec<String> = (0..3000).map(|n| format!("nix{n}")).collect();
    let line = format!("parse_json | keep {}, {}", "n".repeat(100_000), names.join(", "));
    let said = house.run_with_input(&["pipe", &line], ACCESS);
    assert_eq!(said.err.lines().count(), 11, "{}", said.err.lines().count());
    assert!(said.err.ends_with("and 2,991 more fields that no message had\n"), "{}", said.err);
    assert!(said.err.lines().all(|line| line.chars().count() < 200));
}

#[test]
fn of_many_rejected_messages_some_are_shown_and_all_are_counted() {
    let house = House::with(&[]);
    let said = house.run_with_input(&["pipe", "parse_json"], "no\n".repeat(20_000).as_bytes());
    assert_eq!(said.code, Some(1));
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines.len() < 1000, "{}", lines.len());
    let last = lines.last().unwrap();
    assert!(last.starts_with("20,000 messages could not be processed: "), "{last}");
    assert!(last.ends_with(" are not shown"), "{last}");
}

#[test]
fn an_input_that_was_closed_is_an_error() {
    let house = House::with(&[]);
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", "exec \"$0\" pipe <&-", env!("CARGO_BIN_EXE_thalweg")]);
    let said = crate::common::said(shell.current_dir(house.path()).env_clear().output().unwrap());
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("the standard input was closed"), "{said:?}");
}

#[test]
fn a_copy_from_or_to_a_stream_that_was_closed_is_an_error_and_writes_nothing() {
    for (arguments, expected) in [
        ("copy - kept.txt <&-", "the standard input was closed"),
        ("copy - kept.txt --parse lines <&-", "the standard input was closed"),
        ("copy kept.txt - >&-", "the standard output was closed"),
    ] {
        let house = House::with(&[("kept.txt", "kept\n")]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" {arguments}"), env!("CARGO_BIN_EXE_thalweg")]);
        shell.env_clear().env("HOME", house.path()).current_dir(house.path());
        let said = crate::common::said(shell.output().unwrap());
        assert!(said.code != Some(0) && said.err.contains(expected), "{arguments}: {said:?}");
        assert_eq!(house.read("kept.txt"), "kept\n", "{arguments}");
    }
}

#[test]
fn fields_that_a_transform_adds_are_written() {
    let house = House::with(&[]);
    let said = house.run_with_input(&["pipe", "set n = length(payload)"], b"abc\n");
    assert_eq!((said.out.as_str(), said.err.as_str()), ("{\"n\":3}\n", ""));
    let said = house.run_with_input(&["pipe", "-p", "jsonl", "rename host=h | keep h"], ACCESS);
    assert_eq!(said.out, "{\"h\":\"a\"}\n{\"h\":\"b\"}\n{\"h\":\"c\"}\n");
    house.run_with_input(&["pipe", "-o", "o{n}.txt"], b"abc\n");
    assert_eq!(house.read("o{n}.txt"), "abc\n");
}

#[test]
fn names_in_templates_and_metadata_are_named_too() {
    let house = House::with(&[("access.jsonl", std::str::from_utf8(ACCESS).unwrap())]);
    let config = |transform: &str, sink: &str| {
        format!(
            "sources: {{ in: {{ file: {{ path: access.jsonl }} }} }}\n\
             pipelines: {{ main: {{ from: in, transforms: [parse_json, {transform}], to: out }} }}\n\
             sinks: {{ out: {{ file: {sink} }} }}\n"
        )
    };
    let plain = "{ path: out }";
    for (transform, sink, said) in [
        (
            "{ filter: \"meta.paht = 'x'\" }",
            plain,
            "main.filter: no message had a field `meta.paht`; did you mean `meta.path`?",
        ),
        (
            "{ keep: [paylod, host] }",
            plain,
            "main.keep: no message had a field `paylod`; did you mean `payload`?",
        ),
        (
            "{ set: { y: 'zone' } }",
            plain,
            "main.set: no message had a field `zone`; a text is written `\"'zone'\"`",
        ),
        (
            "{ drop: [nothing, 'z_*'] }",
            "{ path: out, encode: { format: text, template: '{hots}' } }",
            "out.encode: no message had a field `hots`; did you mean `host`?",
        ),
        (
            "{ drop: nothing2 }",
            "{ path: 'out/{hots}x' }",
            "out: no message had a field `hots`; did you mean `host`?",
        ),
    ] {
        house.write("c.yaml", config(transform, sink).as_bytes());
        let err = house.run_well(&["run", "c.yaml"]).err;
        assert!(err.contains(&format!("{said}\n")) && err.matches("no message had").count() == 1, "{err}");
    }
}
