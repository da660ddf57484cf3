//! Files that are divided, compressed and pruned.

use super::*;

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
    let yaml = folder.yaml("{ path: DIR/o.x, existing: append, rotate: { size: 9B, keep: 2 } }");
    write_all::<FileConfig>(&yaml, [batch(["e"])]).await.unwrap();
    let expected = files([("o-00004.x", "d\n"), ("o-00005.x", "e\n"), ("o-1.x", "not a piece")]);
    assert_eq!(folder.files(), expected);
}

/// Pieces with a time stamp in their names, compressed when they are finished; also after an interrupted run.
#[tokio::test]
async fn pieces_have_a_stamp_in_their_names_and_are_compressed_when_they_are_finished() {
    let year = chrono::Local::now().format("%Y").to_string();
    for (how, suffix) in [("gzip", ".gz"), ("zstd", ".zst"), ("none", "")] {
        let folder = Folder::new();
        let rotate = format!("{{ size: 8B, timestamp: '%Y', digits: 3, compression: {how} }}");
        let yaml = format!("{{ path: DIR/logs/out.log, rotate: {rotate} }}");
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["one two", "three", "four"])]).await.unwrap();
        let names = || folder.files().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let expected = |count: usize| -> Vec<String> {
            (1..=count).map(|number| format!("logs/out-{year}-{number:03}.log{suffix}")).collect()
        };
        assert_eq!(names(), expected(3));
        let text = decompressed(&folder.path(&expected(3)[0]), how);
        assert_eq!(text, "one two\n");
        // The next run replaces them, and a run that appends continues the numbers.
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["one two"])]).await.unwrap();
        assert_eq!(names(), expected(1));
        let append = yaml.replace("rotate:", "existing: append, rotate:");
        write_all::<FileConfig>(&folder.yaml(&append), [batch(["one two"])]).await.unwrap();
        assert_eq!(names(), expected(2));

        // A run is killed after it has finished and compressed a piece, but before this is saved.
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
        ("keep_age: 1h", &["1", "2", "3", "4", "5", "6"]),
    ] {
        let folder = Folder::new();
        let yaml = format!("{{ path: DIR/out.log, rotate: {{ size: 7B, {keep} }} }}");
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(&lines)]).await.unwrap();
        assert_eq!(numbers(&folder), expected, "{keep}");
    }
    // Old pieces of an earlier run are removed; a file that only looks like a piece stays.
    let folder = Folder::new();
    for name in ["out-00001.log", "out-00002.log", "out-old.log"] {
        folder.put(name, "old\n");
        let file = fs::File::open(folder.path(name)).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
        file.set_times(fs::FileTimes::new().set_modified(then)).unwrap();
    }
    let yaml = "{ path: DIR/out.log, existing: append, rotate: { size: 7B, keep_age: 1h } }";
    write_all::<FileConfig>(&folder.yaml(yaml), [batch(&lines[..1])]).await.unwrap();
    assert_eq!(folder.files(), files([("out-00003.log", "line 1\n"), ("out-old.log", "old\n")]));
}

#[test]
fn rotation_that_cannot_be_is_a_mistake() {
    let check = |rotate: &str| -> Vec<String> {
        let yaml = format!("{{ path: out.log, rotate: {rotate} }}");
        options::<FileConfig>(&yaml).check().into_iter().map(|mistake| mistake.message).collect()
    };
    assert_eq!(check("{ at: '3:00' }"), [""; 0]);
    assert_eq!(check("{ keep: 1 }"), ["`rotate` does not say when to start a new file."]);
    assert_eq!(check("{ size: 1, timestamp: '%Y/%m' }"), ["`%Y/%m` cannot be part of a file name."]);
    assert_eq!(check("{ size: 1, numbers: if_taken }"), ["`numbers: if_taken` needs a `timestamp`."]);
    assert_eq!(check("{ size: 1, separator: / }"), ["`/` cannot separate a number."]);
    assert_eq!(check("{ size: 1, link: ../a }"), ["`../a` cannot be the name of a link."]);
    for (wrong, expected) in [
        (
            "at: '24:00'",
            "`at` has the wrong form. The local time of day at which to start a new file, for example `\"03:00\"`.",
        ),
        (
            "at: noon",
            "`at` has the wrong form. The local time of day at which to start a new file, for example `\"03:00\"`.",
        ),
        ("digits: 0", "`digits` must be at least 1, but it is `0`."),
        ("digits: 11", "`digits` must be at most 10, but it is `11`."),
        ("compression: lzma", "`compression` cannot be `lzma`. It can be `none`, `gzip` or `zstd`."),
    ] {
        let yaml = format!("{{ path: out.log, rotate: {{ size: 1, {wrong} }} }}");
        assert_eq!(refused::<FileConfig>(&yaml), expected, "{wrong}");
    }
    let twice = "{ path: out.log, compression: gzip, rotate: { size: 1, compression: gzip } }";
    assert_eq!(
        messages(options::<FileConfig>(twice).check()),
        ["`rotate.compression` is not needed: `compression` already compresses the files."]
    );
}

#[tokio::test]
async fn compressed_files_can_be_read_after_every_flush_and_when_continued() {
    for compression in ["gzip", "zstd"] {
        let folder = Folder::new();
        let yaml = format!("{{ path: DIR/out, compression: {compression}, existing: append }}");
        let mut expected = String::new();
        for round in 0..2 {
            let mut sink = folder.sink(&yaml, false);
            sink.open(None).await.unwrap();
            for n in 0..5 {
                let lines: Vec<String> = (0..1000).map(|m| format!("{n} {m}")).collect();
                let mut rejects = Rejects::default();
                let written = sink.write(&batch(&lines), &mut rejects).await.unwrap();
                assert_eq!(written, WriteOutcome::Buffered);
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
    sink.reopen().await.unwrap();
    sink.write(&batch(["two"]), &mut rejects).await.unwrap();
    std::fs::rename(folder.path("out"), folder.path("moved")).unwrap();
    sink.reopen().await.unwrap();
    sink.reopen().await.unwrap();
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
        sink.reopen().await.unwrap();
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
