//! Tables, which the transform `join` reads: any file is a table or an error, and each message leaves once.

use std::fs;

use tempfile::TempDir;
use thalweg_engine::testing::{batch_with, context, options};
use thalweg_engine::{Context, Outputs, TransformConfig};
use thalweg_record::{Ack, Budget, Outcome};
use thalweg_transforms::join::Join;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "join",
    components: &["join"],
    longest: 8 << 10,
    words: &["a,b,c\n", "10.0.0.0/8", "::/0", "{\"a\":", "\"b\":1.5", ",null", "\n1,2,3", "\"\"", "\u{feff}"],
    run,
};

/// Options that fit columns called `a`, `b` and `c`.
const OPTIONS: [&str; 6] = [
    "on: { payload: a }, format: csv, duplicates: last",
    "on: { payload: a }, format: csv, types: { b: int, c: timestamp }, on_missing: drop",
    "on: { payload: { in: a } }, format: csv, duplicates: first, on_found: drop",
    "on: { payload: { from: a, to: b } }, format: csv, types: { a: float, b: int }, duplicates: last",
    "on: { payload: a }, format: jsonl, duplicates: first, on_missing: error",
    "on: { payload: { from: a, to: b } }, format: jsonl, columns: c, duplicates: last",
];

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let options = OPTIONS[input.choice(OPTIONS.len())];
    let table = input.0;
    FOLDER.with(|folder| {
        let path = folder.path().join("table");
        fs::write(&path, table).expect("it is written");
        let yaml = format!("{{ table: '{}', {options} }}", path.display());
        bounded((24 << 20) + 600 * table.len(), || look_up(&yaml));
    });
}

fn look_up(yaml: &str) {
    // A compressed table may be far larger than its file.
    let context = Context { memory: Budget::new(16 << 20).share(), ..context() };
    let Ok(mut transform) = options::<Join>(yaml).build(&context) else { return };
    let mut out = Outputs::new("test".into());
    let messages: [&[u8]; 5] = [b"1", b"", b"10.1.2.3", b"a", b"\xff"];
    let (sender, receiver) = std::sync::mpsc::channel();
    let ack = Ack::new("test".into(), move |settlement| _ = sender.send(settlement));
    transform.apply(batch_with(messages, ack), &mut out).expect("a transform does not fail as a whole");
    let mut rows = 0;
    for (_, batch) in out.take() {
        rows += batch.rows();
        batch.settle(Outcome::Delivered);
    }
    assert!(rows <= messages.len(), "messages that left");
    assert!(receiver.try_recv().is_ok(), "the batch is settled");
}
