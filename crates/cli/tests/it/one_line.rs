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
