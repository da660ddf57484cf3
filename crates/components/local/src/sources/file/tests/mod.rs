//! Tests of the whole source with real files.

mod sequences;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::time::Duration;

use serde_json::Value;
use thalweg_engine::ErrorKind as Kind;
use thalweg_engine::testing::{
    Arrived, RunningSource, Sent, payloads, read_all, refused, rows, start, try_options,
};
use thalweg_record::Outcome;

use super::*;

/// A timeout far longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The state saved between runs.
type State = BTreeMap<String, Value>;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(name), bytes).unwrap();
        self
    }

    fn append(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let mut file = fs::OpenOptions::new().append(true).open(self.path(name)).unwrap();
        file.write_all(bytes.as_ref()).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Returns options that begin with this path.
    fn yaml(&self, name: &str, more: &str) -> String {
        format!("{{ path: '{}', {more} }}", self.path(name))
    }
}

/// Runs the source to its end from a saved state, and saves the new state.
async fn run(yaml: &str, batch_bytes: usize, state: &mut State) -> Sent {
    let running = start::<FileSource>(yaml, batch_bytes, state.clone());
    let positions = running.positions.clone();
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it ends");
    save(&positions, state);
    sent
}

fn save(positions: &thalweg_engine::Positions, state: &mut State) {
    for (partition, position) in positions.take_changes() {
        match position {
            Some(position) => state.insert(partition.to_string(), position),
            None => state.remove(&*partition),
        };
    }
}

fn reasons(sent: &Sent) -> Vec<String> {
    let rows = sent.errors.iter().flat_map(|batch| rows(batch.fields()));
    rows.map(|row| row["error_reason"].as_str().unwrap().to_owned()).collect()
}

fn message(sent: &Sent) -> String {
    sent.result.as_ref().map(Error::full).unwrap_or_default()
}

/// A source with `follow`.
struct Following {
    running: RunningSource,
    state: State,
}

impl Following {
    fn start(yaml: &str, state: State) -> Self {
        Self { running: start::<FileSource>(yaml, 4096, state.clone()), state }
    }

    /// Waits for the expected messages and acknowledges them.
    async fn expect(&mut self, expected: &[&str]) {
        let mut found = Vec::new();
        while found.len() < expected.len() {
            let taken = tokio::time::timeout(PATIENCE, self.running.main.take()).await;
            let Ok(Some((_, Arrived::Messages(mut batch)))) = taken else { panic!("only {found:?} came") };
            found.extend(payloads(&batch));
            batch.take_ack().settle(Outcome::Delivered);
        }
        assert_eq!(found, expected);
    }

    /// Waits until a condition holds.
    async fn until(&self, what: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !what(self) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("it comes about");
    }

    fn has_one_partition(&self) -> bool {
        self.running.positions.take_changes();
        self.running.positions.partitions().len() == 1
    }

    /// Stops the source; no further message may have arrived.
    async fn stop(mut self) -> State {
        self.running.stop.request();
        let positions = self.running.positions.clone();
        let sent = tokio::time::timeout(PATIENCE, self.running.finish()).await.expect("it stops");
        assert!(sent.result.is_none(), "{:?}", sent.result);
        assert!(sent.payloads().is_empty(), "{:?}", sent.payloads());
        save(&positions, &mut self.state);
        self.state
    }
}

const FOLLOW: &str = "follow: true, poll_interval: 3ms";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_names_whatever_the_size_of_batches() {
    let folder = Folder::new();
    folder
        .write("b.log", "4\r\n\n5")
        .write("a.log", "1\n2\n3")
        .write("c.log", "")
        .write("d.log", b"\xff\0\n");
    for batch_bytes in [1, 2, 7, 1 << 20] {
        let sent = read_all::<FileSource>(&folder.yaml("*.log", ""), batch_bytes).await;
        assert!(sent.result.is_none(), "{:?}", sent.result);
        assert_eq!(sent.payloads(), ["1", "2", "3", "4", "", "5", "\u{fffd}\0"]);
        assert_eq!(sent.main.last().unwrap().payload().value(0), b"\xff\0");
        let batch = &sent.main[0];
        assert_eq!(batch.meta().path.as_deref(), Some(&*folder.path("a.log")));
        assert_eq!(batch.positions().unwrap().value(0), 0);
    }
}

#[tokio::test]
async fn positions_are_where_messages_begin() {
    let folder = Folder::new();
    folder.write("a", "one\r\n\nthree\nfour");
    let sent = read_all::<FileSource>(&folder.yaml("a", ""), 1 << 20).await;
    assert_eq!(sent.main[0].positions().unwrap().values()[..], [0, 5, 6, 12]);
}

#[tokio::test]
async fn what_cannot_be_read_is_said_before_anything_is_read() {
    let folder = Folder::new();
    folder.write("a.log", "a\n");
    fs::create_dir(folder.path("sub")).unwrap();
    let (a, missing) = (folder.path("a.log"), folder.path("missing.log"));
    let sent = read_all::<FileSource>(&format!("path: ['{a}', '{missing}']"), 100).await;
    assert!(sent.main.is_empty());
    assert_eq!(sent.result.as_ref().unwrap().kind(), Kind::Permanent);
    assert!(message(&sent).contains("missing.log`: it does not exist"), "{}", message(&sent));
    let sent = read_all::<FileSource>(&folder.yaml("sub", ""), 100).await;
    assert!(message(&sent).contains("sub`: it is a folder. Name a file"), "{}", message(&sent));
    let sent = read_all::<FileSource>(&folder.yaml("*.txt", ""), 100).await;
    assert!(message(&sent).contains("no file matches"), "{}", message(&sent));
    let ignoring = format!("{{ path: ['{a}', '{missing}', '{missing}*'], on_missing: ignore }}");
    let sent = read_all::<FileSource>(&ignoring, 100).await;
    assert_eq!((sent.payloads(), message(&sent)), (vec!["a".to_owned()], String::new()));
    let sent = read_all::<FileSource>("path: /dev/null", 100).await;
    assert_eq!(
        message(&sent),
        "cannot read `/dev/null`: it is a pipe or a device, not a file; read it with the source `stdin`, as in `thalweg run ... < PATH`."
    );
}

#[tokio::test]
async fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("a.log", "a\n").write("b.log", "b\n");
    fs::set_permissions(folder.path("b.log"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(folder.path("b.log")).is_ok() {
        // The superuser may read everything.
        return;
    }
    let sent = read_all::<FileSource>(&folder.yaml("*.log", ""), 100).await;
    assert!(sent.main.is_empty());
    assert!(message(&sent).contains("b.log`: permission was denied"), "{}", message(&sent));
}

#[test]
fn mistakes_in_the_options_are_found() {
    let mistakes = |yaml: &str| {
        let config: FileSource = try_options(yaml).unwrap();
        let mistakes = Component::check(&config);
        mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(mistakes("path: a/**/b[0-9].log"), "");
    assert_eq!(
        mistakes("path: 'a[.log'"),
        "`a[.log` is not a valid file pattern: invalid range pattern (at character 2)."
    );
    assert_eq!(
        mistakes("{ path: a, exclude: ['a**b'] }"),
        "`a**b` is not a valid file pattern: recursive wildcards must form a single path component (at character 1)."
    );
    assert_eq!(
        mistakes("{ path: a, read_from: end }"),
        "`read_from: end` reads nothing without `follow: true`."
    );
    assert_eq!(
        mistakes("{ path: a, max_message_bytes: 0 }"),
        "`max_message_bytes` is 0B, but must be between 1 and 1GiB."
    );
    assert_eq!(
        mistakes("{ path: a, framing: { timeout: 1s } }"),
        "`timeout` has no effect without `start_pattern`."
    );
    assert_eq!(mistakes("path: []"), "No path is given.");
    assert_eq!(
        refused::<FileSource>(r#"{ path: a, framing: { delimiter: '\q' } }"#),
        "`\\q` is not known here: write `\\n`, `\\r`, `\\t`, `\\0`, `\\xHH`, or `\\\\` for a backslash."
    );
}

#[tokio::test]
async fn a_line_of_100_mib_is_rejected_with_its_beginning_and_the_next_is_read() {
    let folder = Folder::new();
    folder.write("a", "first\n");
    let file = fs::OpenOptions::new().append(true).open(folder.path("a")).unwrap();
    file.set_len(100 << 20).unwrap();
    folder.append("a", "\nnext\n");
    let sent = read_all::<FileSource>(&folder.yaml("a", ""), 64 << 10).await;
    assert_eq!(sent.payloads(), ["first", "next"]);
    assert_eq!(sent.errors.iter().map(|batch| batch.payload_bytes()).sum::<usize>(), 4096);
    assert_eq!(
        reasons(&sent),
        [
            "is longer than `max_message_bytes` (1MiB): it begins at byte 6, and only its first 4096 bytes are kept"
        ]
    );
}

#[tokio::test]
async fn a_later_run_goes_on_where_the_first_ended() {
    let folder = Folder::new();
    for packed in [false, true] {
        let mut state = State::new();
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let bytes = |text: &str| if packed { gzip(text.as_bytes()) } else { text.as_bytes().to_vec() };
        folder.write("a.log", bytes(&text));
        let yaml = folder.yaml("*.log", "");
        let sent = run(&yaml, 64, &mut state).await;
        assert_eq!(sent.payloads().len(), 100);
        let sent = run(&yaml, 64, &mut state).await;
        assert!(sent.main.is_empty() && sent.errors.is_empty(), "it was read twice");
        folder.append("a.log", bytes("more\n"));
        folder.rename("a.log", "b.log");
        let sent = run(&yaml, 64, &mut state).await;
        assert_eq!(sent.payloads(), ["more"]);
        assert_eq!(state.len(), 1);
        fs::remove_file(folder.path("b.log")).unwrap();
    }
}

#[tokio::test]
async fn a_run_that_is_killed_in_the_middle_loses_and_repeats_nothing_that_was_acknowledged() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..500).map(|n| format!("line {n}")).collect();
    folder.write("plain", lines.join("\n")).write("packed", gzip(lines.join("\n").as_bytes()));
    for name in ["plain", "packed"] {
        let yaml = folder.yaml(name, "");
        let running = start::<FileSource>(&yaml, 256, State::new());
        let mut found = Vec::new();
        for _ in 0..7 {
            let Some((_, Arrived::Messages(mut batch))) = running.main.take().await else {
                panic!("it ended")
            };
            found.extend(payloads(&batch));
            batch.take_ack().settle(Outcome::Delivered);
        }
        let mut state = State::new();
        save(&running.positions, &mut state);
        drop(running);
        let sent = run(&yaml, 256, &mut state).await;
        found.extend(sent.payloads());
        assert_eq!(found, lines, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_became_shorter_or_another_is_read_from_its_beginning() {
    let folder = Folder::new();
    let mut state = State::new();
    let yaml = folder.yaml("a", "");
    folder.write("a", "1\n2\n3\n");
    run(&yaml, 100, &mut state).await;
    // The same inode each time.
    folder.write("a", "4\n");
    assert_eq!(run(&yaml, 100, &mut state).await.payloads(), ["4"]);
    folder.write("a", "5\n6\n7\n8\n");
    assert_eq!(run(&yaml, 100, &mut state).await.payloads(), ["5", "6", "7", "8"]);
    assert_eq!(state.len(), 1);
}

#[tokio::test]
async fn damaged_files_give_what_they_have_and_do_not_keep_the_others_from_being_read() {
    let folder = Folder::new();
    let text: String = (0..20_000).map(|n| format!("line {n} {}\n", n * 7919 % 10007)).collect();
    let packed = gzip(text.as_bytes());
    let cut = zstd::encode_all(text.as_bytes(), 1).unwrap();
    folder.write("a.gz", &packed[..packed.len() / 2]);
    folder.write("b.zst", &cut[..cut.len() / 2]);
    folder.write("c.log", "fine\n");
    let sent = read_all::<FileSource>(&folder.yaml("*", ""), 1 << 16).await;
    let lines = sent.payloads();
    assert!(lines.len() > 1000);
    assert_eq!(lines.last().unwrap(), "fine");
    assert!(
        lines.iter().all(|line| line == "fine" || text.contains(&format!("{line}\n"))),
        "a line is cut off"
    );
    let message = message(&sent);
    for part in ["2 files were not read", "a.gz` to its end: its gzip data is truncated", "b.zst` to its end"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert!(reasons(&sent).iter().all(|reason| reason.starts_with("breaks off")));
    assert!(!reasons(&sent).is_empty());
}

#[tokio::test]
async fn messages_of_several_lines_and_other_delimiters_are_cut() {
    let folder = Folder::new();
    folder.write("a", "1 a\n  b\n2 c\n").write("b", "x\0y\nz\0");
    let sent = read_all::<FileSource>(&folder.yaml("a", r"framing: { start_pattern: '^\d' }"), 4).await;
    assert_eq!(sent.payloads(), ["1 a\n  b", "2 c"]);
    let sent = read_all::<FileSource>(&folder.yaml("b", r"framing: { delimiter: '\0' }"), 4).await;
    assert_eq!(sent.payloads(), ["x", "y\nz"]);
}

#[tokio::test]
async fn a_followed_file_gives_lines_as_they_are_completed() {
    let folder = Folder::new();
    folder.write("a", "1\n2");
    let mut following = Following::start(&folder.yaml("a", FOLLOW), State::new());
    following.expect(&["1"]).await;
    folder.append("a", "2\n3\n4");
    following.expect(&["22", "3"]).await;
    let state = following.stop().await;
    // The next run reads the line that was incomplete at the end.
    folder.append("a", "4\n");
    let mut following = Following::start(&folder.yaml("a", FOLLOW), state);
    following.expect(&["44"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning() {
    let folder = Folder::new();
    folder.write("a.log", "1\n");
    let mut following =
        Following::start(&folder.yaml("a.log", &format!("{FOLLOW}, rotate_timeout: 400ms")), State::new());
    following.expect(&["1"]).await;
    folder.rename("a.log", "a.log.1");
    folder.append("a.log.1", "2\nwithout end");
    following.expect(&["2"]).await;
    folder.write("a.log", "3\n");
    following.expect(&["3"]).await;
    // The file is dropped after a while, with its last line.
    following.expect(&["without end"]).await;
    following.until(Following::has_one_partition).await;
    folder.append("a.log", "4\n");
    following.expect(&["4"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_file_renamed_between_two_runs_is_read_to_its_end() {
    let folder = Folder::new();
    folder.write("a.log", "1\n");
    let mut following = Following::start(&folder.yaml("a.log", FOLLOW), State::new());
    following.expect(&["1"]).await;
    let state = following.stop().await;
    folder.append("a.log", "2\n");
    folder.rename("a.log", "old");
    folder.write("a.log", "3\n");
    let mut following = Following::start(&folder.yaml("a.log", FOLLOW), state);
    following.expect(&["3", "2"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_truncated_file_is_read_from_its_beginning() {
    let folder = Folder::new();
    folder.write("a", "1\n2\n");
    let mut following = Following::start(&folder.yaml("a", FOLLOW), State::new());
    following.expect(&["1", "2"]).await;
    folder.write("a", "3\n");
    following.expect(&["3"]).await;
    // Rewritten at once, and longer than before: only the first bytes show it.
    folder.write("a", "4\n5\n6\n");
    following.expect(&["4", "5", "6"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_file_keeps_its_sequence_under_another_name_and_begins_one_when_it_is_rewritten() {
    let folder = Folder::new();
    let sequence = async |name: &str, state: &mut State| {
        let sent = run(&folder.yaml(name, ""), 100, state).await;
        sent.main.last().and_then(|batch| batch.meta().sequence.clone()).expect("a sequence")
    };
    let mut state = State::new();
    folder.write("a.log", "1\n");
    let first = sequence("a.log", &mut state).await;
    // As after a run that was killed before its first checkpoint.
    assert_eq!(sequence("a.log", &mut State::new()).await, first);
    folder.rename("a.log", "b.log");
    folder.append("b.log", "2\n");
    assert_eq!(sequence("b.log", &mut state).await, first);
    folder.write("b.log", "3\n4\n5\n");
    let rewritten = sequence("b.log", &mut state).await;
    assert_ne!(rewritten, first);
    folder.append("b.log", "6\n");
    assert_eq!(sequence("b.log", &mut state).await, rewritten);
    folder.write("b.log", "7\n");
    let truncated = sequence("b.log", &mut state).await;
    assert!(truncated != rewritten && truncated != first);
    folder.write("a.log", "8\n");
    let replaced = sequence("a.log", &mut state).await;
    assert!(replaced != first && replaced != rewritten && replaced != truncated);
}

/// Many logs begin with the same bytes.
fn headed(lines: std::ops::Range<u32>) -> String {
    "#".repeat(300) + "\n" + &lines.map(|line| format!("{line}\n")).collect::<String>()
}

#[tokio::test]
async fn a_file_that_was_rewritten_with_the_same_beginning_is_read_again() {
    let folder = Folder::new();
    folder.write("a", headed(0..50));
    let mut following = Following::start(&folder.yaml("a", FOLLOW), State::new());
    following.until(|following| following.running.positions.partitions().len() == 1).await;
    let expected = |lines: std::ops::Range<u32>| headed(lines).lines().map(str::to_owned).collect::<Vec<_>>();
    let expect = async |following: &mut Following, lines: std::ops::Range<u32>| {
        let lines = expected(lines);
        following.expect(&lines.iter().map(String::as_str).collect::<Vec<_>>()).await;
    };
    expect(&mut following, 0..50).await;
    // While it is followed,
    folder.write("a", headed(100..200));
    expect(&mut following, 100..200).await;
    let state = following.stop().await;
    // and while it is not.
    folder.write("a", headed(200..400));
    let options = format!("{FOLLOW}, read_from: end");
    let mut following = Following::start(&folder.yaml("a", &options), state);
    expect(&mut following, 200..400).await;
    let state = following.stop().await;
    folder.append("a", "more\n");
    let mut following = Following::start(&folder.yaml("a", FOLLOW), state);
    following.expect(&["more"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_renamed_file_is_read_for_as_long_as_its_writer_may_need() {
    let folder = Folder::new();
    folder.write("a.log", "1\n");
    let mut following = Following::start(&folder.yaml("a.log", FOLLOW), State::new());
    following.expect(&["1"]).await;
    folder.rename("a.log", "a.log.1");
    folder.write("a.log", "2\n");
    following.expect(&["2"]).await;
    // Longer than a deleted file is kept.
    tokio::time::sleep(Duration::from_secs(1)).await;
    folder.append("a.log.1", "late\n");
    following.expect(&["late"]).await;
    following.stop().await;
}

#[tokio::test]
async fn more_files_than_may_be_open_are_read_at_once_and_when_they_grow() {
    let folder = Folder::new();
    let names: Vec<String> = (0..1200).map(|number| format!("{number:04}.log")).collect();
    for name in &names {
        folder.write(name, format!("{name}\n"));
    }
    let following = Following::start(&folder.yaml("*.log", FOLLOW), State::new());
    for _ in 0..2 {
        let mut found = HashSet::new();
        while found.len() < names.len() {
            let taken = tokio::time::timeout(PATIENCE, following.running.main.take()).await;
            let Ok(Some((_, Arrived::Messages(mut batch)))) = taken else {
                panic!("only {} came", found.len())
            };
            found.extend(payloads(&batch));
            batch.take_ack().settle(Outcome::Delivered);
        }
        names.iter().for_each(|name| folder.append(name, format!("{name}\n")));
    }
    following.stop().await;
}

#[tokio::test]
async fn files_that_appear_late_are_read_and_deleted_ones_forgotten() {
    let folder = Folder::new();
    let mut following = Following::start(&folder.yaml("**/*.log", FOLLOW), State::new());
    folder.write("a.log", "1\n");
    following.expect(&["1"]).await;
    fs::create_dir(folder.path("sub")).unwrap();
    folder.write("sub/b.log", "2\n");
    following.expect(&["2"]).await;
    let partitions = following.running.positions.partitions().len();
    assert_eq!(partitions, 2);
    folder.append("a.log", "3\n");
    following.expect(&["3"]).await;
    fs::remove_file(folder.path("a.log")).unwrap();
    following.until(Following::has_one_partition).await;
    following.stop().await;
}

#[tokio::test]
async fn compressed_files_are_followed_until_they_are_whole() {
    let folder = Folder::new();
    let packed = gzip(b"1\n2\n3");
    folder.write("a.gz", &packed[..packed.len() - 4]);
    let mut following = Following::start(&folder.yaml("*", FOLLOW), State::new());
    following.expect(&["1", "2"]).await;
    folder.append("a.gz", &packed[packed.len() - 4..]);
    following.expect(&["3"]).await;
    folder.write("b.log", "\x1f");
    folder.append("b.log", "4\n");
    following.expect(&["\x1f4"]).await;
    following.stop().await;
}

#[tokio::test]
async fn from_the_end_on_only_whole_new_lines_are_read() {
    let folder = Folder::new();
    folder.write("a", "old\nold").write("b", "old\n");
    let yaml = folder.yaml("*", "follow: true, poll_interval: 3ms, read_from: end");
    let mut following = Following::start(&yaml, State::new());
    following.until(|following| following.running.positions.partitions().len() == 2).await;
    folder.write("c", "1\n");
    following.expect(&["1"]).await;
    folder.append("a", " line\n2\n");
    following.expect(&["2"]).await;
    folder.append("b", "3\n");
    following.expect(&["3"]).await;
    following.stop().await;
}

#[tokio::test]
async fn the_parts_of_a_line_of_a_container_are_joined_by_a_later_run() {
    let folder = Folder::new();
    folder.write("a", "t1 stdout P one \nt2 stderr F other\n");
    let yaml = folder.yaml("a", &format!("{FOLLOW}, framing: {{ join: cri }}"));
    let mut following = Following::start(&yaml, State::new());
    following.expect(&["t2 stderr F other"]).await;
    let state = following.stop().await;
    folder.append("a", "t3 stdout F two\nt4 stdout F three\n");
    let mut following = Following::start(&yaml, state);
    following.expect(&["t1 stdout F one two", "t4 stdout F three"]).await;
    following.stop().await;
}

#[tokio::test]
async fn utf_16_is_resumed_in_the_order_of_its_byte_order_mark() {
    let folder = Folder::new();
    let units = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
    folder.write("a", units("\u{feff}eins\n"));
    let (yaml, mut state) = (folder.yaml("a", "charset: utf-16"), State::new());
    assert_eq!(run(&yaml, 4096, &mut state).await.payloads(), ["eins"]);
    folder.append("a", units("zw\u{f6}lf\n"));
    assert_eq!(run(&yaml, 4096, &mut state).await.payloads(), ["zw\u{f6}lf"]);
    let yaml = folder.yaml("a", &format!("{FOLLOW}, charset: utf-16, read_from: end"));
    let mut following = Following::start(&yaml, State::new());
    following.until(|following| following.running.positions.partitions().len() == 1).await;
    folder.append("a", units("\u{a0a}\n"));
    following.expect(&["\u{a0a}"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_message_of_several_lines_is_sent_when_nothing_was_added_for_a_while() {
    let folder = Folder::new();
    folder.write("a", "1 a\n  b\n");
    let framing = r"follow: true, poll_interval: 3ms, framing: { start_pattern: '^\d', timeout: 20ms }";
    let mut following = Following::start(&folder.yaml("a", framing), State::new());
    following.expect(&["1 a\n  b"]).await;
    folder.append("a", "2 c\n3 d\n");
    following.expect(&["2 c", "3 d"]).await;
    following.stop().await;
}

#[tokio::test]
async fn a_stop_ends_the_reading_of_a_large_file() {
    let folder = Folder::new();
    folder.write("a", "");
    fs::OpenOptions::new().write(true).open(folder.path("a")).unwrap().set_len(1 << 40).unwrap();
    let running = start::<FileSource>(&folder.yaml("a", ""), 1 << 20, State::new());
    tokio::time::sleep(Duration::from_millis(5)).await;
    running.stop.request();
    let sent = tokio::time::timeout(PATIENCE, running.finish()).await.expect("it stops");
    assert!(sent.result.is_none());
}

/// Creates a folder whose path is longer than the system takes, and a file in it.
fn put_too_deep(folder: &Path) {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let mut at = fs::File::open(folder).unwrap();
    let name = "x".repeat(250);
    for _ in 0..17 {
        mkdirat(&at, &name, Mode::from_raw_mode(0o700)).unwrap();
        at = openat(&at, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
    }
    openat(&at, "a.log", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_folder_that_cannot_be_read_is_skipped_if_a_pattern_finds_others() {
    let folder = Folder::new();
    put_too_deep(folder.0.path());
    for follow in [false, true] {
        let yaml = folder.yaml("**/*", &format!("follow: {follow}, poll_interval: 10ms"));
        if !follow {
            let sent = run(&yaml, 1000, &mut State::new()).await;
            let error = sent.result.unwrap().to_string();
            assert!(error.contains("File name too long"), "{error}");
        }
        folder.write("good.log", "one\n");
        let running = start::<FileSource>(&yaml, 1000, State::new());
        let Some((_, Arrived::Messages(batch))) = running.main.take().await else {
            panic!("no message came")
        };
        assert_eq!(payloads(&batch), ["one"]);
        running.stop.request();
    }
}

#[tokio::test]
async fn links_that_lead_out_of_the_folder_are_not_followed() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("in/sub")).unwrap();
    fs::create_dir_all(folder.path("out")).unwrap();
    folder.write("out/secret", "secret\n").write("in/sub/a", "a\n");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, folder.path(at)).unwrap();
    link("../out/secret", "in/out");
    link("../out", "in/folder");
    link("sub/a", "in/a");
    for (symlinks, expected) in
        [("inside", &["a"][..]), ("files", &["a", "secret"]), ("follow", &["a", "secret"]), ("skip", &["a"])]
    {
        let yaml = folder.yaml("in/**/*", &format!("symlinks: {symlinks}"));
        let mut sent = run(&yaml, 1000, &mut State::new()).await.payloads();
        sent.sort();
        assert_eq!(sent, expected, "{symlinks}");
    }
    // A pattern that matches only such links says so.
    let sent = run(&folder.yaml("in/o*", ""), 1000, &mut State::new()).await;
    let expected = format!(
        "`{0}/in/o*` matches only links that lead out of its folder, such as `{0}/in/out`. `symlinks: files` reads them.",
        folder.path("").trim_end_matches('/')
    );
    assert_eq!(message(&sent), expected);
    // A link that is named is read, and so is one to the folder.
    link("in", "link");
    for (path, expected) in [("in/out", "secret"), ("link/sub/*", "a")] {
        let sent = run(&folder.yaml(path, ""), 1000, &mut State::new()).await;
        assert_eq!(sent.payloads(), [expected]);
    }
}
