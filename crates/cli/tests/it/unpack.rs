//! Files that become messages, and messages that become files.

use std::fs;

use crate::common::House;

/// Compresses its input into a file.
const COMPRESS: &str = "\
sources: { in: stdin }
pipelines: { main: { from: in, to: out } }
sinks: { out: { file: { path: 'in/b/packed.log', compression: gzip } } }
";

const LINES: &str = "\
sources: { logs: { files: { path: in } } }
pipelines:
  main:
    from: logs
    transforms:
      - lines: {}
      - filter: \"payload LIKE '%7%'\"
      - pack: { name: 'part-{number:4}.log', max_count: 1000 }
    to: out
sinks: { out: { directory: { path: out } } }
";

const TABLES: &str = "\
sources: { tables: { files: { path: in } } }
pipelines:
  main:
    from: tables
    transforms:
      - csv: { types: { n: int } }
    to: out
  wrongly: { from: main.errors, to: wrong }
sinks:
  out: { file: { path: out.jsonl, encode: { format: json, sort: true } } }
  wrong: { file: { path: wrong.jsonl, encode: { format: json, fields: [payload, error_reason] } } }
";

/// Returns the files of a folder, in the order of their names.
fn contents(house: &House, folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(house.path().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn files_become_lines_and_lines_become_files() {
    let house = House::with(&[("compress.yaml", COMPRESS), ("lines.yaml", LINES)]);
    fs::create_dir_all(house.path().join("in/b")).unwrap();
    let text = |from: usize| (from..from + 20_000).map(|n| format!("line {n}\n")).collect::<String>();
    // The last line of the uncompressed file has no line feed.
    house.write("in/a.log", text(0).trim_end().as_bytes());
    let said = house.run_with_input(&["run", "compress.yaml"], text(20_000).as_bytes());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(fs::metadata(house.path().join("in/b/packed.log")).unwrap().len() < 100_000);
    house.run_well(&["run", "--strict", "lines.yaml"]);
    let files = contents(&house, "out");
    let mut lines: Vec<&str> = files.iter().flat_map(|(_, text)| text.lines()).collect();
    lines.sort_unstable();
    let mut expected: Vec<String> =
        (0..40_000).map(|n| format!("line {n}")).filter(|line| line.contains('7')).collect();
    expected.sort_unstable();
    assert!(lines == expected, "{} lines instead of {}", lines.len(), expected.len());
    assert_eq!(files[0].0, "part-0001.log");
    assert_eq!(files.len(), expected.len().div_ceil(1000));
    assert!(files[..files.len() - 1].iter().all(|(_, text)| text.lines().count() == 1000));
}

#[test]
fn tables_become_messages_with_fields_and_what_does_not_fit_leaves_with_its_line() {
    let house = House::with(&[("tables.yaml", TABLES)]);
    fs::create_dir(house.path().join("in")).unwrap();
    house.write("in/a.csv", b"\xef\xbb\xbfname,n\r\n\"two\nlines\",1\r\nb,x\r\nc,3\r\n");
    house.write("in/b.csv", b"n,other\n4,y");
    house.run_well(&["run", "tables.yaml"]);
    let mut rows = house.lines("out.jsonl");
    rows.sort();
    assert_eq!(rows, [r#"{"n":1,"name":"two\nlines"}"#, r#"{"n":3,"name":"c"}"#, r#"{"n":4,"other":"y"}"#]);
    let wrong = house.lines("wrong.jsonl");
    let reason = "line 4: the field `n` is not a whole number of 64 bits: `x`";
    assert_eq!(wrong, [format!(r#"{{"payload":"b,x","error_reason":"{reason}"}}"#)]);
}
