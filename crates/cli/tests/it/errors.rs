//! `thalweg errors`: dead letters are listed, shown, replayed and removed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use crate::common::{House, command, said};
use serde_json::Value;

fn letters(house: &House) -> Vec<Value> {
    let said = house.run(&["errors", "list", "c.yaml", "--json", "--limit", "1000"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

const INPUT: &str = "{\"n\": 1}\n{\"n\": 2, \"n2\": \nrubbish\n{\"n\": 3}\n";

fn configuration(transform: &str, state: &str) -> String {
    format!(
        "{state}
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main: {{ from: in, transforms: [ {transform} ], to: out }}
sinks: {{ out: {{ file: {{ path: out.jsonl, encode: json }} }} }}
"
    )
}

#[test]
fn letters_are_listed_shown_and_removed() {
    let house = House::with(&[("in.jsonl", INPUT), ("c.yaml", &configuration("parse_json", ""))]);
    assert_eq!(
        house.run(&["errors", "list", "c.yaml"]).out,
        "there are no dead letters in `.thalweg/c.yaml`\n"
    );
    assert!(!house.path().join(".thalweg").exists(), "looking made a folder");
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));

    let listed = house.run(&["errors", "list", "c.yaml"]).out;
    assert!(listed.contains("main.parse_json  in.jsonl:2\n      is not a JSON object"), "{listed}");
    assert!(listed.ends_with("2 dead letters\n"), "{listed}");
    let limited = house.run(&["errors", "list", "--limit", "1"]).out;
    assert!(limited.ends_with("2 dead letters\nthe first 1 are shown; `--limit` shows more\n"), "{limited}");

    let id = letters(&house)[1]["id"].to_string();
    let shown = house.run(&["errors", "show", &id, "c.yaml"]).out;
    assert!(shown.contains("component: main.parse_json\n") && shown.ends_with("  rubbish\n"), "{shown}");
    assert_eq!(house.run(&["errors", "show", &id, "c.yaml", "--payload"]).out, "rubbish");

    let nothing = "there are no dead letters of `other` in `.thalweg/c.yaml`\n";
    assert_eq!(house.run(&["errors", "list", "--component", "other"]).out, nothing);
    assert_eq!(house.run(&["errors", "clear", "--component", "other"]).err, nothing);
    assert_eq!(house.run(&["errors", "replay", "c.yaml", "--component", "other"]).err, nothing);
    assert_eq!(letters(&house).len(), 2);
    let clear = ["errors", "clear", "c.yaml", "--component", "main"];
    let refused = house.run(&clear);
    let reason = "error: 2 dead letters would be removed from `.thalweg/c.yaml`, and there is no terminal to ask on; \
                  `--yes` removes without asking\n";
    assert_eq!((refused.code, refused.err.as_str()), (Some(2), reason));
    assert_eq!(letters(&house).len(), 2);
    assert_eq!(house.run(&[&clear[..], &["--yes"]].concat()).err, "removed 2 dead letters\n");
    assert_eq!(letters(&house).len(), 0);
}

#[test]
fn a_search_for_letters_creates_nothing_and_finding_none_is_an_event() {
    let house = House::with(&[("in.jsonl", ""), ("c.yaml", &configuration("parse_json", ""))]);
    let folder = house.path().join("empty");
    std::fs::create_dir(&folder).unwrap();
    let nothing = "there are no dead letters in `empty`\n";
    assert_eq!(house.run_well(&["errors", "list", "--state", "empty"]).out, nothing);
    assert_eq!(house.run_well(&["errors", "clear", "--state", "empty"]).err, nothing);
    assert_eq!(house.run_well(&["errors", "replay", "c.yaml", "--state", "empty"]).err, nothing);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let said = house.run_well(&["errors", "replay", "c.yaml", "--state", "empty", "--json"]).err;
    let event: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&event["event"], &event["processed"]), (&"replayed".into(), &0.into()));
}

#[test]
fn letters_are_processed_again_once_the_configuration_is_right() {
    for state in ["", "state: kept"] {
        let house = House::with(&[("in.jsonl", INPUT), ("c.yaml", &configuration("parse_json", state))]);
        assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
        assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n{\"n\":3}\n");

        // Nothing has been corrected yet: they become new dead letters.
        let said = house.run(&["errors", "replay", "c.yaml"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(said.err.contains("2 dead letters: 0 processed\n  2 rejected again"), "{}", said.err);
        let ids: Vec<Value> = letters(&house).iter().map(|letter| letter["id"].clone()).collect();
        assert_eq!(ids, [Value::from(3), Value::from(4)]);

        house.write("c.yaml", configuration("{ set: { text: payload } }", state).as_bytes());
        let said = house.run(&["errors", "replay", "c.yaml"]);
        assert!(said.err.contains("2 dead letters: 2 processed\n"), "{}", said.err);
        let expected = [
            "{\"n\":1}",
            "{\"n\":3}",
            "{\"text\":\"rubbish\"}",
            "{\"text\":\"{\\\"n\\\": 2, \\\"n2\\\": \"}",
        ];
        assert_eq!(sorted(&house.read("out.jsonl")), expected);
        assert_eq!(letters(&house).len(), 0);

        // The next run does not mistake the added lines for a torn write.
        if !state.is_empty() {
            house.write("in.jsonl", format!("{INPUT}{{\"n\": 4}}\n").as_bytes());
            house.write("c.yaml", configuration("parse_json", state).as_bytes());
            assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
            assert_eq!(house.read("out.jsonl").lines().count(), 5);
        }
    }
}

/// Two configurations in one folder have equal names of components. See docs/decisions/075.
#[test]
fn letters_belong_to_one_configuration() {
    let other = configuration("parse_json", "").replace("in.jsonl", "b.jsonl").replace("out.jsonl", "b.out");
    let mine = configuration("parse_json", "");
    let house =
        House::with(&[("in.jsonl", "mine\n"), ("b.jsonl", "other\n"), ("c.yaml", &mine), ("b.yaml", &other)]);
    for name in ["c.yaml", "b.yaml"] {
        house.run_well(&["run", name]);
    }
    let said = house.run(&["errors", "list"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.err,
        "error: `.thalweg` has the dead letters of several runs. Give one of them: `--state .thalweg/b.yaml`, \
         `--state .thalweg/c.yaml`\n"
    );
    house.write("c.yaml", mine.replace("parse_json", "{ set: { text: payload } }").as_bytes());
    let said = house.run_well(&["errors", "replay", "c.yaml"]);
    assert!(said.err.starts_with("1 dead letter: 1 processed"), "{}", said.err);
    assert_eq!(house.read("out.jsonl"), "{\"text\":\"mine\"}\n");
    let left = house.run_well(&["errors", "list", "b.yaml", "--json"]).out;
    assert!(left.contains("\"other\"") && left.lines().count() == 1, "{left}");
}

#[test]
fn a_state_folder_of_another_configuration_is_refused() {
    let mine = configuration("parse_json", "");
    let house = House::with(&[("in.jsonl", "rubbish\n"), ("c.yaml", &mine), ("b.yaml", &mine)]);
    house.run_well(&["run", "c.yaml", "--state", "kept"]);
    let refusals = [
        &["run", "b.yaml", "--state", "kept"][..],
        &["errors", "replay", "b.yaml", "--state", "kept"],
        &["errors", "list", "b.yaml", "--state", "kept"],
        &["errors", "clear", "b.yaml", "--state", "kept", "--yes"],
    ];
    for arguments in refusals {
        let said = house.run(arguments);
        let expected = "error: the state in `kept` belongs to another configuration: to `HOUSE/c.yaml`, and this is \
                        `HOUSE/b.yaml`. Give this one another directory. If it takes the place of the other, \
                        delete `kept/owner`: it then continues with those checkpoints and dead letters\n";
        let place = house.path().canonicalize().unwrap().display().to_string();
        assert_eq!((said.code, said.err.replace(&place, "HOUSE").as_str()), (Some(3), expected));
    }
    house.run_well(&["errors", "list", "--state", "kept"]);
    // An edited configuration is the same one, and so is one that was renamed.
    house.write("c.yaml", configuration("{ set: { text: payload } }", "").as_bytes());
    house.run_well(&["errors", "list", "c.yaml", "--state", "kept"]);
    std::fs::rename(house.path().join("c.yaml"), house.path().join("d.yaml")).unwrap();
    let said = house.run_well(&["errors", "replay", "d.yaml", "--state", "kept"]);
    assert!(said.err.contains("1 dead letter: 1 processed"), "{}", said.err);
    assert_eq!(house.run(&["run", "b.yaml", "--state", "kept"]).code, Some(3));
}

#[test]
fn a_folder_that_was_copied_with_its_dead_letters_is_refused_at_the_start() {
    let house = House::with(&[]);
    let (first, second) = (house.path().join("a"), house.path().join("b"));
    std::fs::create_dir(&first).unwrap();
    house.write("a/in.jsonl", b"rubbish\n");
    house.write("a/c.yaml", configuration("parse_json", "").as_bytes());
    let run = |folder: &Path| said(command(folder, &["run", "c.yaml"]).output().unwrap());
    assert_eq!(run(&first).code, Some(0));
    let copied = std::process::Command::new("cp").args(["-r", "a", "b"]).current_dir(house.path()).status();
    assert!(copied.unwrap().success());
    std::fs::remove_file(second.join("out.jsonl")).unwrap();
    let refused = run(&second);
    let expected = "error: the dead letters in `.thalweg/c.yaml` belong to another configuration: to \
                    `HOUSE/a/c.yaml`, and this is `HOUSE/b/c.yaml`. If the directory was copied with the \
                    configuration, remove it. If this configuration takes the place of the other, delete \
                    `.thalweg/c.yaml/owner`: it then continues with those dead letters\n";
    let place = house.path().canonicalize().unwrap().display().to_string();
    assert_eq!((refused.code, refused.err.replace(&place, "HOUSE").as_str()), (Some(3), expected));
    assert!(!second.join("out.jsonl").exists());
    std::fs::remove_dir_all(second.join(".thalweg")).unwrap();
    assert_eq!(run(&second).code, Some(0));
}

/// A server that takes its time for each request, and passes the bodies on.
fn slow_server() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (bodies, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // One connection after the other, so that requests are answered one after the other.
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while reader.read_line(&mut head).unwrap_or(0) > 2 {
                let line = head.lines().last().unwrap().to_lowercase();
                if let Some(number) = line.strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap();
                }
            }
            // The client was killed.
            if head.is_empty() {
                continue;
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            let _ = bodies.send(String::from_utf8(body).unwrap());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (address, received)
}

#[test]
fn a_replay_that_was_killed_does_not_deliver_its_finished_part_again() {
    const LETTERS: usize = 160;
    // Longer than a slow sink can hold a checkpoint up: five seconds.
    const DELIVERED: usize = 125;
    for state in ["", "state: kept\n"] {
        let (address, received) = slow_server();
        let configuration = |transform: &str| {
            format!(
                "{state}sources: {{ in: {{ file: {{ path: 'in/*' }} }} }}
pipelines: {{ main: {{ from: in, transforms: [ {transform} ], to: out }} }}
sinks: {{ out: {{ http: {{ url: '{address}', batch: none, concurrency: 1 }} }} }}
"
            )
        };
        let house = House::with(&[("c.yaml", &configuration("parse_json"))]);
        std::fs::create_dir(house.path().join("in")).unwrap();
        // Letters of different files are batches of their own.
        (0..LETTERS)
            .for_each(|number| house.write(&format!("in/{number:03}"), format!("m{number:03}\n").as_bytes()));
        house.run_well(&["run", "c.yaml"]);
        assert_eq!(letters(&house).len(), LETTERS);
        house.write("c.yaml", configuration("{ set: { text: payload } }").as_bytes());
        let mut child = house.command(&["errors", "replay", "c.yaml"]).spawn().unwrap();
        let mut delivered: Vec<String> = (0..DELIVERED).map(|_| received.recv().unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let left = letters(&house).len();
        assert!(left < LETTERS - 5, "{left} letters are left of {LETTERS}");
        delivered.extend(received.try_iter());
        house.run_well(&["errors", "replay", "c.yaml"]);
        delivered.extend(received.try_iter());
        assert_eq!(letters(&house).len(), 0);
        let again = delivered.len() - LETTERS;
        assert!(again <= left + DELIVERED + 2 - LETTERS, "{again} were delivered again, {left} were left");
        delivered.sort_unstable();
        delivered.dedup();
        assert_eq!(delivered.len(), LETTERS);
    }
}

#[test]
fn a_row_that_a_file_reader_rejected_stays_and_does_not_stop_the_others() {
    let configuration = "sources: { in: { files: { path: in } }, lines: { file: { path: in.jsonl } } }
pipelines:
  tables: { from: in, transforms: [csv: {}], to: out }
  main: { from: lines, transforms: [parse_json: {}], to: out }
sinks: { out: { file: { path: out.jsonl, encode: json } } }
";
    let house = House::with(&[("in.jsonl", "rubbish\n"), ("c.yaml", configuration)]);
    std::fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a.csv", b"a,b\n1,2\n3\n");
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house).len(), 2);
    house.write("c.yaml", configuration.replace("parse_json: {}", "set: { text: payload }").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let reason = "it is a part of a file that `tables.csv` could not read";
    assert!(said.err.contains("2 dead letters: 1 processed") && said.err.contains(reason), "{}", said.err);
    assert_eq!(sorted(&house.read("out.jsonl")), ["{\"a\":\"1\",\"b\":\"2\"}", "{\"text\":\"rubbish\"}"]);
    assert_eq!(letters(&house)[0]["component"], "tables.csv");
}

#[test]
fn letters_of_a_later_pipeline_come_with_their_fields() {
    let configuration = |pattern: &str| {
        format!(
            "
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main: {{ from: in, transforms: [ parse_json, {{ route: {{ large: \"n > 1\" }} }} ], to: small }}
  large:
    from: main.large
    transforms: [ {{ parse_regex: {{ pattern: '{pattern}', field: name }} }} ]
    to: big
sinks:
  small: {{ file: {{ path: small.jsonl, encode: json }} }}
  big: {{ file: {{ path: big.jsonl, encode: json }} }}
"
        )
    };
    let input = "{\"n\": 1, \"name\": \"a1\"}\n{\"n\": 2, \"name\": \"b2\"}\n{\"n\": 3, \"name\": \"c\"}\n";
    let house = House::with(&[("in.jsonl", input), ("c.yaml", &configuration(r"(?<digit>\d)"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(house.read("big.jsonl"), "{\"n\":2,\"name\":\"b2\",\"digit\":\"2\"}\n");
    assert_eq!(letters(&house).len(), 1);
    house.write("c.yaml", configuration(r"(?<digit>\d?)$").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(
        house.read("small.jsonl"),
        "{\"n\":1,\"name\":\"a1\"}\n",
        "another pipeline got the letter too"
    );
    assert!(
        house.read("big.jsonl").ends_with("{\"n\":3,\"name\":\"c\",\"digit\":\"\"}\n"),
        "{}",
        house.read("big.jsonl")
    );
}

#[test]
fn the_work_of_earlier_transforms_is_not_repeated() {
    let configuration = |first: &str, pattern: &str| {
        configuration(
            &format!(
                "{first} {{ set: {{ payload: \"payload || '!'\" }} }}, {{ parse_regex: {{ pattern: '{pattern}' }} }}"
            ),
            "",
        )
    };
    let house = House::with(&[("in.jsonl", "a1\nb\n"), ("c.yaml", &configuration("", r"(?<text>.*\d!)"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(house.read("out.jsonl"), "{\"text\":\"a1!\"}\n");
    let letter = &letters(&house)[0];
    assert_eq!((&letter["payload"], &letter["passed"]), (&"b!".into(), &serde_json::json!(["main.set"])));
    let shown = house.run(&["errors", "show", &letter["id"].to_string(), "c.yaml"]).out;
    assert!(shown.contains("after:     main.set\n"), "{shown}");

    // A new transform before `set` has no effect on the dead letter, and neither has a removed one.
    house.write("c.yaml", configuration("{ filter: \"false\" },", "(?<text>.*)").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("out.jsonl"), "{\"text\":\"a1!\"}\n{\"text\":\"b!\"}\n");
}

#[test]
fn a_part_of_a_message_is_not_divided_again_and_what_is_new_before_the_fault_is_applied() {
    let configuration = |between: &str| {
        configuration(&format!("{{ split: {{ json_array: true }} }}, {between} parse_json"), "")
    };
    let house = House::with(&[("in.jsonl", "[{\"n\":1},[2]]\n"), ("c.yaml", &configuration(""))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n");
    let mend = r#"{ set: { payload: "'{\"n\":' || trim(payload, '[]') || '}'" } },"#;
    house.write("c.yaml", configuration(mend).as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n{\"n\":2}\n");
}

#[test]
fn letters_enter_one_pipeline_in_several_places_and_leave_by_all_its_outputs() {
    let configuration = |types: &str, pattern: &str| {
        format!(
            "
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main:
    from: in
    transforms:
      - parse_json: {{ {types} }}
      - route: {{ large: \"n > 9\" }}
      - parse_regex: {{ pattern: '{pattern}', field: name }}
    to: out
  large: {{ from: main.large, to: big }}
sinks:
  out: {{ file: {{ path: out.jsonl, encode: json }} }}
  big: {{ file: {{ path: big.jsonl, encode: json }} }}
"
        )
    };
    let input = "{\"n\":\"x\",\"name\":\"a1\"}\n{\"n\":2,\"name\":\"b\"}\n{\"n\":\"10\",\"name\":\"c3\"}\n";
    let house = House::with(&[
        ("in.jsonl", input),
        ("c.yaml", &configuration("types: { n: int, at: timestamp, name: int }", r"(?<digit>\d)")),
    ]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    let components = |house: &House| -> Vec<Value> {
        letters(house).into_iter().map(|letter| letter["component"].clone()).collect()
    };
    assert_eq!(components(&house), ["main.parse_json"; 3]);

    house.write("c.yaml", configuration("", r"(?<digit>\d)").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("3 dead letters: 2 processed\n  1 rejected again"), "{}", said.err);
    assert_eq!(components(&house), ["main.parse_regex"]);

    // One more at the beginning, so that the dead letters enter at two places at once.
    house.write("in.jsonl", b"{\"n\":11\n");
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(components(&house), ["main.parse_regex", "main.parse_json"]);
    let mended = configuration("", r"(?<digit>\d?)$").replace(
        "      - parse_json",
        "      - set: { payload: \"rtrim(payload, '}') || '}'\" }\n      - parse_json",
    );
    house.write("c.yaml", mended.as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("2 dead letters: 2 processed\n"), "{}", said.err);
    assert_eq!(letters(&house).len(), 0);
    assert!(house.read("out.jsonl").ends_with("{\"n\":2,\"name\":\"b\",\"digit\":\"\"}\n"));
    assert!(house.read("big.jsonl").ends_with("{\"n\":11}\n"), "{}", house.read("big.jsonl"));
}

#[test]
fn letters_of_a_pipeline_that_takes_errors_go_there_again() {
    let configuration = |pattern: &str| {
        format!(
            "
sources: {{ in: {{ file: {{ path: in.jsonl }} }} }}
pipelines:
  main: {{ from: in, transforms: [ parse_json ], to: out }}
  mend: {{ from: main.errors, transforms: [ {{ parse_regex: {{ pattern: '{pattern}' }} }}, {{ keep: [n] }} ], to: mended }}
sinks:
  out: {{ file: {{ path: out.jsonl, encode: json }} }}
  mended: {{ file: {{ path: mended.jsonl, encode: json }} }}
"
        )
    };
    let house =
        House::with(&[("in.jsonl", "{\"n\":1}\nn=2\nn:3\n"), ("c.yaml", &configuration(r"n=(?<n>\d)"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(house.read("mended.jsonl"), "{\"n\":\"2\"}\n");
    assert_eq!(letters(&house)[0]["component"], "mend.parse_regex");
    house.write("c.yaml", configuration(r"n[=:](?<n>\d)").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("mended.jsonl"), "{\"n\":\"2\"}\n{\"n\":\"3\"}\n");
    assert_eq!(house.read("out.jsonl"), "{\"n\":1}\n");

    // This dead letter was rejected by the pipeline whose errors `mend` reads, so it continues in `mend`.
    let unconnected = configuration("").replace("  mend: { from: main.errors", "  mend: { from: in");
    house.write("in.jsonl", b"n=4\n");
    house.write("c.yaml", unconnected.replace("pattern: ''", "pattern: '(?<n>.)'").as_bytes());
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house)[0]["component"], "main.parse_json");
    house.write("c.yaml", configuration(r"n=(?<n>\d)").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert!(house.read("mended.jsonl").ends_with("{\"n\":\"4\"}\n"), "{}", house.read("mended.jsonl"));
}

#[test]
fn a_letter_of_a_sink_in_a_failover_returns_to_that_sink_and_is_not_encoded_twice() {
    let configuration = |path: &str, taken: &str| {
        format!(
            "
sources: {{ in: {{ generate: {{ lines: ['{{\"n\": 1, \"kind\": \"a\"}}', '{{\"n\": 2, \"kind\": \"../b\"}}'] }} }} }}
pipelines: {{ main: {{ from: in, transforms: [ parse_json ], to: {{ failover: [first, second] }} }} }}
sinks:
  first: {{ file: {{ path: '{taken}' }} }}
  second: {{ file: {{ path: '{path}', encode: json }} }}
"
        )
    };
    let house = House::with(&[("c.yaml", &configuration("{kind}.jsonl", "taken"))]);
    std::fs::create_dir(house.path().join("taken")).unwrap();
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house)[0]["component"], "second");
    house.write("c.yaml", configuration("number-{n}.jsonl", "taken").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("number-2.jsonl"), "{\"n\":2,\"kind\":\"../b\"}\n");
}

#[test]
fn a_letter_that_cannot_be_read_back_keeps_no_other_from_being_processed() {
    let configuration = |format: &str, pattern: &str| {
        configuration(
            &format!(
                "{{ parse_regex: {{ pattern: '^(?<t>\\d+)' }} }}, {{ parse_timestamp: {{ field: t, format: {format} }} }}, \
                 {{ parse_regex: {{ pattern: '{pattern}' }} }}"
            ),
            "",
        )
    };
    // In seconds, the first is a time in the year 33,658.
    let house = House::with(&[
        ("in.jsonl", "1000000000000 x\n1700000000 y\n"),
        ("c.yaml", &configuration("unix", "(?<word>[a-c])")),
    ]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house).len(), 2);
    house.write("c.yaml", configuration("unix", "(?<word>[a-z])").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("2 dead letters: 1 processed\n"), "{}", said.err);
    assert!(said.err.contains("1 cannot be processed again: its fields cannot be read back"), "{}", said.err);
    assert_eq!(house.read("out.jsonl"), "{\"t\":\"2023-11-14T22:13:20Z\",\"word\":\"y\"}\n");
}

#[test]
fn a_letter_of_a_sink_is_not_encoded_twice() {
    let configuration = |path: &str| {
        format!(
            "
sources: {{ in: {{ generate: {{ lines: ['{{\"n\": 1, \"kind\": \"a\"}}', '{{\"n\": 2, \"kind\": \"../b\"}}'] }} }} }}
pipelines: {{ main: {{ from: in, transforms: [ parse_json ], to: out }} }}
sinks: {{ out: {{ file: {{ path: '{path}', encode: json }} }} }}
"
        )
    };
    let house = House::with(&[("c.yaml", &configuration("{kind}.jsonl"))]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    assert_eq!(letters(&house)[0]["component"], "out");
    house.write("c.yaml", configuration("number-{n}.jsonl").as_bytes());
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert!(said.err.contains("1 dead letter: 1 processed\n"), "{}", said.err);
    assert_eq!(house.read("number-2.jsonl"), "{\"n\":2,\"kind\":\"../b\"}\n");
}

#[test]
fn a_message_that_a_source_cut_off_cannot_be_processed_again() {
    let house = House::with(&[
        ("in.txt", &format!("short\n{}\n", "x".repeat(5000))),
        (
            "c.yaml",
            "
sources: { in: { file: { path: in.txt, max_message_bytes: 4KiB } } }
pipelines: { main: { from: in, to: out } }
sinks: { out: { file: { path: out.txt } } }
",
        ),
    ]);
    assert_eq!(house.run(&["run", "c.yaml"]).code, Some(0));
    let said = house.run(&["errors", "replay", "c.yaml"]);
    assert_eq!(said.code, Some(0));
    assert!(
        said.err.contains("1 cannot be processed again: it is a part of the input that the source `in`"),
        "{}",
        said.err
    );
    assert_eq!(letters(&house).len(), 1);
}

/// A million records that do not parse neither flood the screen nor fill the disk, with and without a state
/// folder.
#[test]
fn a_million_letters_stay_within_their_bounds_and_are_told_of_in_a_few_lines() {
    let configuration = "
dead_letters: { max_count: 5000, max_bytes: 1MiB, when_full: drop }
sources: { in: { generate: { message: 'no JSON %20s', count: 1000000 } } }
pipelines: { main: { from: in, transforms: [ parse_json ], to: out } }
sinks: { out: { discard: {} } }
";
    let house = House::with(&[("c.yaml", configuration)]);
    for (arguments, folder) in [(&[][..], ".thalweg"), (&["--state", "kept"], "kept")] {
        let said = house.run(&[&["run", "c.yaml"], arguments].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        // Two lines for each ten seconds that it takes.
        assert!(said.err.lines().count() < 200, "{}", said.err);
        assert!(said.err.contains("1,000,000 messages could not be processed"), "{}", said.err);
        assert!(said.err.contains("dead letters dropped, the oldest first"), "{}", said.err);
        let listed = house.run(&[&["errors", "list", "c.yaml", "--limit", "1"], arguments].concat()).out;
        let lines: Vec<&str> = listed.lines().collect();
        let number = |line: &str| -> u64 {
            let digits: String = line.split(' ').next().unwrap().chars().filter(|c| *c != ',').collect();
            digits.parse().unwrap_or_else(|_| panic!("{listed}"))
        };
        assert!(lines.last().unwrap().ends_with("older ones were dropped: there were too many"), "{listed}");
        let kept = number(lines[lines.len() - 3]);
        assert!((3000..=5000).contains(&kept), "{listed}");
        assert_eq!(kept + number(lines.last().unwrap()), 1_000_000, "{listed}");
        let bytes = size_of_folder(&house.path().join(folder));
        println!("{bytes} bytes in {folder}");
        // The store's journal may have up to 64 MiB, whatever it contains.
        assert!(bytes < 200 << 20, "{bytes} bytes in {folder}");
    }
    assert_eq!(house.run(&["errors", "clear", "c.yaml", "--yes"]).code, Some(0));
    assert_eq!(
        house.run(&["errors", "list", "c.yaml"]).out,
        "there are no dead letters in `.thalweg/c.yaml`\n"
    );
}

fn size_of_folder(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => size_of_folder(&entry.path()),
        found => found.len(),
    };
    entries.map(size).sum()
}
