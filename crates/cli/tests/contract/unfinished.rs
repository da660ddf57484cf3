//! Large unfinished output of a checkpoint, which is in files beside the database of the state directory.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_testkit::program::{Ended, Launch, Program};
use thalweg_testkit::read;

use crate::PROGRAM;

const LINES: usize = 3000;

/// Output that is not finished before the end of the run: transforms and a sink.
const OUTPUTS: [(&str, &str); 2] = [
    ("{ pack: { name: p, max_file_bytes: 1GiB } }", "directory: { path: out }"),
    ("", "objects: { url: out/all.txt, part_size: 8MiB }"),
];

fn line() -> String {
    "x".repeat(999)
}

/// Returns a program whose run takes a second, so that there are some checkpoints in it on a busy machine
/// too.
fn program(transforms: &str, sink: &str) -> Program {
    let program = Program::new(Path::new(PROGRAM)).unwrap();
    let config = format!(
        "sources: {{ in: {{ generate: {{ lines: [{}], count: {LINES}, rate: 3000 }} }} }}\n\
         pipelines: {{ main: {{ from: in, to: out, transforms: [{transforms}] }} }}\n\
         sinks: {{ out: {{ {sink} }} }}\n",
        line()
    );
    program.write("pipeline.yaml", config).unwrap();
    program
}

/// Returns a program whose first run was killed after a checkpoint.
fn killed(transforms: &str, sink: &str) -> Program {
    let program = program(transforms, sink);
    let killed = Launch::of("pipeline.yaml").with_failpoints("checkpoint.after=kill@4");
    let killed = program.start(&killed).unwrap().wait().unwrap();
    assert_eq!(killed.signal, Some(9), "{sink}: {}", killed.log);
    program
}

fn run(program: &Program) -> Ended {
    program.start(&Launch::of("pipeline.yaml")).unwrap().wait().unwrap()
}

/// The files of unfinished output.
fn files(program: &Program) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(program.path("state/unfinished")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn check_output(program: &Program, sink: &str) {
    let found = read::contents(&program.path("out"), false).unwrap().concat();
    assert!(found == (line() + "\n").repeat(LINES).as_bytes(), "{sink}: {} bytes", found.len());
}

#[test]
fn large_unfinished_output_is_continued_and_leaves_no_file() {
    for (transforms, sink) in OUTPUTS {
        let program = killed(transforms, sink);
        let kept = files(&program);
        assert_eq!(kept.len(), 1, "{sink}: {kept:?}");
        // A killed run may have added bytes after its last checkpoint, some of which the disk does not have.
        let mut bytes = fs::read(&kept[0]).unwrap();
        assert!(!bytes.is_empty(), "{sink}");
        bytes.extend_from_slice(&[0; 70_000]);
        fs::write(&kept[0], bytes).unwrap();
        let ended = run(&program);
        assert!(ended.is_done(), "{sink}: {}", ended.log);
        check_output(&program, sink);
        assert!(files(&program).is_empty(), "{sink}: {:?}", files(&program));
    }
}

#[test]
fn damaged_unfinished_output_is_refused_and_continued_once_it_is_restored() {
    for (transforms, sink) in OUTPUTS {
        let program = killed(transforms, sink);
        let kept = files(&program).remove(0);
        let whole = fs::read(&kept).unwrap();
        let mut changed = whole.clone();
        changed[0] ^= 1;
        for (damaged, what) in
            [(Some(&changed[..]), "was changed"), (Some(&changed[..0]), "is shorter"), (None, "is missing")]
        {
            match damaged {
                Some(bytes) => fs::write(&kept, bytes).unwrap(),
                None => fs::remove_file(&kept).unwrap(),
            }
            let refused = run(&program);
            assert!(!refused.is_done() && refused.signal.is_none(), "{sink}: {}", refused.how());
            let name = kept.file_name().unwrap().to_str().unwrap();
            let told = format!("{name}` {what}");
            assert!(refused.log.contains("is damaged: `"), "{sink}, {what}: {}", refused.log);
            assert!(refused.log.contains(&told), "{sink}, {what}: {}", refused.log);
        }
        fs::write(&kept, whole).unwrap();
        let ended = run(&program);
        assert!(ended.is_done(), "{sink}: {}", ended.log);
        check_output(&program, sink);
    }
}

/// A file that the last saved checkpoint needs may be finished before one that cannot be saved.
#[test]
fn a_checkpoint_that_cannot_be_saved_takes_nothing_from_the_one_before() {
    let sink = "directory: { path: out }";
    for time in [3, 4, 5] {
        let program = program("{ pack: { name: 'p-{number:5}', max_count: 200 } }", sink);
        let full = Launch::of("pipeline.yaml").with_failpoints(format!("checkpoint.before=full@{time}-"));
        let failed = program.start(&full).unwrap().wait().unwrap();
        assert_eq!(failed.code, Some(3), "{time}: {}", failed.log);
        let ended = run(&program);
        assert!(ended.is_done(), "{time}: {}", ended.log);
        check_output(&program, sink);
        assert!(files(&program).is_empty(), "{time}: {:?}", files(&program));
    }
}
