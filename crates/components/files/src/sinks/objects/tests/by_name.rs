//! Names that messages decide.

use super::*;

/// Returns a batch with a field `host` of these values, and the payloads `number host`.
fn of_hosts(first: usize, hosts: &[&str]) -> thalweg_record::Batch {
    use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray};
    use arrow_schema::Field;
    let numbers = first as i64..;
    let payloads: Vec<String> =
        hosts.iter().zip(numbers.clone()).map(|(host, n)| format!("{n} {host}")).collect();
    let names: ArrayRef = Arc::new(StringViewArray::from(hosts.to_vec()));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.take(hosts.len())));
    let fields = [("host", names), ("n", numbers)];
    let fields = fields.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
    batch(&payloads).set_fields(fields).unwrap()
}

#[tokio::test]
async fn each_name_that_messages_decide_has_objects_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let config = sink(folder.path(), "/day={n}/', name: '{host}-{number:2}.log', max_open_files: 2");
    let mut sink = SinkConfig::build(&config, &context()).unwrap();
    sink.open(None).await.unwrap();
    let mut rejects = Rejects::default();
    for at in 0..3 {
        sink.write(&of_hosts(1, &["a"]), &mut rejects).await.unwrap();
        sink.write(&of_hosts(2 + at, &["b"]), &mut rejects).await.unwrap();
    }
    // The first batch is in an object that is not complete.
    assert_eq!(sink.take_committed(), 0);
    sink.write(&of_hosts(9, &["..", ""]), &mut rejects).await.unwrap();
    sink.finish().await.unwrap();
    assert_eq!(sink.take_committed(), 7);
    let expected = [
        ("day=1/a-01.log", "1 a\n1 a\n1 a\n"),
        ("day=2/b-01.log", "2 b\n"),
        ("day=3/b-01.log", "3 b\n"),
        ("day=4/b-01.log", "4 b\n"),
        ("day=10/-01.log", "10 \n"),
    ];
    let mut expected = named(&expected);
    expected.sort();
    assert_eq!(below(folder.path()), (expected, 0));
    let rejected: Vec<u32> = rejects.take().into_iter().map(|(row, _)| row).collect();
    assert_eq!(rejected, [0]);
}

#[tokio::test]
async fn a_value_that_looks_like_a_numbered_name_replaces_no_object_of_another() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
    let hosts = ["a", "b", "a", "a-00002", "b"];
    let batches: Vec<_> = hosts.iter().enumerate().map(|(n, host)| of_hosts(n, &[*host])).collect();
    let expected = named(&[
        ("a-00002-00001.log", "3 a-00002\n"),
        ("a-00002.log", "2 a\n"),
        ("a.log", "0 a\n"),
        ("b-00002.log", "4 b\n"),
        ("b.log", "1 b\n"),
    ]);
    // Each message in a run of its own, with a state.
    let config = sink(folder.path(), "/', name: '{host}.log'");
    let mut left = Left::default();
    for until in 1..=batches.len() {
        write_batches(&config, &journal, &batches[..until], &mut left, &[], Some(After::Commits)).await;
    }
    assert_eq!(below(folder.path()), (expected.clone(), 0));
    // All in one run without a state.
    let folder = tempfile::tempdir().unwrap();
    let config = sink(folder.path(), "/', name: '{host}.log', max_open_files: 1");
    let mut sink = SinkConfig::build(&config, &context()).unwrap();
    sink.open(None).await.unwrap();
    for batch in &batches {
        sink.write(batch, &mut Rejects::default()).await.unwrap();
    }
    sink.finish().await.unwrap();
    assert_eq!(below(folder.path()), (expected, 0));
}

#[tokio::test]
async fn a_name_below_another_file_is_rejected_and_the_run_goes_on() {
    for with_state in [false, true] {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = sink(folder.path(), "/', name: '{host}.log'");
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let journal = Some(journal).filter(|_| with_state);
        let context = Context { resumes: with_state, resends: true, journal, ..context() };
        let mut saved = None;
        for first in [0, 4] {
            let mut sink = SinkConfig::build(&config, &context).unwrap();
            sink.open(saved).await.unwrap();
            let mut rejects = Rejects::default();
            let batch = of_hosts(first, &["a", "a.log/b", "c.log/d", "c"]);
            sink.write(&batch, &mut rejects).await.unwrap();
            sink.finish().await.unwrap();
            saved = sink.state();
            sink.commit(sink.uncommitted()).await.unwrap();
            let rejected: Vec<(u32, String)> = rejects.take();
            assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1]);
            assert!(rejected[0].1.contains("/a.log` is "), "{rejected:?}");
        }
        let (found, hidden) = below(folder.path());
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let expected: &[&str] = match with_state {
            true => {
                &["a-00002.log", "a.log", "c-00002.log", "c-00003.log", "c.log/d-00002.log", "c.log/d.log"]
            }
            // The second run replaces the objects of the first.
            false => &["a.log", "c-00002.log", "c.log/d.log"],
        };
        assert_eq!((names.as_slice(), hidden), (expected, 0));
    }
}

#[tokio::test]
async fn links_below_the_constant_folder_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("out")).unwrap();
    fs::create_dir_all(path("victim")).unwrap();
    std::os::unix::fs::symlink("../victim", path("out/ln")).unwrap();
    std::os::unix::fs::symlink("../victim/new", path("out/dang.log")).unwrap();
    let config = sink(folder.path(), "/out/', name: '{host}.log'");
    let mut sink = SinkConfig::build(&config, &context()).unwrap();
    sink.open(None).await.unwrap();
    let mut rejects = Rejects::default();
    sink.write(&of_hosts(0, &["ln/x", "dang", "a/b"]), &mut rejects).await.unwrap();
    sink.finish().await.unwrap();
    let rejected = rejects.take();
    assert!(rejected[0].1.contains("/out/ln` is a symbolic link, not a folder"), "{rejected:?}");
    assert!(rejected[1].1.contains("/out/dang.log` is a symbolic link, not a file"), "{rejected:?}");
    assert!(fs::read_dir(path("victim")).unwrap().next().is_none());
    assert_eq!(fs::read_to_string(path("out/a/b.log")).unwrap(), "2 a/b\n");
}

#[tokio::test]
async fn a_client_that_waits_is_answered_when_an_object_is_full_although_others_are_not() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = sink(folder.path(), "/', name: '{host}.log', rotate: { size: 20B }");
    let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
    let context = Context { resumes: true, resends: false, journal: Some(journal), ..context() };
    let mut sink = SinkConfig::build(&config, &context).unwrap();
    sink.open(None).await.unwrap();
    for hosts in [&["a", "b", "a", "a", "a", "a"], &["a", "b", "a", "a", "a", "a"]] {
        sink.write(&of_hosts(1, hosts), &mut Rejects::default()).await.unwrap();
    }
    sink.flush().await.unwrap();
    assert_eq!(sink.take_committed(), 2);
    sink.commit(sink.uncommitted()).await.unwrap();
    assert_eq!(below(folder.path()).0, named(&[("a-00001.log", "1 a\n3 a\n4 a\n5 a\n6 a\n")]));
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn only_what_cannot_be_continued_ends_early_for_a_checkpoint() {
    for (rest, expected) in [
        ("/all.parquet', encode: parquet", &["all.parquet"][..]),
        ("/', name: '{host}.parquet', encode: parquet", &["a.parquet", "b.parquet"][..]),
        ("/all.log'", &[][..]),
        ("/', name: '{host}.log'", &[][..]),
    ] {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = sink(folder.path(), rest);
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let context = Context { resumes: true, resends: true, journal: Some(journal), ..context() };
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(None).await.unwrap();
        sink.make_durable().await.unwrap();
        sink.write(&of_hosts(1, &["a", "b"]), &mut Rejects::default()).await.unwrap();
        sink.make_durable().await.unwrap();
        assert_eq!(sink.take_committed(), usize::from(!expected.is_empty()), "{rest}");
        sink.commit(sink.uncommitted()).await.unwrap();
        let names: Vec<String> = below(folder.path()).0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{rest}");
    }
}

#[tokio::test]
async fn many_open_objects_need_little_memory_and_the_oldest_is_finished_first() {
    let hosts: Vec<String> = (0..200).map(|n| format!("{n:03}{}", "x".repeat(100))).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    // A folder takes parts of any size. Of a store, an object with a few bytes can only be finished.
    for (smallest_part, finishes) in [(1, false), (5 << 20, true)] {
        let folder = tempfile::tempdir().unwrap();
        let config = sink(folder.path(), "/', name: '{host}.log', max_open_files: 1000");
        let budget = thalweg_record::Budget::new(256 << 10);
        let context = Context { memory: budget.share(), ..context() };
        let mut target = config.new_target(&budget).unwrap();
        target.limits.smallest_part = smallest_part;
        config.common.set(target).unwrap();
        let mut sink = SinkConfig::build(&config, &context).unwrap();
        sink.open(None).await.unwrap();
        for round in 0..3 {
            for some in hosts.chunks(10) {
                sink.write(&of_hosts(round, some), &mut Rejects::default()).await.unwrap();
                assert!(budget.used() <= 80 << 10, "{budget:?}");
            }
        }
        sink.finish().await.unwrap();
        let (found, hidden) = below(folder.path());
        let lines = found.iter().map(|(_, text)| text.lines().count()).sum::<usize>();
        assert_eq!((lines, hidden), (600, 0));
        assert_eq!(found.iter().any(|(name, _)| name.ends_with("-00002.log")), finishes);
    }
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn the_columns_of_open_tables_count_and_the_oldest_is_finished_first() {
    use arrow_array::{ArrayRef, StringViewArray};
    use arrow_schema::{DataType, Field};
    let folder = tempfile::tempdir().unwrap();
    let config = sink(folder.path(), "/', name: '{c0}.parquet', encode: parquet");
    let budget = thalweg_record::Budget::new(16 << 20);
    let context = Context { memory: budget.share(), ..context() };
    let mut sink = SinkConfig::build(&config, &context).unwrap();
    sink.open(None).await.unwrap();
    for name in 0..30 {
        let fields = (0..200).map(|column| {
            let values: ArrayRef = Arc::new(StringViewArray::from(vec![name.to_string()]));
            (Field::new(format!("c{column}"), DataType::Utf8View, true), values)
        });
        let rows = batch(["x"]).set_fields(fields).unwrap();
        sink.write(&rows, &mut Rejects::default()).await.unwrap();
    }
    // An open table takes 0.8 MiB of a quarter of the memory.
    let finished = below(folder.path()).0.len();
    assert!((20..29).contains(&finished), "{finished}");
    // The columns of one table alone take more than that.
    let fields = (0..300).map(|column| {
        let values: ArrayRef = Arc::new(StringViewArray::from(vec!["wide"]));
        (Field::new(format!("c{column}"), DataType::Utf8View, true), values)
    });
    let mut rejects = Rejects::default();
    sink.write(&batch(["x"]).set_fields(fields).unwrap(), &mut rejects).await.unwrap();
    let rejected = rejects.take();
    assert!(rejected[0].1.starts_with("a table of 300 columns takes"), "{rejected:?}");
    sink.finish().await.unwrap();
    assert_eq!(sink.take_committed(), 31);
    assert_eq!(below(folder.path()).0.len(), 30);
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn each_message_is_there_once_whatever_the_names_and_however_often_a_run_is_cut_off(
        hosts in prop::collection::vec(prop::collection::vec("[abc]", 1..6), 1..16),
        runs in prop::collection::vec((prop::collection::vec(after(), 0..8), prop::option::of(after())), 0..4),
        (rotates, tables) in any::<(bool, bool)>(),
        most in 1..4usize,
    ) {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rotate = if rotates { ", rotate: { size: 60B }" } else { "" };
        let encode = if tables { ", encode: parquet" } else { "" };
        let rest = format!("/out', name: '{{host}}/part', max_open_files: {most}{rotate}{encode}");
        let config = sink(folder.path(), &rest);
        let journal = Journal::new(Arc::new(thalweg_engine::Store::open(state.path()).unwrap()), "out");
        let mut batches = Vec::new();
        for hosts in &hosts {
            let first = batches.iter().map(thalweg_record::Batch::rows).sum();
            let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
            batches.push(of_hosts(first, &hosts));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut left = Left::default();
        let last: Run = (Vec::new(), Some(After::Commits));
        for (steps, end) in runs.into_iter().chain([last]) {
            let until = if end.is_some() { batches.len() } else { (left.covered + steps.len()).min(batches.len()) };
            runtime.block_on(write_batches(&config, &journal, &batches[..until], &mut left, &steps, end));
        }
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder.path().join("out")).unwrap().flatten() {
            let host = entry.file_name().into_string().unwrap();
            let mut names: Vec<_> = fs::read_dir(entry.path()).unwrap().map(|file| file.unwrap().path()).collect();
            names.sort();
            let first = numbers.len();
            for (at, path) in names.iter().enumerate() {
                let number = if rotates || at > 0 { format!("part-{:05}", at + 1) } else { "part".to_owned() };
                prop_assert_eq!(path.file_name().unwrap().to_str().unwrap(), number);
                let bytes = fs::read(path).unwrap();
                let rows: Vec<(i64, String)> = match tables {
                    true => table_rows(bytes).into_iter().map(|row| {
                        (row["n"].as_i64().unwrap(), row["host"].as_str().unwrap().to_owned())
                    }).collect(),
                    false => String::from_utf8(bytes).unwrap().lines().map(|line| {
                        let (n, host) = line.split_once(' ').unwrap();
                        (n.parse().unwrap(), host.to_owned())
                    }).collect(),
                };
                prop_assert!(rows.iter().all(|(_, of)| *of == host));
                numbers.extend(rows.into_iter().map(|(n, _)| n));
            }
            prop_assert!(numbers[first..].is_sorted());
        }
        numbers.sort_unstable();
        let rows = batches.iter().map(thalweg_record::Batch::rows).sum::<usize>() as i64;
        prop_assert_eq!(numbers, (0..rows).collect::<Vec<_>>());
        let left = journal.entries("").unwrap().into_iter();
        let left = left.filter(|(name, _)| name != "completing" && !name.starts_with("next/")).count();
        prop_assert_eq!(left, 0);
    }
}
