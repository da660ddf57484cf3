//! `thalweg copy` between real servers, with a proxy in front that simulates network faults.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use thalweg_testbed::{Azure, Fault, Proxy, Rule, S3, Times};

use crate::common::{House, Said, said};
use crate::copy_going_on::stop_soon;

const MIB: usize = 1 << 20;
/// The smallest part size that the S3 protocol accepts.
const PARTS: [&str; 4] = ["--part-size", "5MiB", "--memory", "64MiB"];

/// A folder, and the servers to copy from and to.
struct Town {
    house: House,
    amazon: S3,
    proxy: Proxy,
}

impl Town {
    fn new() -> Self {
        let amazon = S3::start().unwrap();
        amazon.create_bucket("bucket").unwrap();
        let proxy = Proxy::start(amazon.address()).unwrap();
        Self { house: House::with(&[]), amazon, proxy }
    }

    /// Returns the URL of an object through the proxy.
    fn url(&self, key: &str) -> String {
        self.amazon.url_through(&self.proxy, "bucket", key)
    }

    fn copy(&self, arguments: &[&str]) -> Command {
        let mut command = self.house.command(&[&["copy"], arguments].concat());
        command.envs(self.amazon.env()).env("XDG_STATE_HOME", self.house.path().join("kept"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        said(self.copy(arguments).output().unwrap())
    }

    fn run_well(&self, arguments: &[&str]) -> Said {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        said
    }

    /// Returns the content of an object in the bucket, if it exists.
    fn stored(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(self.amazon.folder().join("bucket").join(key)).ok()
    }

    fn put(&self, key: &str, content: &[u8]) {
        let path = self.amazon.folder().join("bucket").join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Returns the number of parts of incomplete uploads on the server.
    fn unfinished(&self) -> usize {
        files_of_uploads(&self.amazon.folder(), false)
    }

    /// Returns the numbers of the parts that were stored since the proxy's log was cleared.
    fn sent_parts(&self) -> BTreeSet<u32> {
        let seen = self.proxy.seen();
        let stored = seen.iter().filter(|seen| seen.method == "PUT" && seen.upstream_status == Some(200));
        stored.filter_map(|seen| number_in(&seen.path_and_query)).collect()
    }

    /// Starts a copy whose fourth part gets no answer, and kills it once these parts are stored.
    fn cut_off(&self, arguments: &[&str], parts: &[u32]) {
        self.proxy.set([Rule::new(Fault::Hang).method("PUT").path("partNumber=4&")]);
        self.kill_at(arguments, 4, parts);
    }

    /// Starts a copy, and kills it once these parts are stored and this one is on its way.
    fn kill_at(&self, arguments: &[&str], last: u32, parts: &[u32]) {
        let mut child = self.copy(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_there = |number| self.sent_parts().contains(number);
        let is_asked = || self.proxy.seen().iter().any(|seen| number_in(&seen.path_and_query) == Some(last));
        while !(parts.iter().all(is_there) && is_asked()) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            sleep(Duration::from_millis(10));
        }
        // The part that hangs holds the next checkpoint up for five seconds.
        sleep(Duration::from_millis(6500));
        child.kill().unwrap();
        child.wait().unwrap();
        self.proxy.set([]);
        self.proxy.clear();
    }
}

fn number_in(query: &str) -> Option<u32> {
    query.split(['?', '&']).find_map(|pair| pair.strip_prefix("partNumber=")?.parse().ok())
}

fn files_of_uploads(folder: &Path, is_inside: bool) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_inside = is_inside || entry.file_name().to_string_lossy().starts_with(".sgwtmp");
        match entry.path().is_dir() {
            true => count += files_of_uploads(&entry.path(), is_inside),
            false => count += usize::from(is_inside),
        }
    }
    count
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 ^ (at / 65_536) as u8).collect()
}

fn status(code: u16, retry_after: Option<u64>) -> Fault {
    Fault::Status { code, retry_after, body: String::new() }
}

#[test]
fn trees_go_to_stores_between_them_and_back() {
    let town = Town::new();
    let azure = Azure::start().unwrap();
    azure.create_container("container").unwrap();
    let bytes = content(12 * MIB);
    fs::create_dir_all(town.house.path().join("tree/Grüße 日本")).unwrap();
    town.house.write("tree/large.bin", &bytes);
    town.house.write("tree/Grüße 日本/50% +.txt", b"text");
    town.house.write("tree/empty", b"");
    let amazon = town.url("a folder/");
    let said = town.run_well(&[&["tree/", &amazon], &PARTS[..]].concat());
    assert!(said.err.contains("3 files copied") && said.err.contains("12.0 MiB verified"), "{}", said.err);
    let microsoft = azure.url("container", "there/");
    let between = said_of(town.copy(&[&*amazon, &microsoft]).envs(azure.env()));
    assert!(between.err.contains("3 files copied"), "{}", between.err);
    let back = said_of(town.copy(&[&*microsoft, "back/"]).envs(azure.env()));
    assert!(back.err.contains("3 files copied"), "{}", back.err);
    assert!(fs::read(town.house.path().join("back/large.bin")).unwrap() == bytes);
    assert_eq!(town.house.read("back/Grüße 日本/50% +.txt"), "text");
    assert_eq!(town.house.read("back/empty"), "");
    assert_eq!(town.unfinished(), 0);
}

fn said_of(command: &mut Command) -> Said {
    let said = said(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.err);
    said
}

#[test]
fn rows_go_from_store_to_store() {
    let town = Town::new();
    town.put("in/a.csv", b"name,age\nAda,36\nBob,17\n");
    town.put("in/b.csv", b"name,age\nEve,50\n");
    let options = ["--parse", "csv", "--encode", "json", "--type", "age=int", "--where", "age > 18"];
    town.run_well(&[&[&*town.url("in/*.csv"), &*town.url("all.jsonl")], &options[..]].concat());
    let all = String::from_utf8(town.stored("all.jsonl").unwrap()).unwrap();
    let mut rows: Vec<&str> = all.lines().collect();
    rows.sort_unstable();
    assert_eq!(rows, [r#"{"name":"Ada","age":36}"#, r#"{"name":"Eve","age":50}"#]);
    town.run_well(&[&[&*town.url("in/a.csv"), &*town.url("one/")], &options[..]].concat());
    assert!(town.stored("one/a.jsonl").is_some());
}

#[test]
fn faults_while_objects_are_read_do_no_harm() {
    let town = Town::new();
    let bytes = content(12 * MIB);
    town.put("large.bin", &bytes);
    let from = town.url("large.bin");
    for (number, fault) in [
        Fault::CutBody { after: MIB as u64 + 7 },
        status(503, Some(1)),
        status(500, None),
        Fault::Slow { bytes_per_second: 20 << 20 },
        Fault::WrongLength { by: -1000 },
        Fault::WrongLength { by: 1000 },
    ]
    .into_iter()
    .enumerate()
    {
        town.proxy.set([Rule::new(fault.clone()).method("GET").times(Times::First(2))]);
        let to = format!("copy-{number}");
        let said = town.run(&[&[&*from, &*to], &PARTS[..]].concat());
        assert_eq!(said.code, Some(0), "{fault:?}: {}", said.err);
        assert!(fs::read(town.house.path().join(&to)).unwrap() == bytes, "{fault:?}");
    }
}

#[test]
fn an_object_that_changes_while_it_is_read_is_an_error_and_nothing_is_written() {
    let town = Town::new();
    town.house.write("large.bin", &content(12 * MIB));
    // The server has a tag only for content that it wrote itself.
    town.run_well(&["large.bin", &*town.url("large.bin")]);
    town.proxy.set([Rule::new(Fault::ChangeEtag("\"other\"".to_owned())).method("GET").times(Times::Nth(2))]);
    let said =
        town.run(&[&[&*town.url("large.bin"), "out/"], &PARTS[..], &["--mode", "sequential"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.err);
    let left = fs::read_dir(town.house.path().join("out")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "{}", said.err);
    let command = said.err.split('`').find(|part| part.starts_with("thalweg errors")).unwrap().to_owned();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let shown = town.house.run_well(&words).out;
    assert!(shown.contains("changed"), "{shown}");
}

#[test]
fn faults_while_objects_are_written_do_no_harm() {
    let town = Town::new();
    let bytes = content(12 * MIB);
    town.house.write("large.bin", &bytes);
    let lost = || Fault::StatusAfter { code: 500, retry_after: None, body: String::new() };
    let part = |fault: Fault| Rule::new(fault).method("PUT").path("partNumber=").times(Times::First(2));
    for (number, rule) in [
        part(Fault::CutRequest { after: MIB as u64 }),
        part(status(503, Some(1))),
        part(lost()),
        part(Fault::Slow { bytes_per_second: 20 << 20 }),
        Rule::new(lost()).method("POST").path("uploadId=").times(Times::First(1)),
        Rule::new(status(503, None)).path("uploads").times(Times::First(1)),
    ]
    .into_iter()
    .enumerate()
    {
        town.proxy.set([rule.clone()]);
        let key = format!("copy-{number}");
        let said = town.run(&[&["large.bin", &*town.url(&key)], &PARTS[..]].concat());
        assert_eq!(said.code, Some(0), "{rule:?}: {}", said.err);
        assert!(town.stored(&key) == Some(bytes.clone()), "{rule:?}");
        assert_eq!(town.unfinished(), 0, "{rule:?}");
    }
}

#[test]
fn a_part_that_is_refused_leaves_nothing_behind() {
    let town = Town::new();
    town.house.write("large.bin", &content(12 * MIB));
    town.proxy.set([Rule::new(status(403, None)).method("PUT").path("partNumber=2")]);
    let said = town.run(&[&["large.bin", &*town.url("refused")], &PARTS[..]].concat());
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("1 file could not be copied"), "{}", said.err);
    assert_eq!((town.stored("refused"), town.unfinished()), (None, 0));
}

#[test]
fn a_copy_that_goes_on_sends_only_the_parts_that_are_missing() {
    let town = Town::new();
    let bytes = content(28 * MIB);
    town.house.write("large.bin", &bytes);
    let to = town.url("large.bin");
    let arguments = [&["large.bin", &*to], &PARTS[..]].concat();
    town.cut_off(&arguments, &[1, 2, 3, 5, 6]);
    assert!(town.stored("large.bin").is_none() && town.unfinished() > 0);
    let said = town.run_well(&arguments);
    assert_eq!(town.sent_parts(), BTreeSet::from([4]));
    assert!(said.err.contains("23.0 MiB kept from a former copy"), "{}", said.err);
    assert!(town.stored("large.bin") == Some(bytes));
    assert_eq!(town.unfinished(), 0);
}

#[test]
fn a_copy_that_begins_anew_removes_what_the_former_one_left_in_the_store() {
    let town = Town::new();
    let bytes = content(28 * MIB);
    town.house.write("large.bin", &bytes);
    let to = town.url("large.bin");
    let arguments = [&["large.bin", &*to], &PARTS[..]].concat();
    town.cut_off(&arguments, &[1, 2, 3, 5, 6]);
    town.run_well(&[&arguments[..], &["--restart"]].concat());
    assert_eq!(town.sent_parts(), (1..=6).collect());
    assert!(town.stored("large.bin") == Some(bytes));
    assert_eq!(town.unfinished(), 0);
}

#[test]
fn rows_that_are_cut_off_go_on_and_are_the_same() {
    let town = Town::new();
    let mut text = String::new();
    (0..1_500_000).for_each(|number| text += &format!("{{\"n\":{number},\"name\":\"name of {number}\"}}\n"));
    town.house.write("rows.jsonl", text.as_bytes());
    let to = town.url("rows.csv");
    let arguments = ["rows.jsonl", &*to, "--parse", "jsonl", "--encode", "csv", "--set", "n=n * 2"];
    // Fewer parts at a time than the object has.
    let arguments = [&arguments[..], &["--part-size", "5MiB", "--memory", "32MiB"]].concat();
    town.run_well(&arguments);
    let whole = town.stored("rows.csv").unwrap();
    fs::remove_file(town.amazon.folder().join("bucket/rows.csv")).unwrap();
    town.proxy.clear();
    // A checkpoint is due while the first parts are on their way, and has them.
    let hangs = Rule::new(Fault::Hang).method("PUT").path("partNumber=6&");
    let takes_long = Rule::new(Fault::Delay(Duration::from_secs(2))).method("PUT").path("partNumber=");
    town.proxy.set([hangs, takes_long]);
    town.kill_at(&arguments, 6, &[1, 2, 3]);
    assert!(town.stored("rows.csv").is_none());
    let said = town.run_well(&arguments);
    assert!(said.err.contains("resuming an interrupted copy"), "{}", said.err);
    assert!(!town.sent_parts().contains(&1), "{:?}", town.sent_parts());
    assert!(town.stored("rows.csv").unwrap() == whole);
    assert_eq!(town.unfinished(), 0);
}

#[test]
fn faults_of_azure_do_no_harm_and_only_missing_blocks_are_sent_again() {
    let town = Town::new();
    let azure = Azure::start().unwrap();
    azure.create_container("container").unwrap();
    let proxy = Proxy::start(azure.address()).unwrap();
    let bytes = content(28 * MIB);
    town.house.write("large.bin", &bytes);
    let block = |fault: Fault| Rule::new(fault).method("PUT").path("comp=block&");
    let lost = || Fault::StatusAfter { code: 500, retry_after: None, body: String::new() };
    proxy.set([
        block(Fault::CutRequest { after: MIB as u64 }).times(Times::Nth(1)),
        block(status(503, Some(1))).times(Times::Nth(3)),
        block(lost()).times(Times::Nth(5)),
        Rule::new(lost()).method("PUT").path("comp=blocklist").times(Times::First(1)),
    ]);
    let to = azure.url_through(&proxy, "container", "one");
    said_of(town.copy(&[&["large.bin", &*to], &PARTS[..]].concat()).envs(azure.env()));
    proxy.set([Rule::new(Fault::CutBody { after: MIB as u64 }).method("GET").times(Times::First(2))]);
    said_of(town.copy(&[&*to, "back"]).envs(azure.env()));
    assert!(fs::read(town.house.path().join("back")).unwrap() == bytes);

    proxy.set([block(Fault::Hang).times(Times::Nth(4))]);
    proxy.clear();
    let stored = || {
        let seen = proxy.seen();
        let blocks = seen.iter().filter(|seen| seen.path_and_query.contains("comp=block&"));
        blocks.filter(|seen| seen.upstream_status == Some(201)).count()
    };
    let to = azure.url_through(&proxy, "container", "two");
    let arguments = [&["large.bin", &*to], &PARTS[..]].concat();
    let mut command = town.copy(&arguments);
    let mut child = command.envs(azure.env()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while stored() < 5 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    proxy.set([]);
    proxy.clear();
    said_of(town.copy(&arguments).envs(azure.env()));
    assert_eq!(stored(), 1);
    said_of(town.copy(&[&*to, "back"]).envs(azure.env()));
    assert!(fs::read(town.house.path().join("back")).unwrap() == bytes);
}

#[test]
fn rows_are_whole_in_one_object_of_a_store_however_often_the_copy_is_told_to_stop() {
    let town = Town::new();
    fs::create_dir(town.house.path().join("in")).unwrap();
    let mut all = Vec::new();
    for file in 0..1500 {
        let lines: Vec<String> =
            (0..50).map(|line| format!("{file:04} {line:02} {}", "x".repeat(90))).collect();
        town.house.write(&format!("in/{file:04}.log"), (lines.join("\n") + "\n").as_bytes());
        all.extend(lines);
    }
    // Less memory than two parts take.
    let url = town.url("all.log");
    let arguments = ["in/*.log", &url, "--parse", "lines", "--memory", "8MiB"];
    (0..3).for_each(|_| stop_soon(&mut town.copy(&arguments)));
    town.run_well(&arguments);
    let copied = String::from_utf8(town.stored("all.log").unwrap()).unwrap();
    let mut copied: Vec<&str> = copied.lines().collect();
    copied.sort_unstable();
    assert!(copied == all, "{} of {} rows", copied.len(), all.len());
    assert!(town.stored("all-00002.log").is_none());
    assert_eq!(town.unfinished(), 0);
}

#[test]
fn rows_that_are_copied_again_replace_those_of_the_copy_before() {
    let town = Town::new();
    town.house.write("in.log", b"one\n");
    let url = town.url("all.log");
    let arguments = ["in.log", &url, "--parse", "lines"];
    town.run_well(&arguments);
    town.house.write("in.log", b"other\n");
    town.run_well(&arguments);
    assert_eq!(town.stored("all.log").unwrap(), b"other\n");
    assert!(town.stored("all-00002.log").is_none());
}

/// The listings of both sides say all that is needed.
#[test]
fn an_update_of_what_is_there_reads_nothing_and_asks_for_no_object() {
    let town = Town::new();
    let names: Vec<String> = (0..300).map(|number| format!("{:02}/{number:03}", number % 7)).collect();
    names.iter().for_each(|name| town.put(&format!("from/{name}"), name.as_bytes()));
    let (from, to) = (town.url("from/"), town.url("to/"));
    town.run_well(&[&from, &to]);
    // Other objects beside them, before and after.
    (0..50).for_each(|number| town.put(&format!("to/03/{number}-other"), b"other"));
    let update = || {
        town.proxy.clear();
        let said = town.run_well(&[&from, &to, "--existing", "update", "--json"]);
        let last = said.err.lines().last().unwrap();
        let copy = serde_json::from_str::<serde_json::Value>(last).unwrap()["copy"].clone();
        let seen = town.proxy.seen();
        let of_objects = seen.iter().filter(|seen| !seen.path_and_query.contains("list-type=2")).count();
        (copy["skipped_files"].clone(), copy["read_bytes"].clone(), of_objects)
    };
    assert_eq!(update(), (300.into(), 0.into(), 0));
    // A file that is missing and one of another size are copied: a request to read and one to write each.
    fs::remove_file(town.amazon.folder().join("bucket/to/05/005")).unwrap();
    town.put("to/01/001", b"another size");
    assert_eq!(update(), (298.into(), 12.into(), 4));
    assert_eq!(town.stored("to/01/001").unwrap(), b"01/001");
    assert_eq!(town.stored("to/05/005").unwrap(), b"05/005");
}

/// No real server takes such a key from a client, so the proxy answers the listing.
#[test]
fn a_key_that_leads_out_of_the_target_is_left_out_and_the_others_are_copied() {
    let town = Town::new();
    fs::create_dir(town.house.path().join("in")).unwrap();
    for name in ["one", "two"] {
        town.house.write(&format!("in/{name}"), name.as_bytes());
    }
    let from = town.url("a/");
    town.run_well(&["in/", &from]);
    let entry = |key: &str, size: usize, etag: &str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>\
             <ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bucket</Name><Prefix>a/</Prefix>\
         <KeyCount>4</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{}{}{}{}</ListBucketResult>",
        entry("a/../../x", 3, "00000000000000000000000000000000"),
        entry("a//abs", 3, "00000000000000000000000000000000"),
        entry("a/one", 3, "f97c5d29941bfb1b2fdab0874906ab82"),
        entry("a/two", 3, "b8a9f715dbb64fd5c56e7783c6820a61"),
    );
    let listing = Fault::Status { code: 200, retry_after: None, body };
    town.proxy.set([Rule::new(listing).method("GET").path("list-type=2")]);
    let said = town.run(&[&from, "deep/er/to/"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("2 files could not be copied"), "{}", said.err);
    for name in ["one", "two"] {
        assert_eq!(town.house.read(&format!("deep/er/to/{name}")), name);
    }
    let outside = |path: &str| town.house.path().join(path).exists();
    assert!(!outside("deep/x") && !outside("x") && !outside("deep/er/x"));
}
