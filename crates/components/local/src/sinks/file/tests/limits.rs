//! Limits of the system and of the budget.

use thalweg_record::Budget;

use super::*;

#[tokio::test]
async fn encoders_stay_within_half_of_the_budget() {
    for (compression, limit) in [("zstd", 16 << 20), ("gzip", 2 << 20), ("zstd", 4 << 20)] {
        let folder = Folder::new();
        let budget = Budget::new(limit);
        let context = Context { memory: budget.share(), ..context() };
        let mut sink =
            folder.sink_in(&format!("{{ path: 'DIR/{{k}}', compression: {compression} }}"), &context);
        sink.open(None).await.unwrap();
        let keys: Vec<String> = (0..50).map(|key| key.to_string()).collect();
        let rows: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
        for _ in 0..3 {
            write(&mut *sink, &keyed(&rows)).await;
        }
        assert!(budget.used() > 0 && budget.peak() <= limit.max(8 << 20) / 2, "{}", budget.peak());
        sink.finish().await.unwrap();
        assert_eq!(budget.used(), 0);
        for key in &keys {
            assert_eq!(decompressed(&folder.path(key), compression), format!("{key}\n").repeat(3));
        }
    }
}

#[test]
fn an_encoder_that_is_larger_than_the_budget_is_a_mistake() {
    let check = |level: u8| {
        let yaml = format!("{{ path: out, compression: zstd, compression_level: {level} }}");
        messages(options::<FileConfig>(&yaml).check_memory(thalweg_config::ByteSize(32 << 20)))
    };
    assert_eq!(check(3), [""; 0]);
    let mistake = check(15).remove(0);
    let end = "KiB of memory for a file, but `memory` is 32MiB.";
    assert!(mistake.starts_with("`compression` needs 7") && mistake.ends_with(end), "{mistake}");
}

#[tokio::test]
async fn very_many_files_are_finished() {
    for rest in ["", ", compression: gzip"] {
        let folder = Folder::new();
        let yaml = folder.yaml(&format!("{{ path: 'DIR/{{k}}'{rest} }}"));
        let keys: Vec<String> = (0..600).map(|key| format!("{}/{key}", key % 300)).collect();
        let rows: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
        assert!(write_all::<FileConfig>(&yaml, [keyed(&rows)]).await.unwrap().is_empty());
        for key in &keys {
            let how = if rest.is_empty() { "none" } else { "gzip" };
            assert_eq!(decompressed(&folder.path(key), how), format!("{key}\n"));
        }
    }
}

/// The test below runs this in a process that may have few open files.
#[tokio::test]
#[ignore = "needs a limited process"]
async fn in_a_process_that_may_open_40_files() {
    let folder = Folder::new();
    let yaml = folder.yaml("{ path: 'DIR/{k}' }");
    let mut sinks = Vec::new();
    // Together they want more than the system allows: those that write close their least recently used files.
    for number in 0..3 {
        let mut sink = folder.sink(&format!("{{ path: 'DIR/{number}-{{k}}' }}"), false);
        sink.open(None).await.unwrap();
        sinks.push(sink);
    }
    let keys: Vec<String> = (0..100).map(|key| key.to_string()).collect();
    let rows: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
    for _ in 0..2 {
        for sink in &mut sinks {
            write(&mut **sink, &keyed(&rows)).await;
        }
    }
    for sink in &mut sinks {
        sink.finish().await.unwrap();
    }
    drop(sinks);
    assert!(write_all::<FileConfig>(&yaml, [keyed(&rows)]).await.unwrap().is_empty());
    assert_eq!(folder.files().len(), 400);
    for key in &keys {
        assert_eq!(
            fs::read_to_string(folder.path(&format!("2-{key}"))).unwrap(),
            format!("{key}\n").repeat(2)
        );
    }
}

#[test]
fn a_process_that_may_open_few_files_writes_many() {
    let program = std::env::current_exe().unwrap();
    let script = "ulimit -n 40; exec \"$0\" --ignored --exact --nocapture \"$1\"";
    let name = "sinks::file::tests::limits::in_a_process_that_may_open_40_files";
    let run = std::process::Command::new("sh").args(["-c", script]).arg(program).arg(name).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}{}", String::from_utf8_lossy(&run.stderr));
    assert!(output.contains("1 passed"), "{output}");
}
