//! Bad input: the problem is reported, and nothing else is lost.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common::House;

/// Writes a configuration from `in.log` to `out.log` with these transforms.
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

fn failure(house: &House) -> String {
    let output = house.run(&["run", "pipeline.yaml"]);
    let text = output.err;
    assert_eq!(output.code, Some(3), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn a_missing_file_is_named() {
    let house = House::with(&[]);
    let folder = house.path();
    copying(folder, "nowhere.log");
    let text = failure(&house);
    assert!(text.contains("nowhere.log"), "{text}");
}

#[test]
fn a_folder_is_not_a_file() {
    let house = House::with(&[]);
    let folder = house.path();
    fs::create_dir(folder.join("logs")).unwrap();
    copying(folder, "logs");
    let text = failure(&house);
    assert!(text.contains("logs") && text.contains("folder"), "{text}");
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let house = House::with(&[]);
    let folder = house.path();
    let path = folder.join("secret.log");
    fs::write(&path, "x\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        println!("not shown: this user may read everything");
        return;
    }
    copying(folder, "secret.log");
    let text = failure(&house);
    assert!(text.contains("secret.log") && text.to_lowercase().contains("permi"), "{text}");
}

#[test]
fn bytes_that_are_not_text_pass_unchanged() {
    let house = House::with(&[]);
    let folder = house.path();
    let bytes = b"plain\n\xff\xfe not UTF-8\n\0nul\0\n\ncarriage\n".to_vec();
    fs::write(folder.join("in.log"), &bytes).unwrap();
    copying(folder, "in.log");
    house.run_well(&["run", "pipeline.yaml"]);
    assert_eq!(fs::read(folder.join("out.log")).unwrap(), bytes);
}

#[test]
fn malformed_json_among_good_records_is_kept_and_the_rest_goes_on() {
    let house = House::with(&[]);
    let folder = house.path();
    fs::write(folder.join("in.log"), b"{\"a\":1}\n{\"a\":\nnot json\n\xff\n[1]\n{\"a\":2}\n").unwrap();
    pipeline(folder, "{ file: { path: in.log } }", "[parse_json: {}]");
    let output = house.run_well(&["run", "pipeline.yaml"]);
    assert_eq!(house.lines("out.log"), [r#"{"a":1}"#, r#"{"a":2}"#]);
    assert!(output.err.contains("4 "), "{}", output.err);
    let listed = house.run_well(&["errors", "list", "pipeline.yaml"]);
    assert_eq!(listed.out.matches("main.parse_json").count(), 4, "{}", listed.out);
    let strict = house.run(&["run", "pipeline.yaml", "--strict", "--quiet"]);
    assert_eq!(strict.code, Some(1));
}

#[test]
fn malformed_csv_among_good_records_is_kept_and_the_rest_goes_on() {
    let house = House::with(&[]);
    let folder = house.path();
    fs::write(folder.join("in.log"), "1,x\n2\n3,\"open\n4,y\n").unwrap();
    pipeline(folder, "{ file: { path: in.log } }", "[parse_csv: { columns: [n, t], types: { n: int } }]");
    house.run_well(&["run", "pipeline.yaml"]);
    assert_eq!(house.lines("out.log"), [r#"{"n":1,"t":"x"}"#, r#"{"n":4,"t":"y"}"#]);
    let listed = house.run_well(&["errors", "list", "pipeline.yaml"]);
    assert_eq!(listed.out.matches("main.parse_csv").count(), 2);
}

#[test]
fn a_line_of_100_mib_goes_to_errors_and_does_not_fill_the_memory() {
    let house = House::with(&[]);
    let folder = house.path();
    let mut file = fs::File::create(folder.join("in.log")).unwrap();
    file.write_all(b"before\n").unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..100).for_each(|_| file.write_all(&piece).unwrap());
    file.write_all(b"\nafter\n").unwrap();
    drop(file);
    copying(folder, "in.log");
    let output = house.run_well(&["run", "pipeline.yaml", "--json", "--memory", "8MiB"]);
    assert_eq!(house.lines("out.log"), ["before", "after"]);
    let summary: serde_json::Value = output
        .err
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|value: &serde_json::Value| value.get("components").is_some())
        .expect("a summary");
    assert_eq!(summary["dead_letters"], 1, "{summary}");
    let peak = summary["peak_memory_bytes"].as_u64().expect("the peak");
    assert!(peak < 80 << 20, "{} MiB", peak >> 20);
}

#[test]
fn a_truncated_gzip_gives_what_it_has_and_then_says_so() {
    let house = House::with(&[]);
    let folder = house.path();
    let all: String = (0..50_000).map(|n| format!("line number {n}\n")).collect();
    fs::write(folder.join("plain.log"), &all).unwrap();
    let packed = "sources: { in: { file: { path: plain.log } } }\n\
                  pipelines: { main: { from: in, to: out } }\n\
                  sinks: { out: { file: { path: in.log.gz, compression: gzip } } }\n";
    fs::write(folder.join("pack.yaml"), packed).unwrap();
    house.run_well(&["run", "pack.yaml", "--quiet"]);
    let bytes = fs::read(folder.join("in.log.gz")).unwrap();
    fs::write(folder.join("cut.log.gz"), &bytes[..bytes.len() / 2]).unwrap();
    copying(folder, "cut.log.gz");
    let text = failure(&house);
    assert!(text.contains("cut.log.gz"), "{text}");
    let mut found =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let lines = house.lines(&found.find(|name| name.contains("out.log")).expect("what there was"));
    assert!(lines.len() > 1000, "{}", lines.len());
    assert!(lines.iter().take(1000).enumerate().all(|(n, line)| *line == format!("line number {n}")));
}

#[test]
fn a_full_disk_stops_the_run_and_says_so() {
    if !Path::new("/dev/full").exists() {
        println!("not shown: there is no /dev/full");
        return;
    }
    let house = House::with(&[]);
    let folder = house.path();
    fs::write(folder.join("in.log"), "x\n".repeat(1000)).unwrap();
    fs::write(
        folder.join("pipeline.yaml"),
        "sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: /dev/full, atomic: false } } }\n",
    )
    .unwrap();
    let text = failure(&house);
    assert!(text.contains("/dev/full") && text.to_lowercase().contains("space"), "{text}");
}

/// A file system of 256 KiB in memory, which is unmounted on drop.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts it at a folder, or returns the reason why that is impossible.
    fn mounted(at: &'a Path) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(at);
        match mount.output() {
            Ok(output) if output.status.success() => Ok(Self(at)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            println!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn a_disk_that_fills_up_keeps_what_it_has_and_the_run_goes_on_when_there_is_room() {
    let house = House::with(&[]);
    let folder = house.path();
    let out = folder.join("out");
    fs::create_dir(&out).unwrap();
    let disk = match SmallDisk::mounted(&out) {
        Ok(disk) => disk,
        Err(reason) => {
            println!("not shown: a small disk cannot be mounted here: {reason}");
            return;
        }
    };
    fs::write(out.join("ballast"), vec![0; 128 << 10]).unwrap();
    let all: String = (0..20_000).map(|n| format!("{n:09}\n")).collect();
    house.write("in.log", all.as_bytes());
    fs::write(
        folder.join("pipeline.yaml"),
        "state: kept\nmemory: 512KiB\n\
         sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out/out.log } } }\n",
    )
    .unwrap();
    let text = failure(&house);
    assert!(text.contains("out/out.log") && text.contains("no space is left on its disk"), "{text}");
    let kept = house.read("out/out.log.part");
    assert!(!kept.is_empty() && kept.ends_with('\n') && all.starts_with(&kept), "{} bytes", kept.len());

    fs::remove_file(out.join("ballast")).unwrap();
    house.run_well(&["run", "pipeline.yaml"]);
    assert!(house.read("out/out.log") == all, "something was lost, or is there twice");
    drop(disk);
}

#[test]
fn an_output_folder_that_may_not_be_written_is_named() {
    let house = House::with(&[]);
    let folder = house.path();
    fs::write(folder.join("in.log"), "x\n").unwrap();
    fs::write(folder.join("blocked"), "a file where a folder is needed").unwrap();
    fs::write(
        folder.join("pipeline.yaml"),
        "sources: { in: { file: { path: in.log } } }\n\
         pipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: blocked/out.log } } }\n",
    )
    .unwrap();
    let text = failure(&house);
    assert!(text.contains("blocked"), "{text}");
}

#[test]
fn a_full_folder_for_temporary_files_is_named_and_the_run_goes_on_when_there_is_room() {
    if !thalweg_testkit::disk::SmallDisk::is_possible() {
        println!("not shown: a small disk cannot be mounted here");
        return;
    }
    let text = "sources: { in: { files: { path: in.log.gz } } }\n\
                temporary: small\n\
                pipelines: { main: { from: in, transforms: [decompress], to: out } }\n\
                sinks: { out: { directory: { path: out } } }\n";
    let house = House::with(&[("c.yaml", text)]);
    let content: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
    house.write("in.log", content.as_bytes());
    let pack = "sources: { in: { file: { path: in.log } } }\n\
                pipelines: { main: { from: in, to: out } }\n\
                sinks: { out: { file: { path: in.log.gz, compression: gzip } } }\n";
    house.write("pack.yaml", pack.as_bytes());
    house.run_well(&["run", "pack.yaml", "--quiet"]);
    let disk = thalweg_testkit::disk::SmallDisk::mount(&house.path().join("small"), 256 << 10).unwrap();
    let mut command = house.command(&["run", "c.yaml"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("No space left on device") {
        let read = std::io::BufRead::read_line(&mut said, &mut text).unwrap();
        assert!(read > 0, "it ended: {text}");
    }
    assert!(text.contains("cannot write a temporary file"), "{text}");
    assert!(text.contains("The option `temporary` names their folder"), "{text}");
    disk.grow().unwrap();
    std::io::Read::read_to_string(&mut said, &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(house.read("out/in.log") == content);
}

#[test]
fn a_full_disk_stops_the_run_also_while_a_torn_file_is_put_in_order() {
    let house = House::with(&[(
        "c.yaml",
        "sources: { in: stdin }\npipelines: { main: { from: in, to: out } }\n\
         sinks: { out: { file: { path: out.gz, compression: gzip, atomic: false } } }\n",
    )]);
    assert_eq!(
        house.run_with_input(&["run", "c.yaml", "-q"], "a message\n".repeat(1000).as_bytes()).code,
        Some(0)
    );
    let whole = std::fs::read(house.path().join("out.gz")).unwrap();
    let torn = &whole[..whole.len() - 4];
    std::fs::write(house.path().join("out.gz"), torn).unwrap();
    // Without an end, the run would wait for space.
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_thalweg"), "run", "c.yaml", "-q", "--state", "state"]);
    command.env("THALWEG_FAILPOINTS", "rename.before=full@1-").current_dir(house.path());
    let said = crate::common::said(command.stdin(std::process::Stdio::null()).output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.err);
    assert!(said.err.contains("cannot write to `out.gz`: no space is left on its disk"), "{}", said.err);
    assert_eq!(std::fs::read(house.path().join("out.gz")).unwrap(), torn);
    let said = house.run_with_input(&["run", "c.yaml", "-q", "--state", "state"], b"another\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
}

/// A field called `payload` means the field for the messages that have it. For all others `payload` is the
/// message, whatever else is in their batch.
#[test]
fn a_member_called_payload_hides_no_other_message() {
    let input = "{\"a\":1}\n{\"payload\":7}\n{\"b\":2}\n{\"payload\":\"x\",\"meta\":{\"time\":\"t\"}}\n";
    let run = |transforms: &str, sink: &str| {
        let configuration = format!(
            "sources: {{ in: stdin }}\npipelines:\n  main: {{ from: in, transforms: [parse_json, {transforms}], to: out }}\n\
             sinks: {{ out: {{ stdout: {sink} }} }}\n"
        );
        let house = House::with(&[("c.yaml", &configuration)]);
        let said = house.run_with_input(&["run", "-q", "c.yaml"], input.as_bytes());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = ["{\"a\":1}", "7", "{\"b\":2}", "x"];
    let text = "{ encode: { format: text, template: \"{payload}\" } }";
    assert_eq!(run("keep: [payload]", text), whole);
    assert_eq!(run("set: { z: payload }", "{ encode: { format: text, template: \"{z}\" } }"), whole);
    assert_eq!(run("filter: \"payload LIKE '%b%'\"", "{}"), ["{\"b\":2}"]);
    assert_eq!(run("copy: { into: z }", "{ encode: { format: text, template: \"{z}\" } }"), whole);
    assert_eq!(run("dedupe: { keys: [payload] }", "{}").len(), 4);
    assert_eq!(
        run("set: { z: length(payload) }", "{ encode: json }"),
        [
            "{\"a\":1,\"z\":7}",
            "{\"payload\":7,\"z\":1}",
            "{\"b\":2,\"z\":7}",
            "{\"payload\":\"x\",\"meta\":{\"time\":\"t\"},\"z\":1}"
        ]
    );
}
