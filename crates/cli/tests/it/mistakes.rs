//! Wrong configurations and command lines: the message, and exit code 2.

use crate::common::House;
use insta::assert_snapshot;

/// Returns the messages of `check` for a configuration; `run` must print the same.
fn mistakes(text: &str) -> String {
    let house = House::with(&[("c.yaml", text)]);
    let checked = house.run(&["check", "c.yaml"]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert_eq!(checked.out, "");
    let ran = house.run(&["run", "c.yaml"]);
    assert_eq!((ran.code, &ran.err), (Some(2), &checked.err));
    checked.err
}

const PIPELINE: &str = "pipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n";

#[test]
fn a_long_name_is_cut_in_a_message() {
    let name = "m".repeat(1000);
    let config = format!(
        "sources: {{ in: {{ generate: {{ {name}: 1 }} }} }}\npipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ discard: {{}} }} }}\n"
    );
    let said = House::with(&[("c.yaml", &config)]).run(&["check", "c.yaml"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("`mmm") && !said.err.contains(&name), "{}", said.err.len());
}

#[test]
fn an_unknown_key() {
    assert_snapshot!(mistakes(&format!("sources:\n  in: {{ generate: {{ cuont: 1 }} }}\n{PIPELINE}")));
}

#[test]
fn a_wrong_unit() {
    let text = format!("memory: 10k\nsources:\n  in: {{ generate: {{ count: 1 }} }}\n{PIPELINE}");
    assert_snapshot!(mistakes(&text));
}

#[test]
fn a_circle() {
    let text = "\
sources:
  in: { generate: { count: 1 } }
pipelines:
  a: { from: [in, b], to: out }
  b: { from: a, to: out }
sinks:
  out: discard
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn a_sink_that_no_pipeline_feeds() {
    let text = "\
sources:
  in: { generate: { count: 1 } }
pipelines:
  main: { from: in, to: out }
sinks:
  out: discard
  spare: discard
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn an_unknown_component() {
    assert_snapshot!(mistakes(&format!("sources:\n  in: {{ generator: {{ count: 1 }} }}\n{PIPELINE}")));
}

#[test]
fn a_syntax_error() {
    assert_snapshot!(mistakes(&format!("sources:\n  in: {{ generate: {{ count: 1 }}\n{PIPELINE}")));
}

#[test]
fn several_at_once() {
    let text = "\
memroy: 1GiB
sources:
  in: { generate: { count: -1 } }
pipelines:
  main:
    from: inn
    transforms:
      - filter: \"status >=\"
      - parse_jsn
    to: outt
sinks:
  out: { file: { encode: jsonl } }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn a_missing_file() {
    let said = House::with(&[]).run(&["run", "c.yaml"]);
    assert_eq!(said.code, Some(2));
    assert_snapshot!(said.err);
}

#[test]
fn not_utf8() {
    let house = House::with(&[]);
    house.write("c.yaml", b"sources:\n  in: \xff\n");
    let said = house.run(&["check", "c.yaml"]);
    assert_eq!(said.code, Some(2));
    assert_snapshot!(said.err);
}

#[test]
fn mistakes_in_json_have_their_places() {
    let house = House::with(&[("c.yaml", "memroy: 1\n")]);
    let said = house.run(&["check", "c.yaml", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (Some(2), ""));
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["right"], false);
    assert_eq!((&found["mistakes"][0]["line"], &found["mistakes"][0]["column"]), (&1.into(), &1.into()));
    let said = house.run(&["run", "c.yaml", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((said.code, &found["event"]), (Some(2), &"mistakes".into()));
}

#[test]
fn names_on_the_command_line_that_are_not_known() {
    let house =
        House::with(&[("c.yaml", &format!("sources: {{ in: {{ generate: {{ count: 1 }} }} }}\n{PIPELINE}"))]);
    let lines: Vec<String> = [
        &["run", "c.yaml", "mian"][..],
        &["run", "c.yaml", "elsewhere"],
        &["components", "parse_jsn"],
        &["new", "jsnol"],
        &["errors", "show", "3", "c.yaml"],
    ]
    .into_iter()
    .map(|arguments| {
        let said = house.run(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        said.err
    })
    .collect();
    assert_snapshot!(lines.concat());
}

#[test]
fn a_command_line_that_makes_no_sense() {
    let house = House::with(&[]);
    for arguments in
        [&["rnu"][..], &["run"], &["run", "c.yaml", "--memory", "10k"], &["run", "c.yaml", "--threads", "0"]]
    {
        assert_eq!(house.run(arguments).code, Some(2), "{arguments:?}");
    }
    assert_snapshot!(house.run(&["run", "c.yaml", "--memory", "10k"]).err);
}

#[test]
fn a_configuration_from_the_standard_input_leaves_none_for_a_source() {
    let text = format!("sources: {{ in: stdin }}\n{PIPELINE}");
    let said = House::with(&[]).run_with_input(&["run", "-"], text.as_bytes());
    assert_eq!(said.code, Some(2));
    assert_snapshot!(said.err);
}

#[test]
fn files_are_not_removed_on_one_way_while_they_are_read_on_another() {
    let with = |kept: &str, pipelines: &str| {
        let config = format!(
            "sources: {{ in: {{ files: {{ path: in }} }} }}\npipelines:\n{pipelines}\n\
             sinks: {{ kept: {{ {kept}: {{ path: out }} }}, gone: remove }}\n"
        );
        House::with(&[("pipeline.yaml", &config)]).run(&["check", "pipeline.yaml"])
    };
    for pipelines in [
        "  main: { from: in, to: [kept, gone] }",
        "  one: { from: in, to: kept }\n  other: { from: in, to: gone }",
        "  main: { from: in, to: kept }\n  more: { from: main, to: last }\n  last: { to: gone }",
    ] {
        let checked = with("directory", pipelines);
        assert_eq!(checked.code, Some(2), "{pipelines}");
        assert!(checked.err.contains("`gone` removes files of `"), "{}", checked.err);
    }
    // A file goes to one of two targets, a file is written before, and packed files are not those of the
    // source.
    for (kept, pipelines) in [
        (
            "directory",
            "  main: { from: in, transforms: [{ write: { path: copy } }], to: gone }\n  failed: { from: main.errors, to: kept }",
        ),
        (
            "directory",
            "  main: { from: in, to: kept }\n  packed: { from: in, transforms: [lines, pack: { name: all }], to: gone }",
        ),
        (
            "file",
            "  main: { from: in, transforms: [lines], to: [kept, packed] }\n  packed: { transforms: [pack: { name: all }], to: gone }",
        ),
    ] {
        let checked = with(kept, pipelines);
        assert_eq!(checked.code, Some(0), "{pipelines} {}", checked.err);
    }
}

#[test]
fn files_are_not_removed_for_one_source_while_another_reads_them() {
    let with = |sources: &str, pipelines: &str| {
        let kept = if pipelines.contains("kept") { "kept: { file: { path: out } }, " } else { "" };
        let config = format!(
            "sources: {{ {sources} }}\npipelines: {{ {pipelines} }}\nsinks: {{ {kept}gone: remove }}\n"
        );
        House::with(&[("pipeline.yaml", &config)]).run(&["check", "pipeline.yaml"])
    };
    let pipelines = "p: { from: a, transforms: [lines], to: kept }, q: { from: b, to: gone }";
    for (one, other) in [("in", "./in"), ("in/**/*.csv", "in/below"), ("in/*", "in/a.csv")] {
        let checked = with(
            &format!("a: {{ files: {{ path: '{one}' }} }}, b: {{ files: {{ path: '{other}' }} }}"),
            pipelines,
        );
        assert_eq!(checked.code, Some(2), "{one} {other}");
        let said = "`gone` removes files of `b` that `a` may not have read yet.";
        assert!(
            checked.err.contains(said) && checked.err.contains("[pipeline.yaml:1:12]"),
            "{}",
            checked.err
        );
    }
    let followed = "a: { file: { path: 'in/*' } }, b: { files: { path: in } }";
    let checked = with(followed, "p: { from: a, to: kept }, q: { from: b, to: gone }");
    assert_eq!(checked.code, Some(2));
    // The other way to the same removal may be faster, and a local folder may be read as objects.
    let other_way =
        "p: { from: a, transforms: [{ write: { path: copy } }], to: gone }, q: { from: b, to: gone }";
    assert_eq!(with("a: { files: { path: in } }, b: { files: { path: in } }", other_way).code, Some(2));
    assert_eq!(with("a: { objects: { url: in/ } }, b: { files: { path: in } }", pipelines).code, Some(2));
    // Names that exclude each other, separate folders, and one removal of both.
    let named = "a: { files: { path: in/*.csv } }, b: { files: { path: in, include: ['*.log'] } }";
    assert_eq!(with(named, pipelines).code, Some(0));
    assert_eq!(with("a: { files: { path: in } }, b: { files: { path: other } }", pipelines).code, Some(0));
    let both = "a: { files: { path: in } }, b: { files: { path: in/below } }";
    assert_eq!(
        with(both, "p: { from: [a, b], transforms: [{ write: { path: copy } }], to: gone }").code,
        Some(0)
    );
}

/// 100,000 lines became 2: the sink replaced the file that was being read.
#[test]
fn no_sink_writes_a_file_of_its_own_source() {
    let with = |source: &str, sink: &str| {
        let config = format!(
            "sources: {{ in: {{ {source} }} }}\n\
             pipelines: {{ main: {{ from: in, to: next }}, next: {{ to: out }} }}\n\
             sinks: {{ out: {{ file: {{ path: '{sink}' }} }} }}\n"
        );
        House::with(&[("pipeline.yaml", &config)]).run(&["check", "pipeline.yaml"])
    };
    let own = with("file: { path: 'logs/*.log' }", "./logs/all.log");
    assert_eq!(own.code, Some(2));
    assert!(own.err.contains("`out` writes a file that `in` reads: `./logs/all.log`."), "{}", own.err);
    assert_eq!(with("file: { path: a.log }", "a.log").code, Some(2));
    for (source, sink) in [
        ("file: { path: a.log }", "b.log"),
        ("file: { path: 'logs/*.log' }", "logs/all.out"),
        ("file: { path: 'logs/*.log' }", "logs/old/all.log"),
        ("file: { path: 'logs/*.log', exclude: ['all*'] }", "logs/all.log"),
        ("stdin: {}", "logs/all.log"),
    ] {
        let checked = with(source, sink);
        assert_eq!(checked.code, Some(0), "{source} {sink}: {}", checked.err);
    }
}

#[test]
fn no_two_sinks_write_the_same_file() {
    let with = |one: &str, other: &str| {
        let config = format!(
            "sources: {{ in: stdin }}\npipelines: {{ main: {{ from: in, to: [a, b] }} }}\n\
             sinks: {{ a: {{ file: {{ path: '{one}' }} }}, b: {{ file: {{ path: '{other}' }} }} }}\n"
        );
        House::with(&[("pipeline.yaml", &config)]).run(&["check", "pipeline.yaml"])
    };
    let same = with("out/all.log", "./out/../out/all.log");
    assert_eq!(same.code, Some(2));
    assert!(same.err.contains("`b` writes the same file as `a`: `./out/../out/all.log`."), "{}", same.err);
    for (one, other) in [("a.log", "b.log"), ("/dev/null", "/dev/null")] {
        assert_eq!(with(one, other).code, Some(0), "{one} {other}");
    }
}

#[test]
fn a_configuration_of_another_program_is_one_mistake_that_names_it() {
    let vector = "\
sources:
  in: { type: file, include: [a.log] }
transforms:
  parse: { type: remap, inputs: [in], source: '. = parse_json!(.message)' }
sinks:
  out: { type: console, inputs: [parse], encoding: { codec: json } }
";
    assert_snapshot!(mistakes(vector));
    let logstash = "input {\n  file { path => \"/var/log/x\" }\n}\noutput {\n  stdout { }\n}\n";
    let said = mistakes(logstash);
    assert!(said.contains("This is a configuration of Logstash, which thalweg does not read."), "{said}");
    assert!(said.contains("1 mistake in c.yaml"), "{said}");
}

#[test]
fn the_kind_of_a_component_as_an_option() {
    assert_snapshot!(mistakes(
        "sources:\n  in: { type: file, path: a.log }\npipelines: { main: { from: in, to: out } }\nsinks: { out: discard }\n"
    ));
}

#[test]
fn terms_of_other_programs_have_an_answer() {
    let text = "\
sources:
  in: { mysql: { topics: [a] } }
pipelines:
  main:
    from: in
    transforms:
      - remap: { source: x }
      - merge: {}
    to: out
sinks: { out: console }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn a_variable_that_is_not_set_hides_no_other_mistake() {
    let text = "\
memory: ${UNSET_MEMORY}
sources:
  in: { generate: { cuont: 1, message: \"${UNSET_TEXT}\" } }
pipelines: { main: { from: in, to: outt } }
sinks: { out: discard }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn fields_that_no_message_can_have_are_mistakes_at_their_places() {
    let text = "\
sources:
  in: { file: { path: in.csv } }
pipelines:
  main:
    from: in
    transforms:
      - parse_csv: { columns: [host, status, size], types: { status: int, size: int } }
      - filter: \"statsu >= 500 AND host <> 'a'\"
      - set: { kib: size / 1024.0, ratio: kbi / 2 }
      - keep: [host, kib, ratoi]
      - drop: [size]
    to: out
sinks: { out: discard }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn a_field_is_named_before_any_step_makes_one() {
    let text = "\
sources: { in: { file: { path: in.log } } }
pipelines: { main: { from: in, transforms: [filter: \"status >= 500\"], to: out } }
sinks: { out: discard }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn types_that_do_not_fit_are_mistakes_at_their_places() {
    let text = "\
sources: { in: { file: { path: in.csv } } }
pipelines:
  main:
    from: in
    transforms:
      - parse_csv: { columns: [host, size], types: { size: int } }
      - set: { large: size > 10, name: 'upper(size)' }
      - filter: size + 1
      - route: { big: 'large AND host' }
    to: out
  big: { from: main.big, to: out }
sinks: { out: discard }
";
    assert_snapshot!(mistakes(text));
}

#[test]
fn declared_types_and_values_that_are_no_conditions_are_mistakes() {
    for (transforms, expected) in [
        ("parse_json: { types: { a: int } } }, { set: { d: now() - a }", "`now() - a` cannot be evaluated:"),
        (
            "parse_json: { fields: [a, s], types: { a: int } } }, { filter: a",
            "`a` is not a condition: it returns a number.",
        ),
        ("parse_json: {} }, { filter: upper(s)", "`upper(s)` is not a condition: it returns text."),
        ("set: { z: \"'a' + 1\" }", "`'a'` is no number, so `+` has no result for any message."),
        (
            "set: { z: \"to_timestamp(ts, 'yyyy-MM-dd')\" }",
            "`'yyyy-MM-dd'` is no format of a time: it has no `%`.",
        ),
    ] {
        let text = format!(
            "sources: {{ in: {{ file: {{ path: in.txt }} }} }}\npipelines:\n  main: {{ from: in, transforms: [{{ \
             {transforms} }}], to: out }}\nsinks: {{ out: discard }}\n"
        );
        let said = mistakes(&text);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(expected), "{transforms}: {said}");
    }
}

#[test]
fn a_field_that_some_message_may_have_is_no_mistake() {
    for transforms in [
        "parse_json: {}}, {filter: a > 5}",
        "parse_csv: { columns: [a] }}, {filter: a > 5}, {filter: a.b = 'x' OR payload = 'x' OR meta.path = 'x'}",
        "parse_csv: { columns: [a] }}, {filter: 'coalesce(b, a) > 5'}, {filter: b IS NULL}",
        "parse_csv: { columns: [a, b] }}, {rename: { a: b, b: a }}, {filter: a > 5 AND b > 5}",
        "parse_csv: { columns: [a1, a2] }}, {keep: ['a*']}, {drop: ['a*']}, {set: { c: 1 }}, {filter: c = 1}",
        "parse_csv: { columns: [a] }}, {set: { b: a, c: b + 1 }}, {route: { more: c > 2 }}",
        "parse_csv: { columns: [a] }}, {parse_json: {}}, {filter: c = 1}",
        "parse_csv: { columns: [status, user_id] }}, {drop: ['*_id', 's*_x']}, {filter: status > 5}",
        "parse_csv: { columns: [status] }}, {set: { 'a.b': status + 1, c: a.b * 2 }}, {filter: a.b > 5}",
        "set: { a: payload, b: meta.time }}, {filter: a = 'x' AND b < now()}",
        "split: { delimiter: ',' }}, {filter: c = 1}",
    ] {
        let more = if transforms.contains("route") {
            "more: { from: main.more, transforms: [{filter: c > 3}], to: out }"
        } else {
            ""
        };
        let text = format!(
            "sources: {{ in: {{ file: {{ path: in.csv }} }} }}\npipelines:\n  main: {{ from: in, transforms: [{{{transforms}], \
             to: out }}\n  {more}\nsinks: {{ out: discard }}\n"
        );
        let house = House::with(&[("c.yaml", &text)]);
        let checked = house.run(&["check", "c.yaml"]);
        assert_eq!(checked.code, Some(0), "{transforms}: {}", checked.err);
    }
}

#[test]
fn a_field_of_one_of_two_inputs_is_no_mistake() {
    let text = "\
sources: { a: { file: { path: a.csv } }, b: { file: { path: b.csv } } }
pipelines:
  one: { from: a, transforms: [parse_csv: { columns: [x, y] }], to: all }
  two: { from: b, transforms: [parse_csv: { columns: [x, z] }], to: all }
  all: { transforms: [filter: \"x = 'a' AND y = 'b' AND z = 'c'\", filter: w = 1], to: out }
sinks: { out: discard }
";
    let mistakes = mistakes(text);
    assert!(mistakes.contains("No message has a field `w` at `all.filter-2`."), "{mistakes}");
    assert!(mistakes.contains("1 mistake in c.yaml"), "{mistakes}");
}

#[test]
fn a_column_of_a_table_has_no_fields_in_it() {
    let text = "\
sources: { in: { file: { path: in.csv } } }
pipelines:
  main: { from: in, transforms: [parse_csv: { columns: [no, line] }], to: out }
sinks: { out: { file: { path: out.csv, encode: { format: csv, fields: [no, line.sku, other] } } } }
";
    let mistakes = mistakes(text);
    assert!(
        mistakes.contains("No message has a field `line.sku` at `out`: `line` has no fields in it."),
        "{mistakes}"
    );
    assert!(mistakes.contains("`parse_json:"), "{mistakes}");
    assert!(mistakes.contains("No message has a field `other` at `out`."), "{mistakes}");
    assert!(mistakes.contains("2 mistakes in c.yaml"), "{mistakes}");
}

#[test]
fn a_misspelled_field_of_a_sink_is_a_mistake_at_its_place() {
    for (sink, place) in [
        ("file: { path: 'kunde/{kunde}.txt' }", "8:32"),
        ("file: { path: o, encode: { format: text, template: '{ kunde }' } }", "8:64"),
        ("file: { path: o, encode: { format: csv, fields: [kunde] } }", "8:59"),
        ("stdout: { encode: { format: json, fields: [kunde] } }", "8:53"),
        ("objects: { url: 'o/{kunde}/{number}.json' }", "8:30"),
        ("kafka: { brokers: 'h:1', topic: 't-{kunde}' }", "8:46"),
        ("kafka: { brokers: 'h:1', topic: t, key: kunde }", "8:50"),
    ] {
        let text_of = |name: &str| {
            format!(
                "sources: {{ in: {{ file: {{ path: in.txt }} }} }}\npipelines:\n  main:\n    from: in\n    transforms: \
                 [parse_regex: {{ pattern: '(?<kunden>.)' }}]\n    to: out\nsinks:\n  out: {{ {} }}\n",
                sink.replace("{kunde}", &format!("{{{name}}}"))
                    .replace(" kunde ", &format!(" {name} "))
                    .replace("[kunde]", &format!("[{name}]"))
            )
        };
        let said = mistakes(&text_of("kunde"));
        assert!(said.contains("No message has a field `kunde` at `out`."), "{sink}: {said}");
        assert!(said.contains("Did you mean `kunden`?"), "{sink}: {said}");
        assert!(said.contains(&format!("c.yaml:{place}]")), "{sink}: {said}");
        assert!(said.contains("1 mistake in c.yaml"), "{sink}: {said}");
        let house = House::with(&[("c.yaml", &text_of("kunden"))]);
        let checked = house.run(&["check", "c.yaml"]);
        assert_eq!(checked.code, Some(0), "{sink}: {}", checked.err);
    }
}

/// Behind a step with a mistake, the fields are not known.
#[test]
fn a_field_that_does_not_exist_is_told_beside_mistakes_of_other_components() {
    let text = "\
sources: { a: { file: { path: a.csv } }, b: { fiel: { path: b.csv } } }
pipelines:
  one: { from: a, transforms: [parse_csv: { columns: [x] }, filter: y = 1, set: { z: uper(x) }, filter: w = 1], to: out }
  two: { from: [a, b], transforms: [filter: w = 1], to: out }
  three: { from: one, transforms: [filter: w = 1], to: out }
sinks: { out: { file: { path: a, encode: jsno } } }
";
    let mistakes = mistakes(text);
    for expected in [
        "There is no source called `fiel`.",
        "No message has a field `y` at `one.filter`.",
        "There is no function `uper`.",
        "`encode` cannot be `jsno`.",
        "4 mistakes in c.yaml",
    ] {
        assert!(mistakes.contains(expected), "{mistakes}");
    }
}

#[test]
fn what_is_too_large_for_a_configuration_is_not_read_to_its_end() {
    let house = House::with(&[]);
    for command in ["check", "run", "convert"] {
        let said = house.run(&[command, "/dev/zero"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        let reason = "`/dev/zero` cannot be read: it is larger than 16 MiB, the limit of a configuration.";
        assert!(said.err.contains(reason), "{said:?}");
    }
}

/// Returns the messages of `check` for a list of transforms.
fn of_transforms(transforms: &str) -> String {
    mistakes(&format!(
        "sources: {{ in: {{ file: {{ path: a }} }} }}\n\
         pipelines:\n  main:\n    from: in\n    transforms:\n{transforms}    to: out\nsinks: {{ out: discard }}\n"
    ))
}

#[test]
fn a_pipeline_has_a_limited_number_of_transforms() {
    let said = of_transforms(&"      - parse_json\n".repeat(20_000));
    assert!(said.contains("A pipeline has at most 1000 transforms, but this has 20000."), "{said}");
    assert!(said.contains("[c.yaml:1006:9]") && said.contains("1 mistake"), "{said}");
}

#[test]
fn the_form_of_a_value_is_said_with_the_mistake() {
    let transforms = [
        "route: [a, b]",
        "rename: [a, b]",
        "parse_regex: \"^(?P<a>.)\"",
        "sample: 2",
        "filter: [\"a = 1\", \"b = 2\"]",
        "cast: { a: integer, b: string, c: number }",
        "filter: \"'yes'\"",
        "set: {}",
        "set:",
    ];
    let list: String = transforms.map(|transform| format!("      - {transform}\n")).concat();
    assert_snapshot!(of_transforms(&list));
}

#[test]
fn terms_of_other_programs_for_transforms_and_keys() {
    let list: String =
        ["select", "where", "order_by", "head", "count", "grep", "remove_fields", "frobnicate"]
            .map(|name| format!("      - {name}: x\n"))
            .concat();
    assert_snapshot!(of_transforms(&list));
    assert_snapshot!(mistakes(
        "state: true\nsources: { in: { type: stdin } }\n\
         pipelines: { main: { source: in, steps: [parse_json], sink: out } }\n\
         sinks: { out: { inputs: [main], stdout: {} }, other: { type: stdout } }\n"
    ));
}

#[test]
fn a_transform_that_waits_for_the_end_of_an_endless_source_is_a_mistake() {
    let said = |source: &str| {
        mistakes(&format!(
            "sources: {{ in: {{ {source} }} }}\npipelines:\n  main:\n    from: in\n    \
             transforms: [{{ filter: \"payload <> ''\" }}, {{ sort: {{ by: payload }} }}]\n    to: out\n\
             sinks: {{ out: discard }}\n"
        ))
    };
    let followed = said("file: { path: in.txt, follow: true }");
    // Lines are wrapped.
    let words = followed.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("`main.sort` sends nothing before the end of its input, but `in` never ends."),
        "{followed}"
    );
    assert!(words.contains("Change `follow` of `in` so that it ends"), "{followed}");
    assert!(followed.contains("1 mistake") && !followed.contains("2 mistakes"), "{followed}");
}

#[test]
fn each_circle_is_a_mistake() {
    let said = mistakes(
        "sources: { in: stdin }\npipelines:\n  main: { from: in, to: out }\n  a: { from: a, to: out }\n  \
         b: { from: c, to: out }\n  c: { from: b, to: out }\nsinks: { out: discard }\n",
    );
    assert!(said.contains("circle: a → a."), "{said}");
    assert!(said.contains("circle: c → b → c.") && said.contains("2 mistakes"), "{said}");
}

#[test]
fn what_is_not_yaml_is_said_in_our_words() {
    let said = mistakes("\u{1b}a: 1\n");
    assert!(said.contains("A text cannot start with `\\u{1b}`."), "{said}");
}

#[test]
fn a_name_may_look_like_a_number() {
    let text = "sources: { 5: { generate: { count: 1 } } }\npipelines: { 6: { from: 5, to: [7] } }\nsinks: { 7: discard }\n";
    House::with(&[("c.yaml", text)]).run_well(&["check", "c.yaml"]);
}

/// Each was shown only after the one before it was corrected.
#[test]
fn a_mistake_hides_none_beside_it() {
    for (text, expected) in [
        (
            "schedule: { cron: '0 5 * * *', overlap: sometimes, timezone: Europe/Berln }\nsources: { a: stdin }\n\
             pipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            &[
                "`overlap` cannot be `sometimes`.",
                "`Europe/Berln` is not a time zone.",
                "2 mistakes in c.yaml",
            ],
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, to: z, transforms: [parse_csv: { columns: [b], \
             header: true, types: integer }] } }\nsinks: { z: stdout }\n",
            &[
                "`types` should be a mapping, but it is the text `integer`.",
                "`columns` and `header` both give the names of the columns.",
                "2 mistakes in c.yaml",
            ],
        ),
        (
            "sources: { a: stdin, spare: stdin }\npipelines: { main: { from: a, to: nowhere } }\nsinks: { z: stdout }\n",
            &[
                "There is no sink or pipeline called `nowhere`.",
                "No pipeline reads the source `spare`.",
                "No pipeline feeds the sink `z`.",
            ],
        ),
    ] {
        let said = mistakes(text);
        assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    }
    let said = mistakes(
        "sources: { input: stdin }\npipelines: { main: { from: inputt, to: out.x } }\nsinks: { out: stdout }\n",
    );
    assert!(said.contains("2 mistakes in c.yaml"), "{said}");
}

#[test]
fn slips_that_have_one_cause_are_one_mistake_with_its_fix() {
    for (text, expected) in [
        (
            "sources: { a: stdin }\npipelines:\n  main:\n    from: a\n    transforms:\n      - parse_json: {}\n        filter: a = 1\n    \
             to: z\nsinks: { z: stdout }\n",
            "This element of the list has two transforms.; Begin `filter` on a line of its own with `- `.",
        ),
        (
            "sources: { a: stdin }\npipeline: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`pipeline` is not a key of a configuration.; Did you mean `pipelines`?",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, to: z } }\nsinks: { z: { http: { url: 'http://h/', batch: { max_bytes: 1MiB } } } }\n",
            "`batch` should be `none`, `lines` or `array`, but it is a mapping.; It takes one word, as in `batch: none`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [drop: { b: true }], to: z } }\nsinks: { z: stdout }\n",
            "This should be text or a list, but it is a mapping.; Write a list: `[b]`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [set: [{ x: '1' }]], to: z } }\nsinks: { z: stdout }\n",
            "For example `{ x: … }`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [set: x = 1], to: z } }\nsinks: { z: stdout }\n",
            "For example `{ x: … }`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [limit: { rate: 10/s }], to: z } }\nsinks: { z: stdout }\n",
            "Write the number alone, as `rate: 10`. In `limit` the time is `per: 1s` beside it.",
        ),
        (
            "sources: { a: { syslog: { address: ':514', protocol: udp } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "Unknown option `protocol`.; It is a part of `address`: write `address: \"udp://…\"` or `address: \"tcp://…\"`.",
        ),
        (
            "sources: { a: { syslog: { address: ':514', mode: udp } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`mode` has the wrong form.; The permissions of a unix socket, in octal, for example `0660`.",
        ),
        (
            "sources: { a: { file: { path: a, framing: { max_size: 1MiB } } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`framing` has no option `max_size`.; Write `max_message_bytes: …` beside `framing`.",
        ),
        (
            "sources: { a: { mqtt: { servers: h, topics: a } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`client_id` is missing: a session has a name, so that a later run continues it.",
        ),
        (
            "sources: { a: { postgres: { server: h, pasword: pw, table: t } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "Unknown option `pasword`.; Did you mean `password`? It is an option of `auth`: write `auth: { password: … }`.",
        ),
        (
            "sources: { a: { file: { path: a, charset: utf8mb4 } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`utf8mb4` is not a known character set.; c.yaml:1:43; Write for example `latin1`, `windows-1252`, `utf-16` or `shift_jis`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { inputs: [a], to: z } }\nsinks: { z: stdout }\n",
            "`inputs` is not a key of a pipeline.; Here it is called `from`.",
        ),
        (
            "sources:\n  - stdin: {}\npipelines: { main: { from: stdin, to: z } }\nsinks: { z: stdout }\n",
            "`sources` is a mapping of names, but this is a list.; Write `sources: { a_name: … }`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [csv: {}], to: z } }\nsinks: { z: stdout }\n",
            "`csv` takes files, but here are messages.; It reads messages out of whole files, which the source `files` \
             gives. Messages are parsed by transforms such as `parse_csv`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [to: z] } }\nsinks: { z: stdout }\n",
            "There is no transform called `to`.; It is a key of the pipeline: write `to:` beside `transforms:`.",
        ),
        (
            "sources: { a: { file: { path: a, start_pattern: x } } }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "Unknown option `start_pattern`.; It is an option of `framing`: write `framing: { start_pattern: … }`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, transforms: [dedupe: { fields: [id] }], to: z } }\nsinks: { z: \
             stdout }\n",
            "`fields` is called `keys` here.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, to: z } }\nsinks: { z: { file: { path: 'out/{{ host }}.log' } } }\n",
            "Two braces stand for one brace, and not for a value.; Write `{host}`.",
        ),
        (
            "sources: { a: stdin }\npipelines: { main: { from: a, to: z } }\nsinks: { z: { objects: { url: 's3:/b/x.json' } } }\n",
            "a `/` is missing: write `s3://b/x.json`",
        ),
        (
            "memory: 256\nsources: { a: stdin }\npipelines: { main: { from: a, to: z } }\nsinks: { z: stdout }\n",
            "`memory` has no unit, and would be 256 bytes.; Did you mean `256MiB`? Bytes are written `256B`.",
        ),
        (
            "memory: 2MiB\nsources: { a: stdin }\npipelines: { main: { from: a, to: z } }\nsinks: { z: { file: { path: o, compression: zstd } } }\n",
            "KiB of memory for a file, but `memory` is 2MiB.; c.yaml:4:45; Lower `compression_level`, or raise `memory`.",
        ),
    ] {
        let said = mistakes(text);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in expected.split("; ") {
            let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(&part), "{part}: {said}");
        }
        assert!(said.contains("1 mistake in c.yaml"), "{said}");
    }
}
