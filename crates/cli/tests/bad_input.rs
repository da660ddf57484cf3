//! Bad input: what is wrong is said, and nothing else is lost.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use common::{lines, run, run_well, stderr};

/// A configuration from `in.log` to `out.log` with these transforms.
fn pipeline(folder: &Path, source: &str, transforms: &str) {
    fs::write(
        folder.join("pipeline.yaml"),
        format!(
            "sources: {{ in: {source} }}\n\
             pipelines:\n  main:\n    from: in\n    transforms: {transforms}\n    to: out\n\
             sinks: {{ out: {{ file: {{ path: out.log, encode: json }} }} }}\n"
        ),
    )
    .unwrap();
}

fn copying(folder: &Path, path: &str) {
    fs::write(
        folder.join("pipeline.yaml"),
        format!(
            "sources: {{ in: {{ file: {{ path: \"{path}\" }} }} }}\n\
             pipelines: {{ main: {{ from: in, to: out }} }}\n\
             sinks: {{ out: {{ file: {{ path: out.log }} }} }}\n"
        ),
    )
    .unwrap();
}

fn failure(folder: &Path) -> String {
    let output = run(folder, &["run", "pipeline.yaml"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    copying(folder.path(), "nowhere.log");
    let text = failure(folder.path());
    assert!(text.contains("nowhere.log"), "{text}");
}

#[test]
fn a_folder_is_not_a_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("logs")).unwrap();
    copying(folder.path(), "logs");
    let text = failure(folder.path());
    assert!(text.contains("logs") && text.contains("directory"), "{text}");
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.log");
    fs::write(&path, "x\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0)).unwrap();
    if fs::File::open(&path).is_ok() {
        println!("not shown: this user may read everything");
        return;
    }
    copying(folder.path(), "secret.log");
    let text = failure(folder.path());
    assert!(text.contains("secret.log") && text.to_lowercase().contains("permi"), "{text}");
}

#[test]
fn bytes_that_are_not_text_pass_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = b"plain\n\xff\xfe not UTF-8\n\0nul\0\n\ncarriage\n".to_vec();
    fs::write(folder.path().join("in.log"), &bytes).unwrap();
    copying(folder.path(), "in.log");
    run_well(folder.path(), &["run", "pipeline.yaml"]);
    assert_eq!(fs::read(folder.path().join("out.log")).unwrap(), bytes);
}

#[test]
fn malformed_json_among_good_records_is_kept_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.log"), b"{\"a\":1}\n{\"a\":\nnot json\n\xff\n[1]\n{\"a\":2}\n").unwrap();
    pipeline(folder.path(), "{ file: { path: in.log } }", "[parse_json: {}]");
    let output = run_well(folder.path(), &["run", "pipeline.yaml"]);
    assert_eq!(lines(folder.path().join("out.log")), [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert!(stderr(&output).contains("4 "), "{}", stderr(&output));
    let listed = run_well(folder.path(), &["errors", "list", "pipeline.yaml"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.matches("main.parse_json").count(), 4, "{listed}");
    let strict = run(folder.path(), &["run", "pipeline.yaml", "--strict", "--quiet"]);
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn malformed_csv_among_good_records_is_kept_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.log"), "1,x\n2\n3,\"open\n4,y\n").unwrap();
    pipeline(
        folder.path(),
        "{ file: { path: in.log } }",
        "[parse_csv: { columns: [n, t], types: { n: int } }]",
    );
    run_well(folder.path(), &["run", "pipeline.yaml"]);
    assert_eq!(lines(folder.path().join("out.log")), [r#"{"n":1,"t":"x"}"#, r#"{"n":4,"t":"y"}"#]);
    let listed = run_well(folder.path(), &["errors", "list", "pipeline.yaml"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).matches("main.parse_csv").count(), 2);
}

#[test]
fn a_line_of_100_mib_goes_to_errors_and_does_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = fs::File::create(folder.path().join("in.log")).unwrap();
    file.write_all(b"before\n").unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..100).for_each(|_| file.write_all(&piece).unwrap());
    file.write_all(b"\nafter\n").unwrap();
    drop(file);
    copying(folder.path(), "in.log");
    let output = run_well(folder.path(), &["run", "pipeline.yaml", "--json", "--memory", "8MiB"]);
    assert_eq!(lines(folder.path().join("out.log")), ["before", "after"]);
    let summary: serde_json::Value = stderr(&output)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|value: &serde_json::Value| value.get("components").is_some())
        .expect("a summary");
    assert_eq!(summary["dead_letters"], 1, "{summary}");
    let peak = summary["peak_rss_bytes"].as_u64().expect("the peak");
    assert!(peak < 80 << 20, "{} MiB", peak >> 20);
}

#[test]
fn a_truncated_gzip_gives_what_it_has_and_then_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let all: String = (0..50_000).map(|n| format!("line number {n}\n")).collect();
    fs::write(folder.path().join("plain.log"), &all).unwrap();
    let packed = "sources: { in: { file: { path: plain.log } } }\n\
                  pipelines: { main: { from: in, to: out } }\n\
                  sinks: { out: { file: { path: in.log.gz, compression: gzip } } }\n";
    fs::write(folder.path().join("pack.yaml"), packed).unwrap();
    run_well(folder.path(), &["run", "pack.yaml", "--quiet"]);
    let bytes = fs::read(folder.path().join("in.log.gz")).unwrap();
    fs::write(folder.path().join("cut.log.gz"), &bytes[..bytes.len() / 2]).unwrap();
    copying(folder.path(), "cut.log.gz");
    let text = failure(folder.path());
    assert!(text.contains("cut.log.gz"), "{text}");
    let found = fs::read_dir(folder.path()).unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let out = found.filter(|path| path.to_string_lossy().contains("out.log")).next().expect("what there was");
    let lines = lines(out);
    assert!(lines.len() > 1000, "{}", lines.len());
    assert!(lines.iter().take(1000).enumerate().all(|(n, line)| *line == format!("line number {n}")));
}

#[test]
fn a_full_disk_stops_the_run_and_says_so() {
    if !Path::new("/dev/full").exists() {
        println!("not shown: there is no /dev/full");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.log"), "x\n".repeat(1000)).unwrap();
    fs::write(
        folder.path().join("pipeline.yaml"),
        "sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: /dev/full, atomic: false } } }\n",
    )
    .unwrap();
    let text = failure(folder.path());
    assert!(text.contains("/dev/full") && text.to_lowercase().contains("space"), "{text}");
}

#[test]
fn an_output_folder_that_may_not_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in.log"), "x\n").unwrap();
    fs::write(folder.path().join("blocked"), "a file where a folder is needed").unwrap();
    fs::write(
        folder.path().join("pipeline.yaml"),
        "sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: blocked/out.log } } }\n",
    )
    .unwrap();
    let text = failure(folder.path());
    assert!(text.contains("blocked"), "{text}");
}
