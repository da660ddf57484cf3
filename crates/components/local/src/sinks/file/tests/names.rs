//! One file for each value of a field.

use super::*;

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
    let yaml = folder.yaml("{ path: 'DIR/{k}', existing: append, atomic: false }");
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
        // The next run must know it, should this one be killed while it continues the file.
        let state = sink.state().unwrap();
        assert_eq!(state.as_array().map(Vec::len), Some(1));
        assert_eq!((&state[0]["length"], &state[0]["finished"]), (&expected.len().into(), &true.into()));
    }
}
