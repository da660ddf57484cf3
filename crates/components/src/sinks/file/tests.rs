//! With real files in temporary folders.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, StringViewArray};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use thalweg_engine::testing::{batch, context, options, sink_conforms, try_options, write_all};
use thalweg_engine::{Context, SinkConfig};

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Options with `DIR` replaced by the folder.
    fn yaml(&self, yaml: &str) -> String {
        yaml.replace("DIR", self.0.path().to_str().unwrap())
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// All files in it, with their texts.
    fn files(&self) -> Vec<(String, String)> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, found);
                } else {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    found.push((name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
                }
            }
        }
        let mut found = Vec::new();
        walk(self.0.path(), self.0.path(), &mut found);
        found.sort();
        found
    }

    fn sink(&self, yaml: &str, resumes: bool) -> Box<dyn Sink> {
        let context = Context { resumes, ..context() };
        options::<FileConfig>(&self.yaml(yaml)).build(&context).unwrap()
    }
}

fn files<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
    expected.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

/// Messages with a column `k`.
fn keyed(rows: &[(&str, &str)]) -> Batch {
    let keys: ArrayRef = Arc::new(StringViewArray::from_iter_values(rows.iter().map(|(key, _)| key)));
    batch(rows.iter().map(|(_, message)| message))
        .set_fields([(Field::new("k", DataType::Utf8View, true), keys)])
        .unwrap()
}

async fn write(sink: &mut dyn Sink, batch: &Batch) -> Vec<(u32, String)> {
    let mut rejects = Rejects::default();
    sink.write(batch, &mut rejects).await.unwrap();
    rejects.take()
}

#[tokio::test]
async fn it_conforms() {
    for rest in [
        "",
        ", compression: gzip, compression_level: 1",
        ", compression: zstd",
        ", fsync: flush, atomic: false, mode: 0600",
        ", rotate: { size: 10B, every: 1h, keep: 2 }",
        ", rotate: { size: 10B, at: '03:00', timestamp: '%Y-%m-%d_%H', digits: 2, keep_for: 1d, keep_bytes: 1MiB }",
        ", rotate: { size: 10B, compress: gzip, keep: 1 }, folder_mode: '0700'",
        ", fsync: never, idle_timeout: 5m, delimiter: ''",
    ] {
        let folder = Folder::new();
        sink_conforms::<FileConfig>(&folder.yaml(&format!("{{ path: DIR/a/b/out.jsonl{rest} }}"))).await;
        sink_conforms::<FileConfig>(&folder.yaml(&format!("{{ path: 'DIR/{{meta.source}}'{rest} }}"))).await;
    }
}

#[tokio::test]
async fn lines_come_out_as_they_went_in() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..50_000).map(|n| format!("{n} {}", "x".repeat(n % 300))).collect();
    let batches = lines.chunks(7_001).map(batch);
    write_all::<FileConfig>(&folder.yaml("path: DIR/out"), batches).await.unwrap();
    assert!(fs::read_to_string(folder.path("out")).unwrap() == lines.join("\n") + "\n");
}

#[tokio::test]
async fn a_file_is_called_part_until_it_is_finished() {
    let folder = Folder::new();
    folder.put("out", "old");
    let mut sink = folder.sink("path: DIR/out", false);
    sink.open(None).await.unwrap();
    assert_eq!(folder.files(), files([("out", "old"), ("out.part", "")]));
    write(&mut *sink, &batch(["new"])).await;
    assert_eq!(folder.files(), files([("out", "old"), ("out.part", "new\n")]));
    sink.finish().await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("out", "new\n")]));

    let mut sink = folder.sink("{ path: DIR/out, atomic: false }", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["newer"])).await;
    assert_eq!(folder.files(), files([("out", "newer\n")]));
}

#[tokio::test]
async fn a_run_without_messages_leaves_an_empty_file() {
    let folder = Folder::new();
    write_all::<FileConfig>(&folder.yaml("path: DIR/a/out"), []).await.unwrap();
    assert_eq!(folder.files(), files([("a/out", "")]));
}

#[tokio::test]
async fn what_exists_is_treated_as_on_exists_says() {
    for (on_exists, resumes, expected) in [
        ("auto", false, files([("out.txt", "new\n")])),
        ("auto", true, files([("out.txt", "old\nnew\n")])),
        ("replace", true, files([("out.txt", "new\n")])),
        ("append", false, files([("out.txt", "old\nnew\n")])),
        ("number", false, files([("out-00001.txt", "new\n"), ("out.txt", "old\n")])),
    ] {
        for atomic in [true, false] {
            let folder = Folder::new();
            folder.put("out.txt", "old\n");
            let yaml = format!("{{ path: DIR/out.txt, on_exists: {on_exists}, atomic: {atomic} }}");
            let mut sink = folder.sink(&yaml, resumes);
            sink.open(None).await.unwrap();
            write(&mut *sink, &batch(["new"])).await;
            sink.finish().await.unwrap();
            assert_eq!(folder.files(), expected, "{yaml}");
        }
    }
    let folder = Folder::new();
    folder.put("out.txt", "old\n");
    let mut sink = folder.sink("{ path: DIR/out.txt, on_exists: fail }", false);
    let error = sink.open(None).await.unwrap_err().full();
    assert!(error.contains("out.txt` exists. Remove it, or set `on_exists`"), "{error}");
    assert_eq!(folder.files(), files([("out.txt", "old\n")]));
}

#[tokio::test]
async fn rotated_pieces_joined_are_the_input_and_none_is_too_large() {
    for path in ["path: DIR/out.txt", "path: 'DIR/{meta.source}.txt'"] {
        let folder = Folder::new();
        let lines: Vec<String> = (0..5_000).map(|n| "y".repeat(n % 97)).collect();
        let yaml = folder.yaml(&format!("{{ {path}, rotate: {{ size: 1000B }} }}"));
        write_all::<FileConfig>(&yaml, lines.chunks(333).map(batch)).await.unwrap();
        let found = folder.files();
        assert!(found.len() > 200);
        for (number, (name, text)) in found.iter().enumerate() {
            assert!(name.ends_with(&format!("-{:05}.txt", number + 1)), "{name}");
            assert!(text.len() <= 1000 && text.ends_with('\n'));
            assert!(number + 1 == found.len() || text.len() > 900);
        }
        let joined: String = found.into_iter().map(|(_, text)| text).collect();
        assert!(joined == lines.join("\n") + "\n");
    }
}

#[tokio::test]
async fn a_message_that_is_larger_than_a_piece_gets_one_of_its_own() {
    let folder = Folder::new();
    let yaml = folder.yaml("{ path: DIR/o, rotate: { size: 4B }, encode: csv }");
    write_all::<FileConfig>(&yaml, [batch(["long", "a"])]).await.unwrap();
    assert_eq!(folder.files(), files([("o-00001", "payload\nlong\n"), ("o-00002", "payload\na\n")]));
}

#[tokio::test]
async fn rotation_replaces_all_pieces_of_the_last_run_and_keeps_so_many() {
    let folder = Folder::new();
    for number in 1..=9 {
        folder.put(&format!("o-0000{number}.x"), "old");
    }
    folder.put("o-1.x", "not a piece");
    let lines = ["a", "b", "c", "d"];
    let yaml = folder.yaml("{ path: DIR/o.x, rotate: { size: 2B, keep: 3 } }");
    write_all::<FileConfig>(&yaml, [batch(lines)]).await.unwrap();
    let expected =
        files([("o-00002.x", "b\n"), ("o-00003.x", "c\n"), ("o-00004.x", "d\n"), ("o-1.x", "not a piece")]);
    assert_eq!(folder.files(), expected);
    let yaml = folder.yaml("{ path: DIR/o.x, on_exists: append, rotate: { size: 9B, keep: 2 } }");
    write_all::<FileConfig>(&yaml, [batch(["e"])]).await.unwrap();
    let expected = files([("o-00004.x", "d\n"), ("o-00005.x", "e\n"), ("o-1.x", "not a piece")]);
    assert_eq!(folder.files(), expected);
}

#[tokio::test]
async fn a_header_begins_every_file_but_not_what_is_added_to_one() {
    let folder = Folder::new();
    let yaml = folder.yaml("{ path: 'DIR/{k}', encode: csv, on_exists: append }");
    for _ in 0..2 {
        write_all::<FileConfig>(&yaml, [keyed(&[("a", "1"), ("b", "2"), ("a", "3")])]).await.unwrap();
    }
    let expected = files([("a", "k\na\na\na\na\n"), ("b", "k\nb\nb\n")]);
    assert_eq!(folder.files(), expected);
}

/// Pieces with a time stamp in their names, compressed when they are finished; and the same after a run that broke off.
#[tokio::test]
async fn pieces_have_a_stamp_in_their_names_and_are_compressed_when_they_are_finished() {
    let year = chrono::Local::now().format("%Y").to_string();
    for (how, suffix) in [("gzip", ".gz"), ("zstd", ".zst"), ("none", "")] {
        let folder = Folder::new();
        let rotate = format!("{{ size: 8B, timestamp: '%Y', digits: 3, compress: {how} }}");
        let yaml = format!("{{ path: DIR/logs/out.log, rotate: {rotate} }}");
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["one two", "three", "four"])]).await.unwrap();
        let names = || folder.files().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let expected = |count: usize| -> Vec<String> {
            (1..=count).map(|number| format!("logs/out-{year}-{number:03}.log{suffix}")).collect()
        };
        assert_eq!(names(), expected(3));
        let text = decompressed(&folder.path(&expected(3)[0]), how);
        assert_eq!(text, "one two\n");
        // The next run replaces them, and one that appends goes on with the numbers.
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["one two"])]).await.unwrap();
        assert_eq!(names(), expected(1));
        let append = yaml.replace("rotate:", "on_exists: append, rotate:");
        write_all::<FileConfig>(&folder.yaml(&append), [batch(["one two"])]).await.unwrap();
        assert_eq!(names(), expected(2));

        // A run is killed after it has finished and compressed a piece, of which that is not saved.
        let folder = Folder::new();
        let mut sink = folder.sink(&yaml, true);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["one"])).await;
        let state = sink.state();
        write(&mut *sink, &batch(["two", "three"])).await;
        sink.finish().await.unwrap();
        drop(sink);
        let mut sink = folder.sink(&yaml, true);
        sink.open(state).await.unwrap();
        write(&mut *sink, &batch(["two", "three"])).await;
        sink.finish().await.unwrap();
        let all: Vec<String> =
            folder.files().iter().map(|(name, _)| decompressed(&folder.path(name), how)).collect();
        assert_eq!(all.concat(), "one\ntwo\nthree\n", "{:?}", folder.files());
    }
}

#[tokio::test]
async fn pieces_are_pruned_by_number_by_size_and_by_age() {
    let numbers = |folder: &Folder| -> Vec<String> {
        let names = folder.files().into_iter().map(|(name, _)| name);
        names.map(|name| name.trim_start_matches("out-0000").trim_end_matches(".log").to_owned()).collect()
    };
    let lines: Vec<String> = (1..=6).map(|number| format!("line {number}")).collect();
    for (keep, expected) in [
        ("keep: 2", &["5", "6"][..]),
        ("keep_bytes: 21B", &["4", "5", "6"]),
        ("keep_bytes: 6B", &[]),
        ("keep: 4, keep_bytes: 15B", &["5", "6"]),
        ("keep_for: 1h", &["1", "2", "3", "4", "5", "6"]),
    ] {
        let folder = Folder::new();
        let yaml = format!("{{ path: DIR/out.log, rotate: {{ size: 7B, {keep} }} }}");
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(&lines)]).await.unwrap();
        assert_eq!(numbers(&folder), expected, "{keep}");
    }
    // Those of a former run that are old go, and what only looks like one stays.
    let folder = Folder::new();
    for name in ["out-00001.log", "out-00002.log", "out-old.log"] {
        folder.put(name, "old\n");
        let file = fs::File::open(folder.path(name)).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        file.set_times(fs::FileTimes::new().set_modified(then)).unwrap();
    }
    let yaml = "{ path: DIR/out.log, on_exists: append, rotate: { size: 7B, keep_for: 1h } }";
    write_all::<FileConfig>(&folder.yaml(yaml), [batch(&lines[..1])]).await.unwrap();
    assert_eq!(folder.files(), files([("out-00003.log", "line 1\n"), ("out-old.log", "old\n")]));
}

#[cfg(unix)]
#[tokio::test]
async fn new_folders_get_the_permissions_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.put("old/file", "");
    let before = fs::metadata(folder.path("old")).unwrap().permissions().mode();
    let yaml = folder.yaml("{ path: DIR/old/new/newer/out.log, folder_mode: '0750' }");
    write_all::<FileConfig>(&yaml, [batch(["one"])]).await.unwrap();
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode();
    assert_eq!((mode("old/new") & 0o777, mode("old/new/newer") & 0o777), (0o750, 0o750));
    assert_eq!(mode("old"), before);
}

#[test]
fn rotation_that_cannot_be_is_a_mistake() {
    let check = |rotate: &str| -> Vec<String> {
        let yaml = format!("{{ path: out.log, rotate: {rotate} }}");
        options::<FileConfig>(&yaml).check().into_iter().map(|mistake| mistake.message).collect()
    };
    assert_eq!(check("{ at: '3:00' }"), [""; 0]);
    assert_eq!(check("{ keep: 1 }"), ["`rotate` does not say when."]);
    assert_eq!(check("{ size: 1, timestamp: '%Y/%m' }"), ["`%Y/%m` makes no part of a file's name."]);
    for wrong in ["at: '24:00'", "at: noon", "digits: 0", "digits: 11", "compress: lzma"] {
        let yaml = format!("{{ path: out.log, rotate: {{ size: 1, {wrong} }} }}");
        assert!(try_options::<FileConfig>(&yaml).is_err(), "{wrong}");
    }
    let twice = "{ path: out.log, compression: gzip, rotate: { size: 1, compress: gzip } }";
    assert_eq!(options::<FileConfig>(twice).check().len(), 1);
}

fn decompressed(path: &Path, compression: &str) -> String {
    let mut file = fs::File::open(path).unwrap();
    let mut text = String::new();
    match compression {
        "none" => file.read_to_string(&mut text).unwrap(),
        "gzip" => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap(),
        _ => zstd::stream::read::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap(),
    };
    text
}

#[tokio::test]
async fn compressed_files_can_be_read_after_every_flush_and_when_continued() {
    for compression in ["gzip", "zstd"] {
        let folder = Folder::new();
        let yaml = format!("{{ path: DIR/out, compression: {compression}, on_exists: append }}");
        let mut expected = String::new();
        for round in 0..2 {
            let mut sink = folder.sink(&yaml, false);
            sink.open(None).await.unwrap();
            for n in 0..5 {
                let lines: Vec<String> = (0..1000).map(|m| format!("{n} {m}")).collect();
                let mut rejects = Rejects::default();
                let written = sink.write(&batch(&lines), &mut rejects).await.unwrap();
                assert_eq!(written, Written::Pending);
                expected += &(lines.join("\n") + "\n");
                if n % 2 == 0 {
                    sink.flush().await.unwrap();
                    sink.flush().await.unwrap();
                    let name = if round == 0 { "out.part" } else { "out.continued.part" };
                    assert!(decompressed(&folder.path(name), compression) == expected);
                }
            }
            sink.finish().await.unwrap();
            assert!(decompressed(&folder.path("out"), compression) == expected);
        }
    }
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_begun_anew_after_a_roll_and_one_that_was_not_is_continued() {
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/out, atomic: false }", false);
    let mut rejects = Rejects::default();
    sink.open(None).await.unwrap();
    sink.write(&batch(["one"]), &mut rejects).await.unwrap();
    sink.roll().await.unwrap();
    sink.write(&batch(["two"]), &mut rejects).await.unwrap();
    std::fs::rename(folder.path("out"), folder.path("moved")).unwrap();
    sink.roll().await.unwrap();
    sink.roll().await.unwrap();
    sink.write(&batch(["three"]), &mut rejects).await.unwrap();
    sink.finish().await.unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
    assert_eq!((read("moved").as_str(), read("out").as_str()), ("one\ntwo\n", "three\n"));
}

#[tokio::test]
async fn a_roll_begins_a_new_piece_where_there_are_pieces() {
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/out, rotate: { size: 1MiB } }", false);
    let mut rejects = Rejects::default();
    sink.open(None).await.unwrap();
    for line in ["one", "two"] {
        sink.write(&batch([line]), &mut rejects).await.unwrap();
        sink.roll().await.unwrap();
    }
    sink.finish().await.unwrap();
    let found: Vec<String> = folder.files().into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["one\n", "two\n"]);
}

#[tokio::test]
async fn compressed_pieces_joined_are_the_input() {
    let folder = Folder::new();
    let lines: Vec<String> = (0..20_000).map(|n| format!("{:x}", n * 2_654_435_761u64)).collect();
    let yaml = folder.yaml("{ path: DIR/out.gz, compression: gzip, rotate: { size: 8KiB } }");
    write_all::<FileConfig>(&yaml, lines.chunks(500).map(batch)).await.unwrap();
    let found = folder.files();
    assert!(found.len() > 3, "{}", found.len());
    let joined: String = found.iter().map(|(name, _)| decompressed(&folder.path(name), "gzip")).collect();
    assert!(joined == lines.join("\n") + "\n");
}

#[tokio::test]
async fn hostile_values_are_rejected_and_the_others_written() {
    let folder = Folder::new();
    let long = "l".repeat(300);
    let rows = [
        ("good", "1"),
        ("../../etc/passwd", "2"),
        ("/abs", "3"),
        ("", "4"),
        ("nul\0", "5"),
        (&long, "6"),
        ("a/b", "7"),
        ("good", "8"),
        ("x.part", "9"),
        (".", "10"),
    ];
    let rejected =
        write_all::<FileConfig>(&folder.yaml("path: 'DIR/out/{k}'"), [keyed(&rows)]).await.unwrap();
    assert_eq!(folder.files(), files([("out/a/b", "7\n"), ("out/good", "1\n8\n")]));
    let rows: Vec<u32> = rejected.iter().map(|&(_, row, _)| row).collect();
    assert_eq!(rows, [1, 2, 3, 4, 5, 8, 9]);
    assert!(rejected[0].2.ends_with("out/../../etc/passwd` has `..` in it"), "{}", rejected[0].2);
}

#[tokio::test]
async fn a_name_that_is_a_file_and_a_folder_stops_nothing() {
    let folder = Folder::new();
    let yaml = folder.yaml("path: 'DIR/{k}'");
    let rejected = write_all::<FileConfig>(&yaml, [keyed(&[("a", "1"), ("a/b", "2")])]).await.unwrap();
    assert!(rejected.is_empty());
    assert_eq!(folder.files(), files([("a-00001", "1\n"), ("a/b", "2\n")]));
    let yaml = folder.yaml("{ path: 'DIR/{k}', on_exists: append, atomic: false }");
    let rows = keyed(&[("a-00001/b", "3"), ("a", "4"), ("c", "5")]);
    let rejected = write_all::<FileConfig>(&yaml, [rows]).await.unwrap();
    assert_eq!(rejected.iter().map(|&(_, row, _)| row).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(folder.files(), files([("a-00001", "1\n"), ("a/b", "2\n"), ("c", "5\n")]));
}

#[tokio::test]
async fn more_names_than_files_may_be_open_are_all_written() {
    for rest in ["", ", compression: zstd", ", fsync: flush"] {
        let folder = Folder::new();
        let mut sink = folder.sink(&format!("{{ path: 'DIR/{{k}}', max_open_files: 3{rest} }}"), false);
        sink.open(None).await.unwrap();
        for round in 0..4 {
            let keys: Vec<String> = (0..20).map(|n| ((n * 7 + round) % 10).to_string()).collect();
            let rows: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
            assert!(write(&mut *sink, &keyed(&rows)).await.is_empty());
        }
        sink.finish().await.unwrap();
        let found = folder.files();
        assert_eq!(found.len(), 10);
        for (name, text) in found {
            let text = match rest.contains("zstd") {
                true => decompressed(&folder.path(&name), "zstd"),
                false => text,
            };
            assert_eq!(text, format!("{name}\n").repeat(8), "{rest}");
        }
    }
}

#[tokio::test]
async fn a_name_that_is_idle_is_finished_without_another_write_and_continued_when_it_comes_again() {
    let folder = Folder::new();
    folder.put("a", "of a former run");
    let mut sink = folder.sink("{ path: 'DIR/{k}', idle_timeout: 20ms }", false);
    sink.open(None).await.unwrap();
    for (part, expected) in [("a.part", "1\n"), ("a.continued.part", "1\n1\n")] {
        write(&mut *sink, &keyed(&[("a", "1")])).await;
        assert!(folder.path(part).exists());
        while folder.path(part).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(folder.files(), files([("a", expected)]));
        assert_eq!(sink.state(), Some(serde_json::json!([])));
    }
}

#[tokio::test]
async fn a_piece_whose_time_is_up_is_finished_without_another_write() {
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/a, rotate: { every: 20ms } }", false);
    sink.open(None).await.unwrap();
    for piece in 1..3 {
        write(&mut *sink, &batch(["1"])).await;
        while !folder.path(&format!("a-0000{piece}")).exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("a-00001", "1\n"), ("a-00002", "1\n")]));
}

#[tokio::test]
async fn an_error_says_what_is_wrong_with_the_path() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.put("file", "");
    for (path, expected) in [
        ("DIR/sub", "is a folder. Give `path` the name of a file"),
        ("DIR/file/x", "file where a folder is needed"),
    ] {
        let mut sink = folder.sink(&format!("path: {path}"), false);
        let error = sink.open(None).await.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert!(error.full().contains(expected), "{}", error.full());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn permissions_are_those_asked_for_and_missing_ones_are_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    write_all::<FileConfig>(&folder.yaml("{ path: DIR/out, mode: 0604 }"), []).await.unwrap();
    assert_eq!(fs::metadata(folder.path("out")).unwrap().permissions().mode() & 0o7777, 0o604);

    fs::create_dir(folder.path("locked")).unwrap();
    fs::set_permissions(folder.path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path("locked/probe"), "").is_ok() {
        eprintln!("skipped: permissions do not bind this user");
        return;
    }
    let mut sink = folder.sink("path: DIR/locked/out", false);
    let error = sink.open(None).await.unwrap_err().full();
    assert!(error.contains("permission was denied"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_is_followed_and_stays() {
    let folder = Folder::new();
    folder.put("target", "old");
    std::os::unix::fs::symlink(folder.path("target"), folder.path("link")).unwrap();
    write_all::<FileConfig>(&folder.yaml("path: DIR/link"), [batch(["new"])]).await.unwrap();
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert_eq!(folder.files(), files([("link", "new\n"), ("target", "new\n")]));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_device_is_an_error_that_says_so() {
    for atomic in [true, false] {
        let yaml = format!("{{ path: /dev/full, atomic: {atomic} }}");
        let error = write_all::<FileConfig>(&yaml, [batch(["a"])]).await.unwrap_err();
        assert_eq!(error.kind(), thalweg_engine::ErrorKind::Permanent);
        assert!(error.full().contains("no space is left"), "{}", error.full());
    }
    write_all::<FileConfig>("path: /dev/null", [batch(["a"])]).await.unwrap();
}

/// The test below runs this in a process that may write only small files.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "needs a limited process"]
async fn in_a_process_that_may_write_4_kib() {
    let folder = Folder::new();
    let mut sink = folder.sink("path: 'DIR/{k}'", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &keyed(&[("a", "first"), ("b", "first")])).await;
    let state = sink.state();
    let large = "x".repeat(5_000);
    for _ in 0..2 {
        let mut rejects = Rejects::default();
        let rows = keyed(&[("../", ""), ("a", "second"), ("c", "second"), ("b", &large)]);
        let error = sink.write(&rows, &mut rejects).await.unwrap_err();
        assert!(error.full().contains("ulimit -f"), "{}", error.full());
        assert!(rejects.take().is_empty());
    }
    let kept = files([("a.part", "first\n"), ("b.part", "first\n"), ("c.part", "")]);
    assert_eq!(folder.files(), kept);
    assert_eq!(state.map(|s| s[0]["length"].clone()), sink.state().map(|s| s[0]["length"].clone()));
    write(&mut *sink, &keyed(&[("b", "third")])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("a", "first\n"), ("b", "first\nthird\n"), ("c", "")]));

    // In the middle of a rotation.
    let folder = Folder::new();
    let mut sink = folder.sink("{ path: DIR/o, rotate: { size: 6B } }", false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    sink.write(&batch(["22", "333", "4444", &large]), &mut Rejects::default()).await.unwrap_err();
    assert_eq!(folder.files(), files([("o-00001.part", "1\n")]));
    write(&mut *sink, &batch(["22", "333"])).await;
    sink.finish().await.unwrap();
    assert_eq!(folder.files(), files([("o-00001", "1\n22\n"), ("o-00002", "333\n")]));
}

#[cfg(target_os = "linux")]
#[test]
fn a_batch_that_cannot_be_written_whole_is_taken_back() {
    let program = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --ignored --exact --nocapture \"$1\"";
    let name = "sinks::file::tests::in_a_process_that_may_write_4_kib";
    let run = std::process::Command::new("sh").args(["-c", script]).arg(program).arg(name).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
fn mistakes_are_found_before_anything_is_written() {
    let mistakes = |yaml: &str| -> Vec<&'static str> {
        options::<FileConfig>(yaml).check().iter().map(|mistake| mistake.option).collect()
    };
    assert!(mistakes("path: out.jsonl").is_empty());
    assert_eq!(mistakes("path: out/"), ["path"]);
    assert_eq!(mistakes("path: ''"), ["path"]);
    assert_eq!(mistakes("path: a.part"), ["path"]);
    assert!(mistakes("{ path: a.part, atomic: false }").is_empty());
    assert_eq!(mistakes("{ path: a, compression_level: 3 }"), ["compression_level"]);
    assert_eq!(mistakes("{ path: a, compression: gzip, compression_level: 10 }"), ["compression_level"]);
    assert_eq!(mistakes("{ path: a, rotate: {} }"), ["rotate"]);
    assert_eq!(mistakes("{ path: a, rotate: { size: 0, every: 0 } }"), ["rotate", "rotate"]);
    assert_eq!(mistakes("{ path: a, idle_timeout: 0 }"), ["idle_timeout"]);
    for yaml in
        ["{}", "{ path: a, mode: 0999 }", "{ path: a, on_exists: maybe }", "{ path: a, max_open_files: 0 }"]
    {
        assert!(try_options::<FileConfig>(yaml).is_err(), "{yaml}");
    }
}

#[tokio::test]
async fn a_file_of_a_run_that_broke_off_is_replaced_or_added_to_at_its_last_whole_message() {
    for (on_exists, expected) in [("replace", "new\n"), ("append", "whole\nnew\n")] {
        let folder = Folder::new();
        folder.put("out.part", "whole\nto");
        let yaml = folder.yaml(&format!("{{ path: DIR/out, on_exists: {on_exists} }}"));
        write_all::<FileConfig>(&yaml, [batch(["new"])]).await.unwrap();
        assert_eq!(folder.files(), files([("out", expected)]));
    }
}

#[tokio::test]
async fn a_finished_file_is_taken_back_by_the_run_that_continues() {
    let folder = Folder::new();
    let yaml = "path: DIR/out";
    let mut sink = folder.sink(yaml, true);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["1"])).await;
    let saved = sink.state();
    write(&mut *sink, &batch(["2"])).await;
    sink.finish().await.unwrap();
    let finished = sink.state();
    assert_eq!(folder.files(), files([("out", "1\n2\n")]));

    let mut sink = folder.sink(yaml, true);
    sink.open(saved).await.unwrap();
    assert_eq!(folder.files(), files([("out.continued.part", "1\n")]));
    write(&mut *sink, &batch(["2"])).await;
    sink.finish().await.unwrap();

    // After a run that ended nothing is cut, unless it is from a run since then that broke off.
    let mut sink = folder.sink(yaml, true);
    sink.open(finished.clone()).await.unwrap();
    write(&mut *sink, &batch(["3"])).await;
    assert_eq!(folder.files(), files([("out.continued.part", "1\n2\n3\n")]));
    let mut sink = folder.sink(yaml, true);
    sink.open(finished).await.unwrap();
    assert_eq!(folder.files(), files([("out.continued.part", "1\n2\n")]));
}

/// What happens to a sink in the property below.
#[derive(Debug, Clone)]
enum Step {
    Write(u8),
    Flush,
    /// State and positions are saved.
    Save,
    /// The process is killed while a write is on its way: so many bytes of rubbish are at the end of a file.
    Crash(u8),
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12u8).prop_map(Step::Write),
        2 => Just(Step::Flush),
        2 => Just(Step::Save),
        2 => any::<u8>().prop_map(Step::Crash),
        1 => Just(Step::Finish),
    ]
}

/// The text of each name, with the pieces of a name joined.
fn by_name(folder: &Folder, compression: &str) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for (name, text) in folder.files() {
        let text = if compression == "none" { text } else { decompressed(&folder.path(&name), compression) };
        let name = name.split('-').next().unwrap().to_owned();
        match joined.last_mut() {
            Some(last) if last.0 == name => last.1 += &text,
            _ => joined.push((name, text)),
        }
    }
    joined.retain(|(_, text)| !text.is_empty());
    joined
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// The source is a list of numbered messages; its position is saved with the sink's state, and counts
    /// only what was safe.
    #[test]
    fn a_run_continued_after_crashes_writes_every_message_once(
        steps in prop::collection::vec(step(), 1..30),
        compression in prop::sample::select(vec!["none", "gzip", "zstd"]),
        rest in prop::sample::select(vec!["", ", rotate: { size: 20B }", ", max_open_files: 1", ", atomic: false"]),
        path in prop::sample::select(vec!["DIR/a", "DIR/{k}"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            let yaml = format!("{{ path: '{path}', compression: {compression}, fsync: never{rest} }}");
            let key = |number: usize| if path.contains('{') { ["a", "b", "c"][number * 7 / 5 % 3] } else { "a" };
            let mut sink = folder.sink(&yaml, true);
            sink.open(None).await.unwrap();
            let (mut sent, mut safe) = (0, 0);
            // The engine saves the state when the sink is open, before the first message.
            let mut saved = (sink.state(), 0);
            let mut top = 0;
            for step in steps {
                let mut reopen = false;
                match step {
                    Step::Write(count) => {
                        let texts: Vec<String> = (sent..sent + usize::from(count)).map(|n| format!("m{n}")).collect();
                        let rows: Vec<(&str, &str)> =
                            texts.iter().enumerate().map(|(n, t)| (key(sent + n), t.as_str())).collect();
                        let mut rejects = Rejects::default();
                        let written = sink.write(&keyed(&rows), &mut rejects).await.unwrap();
                        sent += usize::from(count);
                        if written == Written::Safe {
                            safe = sent;
                        }
                    }
                    Step::Flush => {
                        sink.flush().await.unwrap();
                        safe = sent;
                    }
                    // The state may be ahead of what is safe only by what is not committed.
                    Step::Save => saved = (sink.state(), safe),
                    Step::Finish => {
                        sink.finish().await.unwrap();
                        saved = (sink.state(), sent);
                        safe = sent;
                        reopen = true;
                    }
                    Step::Crash(rubbish) => {
                        // What is torn is at the end of a file that is being written.
                        let torn = folder.files().into_iter().find(|(name, _)| name.ends_with(".part"));
                        if let Some((name, _)) = torn {
                            let mut bytes = fs::read(folder.path(&name)).unwrap();
                            bytes.extend(std::iter::repeat_n(b'?', usize::from(rubbish)));
                            fs::write(folder.path(&name), bytes).unwrap();
                        }
                        reopen = true;
                    }
                }
                top = top.max(sent);
                if reopen {
                    drop(sink);
                    sink = folder.sink(&yaml, true);
                    sink.open(saved.0.clone()).await.unwrap();
                    (sent, safe) = (saved.1, saved.1);
                    saved.0 = sink.state();
                }
            }
            // The source sends again what was not safe.
            let texts: Vec<String> = (sent..top).map(|n| format!("m{n}")).collect();
            let rows: Vec<(&str, &str)> =
                texts.iter().enumerate().map(|(n, t)| (key(sent + n), t.as_str())).collect();
            assert!(write(&mut *sink, &keyed(&rows)).await.is_empty());
            let sent = top;
            sink.finish().await.unwrap();
            let mut expected: std::collections::BTreeMap<String, String> = Default::default();
            for number in 0..sent {
                *expected.entry(key(number).to_owned()).or_default() += &format!("m{number}\n");
            }
            let expected: Vec<(String, String)> = expected.into_iter().collect();
            let mut found = by_name(&folder, compression);
            if path.contains('{') && (rest.contains("rotate") || rest.contains("atomic")) {
                // A name that came up after the state was saved is not known to be of a run that broke off:
                // nothing is lost, but what is sent again is there twice.
                for (_, text) in &mut found {
                    let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains('?')).collect();
                    lines.sort_by_key(|line| line[1..].parse::<usize>().unwrap());
                    lines.dedup();
                    *text = lines.join("\n") + "\n";
                }
            }
            prop_assert_eq!(found, expected);
            Ok(())
        })?;
    }
}

/// Time on a core: on a machine that others use as well the clock tells little.
#[cfg(target_os = "linux")]
fn core_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Run with `--ignored --nocapture`: it prints, and asserts nothing.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "a measurement"]
async fn how_fast_lines_are_written() {
    const ROUNDS: usize = 1024;
    let line = "z".repeat(99);
    let lines = batch((0..10_486).map(|_| &line));
    let bytes = lines.payload_bytes() + lines.rows();
    let cases = [
        ("nowhere", "path: /dev/null"),
        ("one file", "path: DIR/out"),
        ("by field", "path: 'DIR/{meta.source}'"),
        ("crlf", "path: DIR/out, delimiter: \"\\r\\n\""),
        ("rotated", "path: DIR/out, rotate: { size: 64MiB }"),
    ];
    for _ in 0..3 {
        let report = |what: &str, wall: std::time::Instant, core: f64| {
            let gigabytes = (ROUNDS * bytes) as f64 / 1e9;
            let (wall, core) = (wall.elapsed().as_secs_f64(), core_seconds() - core);
            eprintln!(
                "{what}: {:.2} GB/s, {:.2} GB for a second of a core",
                gigabytes / wall,
                gigabytes / core
            );
        };
        for append in [false, true] {
            let folder = Folder::new();
            let buffer = vec![b'z'; bytes];
            let (wall, core) = (std::time::Instant::now(), core_seconds());
            let mut options = fs::OpenOptions::new();
            let file = options.create(true).write(true).append(append).open(folder.path("plain")).unwrap();
            for _ in 0..ROUNDS {
                io::Write::write_all(&mut &file, &buffer).unwrap();
            }
            report(if append { "write(2) at the end" } else { "write(2)" }, wall, core);
        }
        for (what, options) in cases {
            let folder = Folder::new();
            let mut sink = folder.sink(&format!("{{ {options}, fsync: never }}"), false);
            let (wall, core) = (std::time::Instant::now(), core_seconds());
            sink.open(None).await.unwrap();
            for _ in 0..ROUNDS {
                write(&mut *sink, &lines).await;
                std::hint::black_box(sink.state());
            }
            sink.finish().await.unwrap();
            report(what, wall, core);
        }
    }
}
