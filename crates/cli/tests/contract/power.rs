//! The files that are on the disk when a run says that their content is safe.
//!
//! A test cannot cut the power. `strace` shows which files the program syncs, and when. The system may lose
//! the end of a file that is not synced: that end is cut off here.

use std::path::Path;
use std::process::{Command, Stdio};

use thalweg_testbed::Patience;
use thalweg_testkit::program::{Launch, Program};

use crate::PROGRAM;

const LINES: usize = 900;

/// Returns a configuration of numbered lines into a sink. The run takes longer than two checkpoints.
fn lines_to(sink: &str) -> String {
    let lines: Vec<String> = (0..LINES).map(|number| format!("line {number}")).collect();
    config(&format!("generate: {{ lines: [{}], rate: 600 }}", lines.join(", ")), sink)
}

fn config(source: &str, sink: &str) -> String {
    format!(
        "sources: {{ in: {{ {source} }} }}\npipelines: {{ main: {{ from: in, to: out }} }}\n\
         sinks: {{ out: {{ {sink} }} }}\n"
    )
}

fn program(config: &str) -> Program {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    program.write("pipeline.yaml", config).unwrap();
    program
}

/// Runs the program with a state directory. Returns the calls that sync files, as `fsync PATH`, and `rename`
/// for an output that gets its name. None if there is no `strace`.
fn calls(program: &Program) -> Option<Vec<String>> {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2"]);
    command.args(["-o", "calls", PROGRAM, "run", "pipeline.yaml", "--state", "state", "--quiet"]);
    let Ok(status) = command.current_dir(program.folder()).stdin(Stdio::null()).status() else {
        println!("not shown: there is no `strace`");
        return None;
    };
    assert!(status.success(), "{status}");
    let folder = format!("{}/", program.folder().canonicalize().unwrap().display());
    let call = |line: &str| {
        if line.contains("rename") && line.contains("out/") {
            return Some("rename".to_owned());
        }
        let name =
            ["fdatasync", "fsync", "syncfs"].into_iter().find(|name| line.contains(&format!("{name}(")))?;
        let (path, _) = line.split_once('<')?.1.split_once('>')?;
        Some(format!("{name} {}", path.strip_prefix(&folder).unwrap_or(path)))
    };
    let calls = std::fs::read_to_string(program.path("calls")).unwrap();
    Some(calls.lines().filter_map(call).collect())
}

/// True for a call that syncs a path that begins so.
fn syncs(call: &str, start: &str) -> bool {
    call.split_once("sync ").is_some_and(|(_, path)| path.starts_with(start))
}

fn count(calls: &[String], start: &str) -> usize {
    calls.iter().filter(|call| syncs(call, start)).count()
}

/// Where large unfinished output of a checkpoint is.
const UNFINISHED: &str = "state/unfinished/";

/// True for a checkpoint: a write into the journal of the state's database. The files of the state directory
/// are made and closed by `fsync`.
fn is_checkpoint(call: &str) -> bool {
    call.starts_with("fdatasync state/") && call.ends_with(".jnl")
}

#[test]
fn a_checkpoint_is_on_the_disk() {
    let Some(calls) = calls(&program(&lines_to("discard: {}"))) else { return };
    assert!(calls.iter().filter(|call| is_checkpoint(call)).count() >= 2, "{calls:?}");
}

#[test]
fn a_file_is_on_the_disk_before_it_has_its_name_unless_fsync_is_never() {
    for (fsync, is_synced) in [("", true), (", fsync: finish", true), (", fsync: never", false)] {
        let sink = format!("file: {{ path: out/all.txt{fsync} }}");
        let Some(calls) = calls(&program(&lines_to(&sink))) else { return };
        let output = calls.iter().filter(|call| **call == "rename" || syncs(call, "out"));
        let expected = ["fsync out/all.txt.part", "rename", "fsync out"];
        let expected = if is_synced { &expected[..] } else { &expected[1..2] };
        assert_eq!(output.collect::<Vec<_>>(), expected, "{sink}");
        // A checkpoint says afterwards that it is complete.
        let last = calls.iter().rposition(|call| is_checkpoint(call)).unwrap();
        assert!(
            calls[last..].iter().all(|call| call != "rename" && !syncs(call, "out")),
            "{sink}: {calls:?}"
        );
    }
}

#[test]
fn the_data_of_each_checkpoint_is_on_the_disk_before_it_with_fsync_at_each_flush() {
    for (sink, path) in [
        ("file: { path: out/all.txt, fsync: flush }", "out/all.txt"),
        ("spool: { path: out, fsync: true }", "out/"),
    ] {
        let patience = Patience::begin();
        loop {
            let Some(calls) = calls(&program(&lines_to(sink))) else { return };
            // Data is synced between any two checkpoints, except that the last one may only note the end.
            let of_interest = calls.iter().filter(|call| is_checkpoint(call) || syncs(call, path));
            let mut order: Vec<bool> = of_interest.map(|call| is_checkpoint(call)).collect();
            order.pop();
            assert!(!order[0] && order.windows(2).all(|pair| !(pair[0] && pair[1])), "{sink}: {calls:?}");
            if order.contains(&true) {
                break;
            }
            // On a busy machine, the run may end before its second checkpoint.
            patience.check(|| format!("{sink}: {calls:?}"));
        }
    }
    let Some(calls) = calls(&program(&lines_to("spool: { path: out }"))) else { return };
    assert_eq!(count(&calls, "out"), 0, "{calls:?}");
}

#[test]
fn files_of_a_folder_are_on_the_disk_if_fsync_says_so_and_objects_always() {
    for (sink, is_synced) in [
        ("directory: { path: out }", false),
        ("directory: { path: out, fsync: true }", true),
        ("objects: { url: out/ }", true),
    ] {
        let program = program(&config("files: { path: in }", sink));
        program.write("in/a.txt", "one\n").unwrap();
        let Some(calls) = calls(&program) else { return };
        // The content, which may have no name yet, and the folder.
        assert_eq!(count(&calls, "out/") > 0, is_synced, "{sink}: {calls:?}");
        assert_eq!(calls.iter().any(|call| call == "fsync out"), is_synced, "{sink}: {calls:?}");
    }
    let Some(calls) = calls(&program(&lines_to("objects: { url: out/all.txt }"))) else { return };
    let output = calls.iter().filter(|call| *call == "rename" || is_checkpoint(call) || syncs(call, "out"));
    let output =
        output.map(|call| if is_checkpoint(call) { "checkpoint" } else { call.split('.').next().unwrap() });
    let mut output: Vec<&str> = output.skip_while(|call| *call == "checkpoint").collect();
    output.dedup();
    // A checkpoint covers the object before it is visible.
    let expected = ["fsync out/", "checkpoint", "fsync out/", "rename", "fsync out"];
    assert_eq!(output.get(..expected.len()), Some(&expected[..]), "{calls:?}");
}

#[test]
fn large_unfinished_output_is_on_the_disk_before_the_checkpoint_that_has_it_and_is_synced_once() {
    let text = "x".repeat(999);
    let config = format!(
        "sources: {{ in: {{ generate: {{ lines: [{text}], count: {LINES}, rate: 600 }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out, transforms: [ pack: {{ name: p, max_file_bytes: 1GiB }} ] }} }}\n\
         sinks: {{ out: {{ directory: {{ path: out }} }} }}\n"
    );
    let Some(calls) = calls(&program(&config)) else { return };
    let first = calls.iter().position(|call| syncs(call, UNFINISHED)).unwrap();
    let listed = calls.iter().position(|call| call == "fsync state/unfinished").unwrap();
    assert!(calls[listed..first].iter().any(|call| call == "fsync state"), "{calls:?}");
    let of_interest = calls.iter().filter(|call| is_checkpoint(call) || syncs(call, UNFINISHED));
    let order: Vec<bool> = of_interest.map(|call| is_checkpoint(call)).collect();
    assert!(order.windows(2).all(|pair| pair[0] || pair[1]), "{calls:?}");
    assert_eq!(order.last(), Some(&true), "{calls:?}");
}

/// The run that created the file may have ended before its directory was synced.
#[test]
fn the_name_of_a_file_that_a_killed_run_left_is_on_the_disk_before_a_checkpoint_has_it() {
    // One message is more than the state keeps without a file.
    let text = "x".repeat(100_000);
    let program = program(&format!(
        "sources: {{ in: {{ generate: {{ lines: [{text}], count: 30, rate: 20 }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out, transforms: [ pack: {{ name: p, max_file_bytes: 1GiB }} ] }} }}\n\
         sinks: {{ out: {{ directory: {{ path: out }} }} }}\n"
    ));
    let killed = Launch::of("pipeline.yaml").with_failpoints("checkpoint.before=kill@1");
    let killed = program.start(&killed).unwrap().wait().unwrap();
    assert_eq!(killed.signal, Some(9), "{}", killed.log);
    assert_eq!(std::fs::read_dir(program.path(UNFINISHED)).unwrap().count(), 1);
    let Some(calls) = calls(&program) else { return };
    let first = calls.iter().position(|call| syncs(call, UNFINISHED)).unwrap();
    for folder in ["fsync state/unfinished", "fsync state"] {
        assert!(calls[..first].iter().any(|call| call == folder), "{folder}: {calls:?}");
    }
}

/// The end of the output, which a checkpoint covers and no `fsync` has put on the disk, is lost.
#[test]
fn a_file_that_lost_its_end_is_told_of_and_the_rest_is_written() {
    let program = program(&lines_to("file: { path: out.txt }"));
    let killed = Launch::of("pipeline.yaml").with_failpoints("checkpoint.after=kill@2");
    assert_eq!(program.start(&killed).unwrap().wait().unwrap().signal, Some(9));
    let file = std::fs::OpenOptions::new().write(true).open(program.path("out.txt.part")).unwrap();
    file.set_len("line 0\n".len() as u64).unwrap();
    let ended = program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap();
    assert!(ended.is_done(), "{}", ended.log);
    let told = "out.txt.part` has 7 bytes, but ";
    assert!(
        ended.log.contains(told) && ended.log.contains(" were written to it by a former run"),
        "{}",
        ended.log
    );
    let text = std::fs::read_to_string(program.path("out.txt")).unwrap();
    let numbers: Vec<usize> = text.lines().map(|line| line[5..].parse().unwrap()).collect();
    let rest = numbers[1];
    assert!(rest > 1, "the checkpoint covers more than what was left: {numbers:?}");
    assert_eq!(numbers[1..], (rest..LINES).collect::<Vec<_>>());
}
